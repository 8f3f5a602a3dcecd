"""
The collectives of one rank, kernel first: each NCCL kernel with what is known of its call.

What a call was given is taken, in this order, from the kernel's own arguments (torch 2.2 and
later), the record_param_comms that encloses its launch, the same node of the Execution Trace,
the dims of the c10d op, the nccl:* annotation, and the kernel's name. What none of them says
stays unknown: "" or -1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from commsim.traces.activity import Activity, Call, GpuOp
from commsim.traces.execution_trace import CommNode, ExecutionTrace
from commsim.traces.kineto import Args, Event, EventKind, integer

__all__ = ["CollectiveCall", "RankCollectives", "Wait", "collectives_of"]

_COMMS = "record_param_comms"
_OPS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "allgatherintotensor": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallbase": "all_to_all",
    "alltoallv": "all_to_all_v",
    "broadcast": "broadcast",
    "broadcastoop": "broadcast",
    "reduce": "reduce",
    "reduceoop": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "send": "send",
    "recv": "recv",
}
_KERNEL = re.compile(r"(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|AlltoAll)")
_DTYPES = {
    "float": ("float32", 4), "half": ("float16", 2), "bfloat16": ("bfloat16", 2),
    "double": ("float64", 8), "long": ("int64", 8), "int": ("int32", 4), "short": ("int16", 2),
    "byte": ("uint8", 1), "unsigned char": ("uint8", 1), "char": ("int8", 1),
    "signed char": ("int8", 1), "bool": ("bool", 1), "long int": ("int64", 8),
    "c10::half": ("float16", 2), "c10::bfloat16": ("bfloat16", 2),
    "float8_e4m3fn": ("float8_e4m3fn", 1), "float8_e5m2": ("float8_e5m2", 1),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """One rank's part in a collective. `kernel` is its index in the rank's GPU work.

    `size` and `splits` in bytes as in commsim.graph; `root` as a group rank; `ranks` is empty
    and `group` "" where the trace does not say.
    """

    rank: int
    op: str
    kernel: int
    start: int
    end: int
    launched: int
    size: int = -1
    dtype: str = ""
    splits: tuple[int, ...] = ()
    root: int = -1
    group: str = ""
    ranks: tuple[int, ...] = ()
    sequence: int = -1


@dataclass(frozen=True, slots=True)
class Wait:
    """Work.wait(): from here on, the current stream waits for `call` (-1: not known which)."""

    at: Call
    call: int


@dataclass(frozen=True, slots=True)
class RankCollectives:
    """A rank's collectives in the order of issue, and where it waits for them."""

    calls: tuple[CollectiveCall, ...]
    waits: tuple[Wait, ...]
    notes: tuple[str, ...]


def collectives_of(activity: Activity, trace: ExecutionTrace | None) -> RankCollectives:
    """Collect the collectives of a rank; `trace` is the Execution Trace of the same process."""
    nodes, notes = _join(activity, trace)
    found: list[CollectiveCall] = []
    for index, op in enumerate(activity.gpu):
        if op.is_collective:
            found.append(_collective(activity, index, op, nodes))
    found.sort(key=lambda call: (call.launched, call.start))
    by_sequence = {
        node.sequence: position
        for position, call in enumerate(found)
        if (node := _node_of(activity, activity.gpu[call.kernel], nodes))
    }
    waits = [
        Wait(call, by_sequence.get(node.sequence, -2) if (node := nodes.get(call)) else -1)
        for call in _comms(activity)
        if _is_wait(activity, call, nodes)
    ]
    return RankCollectives(tuple(found), tuple(w for w in waits if w.call > -2), tuple(notes))


def _comms(activity: Activity) -> list[Call]:
    """Return every record_param_comms of a rank, in order of time."""
    calls = [
        Call(thread.name, index)
        for thread in activity.threads.values()
        for index, event in enumerate(thread.events)
        if event.name == _COMMS
    ]
    return sorted(calls, key=lambda call: activity.event(call).start)


def _join(
    activity: Activity, trace: ExecutionTrace | None
) -> tuple[dict[Call, CommNode], list[str]]:
    """Return the Execution Trace's node of each record_param_comms: by id, else by order."""
    calls = _comms(activity)
    if trace is None or not calls:
        return {}, []
    by_id = {node.record_function: node for node in trace.comms if node.record_function >= 0}
    ids = [integer(activity.event(call).args.record_function) for call in calls]
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
    elements = _elements(event.args)
    return elements < 0 or node.elements < 0 or elements == node.elements


def _is_wait(activity: Activity, call: Call, nodes: dict[Call, CommNode]) -> bool:
    """Say whether a record_param_comms is a wait: named so, or launching nothing."""
    if node := nodes.get(call):
        return node.is_wait
    event, thread = activity.event(call), activity.threads[call.thread]
    if event.args.collective is not None:
        return str(event.args.collective) == "wait"
    inside = [e.name for e in _inside(thread.events, call.index)]
    return any("StreamWaitEvent" in name for name in inside) and not any(
        name.startswith("nccl:") or "Launch" in name for name in inside
    )


def _inside(events: tuple[Event, ...], index: int) -> Iterator[Event]:
    """Yield the events that event `index` encloses."""
    end = events[index].end
    for event in events[index + 1 :]:
        if event.start > end:
            return
        yield event


def _node_of(activity: Activity, op: GpuOp, nodes: dict[Call, CommNode]) -> CommNode | None:
    call = _comms_call(activity, op)
    return nodes.get(call) if call else None


def _comms_call(activity: Activity, op: GpuOp) -> Call | None:
    """Return the record_param_comms that encloses a kernel's launch."""
    if op.launch is None:
        return None
    thread, index = activity.threads[op.launch.thread], op.launch.index
    while (index := thread.parents[index]) >= 0:
        if thread.events[index].name == _COMMS:
            return Call(thread.name, index)
    return None


def _collective(
    activity: Activity, index: int, op: GpuOp, nodes: dict[Call, CommNode]
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
    )
    for event in reversed(around):
        if event.name.startswith("c10d::") or event.name == _COMMS:
            call = _with_dims(call, event)
    if node := _node_of(activity, op, nodes):
        call = _with_node(call, node)
    for source in [*(e for e in around if e.name == _COMMS), op.event]:
        if source.args.collective is not None:
            call = _with_args(call, source.args, activity.file.groups)
    return call


def _annotated(around: list[Event]) -> str:
    """Return the op that an nccl:* annotation names."""
    for event in around:
        if event.kind == EventKind.ANNOTATION and event.name.startswith("nccl:"):
            return _op(event.name.removeprefix("nccl:"))
    return ""


def _named(kernel: str) -> str:
    """Return the op in a kernel's name; SendRecv may be several, so it is none."""
    found = _KERNEL.search(kernel)
    return _op(found[1]) if found else ""


def _op(name: str) -> str:
    plain = name.lower().replace("_coalesced", "").replace("_", "")
    return _OPS.get(plain, "")


def _even(op: str, uneven: Any) -> str:
    """An all_to_all_v without splits is split evenly: that is what an empty list stands for."""
    return op if uneven or op != "all_to_all_v" else "all_to_all"


def _with_dims(call: CollectiveCall, event: Event) -> CollectiveCall:
    """Take the size from the shapes of the call's inputs (record_shapes=True)."""
    elements = _elements(event.args)
    dtype, itemsize = _dtype(_first(event.args.types))
    if elements < 0 or itemsize < 0 or event.name != _COMMS:
        return call
    if call.op in ("all_gather", "reduce_scatter", "gather", "scatter"):
        return replace(call, dtype=dtype)  # the input is not the whole of the buffer
    return replace(call, size=elements * itemsize, dtype=dtype)


def _elements(args: Args) -> int:
    """Return the elements of the first input, -1 where it is not a tensor of known shape."""
    shape = _first(args.dims)
    if not isinstance(shape, list) or not shape:
        return -1
    count = 1
    for extent in shape:
        count *= integer(extent, -1) if not isinstance(extent, list) else -1
        if count < 0:
            return -1
    return count


def _first(values: Any) -> Any:
    return values[0] if isinstance(values, list) and values else None


def _dtype(name: Any) -> tuple[str, int]:
    return _DTYPES.get(str(name).lower(), ("", -1)) if name else ("", -1)


def _with_node(call: CollectiveCall, node: CommNode) -> CollectiveCall:
    """Take op, size, type, splits and group from the Execution Trace."""
    dtype, size = _dtype(node.dtype)
    itemsize = node.itemsize if node.itemsize > 0 else size
    op = _even(_op(node.name), node.splits) or call.op
    elements = max(node.elements, node.out_elements) if op != "all_to_all_v" else node.elements
    known = elements >= 0 and itemsize > 0
    return replace(
        call,
        op=op,
        dtype=dtype or call.dtype,
        size=elements * itemsize if known else call.size,
        splits=tuple(n * itemsize for n in node.splits) if op == "all_to_all_v" else (),
        root=node.peer if op in ("broadcast", "reduce", "gather", "scatter") else -1,
        group=node.group,
        sequence=-1,
    )


def _with_args(
    call: CollectiveCall, args: Args, groups: dict[str, tuple[int, ...]]
) -> CollectiveCall:
    """Take what torch 2.2 and later write on the kernel itself."""
    dtype, itemsize = _dtype(args.dtype)
    elements = max(integer(args.in_elements), integer(args.out_elements))
    op = _even(_op(str(args.collective)), args.in_splits != "[]") or call.op
    if op == "all_to_all_v":
        elements = integer(args.in_elements)
    group = "" if args.group_name is None else str(args.group_name)
    return replace(
        call,
        op=op,
        size=elements * itemsize if elements >= 0 and itemsize > 0 else call.size,
        dtype=dtype or call.dtype,
        splits=tuple(n * itemsize for n in _listed(args.in_splits)) if op == "all_to_all_v" else (),
        group=group or call.group,
        ranks=groups.get(group) or _listed(args.group_ranks) or call.ranks,
        sequence=integer(args.sequence),
    )


def _listed(text: Any) -> tuple[int, ...]:
    """Return the numbers of "[0, 1]"; nothing for a list that was cut short ("...")."""
    if not isinstance(text, str) or "..." in text:
        return ()
    parts = [part for part in text.strip("[] ").split(",") if part.strip()]
    numbers = tuple(integer(part.strip()) for part in parts)
    return numbers if all(number >= 0 for number in numbers) else ()
