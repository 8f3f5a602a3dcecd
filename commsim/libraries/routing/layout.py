"""
In which order a group's members stand in an algorithm, once per channel.

Members of one node stand together, so that each node is left and entered once. Where a node
has several NICs, one order would use only one of them: so there is one channel per NIC, each
with the node's members rotated, and the bytes are split evenly over the channels. Within a
node whose GPUs are not all equally near (a mesh), a ring follows the fast links.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np

from commsim.arrays import Bools, Ints, distinct
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
    kinds = _kinds_of_nodes(cluster, router, ranks)
    if len(kinds) == 1 and len(kinds[0].members) == 1:
        count = channels or 1
    else:
        count = channels or min(kind.nics for kind in kinds)
    return [_order(kinds, channel, count) for channel in range(count)]


class _Kind(msgspec.Struct, frozen=True, eq=False):
    """Nodes (or NVLink domains) whose members stand equally: a row of members in order for each.

    `at` says which node of the group each row is; the members of one use `nics` NICs.
    """

    at: Ints
    members: Ints
    nics: int


def _kinds_of_nodes(cluster: Cluster, router: Router, ranks: tuple[int, ...]) -> list[_Kind]:
    """Return the nodes of a group by kind, the members of each in their order."""
    rank = np.asarray(ranks, dtype=np.int64)
    _, first, where = np.unique(cluster.domains[rank], return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))  # nodes in the order of their first members
    member = np.argsort(place[where.reshape(-1)], kind="stable")
    cuts = np.searchsorted(place[where.reshape(-1)][member], np.arange(len(first) + 1))
    node = cluster.node_of[rank[member]]
    base = np.repeat(node[cuts[:-1]], np.diff(cuts))
    facts = (cluster.kind_of_node[node], node - base, cluster.local_of[rank[member]])
    stand = np.ascontiguousarray(np.stack(facts, axis=1))
    rows: dict[bytes, list[int]] = {}
    bounds = list(pairwise(cuts.tolist()))
    for at, (start, end) in enumerate(bounds):
        rows.setdefault(stand[start:end].tobytes(), []).append(at)
    kinds = []
    for same in rows.values():
        some = np.stack([member[slice(*bounds[at])] for at in same])
        some = some[:, _fast_order(router, ranks, some[0].tolist())]
        kinds.append(_Kind(np.array(same), some, _nics(cluster, ranks, some[0].tolist())))
    return kinds


def _order(kinds: list[_Kind], channel: int, channels: int) -> list[int]:
    """Return the members in the order of a channel: node by node, each node's rotated."""
    size = np.zeros(sum(len(kind.at) for kind in kinds), np.int64)
    for kind in kinds:
        size[kind.at] = kind.members.shape[1]
    first = np.cumsum(size) - size
    order = np.empty(int(size.sum()), np.int64)
    for kind in kinds:
        count = kind.members.shape[1]
        places = first[kind.at][:, None] + np.arange(count)
        order[places] = np.roll(kind.members, -(channel * count // channels), axis=1)
    members: list[int] = order.tolist()
    return members


def _nics(cluster: Cluster, ranks: tuple[int, ...], members: list[int]) -> int:
    """Return how many NICs the members of a node use between them, at least 1."""
    nearest = {cluster.nics_of(ranks[m])[0] for m in members if cluster.nics_of(ranks[m])}
    return max(1, len(nearest))


def _fast_order(router: Router, ranks: tuple[int, ...], members: list[int]) -> list[int]:
    """Return in which order a node's members have neighbours on a ring over the fastest links.

    They keep their order if all pairs are equally fast, or are too many to search.
    """
    n = len(members)
    if not 3 < n <= _LARGEST_SEARCH:
        return list(range(n))
    speed = np.full((n, n), np.inf)
    for i in range(n):
        for j in range(n):
            if i != j:
                speed[i, j] = router.speed(ranks[members[i]], ranks[members[j]])
    both = np.minimum(speed, speed.T)
    floors = distinct(both[np.isfinite(both)])
    slowest = min(both[a, b] for a, b in neighbours(list(range(n))))
    best, low, high = None, int(np.searchsorted(floors, slowest)) + 1, len(floors)
    while low < high:  # the fastest floor at which a ring exists, by bisection
        middle = (low + high) // 2
        ring = _ring(both >= floors[middle])
        best, low, high = (ring, middle + 1, high) if ring else (best, low, middle)
    return best or list(range(n))


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
