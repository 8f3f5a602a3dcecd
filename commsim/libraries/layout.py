"""
In which order a group's members stand in an algorithm, once per channel.

Members of one node stand together, so that each node is left and entered once. Where a node
has several NICs, one order would use only one of them: so there is one channel per NIC, each
with the node's members rotated, and the bytes are split evenly over the channels. Within a
node whose GPUs are not all equally near (a mesh), a ring follows the fast links.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from commsim.cluster import Cluster
from commsim.libraries.routes import Router

__all__ = ["channel_orders"]

_LARGEST_SEARCH = 12  # members; a search for a fast ring among more could take long


def channel_orders(
    cluster: Cluster, router: Router, ranks: tuple[int, ...], *, channels: int = 0
) -> list[list[int]]:
    """Return, per channel, member indices in the order in which an algorithm numbers them.

    `channels` = 0 takes one per NIC that the smallest node's members can use.
    """
    nodes: dict[int, list[int]] = {}
    for member, rank in enumerate(ranks):
        nodes.setdefault(int(cluster.domain_of[rank]), []).append(member)
    local = [_fast_order(router, ranks, members) for members in nodes.values()]
    if len(local) == 1:
        count = channels or 1
    else:
        count = channels or min(_nics(cluster, ranks, members) for members in local)
    return [[m for members in local for m in _rotated(members, c, count)] for c in range(count)]


def _rotated(members: list[int], channel: int, channels: int) -> list[int]:
    shift = channel * len(members) // channels % len(members)
    return members[shift:] + members[:shift]


def _nics(cluster: Cluster, ranks: tuple[int, ...], members: list[int]) -> int:
    """Return how many NICs the members of a node use between them, at least 1."""
    nearest = {cluster.nics_of(ranks[m])[0] for m in members if cluster.nics_of(ranks[m])}
    return max(1, len(nearest))


def _fast_order(router: Router, ranks: tuple[int, ...], members: list[int]) -> list[int]:
    """Return the members of a node so that neighbours on a ring have the fastest links.

    Members keep their order where all pairs are equally fast, or are too many to search.
    """
    n = len(members)
    if not 3 < n <= _LARGEST_SEARCH:
        return members
    speed = np.full((n, n), np.inf)
    for i in range(n):
        for j in range(n):
            if i != j:
                speed[i, j] = router.speed(ranks[members[i]], ranks[members[j]])
    for floor in np.unique(speed[np.isfinite(speed)])[::-1]:
        ring = _ring(np.minimum(speed, speed.T) >= floor, [0])
        if ring is not None:
            return [members[i] for i in ring]
    return members


def _ring(allowed: np.ndarray, path: list[int]) -> list[int] | None:  # type: ignore[type-arg]
    """Return a closed walk over all members along allowed pairs, by depth-first search."""
    n = len(allowed)
    if len(path) == n:
        return path if allowed[path[-1], path[0]] else None
    for following in range(n):
        if following not in path and allowed[path[-1], following]:
            found = _ring(allowed, [*path, following])
            if found is not None:
                return found
    return None


def neighbours(order: list[int]) -> list[tuple[int, int]]:
    """Return the edges of the ring through `order`, the closing one last."""
    return [*pairwise(order), (order[-1], order[0])]
