"""
Spans as trace viewers want them: on tracks if nothing overlaps, and with what is known of them.

A viewer nests the slices of a track, so two that overlap in part cannot share one. Ops of one
stream rarely do (the sends and receives of a batch do): then the stream gets further tracks.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.graph import Graph, OpKind, Phase
from commsim.metrics import arrivals
from commsim.timeline import Timeline

__all__ = ["Rows", "arrows", "described", "lay_out", "process_name", "track_name"]


_TAGS = ("step", "microbatch", "stage", "layer")


class Rows(msgspec.Struct, frozen=True, eq=False):
    """Where each span goes. Columns over spans: `begin` (its arrival if it waits, else its
    start; ps) and `track`. Columns over tracks: `lane`, `stream`, `copy` (0 for the first track
    of a stream). `order` walks over the spans track by track, in time."""

    begin: Ints
    track: Ints
    order: Ints
    lane: Ints
    stream: Ints
    copy: Ints


def lay_out(timeline: Timeline) -> Rows:
    """Give every span a track: those of a lane and stream that it does not overlap on."""
    graph, op = timeline.graph, timeline.op
    begin = np.where(timeline.communicates, arrivals(timeline), timeline.start)
    home = graph.lane[op] * max(1, len(graph.streams)) + graph.stream[op]
    copy = np.zeros(len(op), np.int64)
    order = np.lexsort((timeline.end, begin, home))
    at = home[order]
    clash = (at[1:] == at[:-1]) & (begin[order][1:] < timeline.end[order][:-1])
    for crowded in np.unique(at[1:][clash]).tolist():
        mine = order[np.searchsorted(at, crowded) : np.searchsorted(at, crowded, side="right")]
        copy[mine] = _spread(begin[mine].tolist(), timeline.end[mine].tolist())
    most = int(copy.max(initial=0)) + 1
    keys, track = np.unique(home * most + copy, return_inverse=True)
    place, number = np.divmod(keys, most)
    lane, stream = np.divmod(place, max(1, len(graph.streams)))
    order = np.lexsort((timeline.end, begin, track))
    return Rows(begin, track, order, lane, stream, number)


def _spread(begin: list[int], end: list[int]) -> list[int]:
    """Return for each interval, in order of begin, the lowest copy that is free by then."""
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    found, copies = [], 0
    for start, stop in zip(begin, end, strict=True):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            heapq.heappush(free, copies)
            copies += 1
        chosen = heapq.heappop(free)
        heapq.heappush(busy, (stop, chosen))
        found.append(chosen)
    return found


def process_name(graph: Graph, lane: int) -> str:
    """Return "rank 3", and how many ranks it stands for."""
    count = int(graph.multiplicity[lane])
    return f"rank {graph.lane_rank[lane]}" + (f" (stands for {count})" if count > 1 else "")


def track_name(graph: Graph, stream: int, copy: int) -> str:
    """Return a stream's name, numbered from its second track on."""
    return graph.streams[stream] + (f" ({copy + 1})" if copy else "")


def described(timeline: Timeline) -> tuple[Ints, list[tuple[str, str, dict[str, Any]]]]:
    """Return for each op of the graph which description is its own, and the descriptions.

    A description is (name, category, arguments): what many ops share is stored once.
    """
    graph = timeline.graph
    group = _groups(graph)
    columns = [
        graph.name, graph.kind, graph.phase, group, np.where(group >= 0, graph.size, -1),
        *(getattr(graph, tag) for tag in _TAGS),
    ]  # fmt: skip
    first, which = _distinct_rows([np.asarray(column, dtype=np.int64) for column in columns])
    return which, [_description(graph, op, int(group[op])) for op in first.tolist()]


def _groups(graph: Graph) -> Ints:
    """Return the group of each op, -1 for those that do not communicate."""
    group = np.full(len(graph), -1, np.int64)
    if len(graph.collectives):
        ops = np.flatnonzero(graph.kind == OpKind.COLLECTIVE)
        group[ops] = np.asarray(graph.collectives.group)[graph.item[ops]]
    if len(graph.messages):
        ops = np.flatnonzero((graph.kind == OpKind.SEND) | (graph.kind == OpKind.RECV))
        group[ops] = np.asarray(graph.messages.group)[graph.item[ops]]
    return group


def _distinct_rows(columns: list[Ints]) -> tuple[Ints, Ints]:
    """Return (first row of each distinct one, which of them each row is), columns compared."""
    key, distinct = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        values, number = np.unique(column, return_inverse=True)
        _, key = np.unique(key * len(values) + number, return_inverse=True)
        distinct = int(key.max(initial=0)) + 1
    first = np.zeros(distinct, np.int64)
    first[key[::-1]] = np.arange(len(key))[::-1]
    return first[: distinct if len(key) else 0], key


def _description(graph: Graph, op: int, group: int) -> tuple[str, str, dict[str, Any]]:
    known: dict[str, Any] = {}
    if graph.phase[op]:
        known["phase"] = Phase(graph.phase[op]).name.lower()
    for tag in _TAGS:
        value = int(getattr(graph, tag)[op])
        if value >= 0:
            known[tag] = value
    if group >= 0:
        known["group"] = graph.groups[group].name
        known["bytes"] = int(graph.size[op])
    return graph.op_name(op), OpKind(graph.kind[op]).name.lower(), known


def arrows(timeline: Timeline) -> Iterator[tuple[int, int, int]]:
    """Yield (message, span of its send, span of its recv) if both are in the timeline."""
    graph, messages = timeline.graph, timeline.graph.messages
    span = np.full(len(graph) + 1, -1, np.int64)  # the last for an op of -1
    span[timeline.op] = np.arange(len(timeline))
    sends = span[np.asarray(messages.send_op, dtype=np.int64)]
    recvs = span[np.asarray(messages.recv_op, dtype=np.int64)]
    rows = np.flatnonzero((sends >= 0) & (recvs >= 0))
    yield from zip(rows.tolist(), sends[rows].tolist(), recvs[rows].tolist(), strict=True)
