"""
The critical path: the chain of spans that sets the step time, walked back by cause.

    rank 0   [ F0 ]→[ send ]
    rank 1           [ recv ]→[ F0 ][ B0 ]→ end of the step

The pieces tile the step without gap or overlap. A span counts from where it began to move: who
waited is not on the path, who was waited for is. Time in which nothing on the path ran (launch
latency, the delay of a dependency, a lane's offset) is a piece of kind "delay".
"""

from __future__ import annotations

from typing import TypeVar
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from commsim.arrays import Bools, Floats, Ints
from commsim.graph import OpKind
from commsim.metrics.bandwidth import MESSAGE, instance_numbers
from commsim.metrics.bottleneck import bottlenecks
from commsim.metrics.breakdown import computes
from commsim.metrics.window import Window, arrivals, measured_window
from commsim.timeline import Cause, Timeline

__all__ = ["DELAY", "CriticalPath", "critical_path"]


Key = TypeVar("Key", str, int)

DELAY = "delay"

_paths: WeakKeyDictionary[Timeline, dict[tuple[int, int, int], CriticalPath]] = WeakKeyDictionary()

_WAITED = (Cause.RENDEZVOUS, Cause.QUEUE)  # causes of the start of a transfer, not of its arrival


class CriticalPath(msgspec.Struct, frozen=True, eq=False):
    """The chain in order of time, as columns: each piece runs from `start` to `end` (ps).

    `kind` is compute, cpu (work of a host thread), copy, delay, or what a collective or message
    counts as (all_reduce, ..., send_recv). `span` is the span that a piece belongs to; for a
    delay, the one that it held up. `link` is the link that held a transfer back, -1 for none, and
    `used` the share of its bandwidth that was in use then; `other` is the highest use of the
    transfer's links of other kinds.
    """

    kind: tuple[str, ...]
    span: Ints
    start: Ints
    end: Ints
    link: Ints
    used: Floats
    other: Floats

    def __len__(self) -> int:
        return len(self.kind)

    def by_kind(self) -> dict[str, int]:
        """Return the time of each kind in ps, longest first."""
        return _summed(self.kind, self.end - self.start)

    def by_link(self) -> dict[int, int]:
        """Return the time that each link held the path back in ps, longest first."""
        named = self.link >= 0
        return _summed(tuple(self.link[named].tolist()), (self.end - self.start)[named])


def critical_path(timeline: Timeline, *, window: Window | None = None) -> CriticalPath:
    """Return the chain that ends last in the measured step; its pieces add up to the step time."""
    window = window or measured_window(timeline)
    known = _paths.setdefault(timeline, {})  # metrics, limits and the viewer ask for the same
    ends = window.first, window.last, window.last_span
    if ends not in known:
        known[ends] = _found(timeline, window)
    return known[ends]


def _found(timeline: Timeline, window: Window) -> CriticalPath:
    pieces = _Walk(timeline, window).back() if window.last_span >= 0 else []
    pieces = [piece for piece in reversed(pieces) if piece[2] > piece[1]]
    table = np.array([piece[:3] for piece in pieces], dtype=np.int64).reshape(-1, 3)
    delay = np.array([piece[3] for piece in pieces], dtype=np.bool_)
    span, start, end = table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()
    link = np.full(len(span), -1, dtype=np.int64)
    used, other = np.zeros(len(span)), np.zeros(len(span))
    moving = np.flatnonzero(timeline.communicates[span] & ~delay)
    instance = instance_numbers(timeline.graph, timeline.op[span[moving]])
    found = bottlenecks(timeline, instance, start[moving], end[moving])
    link[moving], used[moving], other[moving] = found
    return CriticalPath(_kinds(timeline, span, delay), span, start, end, link, used, other)


class _Walk:
    """Walks back from the end of the window; a piece is (span, start, end, is it a delay)."""

    def __init__(self, timeline: Timeline, window: Window) -> None:
        self._timeline, self._window = timeline, window
        self._arrive = arrivals(timeline)
        self._communicates = timeline.communicates
        self._number, self._members, self._first = _members(timeline)

    def back(self) -> list[tuple[int, int, int, bool]]:
        timeline, first = self._timeline, self._window.first
        span, now = self._window.last_span, self._window.last
        pieces: list[tuple[int, int, int, bool]] = []
        seen: set[int] = set()
        while now > first:
            seen.add(span)
            releaser = self._releaser(span, now)
            begin = min(now, max(first, int(timeline.start[releaser])))
            pieces.append((span, begin, now, False))
            cause = int(timeline.cause[releaser])
            if cause < 0 or cause in seen:
                pieces.append((releaser, first, begin, True))
                break
            now = min(begin, max(first, int(timeline.end[cause])))
            pieces.append((releaser, now, begin, True))
            span = cause
        return pieces

    def _releaser(self, span: int, now: int) -> int:
        """Return the member whose coming let the transfer of `span` go on last before `now`.

        Where data reaches the members one by one, a late member holds up those behind it. It
        is `span` itself for work, and if its cause says who released it.
        """
        if not self._communicates[span]:
            return span
        timeline, members = self._timeline, self._of_instance(span)
        start = timeline.start[members]
        came_late = (self._arrive[members] == start) & (start < now)
        began = int(timeline.start[span])
        waited = began > self._arrive[span] and timeline.cause_kind[span] not in _WAITED
        if not waited:
            came_late &= start > began
        if not came_late.any():
            return span
        return int(members[np.argmax(np.where(came_late, start, -1))])

    def _of_instance(self, span: int) -> Ints:
        number = self._number[span]
        return self._members[self._first[number] : self._first[number + 1]]


def _members(timeline: Timeline) -> tuple[Ints, Ints, Ints]:
    """Return (number, spans, first): span s is of instance `number[s]` (-1: it works), instance i
    has the spans `spans[first[i]:first[i + 1]]`."""
    graph = timeline.graph
    spans = np.flatnonzero(timeline.communicates)
    number = instance_numbers(graph, timeline.op[spans])
    order = np.argsort(number, kind="stable")
    count = len(graph.collectives) + len(graph.messages)
    of_span = np.full(len(timeline), -1)
    of_span[spans] = number
    first = np.searchsorted(number[order], np.arange(count + 1))
    return of_span, spans[order], first


def _kinds(timeline: Timeline, span: Ints, delay: Bools) -> tuple[str, ...]:
    graph, ops = timeline.graph, timeline.op[span]
    kind = graph.kind[ops]
    named = np.full(len(span), MESSAGE, dtype=object)
    named[kind == OpKind.COPY] = "copy"
    named[kind == OpKind.COMPUTE] = np.where(computes(timeline)[span], "compute", "cpu")[
        kind == OpKind.COMPUTE
    ]
    collective = np.flatnonzero(kind == OpKind.COLLECTIVE)
    items = graph.item[ops[collective]].tolist()
    named[collective] = [graph.collectives.kind[item] for item in items]
    named[delay] = DELAY
    return tuple(named.tolist())


def _summed(keys: tuple[Key, ...], times: Ints) -> dict[Key, int]:
    total: dict[Key, int] = {}
    for key, time in zip(keys, times.tolist(), strict=True):
        total[key] = total.get(key, 0) + time
    return dict(sorted(total.items(), key=lambda item: -item[1]))
