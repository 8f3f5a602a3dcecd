"""
What-if times of a step: the run's own plan, timed again with some durations changed.

Nothing is simulated. Every span keeps its place (its stream, its dependencies, the members it
meets), and every duration stays as it was but for the factors of the `Change`. So a gain accounts
for what would then limit the step instead:

    step(nothing changed)              the step as it was
    step(transfers take no time)       what is left is compute, waiting for compute, the host

A transfer keeps the contention that it had; a library would choose afresh on faster links. Both
are left out: the answer says where to look, a run says what it is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from commsim.arrays import Bools, Floats, Ints, Ints32
from commsim.compiled import can_compile, compiled
from commsim.graph import Phase
from commsim.metrics.meetings import Meetings, meetings
from commsim.metrics.releases import stream_predecessors
from commsim.metrics.retime_spans import KERNEL, UNKNOWN, Altered, SpanPlan, SpanTimes, time_spans
from commsim.metrics.retime_waves import SpanWaves, in_waves
from commsim.metrics.window import Window, arrivals, measured_window, span_of_op
from commsim.timeline import Cause, Timeline

__all__ = ["Change", "Retiming"]

_FEW = 4096  # spans times changes that are timed one by one
_WAVE = 30  # of them take as long as a wave
_AT_ONCE = 2**22  # spans times changes that are timed at once: some ten numbers for each of them
COMPILED_FROM = 2**20  # spans times changes: about as long as numba takes to load


class Change(msgspec.Struct, frozen=True, eq=False):
    """What is asked: `factor` multiplies the duration of each span.

    A span in `detached` waits for no other lane; `delays` multiplies the delays after each span.
    """

    factor: Floats
    detached: Bools | None = None
    delays: Floats | None = None


class Retiming:
    """The order of a timeline's spans, ready to be timed again under a `Change`."""

    def __init__(self, timeline: Timeline, *, window: Window | None = None) -> None:
        self._timeline = timeline
        self._window = window or measured_window(timeline)
        self._step = self._step_of()
        self._plan = _plan(timeline)

    def step(self, change: Change | None = None) -> float:
        """Return the step time in ps under `change`."""
        return self.steps([change or Change(np.ones(len(self._timeline)))])[0]

    def steps(self, changes: Iterable[Change]) -> list[float]:
        """Return the step time in ps under each of `changes`: faster together than one by one.

        No more of them are asked for than are timed at once.
        """
        spans, found, rest = len(self._timeline), list[float](), iter(changes)
        if not spans:
            return [0.0 for _ in rest]
        while asked := [*islice(rest, max(1, _AT_ONCE // spans))]:
            found += self._steps(asked)
        return found

    def _steps(self, changes: Sequence[Change]) -> list[float]:
        work = len(self._timeline) * len(changes)
        fast = work >= COMPILED_FROM and can_compile()
        waves = self._waves if work >= _FEW and not fast else None
        if waves is None or work < _WAVE * waves.count:
            return [self._step(*self._times(one, fast=fast)) for one in changes]
        return [self._step(*one) for one in self._together(waves, changes)]

    def _times(self, change: Change, *, fast: bool = False) -> tuple[Floats, Floats]:
        """Return the new (arrival, end) of every span; `fast` if by compiled code."""
        plan, spans = self._plan, len(self._timeline)
        detached, delays = change.detached, change.delays
        columns: Any = (
            change.factor,
            np.zeros(spans, dtype=np.bool_) if detached is None else detached,
            np.ones(spans) if delays is None else delays,
        )
        altered = Altered(*columns)
        found: Any = (
            np.full(spans, UNKNOWN),
            np.zeros(spans),
            np.full(len(plan.meeting) - 1, UNKNOWN),
        )
        if fast:
            # Plain tuples: what numba keeps would name the classes, and fail once they are others.
            compiled(KERNEL)(tuple(plan), tuple(altered), found)
            return found[0], found[1]
        altered = Altered(*(column.tolist() for column in columns))
        times = SpanTimes(*(column.tolist() for column in found))
        time_spans(self._lists, altered, times)
        return np.array(times.arrive), np.array(times.end)

    @cached_property
    def _lists(self) -> SpanPlan:
        """The plan for the interpreter."""
        plan: Any = self._plan
        return SpanPlan(*(column.tolist() for column in plan))

    @cached_property
    def _waves(self) -> SpanWaves | None:
        """The spans by waves; None if a need ends after what waits for it."""
        plan: Any = self._plan
        met = Meetings(plan.meeting, plan.member, plan.meets)
        return in_waves(plan.order.tolist(), *self._edges[:2], met)

    @cached_property
    def _edges(self) -> tuple[Ints, Ints, Ints]:
        """What each span waits for, the one before it too, as CSR: where it begins, the spans, the
        delays (ps).
        """
        plan: Any = self._plan
        follows = np.flatnonzero(plan.before >= 0)
        waiting = np.repeat(np.arange(len(plan.before)), np.diff(plan.first))
        waiting = np.concatenate((follows, waiting))
        order = np.argsort(waiting, kind="stable")
        first = np.searchsorted(waiting[order], np.arange(len(plan.before) + 1))
        delay = np.concatenate((np.zeros(len(follows), dtype=np.int64), plan.delay))
        return first, np.concatenate((plan.before[follows], plan.needs))[order], delay[order]

    def _together(self, waves: SpanWaves, changes: Sequence[Change]) -> list[tuple[Floats, Floats]]:
        """Return the new (arrival, end) of every span under each of `changes`."""
        timeline, plan, (first, needs, delay) = self._timeline, self._plan, self._edges
        delays = delay[:, None].astype(np.float64)
        alone = None
        if any(one.detached is not None or one.delays is not None for one in changes):
            waiting = np.repeat(np.arange(len(timeline)), np.diff(first))
            apart = timeline.lane[waiting] != timeline.lane[needs]
            delays = np.repeat(delays, len(changes), axis=1)
            alone = np.zeros((len(timeline), len(changes)), dtype=np.bool_)
            for at, one in enumerate(changes):
                if one.delays is not None:
                    delays[:, at] *= one.delays[needs]
                if one.detached is not None:
                    delays[apart & one.detached[waiting], at] = -np.inf
                    alone[:, at] = one.detached
        lasting = np.stack([one.factor for one in changes], axis=1)
        lasting *= (timeline.end - timeline.start)[:, None]
        begin = timeline.graph.lane_offset[timeline.lane].astype(np.float64)
        slack = np.array(plan.slack, dtype=np.float64)
        arrive, end = waves.times(begin, slack, lasting, delays, alone)
        return [(arrive[:, at], end[:, at]) for at in range(len(changes))]

    def _step_of(self) -> Callable[[Floats, Floats], float]:
        """Return how the step is read from new arrivals and ends, as `measured_window` does."""
        graph, timeline = self._timeline.graph, self._timeline
        spans = np.append(span_of_op(timeline), -1)[graph.window]
        lanes = np.flatnonzero(spans.min(axis=1, initial=0) >= 0)
        if len(lanes):
            first, last = spans[lanes].T
            return lambda arrive, end: float((end[last] - arrive[first]).max())
        step = self._window.step
        if step < 0:
            return lambda arrive, end: float(end.max() - arrive.min())
        optimizer = graph.phase[timeline.op] == Phase.OPTIMIZER
        of_step = graph.step[timeline.op]
        now = np.flatnonzero(optimizer & (of_step == step))
        earlier = of_step[optimizer & (of_step < step)].max()
        past = np.flatnonzero(optimizer & (of_step == earlier))
        return lambda _, end: float(end[now].max() - end[past].max())


def _plan(timeline: Timeline) -> SpanPlan:
    """Return the columns of a timeline, of small numbers where they suffice: they may be many."""
    # Whatever a span waited for had ended when it arrived, so the order of ends is an order in
    # which each span comes after what it needs.
    order = np.lexsort((timeline.start, timeline.end)).astype(np.int32)
    arrive = arrivals(timeline)
    met = meetings(timeline, arrive)
    first, need, delay = _needs(timeline)
    columns: Any = {
        "order": order,
        "lane": timeline.lane.astype(np.int32),
        "offset": timeline.graph.lane_offset,
        "before": stream_predecessors(timeline).astype(np.int32),
        "began": timeline.start,
        "ended": timeline.end,
        "slack": _waits_of_its_own(timeline, arrive, met),
        "first": first,
        "needs": need,
        "delay": delay,
        "meets": met.of,
        "meeting": met.first,
        "member": met.member,
    }
    return SpanPlan(**columns)


def _needs(timeline: Timeline) -> tuple[Ints, Ints32, Ints]:
    """Return what spans need beside what is before them on their streams, as CSR: where the needs
    of each begin, the spans that are needed, the delays (ps).
    """
    graph, spans = timeline.graph, len(timeline)
    counts = np.diff(graph.dep_ptr)[timeline.op]
    waiting = np.repeat(np.arange(spans, dtype=np.int32), counts)
    begin = graph.dep_ptr[timeline.op] - np.cumsum(counts) + counts
    entry = np.arange(len(waiting)) + begin[waiting]
    need, delay = span_of_op(timeline)[graph.dep_op[entry]], graph.dep_delay[entry]
    known = need >= 0
    queued = np.flatnonzero((timeline.cause_kind == Cause.QUEUE) & (timeline.cause >= 0))
    waiting = np.concatenate((waiting[known], queued.astype(np.int32)))
    need = np.concatenate((need[known], timeline.cause[queued])).astype(np.int32)
    delay = np.concatenate((delay[known], np.zeros(len(queued), dtype=np.int64)))
    first = np.concatenate(([0], np.cumsum(np.bincount(waiting, minlength=spans))))
    if len(queued):
        order = np.argsort(waiting, kind="stable")
        need, delay = need[order], delay[order]
    return first, need, delay


def _waits_of_its_own(timeline: Timeline, arrive: Ints, met: Meetings) -> Ints:
    """Return how long after its last need each span started: latency that stays."""
    latest = arrive.copy()
    together = met.of >= 0
    latest[together] = met.latest(arrive)[met.of[together]]
    queued = timeline.cause_kind == Cause.QUEUE
    latest[queued] = np.maximum(latest[queued], timeline.end[timeline.cause[queued]])
    waited: Ints = np.maximum(timeline.start - latest, 0)
    return waited
