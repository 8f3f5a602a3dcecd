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

from commsim.arrays import Bools
from commsim.cluster import Cluster
from commsim.libraries.routing.routes import Router

__all__ = ["channel_orders", "neighbours"]

_LARGEST_SEARCH = 12  # members; a search for a fast ring among more could take long


def channel_orders(
    cluster: Cluster, router: Router, ranks: tuple[int, ...], *, channels: int = 0
) -> list[list[int]]:
    """Return, per channel, member indices in the order in which an algorithm numbers them.

    `channels` = 0 takes one per NIC that the smallest node's members can use.
    """
    nodes: dict[int, list[int]] = {}
    for member, rank in enumerate(ranks):
        nodes.setdefault(cluster.domain_of(rank), []).append(member)
    local = _local_orders(cluster, router, ranks, list(nodes.values()))
    if len(local) == 1:
        count = channels or 1
    else:
        count = channels or min(_nics(cluster, ranks, members) for members in local)
    return [[m for members in local for m in _rotated(members, c, count)] for c in range(count)]


def _local_orders(
    cluster: Cluster, router: Router, ranks: tuple[int, ...], nodes: list[list[int]]
) -> list[list[int]]:
    """Return the members of each node in their order; nodes of one kind have one order."""
    kept: dict[tuple[object, ...], list[int]] = {}
    orders = []
    for members in nodes:
        places = tuple(
            (int(cluster.node_of[ranks[m]]), int(cluster.local_of[ranks[m]])) for m in members
        )
        first = places[0][0]
        key = tuple((cluster.spec_of[node], node - first, local) for node, local in places)
        if key not in kept:
            order = _fast_order(router, ranks, members)
            kept[key] = [members.index(m) for m in order]
        orders.append([members[at] for at in kept[key]])
    return orders


def _rotated(members: list[int], channel: int, channels: int) -> list[int]:
    shift = channel * len(members) // channels % len(members)
    return members[shift:] + members[:shift]


def _nics(cluster: Cluster, ranks: tuple[int, ...], members: list[int]) -> int:
    """Return how many NICs the members of a node use between them, at least 1."""
    nearest = {cluster.nics_of(ranks[m])[0] for m in members if cluster.nics_of(ranks[m])}
    return max(1, len(nearest))


def _fast_order(router: Router, ranks: tuple[int, ...], members: list[int]) -> list[int]:
    """Return the members of a node so that neighbours on a ring have the fastest links.

    Members keep their order if all pairs are equally fast, or are too many to search.
    """
    n = len(members)
    if not 3 < n <= _LARGEST_SEARCH:
        return members
    speed = np.full((n, n), np.inf)
    for i in range(n):
        for j in range(n):
            if i != j:
                speed[i, j] = router.speed(ranks[members[i]], ranks[members[j]])
    both = np.minimum(speed, speed.T)
    floors = np.unique(both[np.isfinite(both)])
    slowest = min(both[a, b] for a, b in neighbours(list(range(n))))
    best, low, high = None, int(np.searchsorted(floors, slowest)) + 1, len(floors)
    while low < high:  # the fastest floor at which a ring exists, by bisection
        middle = (low + high) // 2
        ring = _ring(both >= floors[middle])
        best, low, high = (ring, middle + 1, high) if ring else (best, low, middle)
    return [members[i] for i in best] if best else members


def _ring(allowed: Bools) -> list[int] | None:
    """Return a ring over all members along allowed pairs, None if there is none.

    `ends[visited]` holds, as bits, where a path from member 0 over exactly those members can
    end (Held and Karp's recursion); the ring is read back from the full set.
    """
    n = len(allowed)
    near = [sum(1 << j for j in range(n) if j != i and allowed[i, j]) for i in range(n)]
    ends = [0] * (1 << n)
    ends[1] = 1
    for visited in range(3, 1 << n, 2):
        for last in range(1, n):
            if visited >> last & 1 and ends[visited ^ (1 << last)] & near[last]:
                ends[visited] |= 1 << last
    visited, options = (1 << n) - 1, near[0]
    ring: list[int] = []
    while visited != 1:
        possible = ends[visited] & options
        if not possible:
            return None
        last = (possible & -possible).bit_length() - 1
        ring.append(last)
        visited, options = visited ^ (1 << last), near[last]
    return [0, *reversed(ring)]


def neighbours(order: list[int]) -> list[tuple[int, int]]:
    """Return the edges of the ring through `order`, the closing one last."""
    return [*pairwise(order), (order[-1], order[0])]
