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

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from commsim.arrays import Bools, Floats
from commsim.graph import Phase
from commsim.metrics.bandwidth import instance_numbers
from commsim.metrics.releases import stream_predecessors
from commsim.metrics.window import Window, arrivals, measured_window, span_of_op
from commsim.timeline import Cause, Timeline

__all__ = ["Change", "Retiming"]


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """What is asked: `factor` multiplies the duration of each span.

    A span in `detached` waits for no other lane; a delay after a span in `undelayed` is none.
    """

    factor: Floats
    detached: Bools | None = None
    undelayed: Bools | None = None


class Retiming:
    """The order of a timeline's spans, ready to be timed again under a `Change`."""

    def __init__(self, timeline: Timeline, *, window: Window | None = None) -> None:
        self._timeline = timeline
        self._window = window or measured_window(timeline)
        self._arrive = arrivals(timeline)
        self._lane = timeline.lane.tolist()
        # Whatever a span waited for had ended when it arrived, so the order of ends is an order
        # in which each span comes after what it needs.
        spans = np.arange(len(timeline))
        self._order = np.lexsort((spans, timeline.start, timeline.end)).tolist()
        self._needs = self._dependencies()
        self._meets = self._met_members()
        self._slack = self._waits_of_its_own()
        self._step = self._step_of()

    def step(self, change: Change | None = None) -> float:
        """Return the step time in ps under `change`."""
        if not len(self._timeline):
            return 0.0
        return self._step(*self._times(change or Change(np.ones(len(self._timeline)))))

    def _times(self, change: Change) -> tuple[Floats, Floats]:
        """Return the new (arrival, end) of every span."""
        timeline, lane = self._timeline, self._lane
        lasting = ((timeline.end - timeline.start) * change.factor).tolist()
        slack, needs, meets = self._slack, self._needs, self._meets
        detached = None if change.detached is None else change.detached.tolist()
        undelayed = None if change.undelayed is None else change.undelayed.tolist()
        offset = timeline.graph.lane_offset.tolist()
        unknown = -1.0
        arrive, end = [unknown] * len(lasting), [0.0] * len(lasting)

        def arrival(span: int) -> float:
            when = float(offset[lane[span]])
            apart = detached is not None and detached[span]
            for before, delay in needs[span]:
                if apart and lane[before] != lane[span]:
                    continue
                ended = end[before] + (0 if undelayed is not None and undelayed[before] else delay)
                if ended > when:
                    when = ended
            arrive[span] = when
            return when

        met: dict[int, float] = {}
        for span in self._order:
            start = arrive[span]
            if start < 0:
                start = arrival(span)
            members = meets[span]
            if members is not None and not (detached is not None and detached[span]):
                latest = met.get(id(members), unknown)
                if latest < 0:
                    latest = max(a if (a := arrive[m]) >= 0 else arrival(m) for m in members)
                    met[id(members)] = latest
                if latest > start:
                    start = latest
            end[span] = start + slack[span] + lasting[span]
        return np.array(arrive), np.array(end)

    def _dependencies(self) -> list[list[tuple[int, int]]]:
        """Return, per span, the spans that it waits for, each with a delay in ps."""
        timeline, graph = self._timeline, self._timeline.graph
        span_of = span_of_op(timeline)
        before = stream_predecessors(timeline).tolist()
        dep_span, delay = span_of[graph.dep_op].tolist(), graph.dep_delay.tolist()
        first, last = graph.dep_ptr[timeline.op].tolist(), graph.dep_ptr[timeline.op + 1].tolist()
        queued = np.where(timeline.cause_kind == Cause.QUEUE, timeline.cause, -1).tolist()
        needs = []
        for span, (low, high) in enumerate(zip(first, last, strict=True)):
            mine = [(dep_span[at], delay[at]) for at in range(low, high) if dep_span[at] >= 0]
            mine += [(one, 0) for one in (before[span], queued[span]) if one >= 0]
            needs.append(mine)
        return needs

    def _met_members(self) -> list[list[int] | None]:
        """Return, per span, the members whose arrival it waited for; None for work."""
        timeline, found = self._timeline, [None] * len(self._timeline)
        spans = np.flatnonzero(timeline.communicates)
        number = instance_numbers(timeline.graph, timeline.op[spans])
        spans = spans[np.argsort(number, kind="stable")]
        cuts = np.flatnonzero(np.diff(np.sort(number))) + 1
        meets: list[list[int] | None] = list(found)
        for members in np.split(spans, cuts) if len(spans) else []:
            arrive, start = self._arrive[members], timeline.start[members]
            # Members that started together waited for the same ones.
            for moment in np.unique(start):
                needed = members[arrive <= moment].tolist()
                for span in members[start == moment].tolist():
                    meets[span] = needed
        return meets

    def _waits_of_its_own(self) -> list[float]:
        """Return how long after its last need each span started: latency that stays."""
        start, arrive = self._timeline.start, self._arrive
        latest = arrive.copy()
        for span, members in enumerate(self._meets):
            if members is not None:
                latest[span] = arrive[members].max()
        ended = self._timeline.end
        queued = self._timeline.cause_kind == Cause.QUEUE
        latest[queued] = np.maximum(latest[queued], ended[self._timeline.cause[queued]])
        found: list[float] = np.maximum(start - latest, 0).astype(np.float64).tolist()
        return found

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
