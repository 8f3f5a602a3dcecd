"""
The measured timeline: when each op of a recording ran, on the common clock.

A collective arrives when its kernel starts and moves when the last member has arrived; what
released it is that member's op. Other ops start when they arrive.
"""

from __future__ import annotations

import numpy as np

from commsim.graph import OpKind
from commsim.timeline import Cause, LinkUse, Memory, Timeline
from commsim.traces.to_graph import Built

__all__ = ["measured_timeline"]


def measured_timeline(built: Built, notes: tuple[str, ...]) -> Timeline:
    """Return the timeline of the recording over the ops of its graph."""
    graph = built.graph
    arrive, end = np.array(built.start, np.int64), np.array(built.end, np.int64)
    start, cause = arrive.copy(), np.array(built.cause, np.int64)
    kinds = _cause_kinds(built)
    members = _members(built)
    for op, transfer in built.transfers.items():
        last = members[int(graph.item[op]), transfer.last]
        start[op] = min(max(arrive[last], arrive[op]), end[op])
        if last != op:
            cause[op], kinds[op] = last, Cause.RENDEZVOUS
    none = np.zeros(0, np.int64)
    return Timeline(
        graph=graph,
        op=np.arange(len(graph), dtype=np.int64),
        arrive=arrive,
        start=start,
        end=end,
        cause=cause,
        cause_kind=kinds,
        links=LinkUse.nothing(),
        memory=Memory(none, none, none),
        source="measured",
        notes=notes,
    )


def _members(built: Built) -> dict[tuple[int, int], int]:
    """Return the op of each (collective, rank)."""
    graph = built.graph
    ops = np.flatnonzero(graph.kind == OpKind.COLLECTIVE).tolist()
    return {(int(graph.item[op]), int(graph.lane_rank[graph.lane[op]])): op for op in ops}


def _cause_kinds(built: Built) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    graph, cause = built.graph, np.array(built.cause, np.int64)
    known = cause >= 0
    same = known & (graph.lane[cause] == graph.lane) & (graph.stream[cause] == graph.stream)
    kinds = np.where(same, int(Cause.STREAM), int(Cause.DEPENDENCY))
    return np.where(known, kinds, int(Cause.NONE)).astype(np.uint8)
