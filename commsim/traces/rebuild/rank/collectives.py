"""
The communication of one rank, kernel first: each NCCL kernel with what is known of its call.

What a call was given is taken, in this order, from the kernel's own arguments (torch 2.2 and
later), the record_param_comms that encloses its launch, the same node of the Execution Trace,
the dims of the c10d op, the nccl:* annotation, and the kernel's name. What none of them says
stays unknown: "" or -1.
"""

from __future__ import annotations

import re
from bisect import bisect_right, insort

import numpy as np
from msgspec.structs import replace

from commsim.ops import ROOTED, op_of
from commsim.traces.formats import (
    CommNode,
    Event,
    EventKind,
    ExecutionTrace,
    RankRecord,
    in_bytes,
    splits_in_bytes,
)
from commsim.traces.rebuild.rank.activity import Activity, GpuOp
from commsim.traces.rebuild.rank.call_args import inside, with_args
from commsim.traces.rebuild.rank.calls import (
    CollectiveCall,
    RankCollectives,
    StreamWait,
    ThreadCall,
)
from commsim.traces.rebuild.rank.communication_kernels import KernelFamily
from commsim.traces.rebuild.rank.gloo_calls import gloo_call, with_groups
from commsim.traces.rebuild.rank.message_kernels import BareCalls, with_messages

__all__ = ["collectives_of"]

_COMMS = "record_param_comms"
_KERNEL = re.compile(r"(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|AlltoAll)")


def collectives_of(
    activity: Activity,
    trace: ExecutionTrace | None,
    dump: RankRecord | None = None,
    *,
    gaps_are_work: bool = False,
) -> RankCollectives:
    """Collect the communication of a rank.

    `trace` is the Execution Trace and `dump` the flight recorder's dump of the same process;
    `gaps_are_work` takes for work what may be waiting for Gloo.
    """
    nodes, notes = _join(activity, trace)
    found: list[CollectiveCall] = []
    bare = BareCalls(activity)
    for index in np.flatnonzero(activity.gpu.communicates).tolist():
        op = activity.gpu[index]
        if op.is_gloo:
            found.append(gloo_call(activity, index, gaps_are_work=gaps_are_work))
        elif op.is_collective:
            call = _collective(activity, index, op, nodes)
            found.append(_kept(with_messages(activity, call, op, bare)))
        elif op.family is not None:
            found.append(_of_family(activity, index, op, op.family))
    found.sort(key=lambda call: (call.launched, call.start))
    found = with_groups(found, activity, dump, notes)
    by_work = _by_work(activity, found, nodes)
    waits = [
        StreamWait(call, by_work.get(node.work, -2) if (node := nodes.get(call)) else -1)
        for call in _comms(activity)
        if _is_wait(activity, call, nodes)
    ]
    known = tuple(wait for wait in waits if wait.call > -2)
    return RankCollectives(tuple(found), known, tuple(notes), activity.file.cut)


def _by_work(
    activity: Activity, calls: list[CollectiveCall], nodes: dict[ThreadCall, CommNode]
) -> dict[tuple[str, int], int]:
    """Return which call each work of the Execution Trace is.

    What was coalesced launched nothing itself: its kernel is the next that its thread launched
    outside of such calls. Others launched there are not torch.distributed's.
    """
    before: dict[tuple[str, str], list[int]] = {}
    for made, node in nodes.items():
        if not node.is_wait:
            insort(before.setdefault(made.thread, []), made.index)
    found: dict[tuple[str, int], int] = {}
    for position, call in enumerate(calls):
        op = activity.gpu[call.kernel]
        if (place := _comms_call(activity, op)) in nodes:
            found[nodes[place].work] = position
        elif place is None and op.launch is not None:
            known = before.get(op.launch.thread, [])
            if at := bisect_right(known, op.launch.index):
                node = nodes[ThreadCall(op.launch.thread, known[at - 1])]
                found.setdefault(node.work, position)
    return found


def _kept(call: CollectiveCall) -> CollectiveCall:
    """Mark a call that does not say what it does or with whom: it keeps its recorded time."""
    if not call.op:
        return replace(call, op="unknown", alone=True)
    if any(message.peer < 0 for message in call.messages):
        return replace(call, op="send_recv", messages=(), alone=True)
    return call


def _of_family(activity: Activity, index: int, op: GpuOp, family: KernelFamily) -> CollectiveCall:
    """Return the call of a kernel that communicates outside torch.distributed."""
    event = op.event
    return CollectiveCall(
        activity.rank,
        family.op,
        index,
        event.start,
        event.end,
        activity.event(op.launch).start if op.launch else event.start,
        size=event.args.bytes,
        group=family.library,
        library=family.library,
        stream=event.stream,
        alone=True,
    )


def _comms(activity: Activity) -> list[ThreadCall]:
    """Return every record_param_comms of a rank, in order of time."""
    calls = [
        ThreadCall(thread.name, index)
        for thread in activity.threads.values()
        for index in np.flatnonzero(thread.events.named(_COMMS.__eq__)).tolist()
    ]
    return sorted(calls, key=lambda call: activity.event(call).start)


def _join(
    activity: Activity, trace: ExecutionTrace | None
) -> tuple[dict[ThreadCall, CommNode], list[str]]:
    """Return the Execution Trace's node of each record_param_comms: by id, else by order."""
    calls = _comms(activity)
    if trace is None or not calls:
        return {}, []
    by_id = {node.record_function: node for node in trace.comms if node.record_function >= 0}
    ids = [activity.event(call).args.record_function for call in calls]
    if all(number in by_id for number in ids):
        return {c: by_id[n] for c, n in zip(calls, ids, strict=True)}, []
    if len(calls) == len(trace.comms):
        joined = dict(zip(calls, trace.comms, strict=True))
        if all(_agree(activity.event(call), node) for call, node in joined.items()):
            return joined, []
    return {}, [
        f"rank {activity.rank}: {trace.name} has other communication calls than the trace"
        f" ({len(trace.comms)} against {len(calls)}, or other sizes); it is not used."
    ]


def _agree(event: Event, node: CommNode) -> bool:
    elements = event.args.inputs[0]
    return elements < 0 or node.elements < 0 or elements == node.elements


def _is_wait(activity: Activity, call: ThreadCall, nodes: dict[ThreadCall, CommNode]) -> bool:
    """Say whether a record_param_comms is a wait: named so, or launching nothing."""
    if node := nodes.get(call):
        return node.is_wait
    event, thread = activity.event(call), activity.threads[call.thread]
    if event.args.call:
        return event.args.call == "wait"
    names = [e.name for e in inside(thread.events, call.index)]
    return any("StreamWaitEvent" in name for name in names) and not any(
        name.startswith("nccl:") or "Launch" in name for name in names
    )


def _node_of(activity: Activity, op: GpuOp, nodes: dict[ThreadCall, CommNode]) -> CommNode | None:
    call = _comms_call(activity, op)
    return nodes.get(call) if call else None


def _comms_call(activity: Activity, op: GpuOp) -> ThreadCall | None:
    """Return the record_param_comms that encloses a kernel's launch."""
    if op.launch is None:
        return None
    thread, index = activity.threads[op.launch.thread], op.launch.index
    while (index := thread.parents[index]) >= 0:
        if thread.events[index].name == _COMMS:
            return ThreadCall(thread.name, index)
    return None


def _collective(
    activity: Activity, index: int, op: GpuOp, nodes: dict[ThreadCall, CommNode]
) -> CollectiveCall:
    around = list(activity.enclosing(op.launch)) if op.launch else []
    launched = activity.event(op.launch).start if op.launch else op.event.start
    call = CollectiveCall(
        rank=activity.rank,
        op=_annotated(around) or _named(op.event.name),
        kernel=index,
        start=op.event.start,
        end=op.event.end,
        launched=launched,
        stream=op.event.stream,
    )
    for event in reversed(around):
        if event.name.startswith("c10d::") or event.name == _COMMS:
            call = _with_dims(call, event)
    if node := _node_of(activity, op, nodes):
        call = _with_node(call, node)
    for source in [*(e for e in around if e.name == _COMMS), op.event]:
        if source.args.call:
            call = with_args(call, source.args, activity.file.groups)
    return call


def _annotated(around: list[Event]) -> str:
    """Return the op that an nccl:* annotation names."""
    for event in around:
        if event.kind == EventKind.ANNOTATION and event.name.startswith("nccl:"):
            return op_of(event.name)
    return ""


def _named(kernel: str) -> str:
    """Return the op in a kernel's name; SendRecv may be several, so it is none."""
    found = _KERNEL.search(kernel)
    return op_of(found[1]) if found else ""


def _with_dims(call: CollectiveCall, event: Event) -> CollectiveCall:
    """Take the size from the shapes of the call's inputs (record_shapes=True)."""
    elements, dtype, itemsize = event.args.inputs[0], event.args.dtype, event.args.itemsize
    if elements < 0 or itemsize < 0 or event.name != _COMMS:
        return call
    if call.op in ("all_gather", "reduce_scatter", "gather", "scatter"):
        return replace(call, dtype=dtype)  # the input is not the whole of the buffer
    return replace(call, size=in_bytes(elements, itemsize), dtype=dtype)


def _with_node(call: CollectiveCall, node: CommNode) -> CollectiveCall:
    """Take op, size, type, splits and group from the Execution Trace."""
    op = node.op or call.op
    elements = max(node.elements, node.out_elements) if op != "all_to_all_v" else node.elements
    size = in_bytes(elements, node.itemsize)
    return replace(
        call,
        op=op,
        dtype=node.dtype or call.dtype,
        size=call.size if size < 0 else size,
        splits=splits_in_bytes(node.splits, node.itemsize) if op == "all_to_all_v" else (),
        root=node.peer if op in (*ROOTED, "send", "recv") else -1,
        group=node.group,
        sequence=-1,
    )
