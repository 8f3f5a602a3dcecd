"""
What released each op: another lane, the lane's own CPU, or nothing.

What released an op is, of the op before it on its stream and of its dependencies with their
delays, the one that was done last.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from commsim.arrays import Bools, Ints
from commsim.metrics.intervals import Intervals
from commsim.metrics.one_axis import OneAxis
from commsim.metrics.window import arrivals, span_of_op
from commsim.timeline import Timeline

__all__ = ["Releases", "stream_predecessors"]


class Releases:
    """Answers, for one timeline, what released an op; `on_gpu` are the spans that no CPU does."""

    NOBODY: ClassVar[int] = 0
    HOST: ClassVar[int] = 1
    PEER: ClassVar[int] = 2

    def __init__(self, timeline: Timeline, on_gpu: Bools) -> None:
        self._timeline, self._on_gpu = timeline, on_gpu
        self._arrive = arrivals(timeline)
        chosen = np.flatnonzero(on_gpu)
        lane, arrive = timeline.lane[chosen], self._arrive[chosen]
        key = OneAxis.of([lane], [arrive]).at(lane, arrive)
        self._order = chosen[np.argsort(key, kind="stable")]
        self._span_of_op = span_of_op(timeline)

    def of_gaps(self, gaps: Intervals) -> Ints:
        """Return NOBODY, HOST or PEER per gap: who released the lane's first work after it."""
        found = np.full(len(gaps), self.NOBODY, dtype=np.int64)
        after = self.next_span(gaps)
        some = np.flatnonzero(after >= 0)
        by = self.of_spans(after[some])
        some, by = some[by >= 0], by[by >= 0]
        lane = self._timeline.lane[by]
        found[some] = np.where(
            lane != gaps.line[some], self.PEER, np.where(self._on_gpu[by], self.NOBODY, self.HOST)
        )
        return found

    def next_span(self, gaps: Intervals) -> Ints:
        """Return the first span of the lane that arrives at or after the end of each gap, or -1."""
        lane, arrive = self._timeline.lane[self._order], self._arrive[self._order]
        axis = OneAxis.of([lane, gaps.line], [arrive, gaps.end])
        at = np.searchsorted(axis.at(lane, arrive), axis.at(gaps.line, gaps.end))
        found = np.full(len(gaps), -1, dtype=np.int64)
        inside = np.flatnonzero(at < len(lane))
        inside = inside[lane[at[inside]] == gaps.line[inside]]
        found[inside] = self._order[at[inside]]
        return found

    def of_spans(self, spans: Ints) -> Ints:
        """Return the span that released each of `spans`, -1 if nothing did."""
        return self.with_delays(spans)[0]

    def with_delays(self, spans: Ints) -> tuple[Ints, Ints]:
        """Return the span that released each of `spans` (-1 if nothing did), and how many ps after
        its end.
        """
        graph, end = self._timeline.graph, self._timeline.end
        ops = self._timeline.op[spans]
        count = graph.dep_ptr[ops + 1] - graph.dep_ptr[ops]
        row = np.repeat(np.arange(len(ops)), count)
        within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        entry = graph.dep_ptr[ops][row] + within
        before = stream_predecessors(self._timeline)[spans]
        row = np.concatenate((row, np.arange(len(ops))))
        by = np.concatenate((self._span_of_op[graph.dep_op[entry]], before))
        delay = np.concatenate((graph.dep_delay[entry], np.zeros(len(ops), np.int64)))
        known = by >= 0
        row, by, delay = row[known], by[known], delay[known]
        # In order of row and of when each was done: the last entry of a row released it.
        order = np.lexsort((end[by] + delay, row))
        found, after = np.full(len(ops), -1, dtype=np.int64), np.zeros(len(ops), dtype=np.int64)
        found[row[order]], after[row[order]] = by[order], delay[order]
        return found, after


def stream_predecessors(timeline: Timeline) -> Ints:
    """Return the span before each span on its stream, -1 for the first.

    Ops of one batch run together: before each is what came before the batch, and before what
    follows is the one of the batch that ended last.
    """
    graph = timeline.graph
    queue = timeline.lane * max(1, len(graph.streams)) + graph.stream[timeline.op]
    ascends = (timeline.op[1:] >= timeline.op[:-1]).all()
    order = np.argsort(queue, kind="stable") if ascends else np.lexsort((timeline.op, queue))
    queue, batch = queue[order], graph.batch[timeline.op[order]]
    follows = queue[1:] == queue[:-1]
    joined = follows & (batch[1:] == batch[:-1]) & (batch[1:] >= 0)
    before = np.full(len(timeline), -1, dtype=np.int64)
    if not joined.any():
        before[order[1:][follows]] = order[:-1][follows]
        return before
    turn = np.cumsum(np.concatenate(([True], ~joined))) - 1
    by_end = np.lexsort((timeline.end[order], turn))
    last = np.empty(int(turn[-1]) + 1, dtype=np.int64)
    last[turn[by_end]] = order[by_end]
    earlier = np.maximum(turn - 1, 0)
    same = (turn > 0) & (queue[np.searchsorted(turn, earlier)] == queue)
    before[order[same]] = last[earlier[same]]
    return before
