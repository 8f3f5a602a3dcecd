"""
The rows of the viewer: one for what a lane computes, and thinner ones for its other streams and for
the threads of its host.

It is the picture of `charts.scene` without its limits: every lane, every span.
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Bools, Ints, distinct
from commsim.charts.gantt import below_compute
from commsim.graph import Device, OpKind
from commsim.metrics import arrivals
from commsim.timeline import Timeline

__all__ = ["PlacedSpans", "launchers", "on_host", "place_spans"]


_SUB_ROWS, _HOST_ROWS = 3, 2


class PlacedSpans(msgspec.Struct, frozen=True, eq=False):
    """Spans that take time and the row of each, in order of row and start.

    Row `lane * per_lane` is what the lane computes, those after it its other streams, and the last
    `hosts` of them threads of its host, if it computes on a GPU. `names` are the streams of the
    rows of a lane. Spans that wait count from their arrival.
    """

    spans: Ints
    row: Ints
    per_lane: int
    hosts: int
    names: tuple[str, ...]


def place_spans(timeline: Timeline) -> PlacedSpans:
    """Give every span of a timeline that takes time its row."""
    spans = np.arange(len(timeline))
    begin = arrivals(timeline)[spans]
    some = timeline.end[spans] > begin
    spans, begin = spans[some], begin[some]
    order = _by_lane(timeline.lane[spans], begin)
    spans = spans[order]
    host = on_host(timeline, spans)
    sub = np.zeros(len(spans), np.int64)
    below, count = _sub_rows(timeline, spans[~host])
    sub[~host] = below
    threads, hosts = _host_rows(timeline, spans[host])
    sub[host] = 1 + count + threads
    per_lane = 1 + count + hosts
    row = timeline.lane[spans] * per_lane + sub
    order = np.argsort(row, kind="stable")
    names = _names(timeline, spans, sub, per_lane)
    return PlacedSpans(spans[order], row[order], per_lane, hosts, names)


def on_host(timeline: Timeline, spans: Ints) -> Bools:
    """Return which spans are work of CPU threads; none if no lane computes on a GPU."""
    graph = timeline.graph
    computes = graph.kind == OpKind.COMPUTE
    on_cpu = computes & (graph.device == Device.CPU)
    if not np.any(computes & ~on_cpu):
        return np.zeros(len(spans), np.bool_)
    return np.asarray(on_cpu[timeline.op[spans]])


def launchers(timeline: Timeline) -> Ints:
    """Return per op of a GPU the last op of a CPU thread that it waits for, -1 for none."""
    graph = timeline.graph
    on_cpu = (graph.kind == OpKind.COMPUTE) & (graph.device == Device.CPU)
    after = np.repeat(np.arange(len(graph)), np.diff(graph.dep_ptr))
    launches = on_cpu[graph.dep_op] & ~on_cpu[after]
    found = np.full(len(graph), -1, np.int64)
    found[after[launches]] = graph.dep_op[launches]
    return found


def _host_rows(timeline: Timeline, spans: Ints) -> tuple[Ints, int]:
    """Return the host row of each span: a thread each, the last for all the rest; how many."""
    stream = timeline.graph.stream[timeline.op[spans]]
    known = distinct(stream)
    rows = np.minimum(np.searchsorted(known, stream), _HOST_ROWS - 1)
    return rows.astype(np.int64), min(len(known), _HOST_ROWS)


def _names(timeline: Timeline, spans: Ints, sub: Ints, per_lane: int) -> tuple[str, ...]:
    stream = timeline.graph.stream[timeline.op[spans]]
    known = timeline.graph.streams
    return tuple(
        ", ".join(known[one] for one in distinct(stream[sub == row]).tolist())
        for row in range(per_lane)
    )


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
    for one in distinct(stream).tolist():
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
