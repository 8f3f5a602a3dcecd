"""
The measured window: the part of a run that metrics cover, one step if the run has steps.

    recorded    each lane's own profiled step, start of its first op to end of its last
    training    from the optimizer's end of one step to that of the next (the last two steps)
    else        the whole run, from the first arrival to the last end
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Ints, distinct
from commsim.graph import Graph, Phase
from commsim.metrics.intervals import Intervals
from commsim.timeline import Timeline

__all__ = ["Window", "arrivals", "clip", "measured_window", "span_of_op"]


class Window(msgspec.Struct, frozen=True, eq=False):
    """The measured part of a run.

    Per lane: `begin` and `end` in ps. `step` is the tag of the measured training step, -1 if
    everything counts. `first` and `last` are the outer limits that the step time lies between,
    and `last_span` is the span that ends there (-1 in an empty timeline).
    """

    begin: Ints
    end: Ints
    step: int
    first: int
    last: int
    last_span: int

    @property
    def step_time(self) -> int:
        """The step time in ps."""
        return self.last - self.first

    def on_lanes(self) -> Intervals:
        """Return the window as one interval per lane."""
        return Intervals(np.arange(len(self.begin)), self.begin, self.end)


def measured_window(timeline: Timeline) -> Window:
    """Return the part of `timeline` that its metrics cover."""
    if not len(timeline):
        nothing = np.zeros(len(timeline.graph.lane_rank), dtype=np.int64)
        return Window(nothing, nothing.copy(), -1, 0, 0, -1)
    return _recorded(timeline) or _training(timeline) or _whole(timeline)


def arrivals(timeline: Timeline) -> Ints:
    """Return when each span arrived; one whose arrival is unknown did not wait."""
    return np.where(timeline.arrive < 0, timeline.start, timeline.arrive)


def span_of_op(timeline: Timeline) -> Ints:
    """Return the span of each op of the graph, -1 for an op that has none."""
    span = np.full(len(timeline.graph), -1, dtype=np.int64)
    span[timeline.op] = np.arange(len(timeline))
    return span


def clip(spans: Intervals, window: Window) -> Intervals:
    """Return each interval cut to its lane's window, in the same order; some become empty."""
    return Intervals(
        spans.line,
        np.maximum(spans.start, window.begin[spans.line]),
        np.minimum(spans.end, window.end[spans.line]),
    )


def _recorded(timeline: Timeline) -> Window | None:
    """Take each lane's profiled step, None if no lane has one.

    A lane without counts as a whole, but never as the longest; so does one whose last op, on a
    stream of its own, ends before its first one starts.
    """
    spans = np.append(span_of_op(timeline), -1)[timeline.graph.window]
    lanes = np.flatnonzero(spans.min(axis=1, initial=0) >= 0)
    lanes = lanes[timeline.start[spans[lanes, 0]] <= timeline.end[spans[lanes, 1]]]
    if not len(lanes):
        return None
    begin, end = _lane_limits(timeline)
    first_span, last_span = spans[lanes].T
    begin[lanes] = timeline.start[first_span]
    end[lanes] = timeline.end[last_span]
    longest = int(np.argmax(end[lanes] - begin[lanes]))
    lane = lanes[longest]
    return Window(begin, end, -1, int(begin[lane]), int(end[lane]), int(last_span[longest]))


def _lane_limits(timeline: Timeline) -> tuple[Ints, Ints]:
    """Return the first start and the last end of each lane; 0, 0 for one without spans."""
    lane, count = timeline.lane, len(timeline.graph.lane_rank)
    begin = np.full(count, np.iinfo(np.int64).max)
    end = np.zeros(count, dtype=np.int64)
    np.minimum.at(begin, lane, timeline.start)
    np.maximum.at(end, lane, timeline.end)
    return np.minimum(begin, end), end


def _training(timeline: Timeline) -> Window | None:
    """Take the last step, between two optimizers' ends; None without two in order."""
    graph = timeline.graph
    step = np.where(graph.phase == Phase.OPTIMIZER, graph.step, -1)[timeline.op]
    steps = distinct(step[step >= 0])
    if len(steps) < 2:
        return None
    before, measured = int(steps[-2]), int(steps[-1])
    first = int(timeline.end[step == before].max())
    ending = np.flatnonzero(step == measured)
    last_span = int(ending[np.argmax(timeline.end[ending])])
    last = int(timeline.end[last_span])
    return None if last < first else _everywhere(graph, measured, first, last, last_span)


def _whole(timeline: Timeline) -> Window:
    last_span = int(np.argmax(timeline.end))
    first = int(arrivals(timeline).min())
    return _everywhere(timeline.graph, -1, first, timeline.end_time, last_span)


def _everywhere(graph: Graph, step: int, first: int, last: int, last_span: int) -> Window:
    lanes = len(graph.lane_rank)
    return Window(np.full(lanes, first), np.full(lanes, last), step, first, last, last_span)
