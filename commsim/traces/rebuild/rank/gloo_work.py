"""
Work of Gloo alongside the CPU threads: it runs collectives on threads of its own.

A c10d op issues a call on the user's thread; a `gloo:*` annotation says when it ran: for
collectives on one of Gloo's threads (each runs one at a time), for sends and receives on the
caller's, up to the end of Work.wait(). The k-th annotation belongs to the k-th op of its kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from commsim.ops import op_of
from commsim.traces.formats import Event, EventKind, Events
from commsim.traces.rebuild.rank.calls import Thread, ThreadCall

__all__ = ["FIRST_MESSAGES", "GLOO", "gloo_op", "gloo_work", "peer_and_tag"]

GLOO = "gloo:"
_RUNS_AS = {"reduce_scatter": ("reduce_scatter", "all_reduce"), "all_to_all_v": ("all_to_all",)}
"""What Gloo runs an op as, where it has none of its own."""
FIRST_MESSAGES = -1000  # below the streams of Gloo's threads


def gloo_work(
    events: Events, threads: Mapping[tuple[str, str], Thread]
) -> Iterator[tuple[Event, ThreadCall]]:
    """Yield what Gloo did as an event on a stream of its own, with the c10d op that issued it."""
    ran: dict[str, list[Event]] = {}
    marks = events.named(lambda name: name.startswith(GLOO))
    for event in events.take(marks & (events.kind == EventKind.ANNOTATION)):
        ran.setdefault(op_of(event.name), []).append(event)
    if not ran:
        return
    streams: dict[tuple[str, str], int] = {}
    sent_until: list[int] = []
    for call, issued in _issued(threads):
        op = op_of(issued.name)
        found = _first_after(ran, _RUNS_AS.get(op, (op,)), issued.start)
        if found is None:
            continue
        start = found.start
        if op in ("send", "recv"):
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


def _first_after(ran: dict[str, list[Event]], names: tuple[str, ...], start: int) -> Event | None:
    """Take the first annotation of these names that began after an op did."""
    best: tuple[int, str, int] | None = None
    for name in names:
        for at, event in enumerate(ran.get(name, ())):
            if event.start >= start:
                if best is None or event.start < best[0]:
                    best = (event.start, name, at)
                break
    return ran[best[1]].pop(best[2]) if best else None
