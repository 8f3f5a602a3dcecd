"""
Kernels that send and receive, and kernels of coalesced calls: what they move, and with whom.

Calls that are batched or coalesced launch nothing themselves: they stand before the launch of
the one kernel that does it all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from commsim.ops import op_of
from commsim.traces.formats import Event, EventKind, in_bytes, integer
from commsim.traces.rebuild.rank.activity import Activity, GpuOp
from commsim.traces.rebuild.rank.call_args import inside, with_args
from commsim.traces.rebuild.rank.calls import CollectiveCall, KernelMessage, Thread, ThreadCall

__all__ = ["BareCalls", "with_messages"]

_COMMS = "record_param_comms"
_PEER = re.compile(r"\d+(?:->|<-)(\d+)")
_NO_BUFFER = ("", "wait", "barrier", "init")
_SPEAKS = (_COMMS, "nccl:", "c10d::")


def with_messages(
    activity: Activity, call: CollectiveCall, op: GpuOp, bare: BareCalls
) -> CollectiveCall:
    """Return a call with the sends and receives of its kernel, or the sizes of what it joins."""
    around = list(activity.enclosing(op.launch)) if op.launch else []
    sources = [e for e in around if e.name == _COMMS or _is_message(e)]
    if call.op in ("send", "recv"):
        messages = _merged([_message(activity, event) for event in sources])
        known = [m for m in messages if m.peer >= 0] or messages
        message = known[0] if known else KernelMessage(call.op, -1, call.size, call.dtype)
        if message.peer < 0:
            message = replace(message, peer=_peer(call.op, op.event, call.ranks))
        return replace(call, op="messages", messages=(_completed(message, call),))
    if op.launch is None or (call.op and call.size >= 0):
        return call
    before = bare.before(op.launch)
    messages = _merged([_message(activity, e) for e in before if _is_message(e)])
    if messages:
        return replace(call, op="messages", messages=tuple(messages))
    parts = [with_args(call, e.args, activity.file.groups) for e in before if e.args.call]
    if parts and all(part.op == parts[0].op and part.size >= 0 for part in parts):
        return replace(parts[0], size=sum(part.size for part in parts))
    return call


def _completed(message: KernelMessage, call: CollectiveCall) -> KernelMessage:
    """Take from the Execution Trace (as `root`, a rank in the group) what a message lacks."""
    peer = message.peer
    if peer < 0 <= call.root:
        peer = call.ranks[call.root] if call.root < len(call.ranks) else call.root
    return replace(
        message,
        peer=peer,
        size=message.size if message.size >= 0 else call.size,
        dtype=message.dtype or call.dtype,
    )


def _is_message(event: Event) -> bool:
    if not event.name.startswith(_SPEAKS):
        return False
    return _op(event) in ("send", "recv")


def _op(event: Event) -> str:
    named = event.args.call if event.name == _COMMS else event.name
    return op_of(named.split(" ")[0])


def _message(activity: Activity, event: Event) -> KernelMessage:
    """Return what one record_param_comms, nccl:send 0->1 or c10d::send says."""
    op, args = _op(event), event.args
    elements = args.most_elements if args.most_elements >= 0 else args.inputs[0]
    ranks = activity.file.groups.get(args.group) or args.ranks
    return KernelMessage(
        op,
        _peer(op, event, ranks),
        in_bytes(elements, args.itemsize),
        args.dtype,
        group=args.group,
    )


def _peer(op: str, event: Event, ranks: tuple[int, ...]) -> int:
    """Return the other end as a global rank: of the arguments, or of a name like "send 0->1"."""
    known = event.args.target if op == "send" else event.args.source
    found = _PEER.search(event.name)
    if known >= 0 or found is None:
        return known
    member = integer(found[1])
    return ranks[member] if 0 <= member < len(ranks) else member


def _merged(messages: list[KernelMessage]) -> list[KernelMessage]:
    """Join what an annotation and a record say of the same message, one after the other."""
    merged: list[KernelMessage] = []
    for message in messages:
        last = merged[-1] if merged else None
        same = last is not None and last.op == message.op and _fit(last, message)
        if same and last is not None:
            merged[-1] = replace(
                last,
                peer=max(last.peer, message.peer),
                size=max(last.size, message.size),
                dtype=last.dtype or message.dtype,
                group=last.group or message.group,
            )
        else:
            merged.append(message)
    return merged


def _fit(one: KernelMessage, other: KernelMessage) -> bool:
    """Say whether each of two sources knows what the other does not."""
    return (one.peer < 0 or other.peer < 0) and (one.size < 0 or other.size < 0)


class BareCalls:
    """Communication calls that launched nothing themselves, handed out to the launch after them."""

    def __init__(self, activity: Activity) -> None:
        self._waiting = {
            thread.name: list(_bare_calls(thread)) for thread in activity.threads.values()
        }
        self._activity = activity

    def before(self, launch: ThreadCall) -> list[Event]:
        """Take the calls on the launch's thread that stand before it and are not taken yet."""
        start = self._activity.event(launch).start
        waiting = self._waiting[launch.thread]
        taken = [event for event in waiting if event.start <= start]
        self._waiting[launch.thread] = waiting[len(taken) :]
        return taken


def _bare_calls(thread: Thread) -> Iterator[Event]:
    for index in np.flatnonzero(
        thread.events.named(lambda name: name.startswith(_SPEAKS))
    ).tolist():
        event = thread.events[index]
        if _is_bare(thread, index, event):
            yield event


def _is_bare(thread: Thread, index: int, event: Event) -> bool:
    if event.name != _COMMS and not _is_message(event):
        return False
    if event.name == _COMMS and event.args.call in _NO_BUFFER:
        return False
    return not any(
        inner.kind == EventKind.RUNTIME and "Launch" in inner.name
        for inner in inside(thread.events, index)
    )
