"""
The measured timeline: the times of a recording's ops on the common clock.

A collective arrives when its kernel starts and moves when the last member has arrived; what
released it is that member's op. Other ops start when they arrive.
"""

from __future__ import annotations

import numpy as np

from commsim.timeline import Cause, LinkUse, Memory, Timeline
from commsim.traces.rebuild.to_graph import Built

__all__ = ["measured_timeline"]


def measured_timeline(built: Built, notes: tuple[str, ...]) -> Timeline:
    """Return the timeline of the recording over the ops of its graph."""
    graph = built.graph
    arrive, end, last = built.start, built.end, built.last
    cause, kinds = built.cause.copy(), _cause_kinds(built)
    met = np.flatnonzero(last >= 0)
    start = arrive.copy()
    start[met] = np.minimum(np.maximum(arrive[last[met]], arrive[met]), end[met])
    waited = met[last[met] != met]
    cause[waited], kinds[waited] = last[waited], int(Cause.RENDEZVOUS)
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


def _cause_kinds(built: Built) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    graph, cause = built.graph, built.cause
    known = cause >= 0
    same = known & (graph.lane[cause] == graph.lane) & (graph.stream[cause] == graph.stream)
    kinds = np.where(same, int(Cause.STREAM), int(Cause.DEPENDENCY))
    return np.where(known, kinds, int(Cause.NONE)).astype(np.uint8)
