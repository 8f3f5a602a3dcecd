"""
Many routes at once, as columns: found once per kind of pair, and shifted to the links of each.

A pair's route follows from the kinds of its two nodes, the leaves that their NICs hang on, and the
places of its ends within the nodes. All pairs that agree in these take the same way, only on
other nodes' links: a link within a node is as far from the node's first link, and a NIC as far from
the node's first NIC. So 100,000 pairs need a few hundred routes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from commsim.arrays import Floats, Ints
from commsim.cluster import Cluster, Route

__all__ = ["KindsOfPairs", "RouteColumns", "columns_of"]


@dataclass(frozen=True, slots=True, eq=False)
class RouteColumns:
    """Routes as columns; those of route i begin at `first[i]` of `link` and `share`.

    `count[i]` links belong to it (at least one), and its latency is in ps.
    """

    link: Ints
    share: Floats
    first: Ints
    count: Ints
    latency: Floats


def columns_of(routes: Sequence[Route]) -> RouteColumns:
    """Return single routes as columns."""
    count = np.array([len(route.link) for route in routes], dtype=np.int64)
    return RouteColumns(
        np.array([link for route in routes for link in route.link], dtype=np.int64),
        np.array([share for route in routes for share in route.share]),
        np.cumsum(count) - count,
        count,
        np.array([route.latency for route in routes], dtype=np.float64),
    )


class KindsOfPairs:
    """Tells pairs of ranks of one cluster apart by what their routes follow from."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        nodes = range(len(cluster.node_names))
        self._first_link = np.array([cluster.first_link(node) for node in nodes], dtype=np.int64)
        self._first_nic = np.array([cluster.first_nic(node) for node in nodes], dtype=np.int64)
        self._spec = np.asarray(cluster.spec_of, dtype=np.int64)
        rows = [len(cluster.template(kind).rows) for kind in range(len(cluster.specs))]
        self._end_link = self._first_link + np.array(rows, dtype=np.int64)[self._spec]
        self._up = cluster.fabric.nic_links
        self._nic = np.full(len(cluster.links), -1)  # of the links of NICs, both ways
        self._nic[self._up] = self._nic[self._up + 1] = np.arange(len(self._up))
        self._nic_node = np.array([nic.node for nic in cluster.nics], dtype=np.int64)
        self._kind = self._kinds_of_nodes()

    def columns(
        self, source: Ints, target: Ints, route: Callable[[int, int], Route]
    ) -> RouteColumns:
        """Return the routes from `source[i]` to `target[i]`; `route` finds one.

        Raises what `route` raises.
        """
        ends = np.stack((self._cluster.node_of[source], self._cluster.node_of[target]))
        _, place, way = np.unique(
            self._keys(source, target), return_index=True, return_inverse=True
        )
        ways = zip(source[place].tolist(), target[place].tolist(), strict=True)
        found = columns_of([route(a, b) for a, b in ways])
        links, sizes = found.link, found.count
        count = sizes[way]
        first = np.cumsum(count) - count
        entry = np.arange(len(first) and int(count.sum()))
        entry += np.repeat(found.first[way] - first, count)
        owner = np.repeat(np.arange(len(way)), count)
        link = links[entry]
        for nodes in ends:
            self._shift(link, links, entry, np.repeat(nodes[place], sizes), nodes[owner])
        return RouteColumns(link, found.share[entry], first, count, found.latency[way])

    def _shift(self, link: Ints, links: Ints, entry: Ints, home: Ints, nodes: Ints) -> None:
        """Shift the links of `home` to those of `nodes`, in place; all other links stay.

        `links` are those of the routes that were found, the first pair of each having one end on
        `home`; `link[i]` begins as `links[entry[i]]` and belongs to a pair with that end on
        `nodes[i]`.
        """
        inside = (self._first_link[home] <= links) & (links < self._end_link[home])
        moved = np.flatnonzero(inside[entry])
        offset = (links - self._first_link[home])[entry[moved]]
        link[moved] = self._first_link[nodes[moved]] + offset
        nic = self._nic[links]
        inside = (nic >= 0) & (self._nic_node[nic] == home)
        moved = np.flatnonzero(inside[entry])
        offset = (nic - self._first_nic[home])[entry[moved]]
        back = (links - self._up[nic])[entry[moved]] if len(moved) else offset
        link[moved] = self._up[self._first_nic[nodes[moved]] + offset] + back

    def _kinds_of_nodes(self) -> Ints:
        """Number nodes: equal for those of one kind, with equal GPUs in use, on the same leaves."""
        cluster = self._cluster
        leaf, known = cluster.fabric.leaves.of, dict[tuple[object, ...], int]()
        order = np.argsort(cluster.node_of, kind="stable")
        used = cluster.local_of[order]
        cuts = np.searchsorted(cluster.node_of[order], np.arange(len(self._spec) + 1)).tolist()
        ends = np.append(self._first_nic[1:], len(leaf)).tolist()
        nodes = zip(self._spec.tolist(), self._first_nic.tolist(), ends, strict=True)
        return np.array(
            [
                known.setdefault(
                    (spec, leaf[start:end], used[cuts[node] : cuts[node + 1]].tobytes()), len(known)
                )
                for node, (spec, start, end) in enumerate(nodes)
            ],
            dtype=np.int64,
        )

    def _keys(self, source: Ints, target: Ints) -> Ints:
        """Return a number per pair, equal for pairs that take the same way."""
        cluster = self._cluster
        node, other = cluster.node_of[source], cluster.node_of[target]
        within, domain = node == other, cluster.domain_of_node
        if cluster.fabric.spec.ecmp == "hash":  # each connection has a path of its own
            singly = np.where(within, 0, 1 + np.arange(len(source)))
        else:
            singly = np.where(within, 0, 1 + (domain[node] == domain[other]))
        parts = (
            singly,
            np.where(within, self._spec[node], self._kind[node]),
            np.where(within, 0, self._kind[other]),
            cluster.local_of[source],
            cluster.local_of[target],
        )
        key = np.zeros(len(source), np.int64)
        for part in parts:
            key = key * (int(part.max(initial=0)) + 1) + part
        return key
