"""
What many connections at once do to the links, as arrays: bytes and connections per link.

Connections within nodes of one kind are computed once and shifted to every node's links, so
that the rings of 2,048 nodes cost milliseconds; only those through the fabric are routed one by
one, each pair of NICs once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from commsim.arrays import Floats, Ints, Whole, distinct_columns
from commsim.cluster import Cluster, Route
from commsim.libraries.routing import Router

__all__ = ["Connections", "LinkLoads", "loads_of", "no_loads"]


_NEAREST = -1


class Connections(msgspec.Struct, frozen=True, eq=False):
    """Columns over connections: from rank to rank, and the share of S that each carries.

    `out` and `into` are the NICs that it leaves and enters by, `relay` the rank whose GPU hands
    the data to the first (its own, or one that it reaches over NVLink); -1 leaves that to the
    router.
    """

    source: Ints
    target: Ints
    share: Floats
    out: Whole
    into: Whole
    relay: Whole

    @staticmethod
    def of(source: Ints, target: Ints, share: Floats | float) -> Connections:
        """Return connections whose NICs the router chooses."""
        none = np.full(len(source), _NEAREST)
        shares = np.broadcast_to(np.asarray(share, dtype=np.float64), source.shape)
        return Connections(source, target, shares, none, none, none)

    @staticmethod
    def joined(several: Sequence[Connections]) -> Connections:
        """Return all connections of several."""
        columns = (
            np.concatenate([getattr(one, name) for one in several])
            for name in ("source", "target", "share", "out", "into", "relay")
        )
        return Connections(*columns)


class LinkLoads(msgspec.Struct, frozen=True, eq=False):
    """Links (ascending), the share of S that each carries, and over how many connections."""

    link: Ints
    share: Floats
    conns: Floats


def no_loads() -> LinkLoads:
    """Return the loads of nothing."""
    return LinkLoads(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


def loads_of(connections: Connections, router: Router) -> LinkLoads:
    """Add up what connections do to the links of the router's cluster.

    Raises:
        TopologyError: two ranks cannot reach each other.
    """
    if not len(connections.source):
        return no_loads()
    merged, count = _merged(connections)
    del connections  # millions, of a tree of 100,000 ranks
    cluster = router.cluster
    within = cluster.node_of[merged.source] == cluster.node_of[merged.target]
    alone = np.array([spec.domain_nodes == 1 for spec in cluster.specs])
    within &= alone[cluster.kind_of_node[cluster.node_of[merged.source]]]
    named = ~within & (merged.out != _NEAREST)
    if cluster.fabric.spec.ecmp == "hash":
        named[:] = False  # each connection has a path of its own
    entries = [
        *_within_nodes(merged, count, np.flatnonzero(within), cluster),
        *_by_named_nics(merged, count, np.flatnonzero(named), router),
        *_one_by_one(merged, count, np.flatnonzero(~within & ~named), router),
    ]
    link = np.concatenate([one[0] for one in entries])
    used, where = np.unique(link, return_inverse=True)
    share, conns = (
        np.bincount(where, weights=np.concatenate([one[at] for one in entries])).astype(np.float64)
        for at in (1, 2)
    )
    return LinkLoads(used, share, conns)


def _merged(connections: Connections) -> tuple[Connections, Floats]:
    """Return connections of equal ends and NICs as one, and how many each stands for."""
    c = connections
    first, where = distinct_columns((c.source, c.target, c.out, c.into, c.relay))
    share = np.bincount(where, weights=c.share).astype(np.float64)
    ends, nics = (c.source[first], c.target[first]), (c.out[first], c.into[first], c.relay[first])
    merged = Connections(*ends, share, *nics)
    return merged, np.bincount(where).astype(np.float64)


Entry = tuple[Ints, Floats, Floats]


def _within_nodes(
    connections: Connections, count: Floats, chosen: Ints, cluster: Cluster
) -> list[Entry]:
    """Return (links, shares, connections) of what stays in a node, one entry per kind of pair."""
    if not chosen.size:
        return []
    source, target = connections.source[chosen], connections.target[chosen]
    kind = cluster.kind_of_node[cluster.node_of[source]]
    places = cluster.local_of[source], cluster.local_of[target]
    first, where = distinct_columns((kind, *places))
    starts = cluster.first_of_node[0][cluster.node_of[source]]
    entries = []
    for number, at in enumerate(first.tolist()):
        route = cluster.local_route(int(source[at]), int(target[at]))
        assert route is not None
        mine = np.flatnonzero(where == number)
        offset = np.asarray(route.link, dtype=np.int64) - starts[at]
        entries.append(
            _spread(
                (starts[mine][:, None] + offset).reshape(-1),
                route,
                connections.share[chosen][mine],
                count[chosen][mine],
            )
        )
    return entries


def _by_named_nics(
    connections: Connections, count: Floats, chosen: Ints, router: Router
) -> list[Entry]:
    """Return the entries of connections whose NICs are known: to the NIC, across, and from it."""
    if not chosen.size:
        return []
    c, cluster = connections, router.cluster
    source, target, out, into = c.source[chosen], c.target[chosen], c.out[chosen], c.into[chosen]
    relay = np.where(c.relay[chosen] >= 0, c.relay[chosen], source)
    share, number = c.share[chosen], count[chosen]
    hops = relay != source
    hop = Connections(source[hops], relay[hops], share[hops], *(np.full(hops.sum(), -1),) * 3)
    ports = cluster.fabric.nic_links
    return [
        *_within_nodes(hop, number[hops], np.arange(len(hop.source)), cluster),
        *_at_nics(relay, out, share, number, cluster.to_nic, cluster),
        (ports[out], share, number),
        *_across(out, into, share, number, cluster, lambda at: _refuse(c, chosen[at], router)),
        (ports[into] + 1, share, number),
        *_at_nics(target, into, share, number, lambda r, n: cluster.from_nic(n, r), cluster),
    ]


def _at_nics(
    rank: Ints,
    nic: Ints,
    share: Floats,
    count: Floats,
    way: Callable[[int, int], Route],
    cluster: Cluster,
) -> list[Entry]:
    """Return what ranks and NICs of their nodes exchange, computed once per kind of place."""
    node = cluster.node_of[rank]
    starts, first_nic = (first[node] for first in cluster.first_of_node)
    places = cluster.local_of[rank], nic - first_nic
    first, where = distinct_columns((cluster.kind_of_node[node], *places))
    entries = []
    for number, at in enumerate(first.tolist()):
        route = way(int(rank[at]), int(nic[at]))
        mine = np.flatnonzero(where == number)
        offset = np.asarray(route.link, dtype=np.int64) - starts[at]
        link = (starts[mine][:, None] + offset).reshape(-1)
        entries.append(_spread(link, route, share[mine], count[mine]))
    return entries


def _across(
    out: Ints,
    into: Ints,
    share: Floats,
    count: Floats,
    cluster: Cluster,
    refuse: Callable[[int], None],
) -> list[Entry]:
    """Return the entries between the leaves of NICs; `refuse(row)` raises if they never meet."""
    leaf = cluster.fabric.leaf_of_nic
    first, where = distinct_columns((leaf[out], leaf[into]))
    pairs = np.stack((leaf[out[first]], leaf[into[first]]))
    shares = np.bincount(where, weights=share).astype(np.float64)
    counts = np.bincount(where, weights=count)
    entries = []
    ends = [(a, b) for a, b in pairs.T.tolist()]
    for number, route in enumerate(cluster.fabric.leaf_routes(ends, shares)):
        if route is None:
            refuse(int(first[number]))
            continue
        link, part = np.asarray(route.link, dtype=np.int64), np.asarray(route.share[1:-1])
        entries.append((link, part * shares[number], part * counts[number]))
    return entries


def _refuse(connections: Connections, row: int, router: Router) -> None:
    c = connections
    router.by_nics(
        int(c.source[row]), int(c.target[row]), out=int(c.out[row]), into=int(c.into[row])
    )


def _one_by_one(
    connections: Connections, count: Floats, chosen: Ints, router: Router
) -> list[Entry]:
    entries = []
    c = connections
    columns = (c.source, c.target, c.out, c.into, c.relay)
    rows = zip(*(column[chosen].tolist() for column in columns), strict=True)
    for at, (source, target, out, into, relay) in zip(chosen.tolist(), rows, strict=True):
        if out == _NEAREST:
            route = router.route(source, target)
        else:
            route = router.by_nics(source, target, out=out, into=into, relay=relay)
        link = np.asarray(route.link, dtype=np.int64)
        entries.append(_spread(link, route, c.share[at : at + 1], count[at : at + 1]))
    return entries


def _spread(link: Ints, route: Route, share: Floats, count: Floats) -> Entry:
    """Return the entries of connections that all take `route`, shifted: links row by row."""
    part = np.asarray(route.share)
    return link, np.outer(share, part).reshape(-1), np.outer(count, part).reshape(-1)
