"""
The rules of readiness, as functions over the arrays of a graph.
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.graph import Graph

__all__ = ["Dependents", "Queues", "dependents", "queues"]


class Queues(msgspec.Struct, frozen=True, eq=False):
    """The in-order queues of a graph: the ops of (lane, stream) number q are `ops[q]`."""

    lane: list[int]
    stream: list[int]
    ops: list[list[int]]


class Dependents(msgspec.Struct, frozen=True, eq=False):
    """Who waits for op i: entries `first[i]` to `first[i + 1]` of `op`, with a delay in ps."""

    first: list[int]
    op: list[int]
    delay: list[int]


def queues(graph: Graph) -> Queues:
    """Return the ops of each (lane, stream) by id, queues in order of lane, then stream."""
    if not len(graph):
        return Queues([], [], [])
    key = graph.lane * len(graph.streams) + graph.stream
    order = np.argsort(key, kind="stable")
    keys, first = np.unique(key[order], return_index=True)
    parts = np.split(order, first[1:])
    lane, stream = np.divmod(keys, len(graph.streams))
    return Queues(lane.tolist(), stream.tolist(), [part.tolist() for part in parts])


def dependents(graph: Graph) -> Dependents:
    """Return who waits for each op, in op order."""
    order = np.argsort(graph.dep_op, kind="stable")
    targets = np.repeat(np.arange(len(graph)), np.diff(graph.dep_ptr))
    counts = np.bincount(graph.dep_op, minlength=len(graph))
    first = np.concatenate(([0], np.cumsum(counts)))
    return Dependents(first.tolist(), targets[order].tolist(), graph.dep_delay[order].tolist())
