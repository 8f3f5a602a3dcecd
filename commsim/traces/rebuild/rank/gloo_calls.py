"""
Calls of Gloo: sizes from the c10d op, the group from the flight recorder.

Without a dump, a process that has one group is taken to use that.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from commsim.ops import ROOTED
from commsim.traces.formats import Event, RankRecord, buffer_size, in_bytes
from commsim.traces.rebuild.rank.activity import Activity
from commsim.traces.rebuild.rank.calls import CollectiveCall, KernelMessage
from commsim.traces.rebuild.rank.gloo_groups import gloo_groups
from commsim.traces.rebuild.rank.gloo_waits import found_done
from commsim.traces.rebuild.rank.gloo_work import gloo_op, peer_and_tag

__all__ = ["gloo_call", "with_groups"]

_MAX_ROOT = 10_000_000  # larger numbers are timeouts and handles


def gloo_call(activity: Activity, index: int, *, gaps_are_work: bool) -> CollectiveCall:
    """Return what a piece of Gloo's work communicates, as far as the c10d op says it."""
    work = activity.gpu[index]
    assert work.launch is not None
    issued, op = activity.event(work.launch), gloo_op(work.event)
    typed = work.event.args if work.event.args.dtype else issued.args
    sent, received = (in_bytes(count, typed.itemsize) for count in _sides(issued, op))
    call = CollectiveCall(
        activity.rank,
        op,
        index,
        work.event.start,
        work.event.end,
        issued.start,
        dtype=typed.dtype,
        library="gloo",
        size=buffer_size(op, sent, received, 0),
        root=_root(issued) if op in ROOTED else -1,
        members=_members(op, sent, received),
    )
    if op not in ("send", "recv"):
        return call
    peer, tag = peer_and_tag(issued)
    size, done = max(sent, received), found_done(activity, index, gaps_are_work=gaps_are_work)
    message = KernelMessage(op, peer, size, typed.dtype, tag, found_done=done)
    return replace(call, op="messages", messages=(message,))


def _members(op: str, sent: int, received: int) -> int:
    """Return the size of the group if a gathered or scattered buffer holds a part of each."""
    part, whole = (sent, received) if op in ("all_gather", "gather") else (received, sent)
    named = op in ("all_gather", "gather", "reduce_scatter", "scatter")
    return whole // part if named and 0 < part < whole else -1


def _sides(event: Event, op: str) -> tuple[int, int]:
    """Return (elements in, elements out); the `_base_` ops and gathers name the output first."""
    one, other = event.args.inputs
    if "base" in event.name or op in ("all_gather", "reduce_scatter", "gather", "scatter"):
        return (one, one) if other < 0 else (other, one)
    return one, one


def _root(event: Event) -> int:
    """Return the root, a rank in the group: the first number among a rooted op's inputs."""
    return next((number for number in event.args.numbers if 0 <= number < _MAX_ROOT), -1)


def with_groups(
    calls: Sequence[CollectiveCall],
    activity: Activity,
    dump: RankRecord | None,
    notes: list[str],
) -> list[CollectiveCall]:
    """Return the calls, those of Gloo with their groups; messages name global ranks then."""
    if not any(call.library == "gloo" for call in calls):
        return list(calls)
    file = activity.file
    only = next(iter(file.groups.items()), ("", ())) if len(file.groups) == 1 else ("", ())
    labels = _labels(calls, activity, dump)
    found: list[CollectiveCall] = []
    unknown = 0
    for call, label in zip(calls, labels, strict=True):
        name, ranks = (label, file.groups.get(label, ())) if label else only
        if call.library == "gloo":
            found.append(_placed(call, name, ranks))
            unknown += not ranks and not call.messages
        else:
            found.append(call)
    if unknown and len(file.groups) > 1:
        notes.append(
            f"calls of Gloo do not say which of {len(file.groups)} groups they are of: the flight"
            " recorder's dumps (TORCH_FR_BUFFER_SIZE) of the same run would."
        )
    return found


def _placed(call: CollectiveCall, name: str, ranks: tuple[int, ...]) -> CollectiveCall:
    messages = tuple(
        replace(m, peer=ranks[m.peer] if 0 <= m.peer < len(ranks) else m.peer, group=name)
        for m in call.messages
    )
    return replace(call, group=name, ranks=ranks, messages=messages)


def _labels(
    calls: Sequence[CollectiveCall], activity: Activity, dump: RankRecord | None
) -> list[str]:
    """Return the name of each call's group, "" if that is unknown or there is none."""
    launches = [
        activity.gpu.launch(call.kernel) if call.library == "gloo" else None for call in calls
    ]
    issued = {at: activity.event(launch) for at, launch in enumerate(launches) if launch}
    groups = gloo_groups(list(issued.values()), activity.file.zero_ns, dump)
    known = dict(zip(issued, groups, strict=True))
    return ["" if call.messages else known.get(at, "") for at, call in enumerate(calls)]
