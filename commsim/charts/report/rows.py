"""
The rows of the viewer: one for what a lane computes, and a few thinner ones for its other streams.

It is the picture of `charts.scene` without its limits: every lane, every span.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Ints
from commsim.charts.gantt import below_compute, drawn_spans
from commsim.metrics import arrivals
from commsim.timeline import Timeline

__all__ = ["place_spans"]


_SUB_ROWS = 3


def place_spans(timeline: Timeline) -> tuple[Ints, Ints, int]:
    """Return (spans, row of each, rows per lane): spans that take time, in order of row and start.

    Row `lane * per_lane` is what the lane computes, those after it its other streams. Spans that
    wait count from their arrival.
    """
    lanes = np.arange(len(timeline.graph.lane_rank))
    spans = drawn_spans(timeline, lanes)
    begin = arrivals(timeline)[spans]
    some = timeline.end[spans] > begin
    spans, begin = spans[some], begin[some]
    order = _by_lane(timeline.lane[spans], begin)
    spans = spans[order]
    sub, count = _sub_rows(timeline, spans)
    row = timeline.lane[spans] * (1 + count) + sub
    order = np.argsort(row, kind="stable")
    return spans[order], row[order], 1 + count


def _by_lane(lane: Ints, begin: Ints) -> Ints:
    far = int(begin.max(initial=0)) + 1
    if int(lane.max(initial=0)) < 2**62 // far:
        return np.argsort(lane * far + begin, kind="stable").astype(np.int64)
    return np.lexsort((begin, lane)).astype(np.int64)


def _sub_rows(timeline: Timeline, spans: Ints) -> tuple[Ints, int]:
    """Return the row of each span within its lane (0: compute), and how many are below compute.

    Each stream takes the first row on which it overlaps nothing; the last takes the rest.
    `spans` are in order of lane and begin.
    """
    below = np.flatnonzero(below_compute(timeline, spans))
    row = np.zeros(len(spans), np.int64)
    stream = timeline.graph.stream[timeline.op[spans[below]]]
    chosen = np.full(len(timeline.graph.streams), -1, np.int64)
    rows: list[list[int]] = []
    for one in np.unique(stream).tolist():
        fits = (
            at
            for at, row_of in enumerate(rows)
            if _apart(timeline, spans[below], stream, row_of, one)
        )
        at = next(fits, min(len(rows), _SUB_ROWS - 1))
        if at == len(rows):
            rows.append([])
        rows[at].append(one)
        chosen[one] = at
    row[below] = 1 + chosen[stream]
    return row, len(rows)


def _apart(timeline: Timeline, spans: Ints, stream: Ints, row: list[int], one: int) -> bool:
    """Whether stream `one` overlaps those in `row` no more than they and it do by themselves."""
    there, mine = np.isin(stream, row), stream == one
    both = _overlaps(timeline, spans[there | mine])
    return both <= _overlaps(timeline, spans[there]) + _overlaps(timeline, spans[mine])


def _overlaps(timeline: Timeline, spans: Ints) -> int:
    """Count the spans (in order of lane and begin) that begin before an earlier one has ended."""
    lane, end = timeline.lane[spans], timeline.end[spans]
    begin = arrivals(timeline)[spans]
    far = int(end.max(initial=0)) + 1
    latest = np.maximum.accumulate(end + lane * far) - lane * far
    return int(np.sum((begin[1:] < latest[:-1]) & (lane[1:] == lane[:-1])))
