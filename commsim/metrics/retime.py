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

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain

import msgspec
import numpy as np

from commsim.arrays import Bools, Floats, Ints, distinct
from commsim.graph import Phase
from commsim.metrics.bandwidth import instance_numbers
from commsim.metrics.releases import stream_predecessors
from commsim.metrics.retime_waves import SpanWaves, in_waves
from commsim.metrics.window import Window, arrivals, measured_window, span_of_op
from commsim.timeline import Cause, Timeline

__all__ = ["Change", "Retiming"]

_Needs = tuple[tuple[int, int], ...]
"""Spans that one waits for, each with a delay in ps."""
_FEW = 4096  # spans times changes that are timed one by one
_WAVE = 30  # of them take as long as a wave
_AT_ONCE = 2**24  # spans times changes that are timed at once: some ten numbers for each of them


class Change(msgspec.Struct, frozen=True, eq=False):
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
        # Whatever a span waited for had ended when it arrived, so the order of ends is an order
        # in which each span comes after what it needs.
        spans = np.arange(len(timeline))
        self._order = np.lexsort((spans, timeline.start, timeline.end)).tolist()
        self._offset = timeline.graph.lane_offset[timeline.lane].astype(np.float64).tolist()
        self._before: list[int] = stream_predecessors(timeline).tolist()
        self._waiting, self._waited, self._delay = self._dependencies()
        self._members, self._meets = self._met_members()
        self._slack = self._waits_of_its_own()
        self._step = self._step_of()

    def step(self, change: Change | None = None) -> float:
        """Return the step time in ps under `change`."""
        return self.steps([change or Change(np.ones(len(self._timeline)))])[0]

    def steps(self, changes: Sequence[Change]) -> list[float]:
        """Return the step time in ps under each of `changes`: faster together than one by one."""
        spans = len(self._timeline)
        if not spans:
            return [0.0] * len(changes)
        some = max(1, _AT_ONCE // spans)
        found: list[float] = []
        for at in range(0, len(changes), some):
            asked = changes[at : at + some]
            waves = self._waves if spans * len(asked) >= _FEW else None
            if waves is None or spans * len(asked) < _WAVE * waves.count:
                found += [self._step(*self._times(one)) for one in asked]
            else:
                found += [self._step(*one) for one in self._together(waves, asked)]
        return found

    @cached_property
    def _waves(self) -> SpanWaves | None:
        """The spans by waves; None if a need ends after what waits for it."""
        return in_waves(self._order, *self._edges[:2], self._members, self._meets)

    @cached_property
    def _edges(self) -> tuple[Ints, Ints, Ints]:
        """What each span waits for as CSR: where it begins, the spans, the delays (ps)."""
        before = np.array(self._before, dtype=np.int64)
        follows = np.flatnonzero(before >= 0)
        waiting = np.concatenate((follows, self._waiting))
        order = np.argsort(waiting, kind="stable")
        first = np.searchsorted(waiting[order], np.arange(len(before) + 1))
        delay = np.concatenate((np.zeros(len(follows), dtype=np.int64), self._delay))
        return first, np.concatenate((before[follows], self._waited))[order], delay[order]

    def _together(self, waves: SpanWaves, changes: Sequence[Change]) -> list[tuple[Floats, Floats]]:
        """Return the new (arrival, end) of every span under each of `changes`."""
        timeline, (first, needs, delay) = self._timeline, self._edges
        delays = delay[:, None].astype(np.float64)
        alone = None
        if any(one.detached is not None or one.undelayed is not None for one in changes):
            waiting = np.repeat(np.arange(len(timeline)), np.diff(first))
            apart = timeline.lane[waiting] != timeline.lane[needs]
            delays = np.repeat(delays, len(changes), axis=1)
            alone = np.zeros((len(timeline), len(changes)), dtype=np.bool_)
            for at, one in enumerate(changes):
                if one.undelayed is not None:
                    delays[one.undelayed[needs], at] = 0.0
                if one.detached is not None:
                    delays[apart & one.detached[waiting], at] = -np.inf
                    alone[:, at] = one.detached
        lasting = np.stack([one.factor for one in changes], axis=1)
        lasting *= (timeline.end - timeline.start)[:, None]
        begin, slack = np.array(self._offset), np.array(self._slack)
        arrive, end = waves.times(begin, slack, lasting, delays, alone)
        return [(arrive[:, at], end[:, at]) for at in range(len(changes))]

    def _times(self, change: Change) -> tuple[Floats, Floats]:
        """Return the new (arrival, end) of every span."""
        timeline = self._timeline
        lasting = ((timeline.end - timeline.start) * change.factor).tolist()
        begin, slack, members = self._offset, self._slack, self._members
        earlier, (needs, meets) = self._before, self._changed(change)
        unknown = -1.0
        arrive, end = [unknown] * len(lasting), [0.0] * len(lasting)
        met = [unknown] * len(members)

        def arrival(span: int) -> float:
            when: float = begin[span]
            if (first := earlier[span]) >= 0 and end[first] > when:
                when = end[first]
            for before, delay in needs[span]:
                ended = end[before] + delay
                if ended > when:
                    when = ended
            arrive[span] = when
            return when

        for span in self._order:
            start = arrive[span]
            if start < 0:
                start = begin[span]
                if (first := earlier[span]) >= 0 and end[first] > start:
                    start = end[first]
                for before, delay in needs[span]:  # as in `arrival`: a call per span takes longer
                    ended = end[before] + delay
                    if ended > start:
                        start = ended
                arrive[span] = start
            together = meets[span]
            if together >= 0:
                latest = met[together]
                if latest < 0:
                    waited = members[together]
                    latest = max(a if (a := arrive[m]) >= 0 else arrival(m) for m in waited)
                    met[together] = latest
                if latest > start:
                    start = latest
            end[span] = start + slack[span] + lasting[span]
        return np.array(arrive), np.array(end)

    def _changed(self, change: Change) -> tuple[list[_Needs], list[int]]:
        """Return the needs of each span and what it meets, without those that a change undoes."""
        needs, meets = self._needs, self._meets
        if change.detached is not None:
            needs, meets, lane = needs.copy(), meets.copy(), self._timeline.lane.tolist()
            for span in np.flatnonzero(change.detached).tolist():
                if needs[span]:
                    own = lane[span]
                    needs[span] = tuple((b, delay) for b, delay in needs[span] if lane[b] == own)
                meets[span] = -1
        if change.undelayed is not None:
            needs, none = needs.copy(), change.undelayed.tolist()
            for span, own_needs in enumerate(needs):
                if own_needs:
                    needs[span] = tuple((b, 0 if none[b] else delay) for b, delay in own_needs)
        return needs, meets

    def _dependencies(self) -> tuple[Ints, Ints, Ints]:
        """Return (waiting, waited, delay in ps) of all needs of spans beside their streams'."""
        timeline, graph = self._timeline, self._timeline.graph
        span_of = span_of_op(timeline)
        first, counts = graph.dep_ptr[timeline.op], np.diff(graph.dep_ptr)[timeline.op]
        waiting = np.repeat(np.arange(len(timeline)), counts)
        entry = np.arange(len(waiting)) - np.repeat(np.cumsum(counts) - counts - first, counts)
        waited, delay = span_of[graph.dep_op[entry]], graph.dep_delay[entry]
        queued = np.flatnonzero((timeline.cause_kind == Cause.QUEUE) & (timeline.cause >= 0))
        waiting = np.concatenate((waiting[waited >= 0], queued))
        delay = np.concatenate((delay[waited >= 0], np.zeros(len(queued), dtype=np.int64)))
        waited = np.concatenate((waited[waited >= 0], timeline.cause[queued]))
        by_span = np.argsort(waiting, kind="stable")
        return waiting[by_span], waited[by_span], delay[by_span]

    @cached_property
    def _needs(self) -> list[_Needs]:
        """What each span waits for beside its stream's, each with a delay (ps)."""
        spans, first = np.unique(self._waiting, return_index=True)
        rows = list(zip(self._waited.tolist(), self._delay.tolist(), strict=True))
        bounds = [*first.tolist(), len(rows)]
        needs: list[_Needs] = [()] * len(self._timeline)
        for span, low, high in zip(spans.tolist(), bounds, bounds[1:], strict=False):
            needs[span] = tuple(rows[low:high])
        return needs

    def _met_members(self) -> tuple[list[list[int]], list[int]]:
        """Return lists of members that were waited for, and per span which it is; -1 for work."""
        timeline, meets = self._timeline, [-1] * len(self._timeline)
        spans = np.flatnonzero(timeline.communicates)
        number = instance_numbers(timeline.graph, timeline.op[spans])
        order = np.argsort(number, kind="stable")
        spans, number = spans[order], number[order]
        first = np.flatnonzero(np.diff(number, prepend=-1))
        counts = np.diff(first, append=len(spans))
        several = counts > 1  # one is folded onto a lane: nobody else to wait for
        if not several.any():
            return [], meets
        start = timeline.start[spans]
        at_once = np.minimum.reduceat(start, first) == np.maximum.reduceat(start, first)
        every, needed = spans.tolist(), list[list[int]]()
        bounds = np.stack((first, first + counts, at_once))[:, several].T.tolist()
        for begin, end, together in bounds:
            if together:
                groups = [(every[begin:end], every[begin:end])]
            else:  # members that started together waited for the same ones
                members, moments = spans[begin:end], start[begin:end]
                arrive = self._arrive[members]
                groups = [
                    (members[arrive <= moment].tolist(), members[moments == moment].tolist())
                    for moment in distinct(moments)
                ]
            for waited, waiting in groups:
                if len(waited) == 1 and len(waiting) == 1:
                    continue
                for span in waiting:
                    meets[span] = len(needed)
                needed.append(waited)
        return needed, meets

    def _waits_of_its_own(self) -> list[float]:
        """Return how long after its last need each span started: latency that stays."""
        start, arrive = self._timeline.start, self._arrive
        latest, meets = arrive.copy(), np.array(self._meets, dtype=np.int64)
        if self._members:
            counts = np.array([len(members) for members in self._members])
            waited = np.fromiter(chain.from_iterable(self._members), np.int64, int(counts.sum()))
            last = np.maximum.reduceat(arrive[waited], np.cumsum(counts) - counts)
            latest[meets >= 0] = last[meets[meets >= 0]]
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
