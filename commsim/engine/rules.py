"""
The rules of readiness, as functions over the arrays of a graph. Both executors use them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commsim.graph import Graph, OpKind

__all__ = ["Queues", "dependents", "queues"]


@dataclass(frozen=True, slots=True, eq=False)
class Queues:
    """The in-order queues of a graph: the ops of (lane, stream) number q are `ops[q]`."""

    lane: list[int]
    stream: list[int]
    ops: list[list[int]]


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


def dependents(graph: Graph) -> list[list[tuple[int, int]]]:
    """Return for each op the (op, delay in ps) pairs that wait for it, in op order."""
    after: list[list[tuple[int, int]]] = [[] for _ in range(len(graph))]
    targets = np.repeat(np.arange(len(graph)), np.diff(graph.dep_ptr)).tolist()
    for on, delay, op in zip(graph.dep_op.tolist(), graph.dep_delay.tolist(), targets, strict=True):
        after[on].append((op, delay))
    return after


def is_communication(graph: Graph) -> list[bool]:
    """Return, per op, whether it is a collective or one end of a message."""
    kinds = (OpKind.COLLECTIVE, OpKind.SEND, OpKind.RECV)
    return np.isin(graph.kind, [int(kind) for kind in kinds]).tolist()  # type: ignore[no-any-return]
