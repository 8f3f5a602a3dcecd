"""
Hover text of boxes: op, rank, start, duration, bytes, bus bandwidth.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Ints
from commsim.charts.gantt.scene import Scene
from commsim.charts.theme import FAMILIES, plain, shorten
from commsim.graph import OpKind
from commsim.metrics import op_label
from commsim.ops import bus_factor
from commsim.timeline import Timeline
from commsim.units import format_bandwidth, format_size, format_time

__all__ = ["hover"]

Hover = tuple[str, str, str, str]  # what, where, when, how much


def hover(timeline: Timeline, picture: Scene, boxes: Ints) -> list[Hover]:
    """Return (what, where, when, how much) of the chosen boxes of `picture`, as plain text."""
    chosen = picture.boxes.take(boxes)
    busbw = _busbw(timeline, np.unique(chosen.span[chosen.span >= 0]))
    texts = []
    for row, family, waits, start, end, span, count in zip(*chosen.lists(), strict=True):
        when = f"{format_time(start - picture.begin)} + {format_time(end - start)}"
        if span >= 0:
            what, where = _what(timeline, span), _where(timeline, span)
            much = "waiting for the others" if waits else _how_much(timeline, span, busbw)
        else:
            what, much = f"{count:,} short spans, mostly {FAMILIES[family].label}", ""
            where = f"rank {timeline.graph.lane_rank[picture.rows[row].lane]}"
        texts.append((what, where, when, much))
    return texts


def _what(timeline: Timeline, span: int) -> str:
    graph, op = timeline.graph, int(timeline.op[span])
    name = shorten(plain(graph.op_name(op)))
    if graph.kind[op] != OpKind.COLLECTIVE:
        return name
    row = int(graph.item[op])
    kind = graph.collectives.kind[row]
    group = shorten(plain(graph.groups[graph.collectives.group[row]].name), 24)
    shown = op_label(kind) if name == kind else f"{name} ({op_label(kind)})"
    return f"{shown} on {group}" if group else shown


def _where(timeline: Timeline, span: int) -> str:
    graph, op = timeline.graph, int(timeline.op[span])
    parts = [f"rank {graph.lane_rank[graph.lane[op]]}"]
    for word, column in (("stage", graph.stage), ("microbatch", graph.microbatch)):
        if column[op] >= 0:
            parts.append(f"{word} {column[op]}")
    return ", ".join(parts)


def _how_much(timeline: Timeline, span: int, busbw: dict[int, float]) -> str:
    graph, op = timeline.graph, int(timeline.op[span])
    parts = []
    if graph.size[op] >= 0:
        parts.append(format_size(graph.size[op]))
    length = int(timeline.end[span] - timeline.start[span])
    if graph.kind[op] == OpKind.COLLECTIVE and int(graph.item[op]) in busbw:
        parts.append(f"busbw {format_bandwidth(busbw[int(graph.item[op])])}")
    elif graph.size[op] > 0 and length > 0:
        parts.append(format_bandwidth(graph.size[op] / length * 1e12))
    chosen = timeline.choices.get(int(graph.item[op]), "")
    if chosen and graph.kind[op] == OpKind.COLLECTIVE:
        parts.append(plain(chosen))
    return ", ".join(parts)


def _busbw(timeline: Timeline, spans: Ints) -> dict[int, float]:
    """Return the bus bandwidth in bytes/s of each collective that the spans belong to.

    The time of a collective runs from its first member's start to its last one's end.
    """
    graph = timeline.graph
    spans = spans[timeline.kind[spans] == OpKind.COLLECTIVE]
    rows = np.zeros(len(graph.collectives), np.bool_)
    rows[graph.item[timeline.op[spans]]] = True
    members = np.flatnonzero(timeline.kind == OpKind.COLLECTIVE)
    item = graph.item[timeline.op[members]]
    first = np.full(len(rows), np.iinfo(np.int64).max)
    last = np.full(len(rows), -1, np.int64)
    np.minimum.at(first, item, timeline.start[members])
    np.maximum.at(last, item, timeline.end[members])
    busbw = {}
    for row in np.flatnonzero(rows & (last > first) & (graph.collectives.size > 0)).tolist():
        ranks = len(graph.groups[graph.collectives.group[row]].ranks)
        factor = bus_factor(graph.collectives.kind[row], ranks)
        busbw[row] = float(graph.collectives.size[row] * factor / (last[row] - first[row]) * 1e12)
    return busbw
