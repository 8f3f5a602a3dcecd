"""
What an algorithm asks of a group's own links: seconds per byte on the busiest of them, and the
latency of the routes that its messages take.

Everything here is the cluster's: rates and latencies of the links of every node and route that
the group uses. What NCCL's software adds stands in the constants.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from commsim.arrays import Floats, Ints, distinct_columns
from commsim.cluster import NOWHERE, Cluster, Route
from commsim.libraries.expansion import Connections
from commsim.libraries.nccl.timing.runs import LinkKind
from commsim.libraries.routing import Router
from commsim.units import PS_PER_SECOND

__all__ = ["Latency", "LinkSeconds", "latency_of", "use_of"]


class LinkSeconds(msgspec.Struct, frozen=True):
    """Seconds for each byte of S on the busiest links, all nodes and paths of the group counted.

    `local`: of the links that join GPUs of a domain; `net`: of the links between domains, the
    way to the NICs among them. `leaving`: bytes out of the busiest node for each byte of S.
    """

    local: float
    net: float
    leaving: float


class Latency(msgspec.Struct, frozen=True):
    """Seconds of the routes between GPUs: mean and longest within a domain and between domains.

    A ring passes all its edges, so their mean counts; a tree waits for its longest branch, and
    sends that are grouped for the longest of all.
    """

    hop: float
    reach: float
    longest: float
    longest_hop: float


def use_of(link: Ints, share: Floats, cluster: Cluster, kind: LinkKind) -> LinkSeconds:
    """Return what shares of S on some links ask of them; `kind` joins the GPUs of a domain."""
    links = cluster.links
    if not len(link):
        return LinkSeconds(0.0, 0.0, 0.0)
    busy = share / links.capacity[link]
    kinds = np.array([links.kinds[each] for each in link.tolist()])
    local = kinds == "nvlink" if kind == LinkKind.NVLINK else kinds != "network"
    return LinkSeconds(
        float(busy[local].max(initial=0.0)),
        float(busy[~local].max(initial=0.0)),
        _leaving(link, share, cluster),
    )


def _leaving(link: Ints, share: Floats, cluster: Cluster) -> float:
    """Return the share of S that goes out of the NICs of the busiest node."""
    if not cluster.nics:
        return 0.0
    carried = np.zeros(len(cluster.links))
    carried[link] = share
    node, ports = cluster.nic_places[0], cluster.fabric.nic_links
    return float(np.bincount(node, weights=carried[ports]).max()) if len(ports) else 0.0


def latency_of(connections: Connections, router: Router) -> Latency:
    """Return the latencies of the routes of some connections; 0 if there are none."""
    if not len(connections.source):
        return Latency(0.0, 0.0, 0.0, 0.0)
    c = connections
    columns = (c.source, c.target, c.out, c.into, c.relay)
    first, where = distinct_columns(columns)
    unique = np.stack([column[first] for column in columns])
    count = np.bincount(where).astype(np.float64)
    named = unique[2] >= 0
    ps, between = np.zeros(unique.shape[1]), named.copy()
    ps[named] = _by_nics(unique[:, named], router.cluster)
    cluster = router.cluster
    source, target = unique[:2]
    inside = ~named & (cluster.node_of[source] == cluster.node_of[target])
    ends = source[inside], target[inside]
    ps[inside] = _within(cluster, *ends, cluster.local_of[ends[1]], _between_gpus(cluster))
    kinds = cluster.links.kinds
    for at in np.flatnonzero(~named & ~inside).tolist():
        route = router.route(int(unique[0, at]), int(unique[1, at]))
        ps[at] = route.latency
        between[at] = any(kinds[link] == "network" for link in route.link)
    return Latency(
        _mean(ps[~between], count[~between]),
        _mean(ps[between], count[between]),
        float(ps[between].max(initial=0.0)) / PS_PER_SECOND,
        float(ps[~between].max(initial=0.0)) / PS_PER_SECOND,
    )


def _mean(ps: Floats, count: Floats) -> float:
    return float(np.average(ps, weights=count)) / PS_PER_SECOND if len(ps) else 0.0


def _by_nics(columns: Ints, cluster: Cluster) -> Floats:
    """Return the ps of routes by named NICs (rows: source, target, out, into, relay)."""
    source, target, out, into, relay = columns
    relay = np.where(relay >= 0, relay, source)
    ports, leaf = cluster.fabric.nic_links, cluster.fabric.leaf_of_nic
    found: Floats = (cluster.links.latency[ports[out]] + cluster.links.latency[ports[into]]) * 1.0
    index = cluster.nic_places[1]
    found += _within(cluster, source, relay, cluster.local_of[relay], _between_gpus(cluster))
    found += _within(cluster, relay, out, index[out], cluster.to_nic)
    found += _within(cluster, target, into, index[into], lambda a, nic: cluster.from_nic(nic, a))
    pairs, where = np.unique(np.stack((leaf[out], leaf[into])), axis=1, return_inverse=True)
    across = [cluster.fabric.leaf_route(a, b) for a, b in pairs.T.tolist()]
    found += np.array([route.latency if route else 0 for route in across])[where.reshape(-1)]
    return found


def _between_gpus(cluster: Cluster) -> Callable[[int, int], Route]:
    """Return what gives the route from a rank to another of its node: none to itself."""

    def way(rank: int, other: int) -> Route:
        return (cluster.local_route(rank, other) if rank != other else None) or NOWHERE

    return way


def _within(
    cluster: Cluster, rank: Ints, end: Ints, place: Ints, way: Callable[[int, int], Route]
) -> Floats:
    """Return the ps of routes within nodes; `place` numbers the ends in a node.

    Each pair of places in a kind of node is computed once.
    """
    kind = cluster.kind_of_node[cluster.node_of[rank]]
    first, where = distinct_columns((kind, cluster.local_of[rank], place))
    ps = np.array([way(int(rank[at]), int(end[at])).latency for at in first.tolist()])
    found: Floats = ps[where].astype(np.float64)
    return found
