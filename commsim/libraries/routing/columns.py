"""
Many routes at once, as columns: found once per kind of pair, and shifted to the links of each.

A pair's route follows from the kinds of its two nodes, the leaves that their NICs hang on, and the
places of its ends within the nodes. All pairs that agree in these take the same way, on other
nodes' links (`Shifts`). So 100,000 pairs need a few hundred routes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from commsim.arrays import Floats, Ints
from commsim.cluster import Cluster, Route, Shifts

__all__ = ["KindsOfPairs", "RouteColumns", "columns_of"]


class RouteColumns(msgspec.Struct, frozen=True, eq=False):
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
        self._shifts = Shifts(cluster)

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
            self._shifts.shift(link, links, entry, np.repeat(nodes[place], sizes), nodes[owner])
        return RouteColumns(link, found.share[entry], first, count, found.latency[way])

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
            np.where(within, self._shifts.spec[node], self._shifts.kind[node]),
            np.where(within, 0, self._shifts.kind[other]),
            cluster.local_of[source],
            cluster.local_of[target],
        )
        key = np.zeros(len(source), np.int64)
        for part in parts:
            key = key * (int(part.max(initial=0)) + 1) + part
        return key
