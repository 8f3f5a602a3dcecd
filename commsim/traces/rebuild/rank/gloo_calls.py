"""
What Gloo's work communicates: sizes from the c10d op, the group from the flight recorder.

A Kineto trace does not say the group of a Gloo call. The dump of the flight recorder does; its
entries were created inside the c10d ops, on the same clock. Without a dump, a process that has
one group is taken to use that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from commsim.ops import ROOTED
from commsim.traces.formats import Event, KinetoFile, RankRecord, buffer_size, dtype_of, integer
from commsim.traces.rebuild.rank.activity import Activity
from commsim.traces.rebuild.rank.call_args import first
from commsim.traces.rebuild.rank.calls import CollectiveCall, KernelMessage
from commsim.traces.rebuild.rank.gloo_work import gloo_op, peer_and_tag
from commsim.units import PS_PER_NS

__all__ = ["gloo_call", "with_groups"]

_SLACK_NS = 20_000


def gloo_call(activity: Activity, index: int) -> CollectiveCall:
    """Return what a piece of Gloo's work communicates, as far as the c10d op says it."""
    work = activity.gpu[index]
    assert work.launch is not None
    issued, op = activity.event(work.launch), gloo_op(work.event)
    dtype, itemsize = dtype_of(first(work.event.args.types) or first(issued.args.types))
    sent, received = (
        count * itemsize if min(count, itemsize) >= 0 else -1 for count in _sides(issued, op)
    )
    call = CollectiveCall(
        activity.rank,
        op,
        index,
        work.event.start,
        work.event.end,
        issued.start,
        dtype=dtype,
        library="gloo",
        size=buffer_size(op, sent, received, 0),
        root=_root(issued) if op in ROOTED else -1,
        members=_members(op, sent, received),
    )
    if op not in ("send", "recv"):
        return call
    peer, tag = peer_and_tag(issued)
    message = KernelMessage(op, peer, max(sent, received), dtype, tag)
    return replace(call, op="messages", messages=(message,))


def _members(op: str, sent: int, received: int) -> int:
    """Return the size of the group where a gathered or scattered buffer holds a part of each."""
    part, whole = (sent, received) if op in ("all_gather", "gather") else (received, sent)
    named = op in ("all_gather", "gather", "reduce_scatter", "scatter")
    return whole // part if named and 0 < part < whole else -1


def _sides(event: Event, op: str) -> tuple[int, int]:
    """Return (elements in, elements out); the `_base_` ops and gathers name the output first."""
    dims = event.args.dims if isinstance(event.args.dims, list) else []
    one, other = (_elements(dims[at]) if at < len(dims) else -1 for at in (0, 1))
    if "base" in event.name or op in ("all_gather", "reduce_scatter", "gather", "scatter"):
        return (one, one) if other < 0 else (other, one)
    return one, one


def _elements(shape: Any) -> int:
    """Return the elements of a shape, or of a list of shapes; -1 where there is none."""
    if not isinstance(shape, list) or not shape:
        return -1
    if all(isinstance(inner, list) for inner in shape):
        counts = [_elements(inner) for inner in shape]
        return sum(counts) if min(counts) >= 0 else -1
    count = 1
    for extent in shape:
        count *= integer(extent, -1)
        if count < 0:
            return -1
    return count


def _root(event: Event) -> int:
    """Return the root, a rank in the group: the first number among a rooted op's inputs."""
    values = event.args.concrete if isinstance(event.args.concrete, list) else []
    return next((int(v) for v in values if isinstance(v, str) and v.isdigit() and len(v) < 8), -1)


def with_groups(
    calls: Sequence[CollectiveCall], file: KinetoFile, dump: RankRecord | None, notes: list[str]
) -> list[CollectiveCall]:
    """Return the calls, those of Gloo with their groups; messages name global ranks then."""
    if not any(call.library == "gloo" for call in calls):
        return list(calls)
    only = next(iter(file.groups.items()), ("", ())) if len(file.groups) == 1 else ("", ())
    labels = _labels(calls, file, dump)
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
    calls: Sequence[CollectiveCall], file: KinetoFile, dump: RankRecord | None
) -> list[str]:
    """Return the name of each call's group, "" where no entry of the dump was made inside it."""
    entries = sorted(
        (entry.time, entry.group.split(" ")[0])
        for entry in (dump.calls if dump else ())
        if entry.time >= 0
    )
    labels, at = [], 0
    for call in calls:
        begin = file.zero_ns + call.launched // PS_PER_NS - _SLACK_NS
        end = file.zero_ns + call.end // PS_PER_NS + _SLACK_NS
        at = max(at, bisect_left(entries, (begin, "")))
        fits = call.library == "gloo" and not call.messages and at < len(entries)
        if fits and entries[at][0] <= end:
            labels.append(entries[at][1])
            at += 1
        else:
            labels.append("")
    return labels
