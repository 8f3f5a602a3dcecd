"""
Work of Gloo alongside the CPU threads: it runs collectives on threads of its own.

A c10d op issues a call on the user's thread; a `gloo:*` annotation says when it ran: for
collectives on one of Gloo's threads (each runs one at a time), for sends and receives on the
caller's, up to the end of Work.wait(). The k-th annotation belongs to the k-th op of its kind and
group (`gloo_runs`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from commsim.ops import op_of
from commsim.traces.formats import Event, EventKind, Events
from commsim.traces.rebuild.rank.calls import Thread, ThreadCall
from commsim.traces.rebuild.rank.gloo_runs import IssuedOp, matched_runs

__all__ = ["FIRST_MESSAGES", "GLOO", "GroupsOf", "gloo_op", "gloo_work", "peer_and_tag"]

GroupsOf = Callable[[Sequence[Event]], Sequence[str]]
"""Returns the groups of c10d ops in order of start, "" for unknown ones."""

GLOO = "gloo:"
_MESSAGES = ("send", "recv")
_RUNS_AS = {"reduce_scatter": "all_reduce", "all_to_all_v": "all_to_all"}
"""What Gloo runs an op as, where it has none of its own."""
FIRST_MESSAGES = -1000  # below the streams of Gloo's threads


def gloo_work(
    events: Events, threads: Mapping[tuple[str, str], Thread], groups_of: GroupsOf
) -> Iterator[tuple[Event, ThreadCall]]:
    """Yield what Gloo did as an event on a stream of its own, with the c10d op that issued it."""
    marks = events.named(lambda name: name.startswith(GLOO))
    runs = list(events.take(marks & (events.kind == EventKind.ANNOTATION)))
    if not runs:
        return
    calls = _issued(threads)
    groups = groups_of([event for _, event in calls])
    streams: dict[tuple[str, str], int] = {}
    sent_until: list[int] = []
    for (call, issued), found in zip(calls, _found(calls, groups, runs), strict=True):
        if found is None:
            continue
        start, op = found.start, op_of(issued.name)
        if op in _MESSAGES:
            # ProcessGroupGloo::send posts the buffer before it begins the annotation of its work.
            start = issued.start
            stream = FIRST_MESSAGES - _free_lane(sent_until, start, found.end)
        else:
            stream = streams.setdefault(found.thread, -2 - len(streams))
        yield (
            Event(
                EventKind.KERNEL, GLOO + op, found.thread, start, found.end, -1, stream, found.args
            ),
            call,
        )


def _found(
    calls: Sequence[tuple[ThreadCall, Event]], groups: Sequence[str], runs: Sequence[Event]
) -> list[Event | None]:
    """Return the run of each call, None without one."""
    ran: dict[str, list[Event]] = defaultdict(list)
    for run in runs:
        ran[op_of(run.name)].append(run)
    issued = [
        IssuedOp(event, _kind_of_run(op_of(event.name), ran), group)
        for (_, event), group in zip(calls, groups, strict=True)
    ]
    return matched_runs(issued, ran)


def _kind_of_run(op: str, kinds: Collection[str]) -> str:
    """Return what a c10d op's runs are called, of the kinds that there are."""
    return next((kind for kind in (op, _RUNS_AS.get(op, op)) if kind in kinds), op)


def _free_lane(until: list[int], start: int, end: int) -> int:
    """Return the first lane that is free when a message begins: messages do not queue up."""
    for lane, busy in enumerate(until):
        if busy <= start:
            until[lane] = end
            return lane
    until.append(end)
    return len(until) - 1


def gloo_op(event: Event) -> str:
    """Return the op that a piece of Gloo's work does."""
    return event.name.removeprefix(GLOO)


def peer_and_tag(event: Event) -> tuple[int, int]:
    """Return the peer (a rank in the group) and the tag of a c10d send or recv; -1 and 0 unknown.

    They are the last two of its concrete inputs, which record_shapes=True writes; a receive from
    any source has the tag alone.
    """
    numbers = event.args.numbers
    any_source = "any_source" in event.name
    if len(numbers) < (3 if any_source else 4):
        return -1, 0
    return -1 if any_source else numbers[-2], max(0, numbers[-1])


def _issued(threads: Mapping[tuple[str, str], Thread]) -> list[tuple[ThreadCall, Event]]:
    """Return the c10d ops that communicate, in order of time."""
    found = [
        (ThreadCall(thread.name, index), thread.events[index])
        for thread in threads.values()
        for index in np.flatnonzero(thread.events.named(_communicates)).tolist()
    ]
    return sorted(found, key=lambda item: item[1].start)


def _communicates(name: str) -> bool:
    return name.startswith("c10d::") and bool(op_of(name))
