"""
Places of lanes (node, stage, replica) by which the viewer groups them.
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.graph import Graph
from commsim.metrics import lane_stages

__all__ = ["LanePlaces", "lane_places"]


class LanePlaces(msgspec.Struct, frozen=True, eq=False):
    """Per lane: its node, its first pipeline stage, its data parallel replica; -1 for none."""

    node: Ints
    stage: Ints
    replica: Ints


def lane_places(graph: Graph, node_of: Ints | None) -> LanePlaces:
    """Return where each lane belongs; `node_of` is the node of each rank, None if unknown."""
    ranks = graph.lane_rank
    node = np.full(len(ranks), -1, np.int64)
    if node_of is not None and len(ranks) and int(ranks.max()) < len(node_of):
        node = node_of[ranks]
    return LanePlaces(node, lane_stages(graph), _replicas(graph))


def _replicas(graph: Graph) -> Ints:
    """Return the place of each lane's rank in its data parallel group."""
    place: dict[int, int] = {}
    for group in graph.groups:
        if group.axis == "dp":
            for member, rank in enumerate(group.ranks):
                place.setdefault(rank, member)
    return np.array([place.get(rank, -1) for rank in graph.lane_rank.tolist()], dtype=np.int64)
