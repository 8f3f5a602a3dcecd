"""
Which way a connection goes: the library's choice among the segments that the cluster offers.

Within a node (or an NVLink domain) GPUs use their local route. Between nodes a rank uses its
nearest NIC. Where the two ends' NICs are on different rails, the data first crosses NVLink to
the GPU whose NIC is on the destination's rail (NCCL calls this PXN), if there is NVLink to
cross, and goes through the spine otherwise.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Ints
from commsim.cluster import Cluster, Route
from commsim.errors import TopologyError
from commsim.libraries.routing.columns import KindsOfPairs, RouteColumns, columns_of

__all__ = ["Router"]

_FEW = 64  # pairs that are as quickly routed one by one


class Router:
    """Routes between ranks of one cluster; every answer is kept.

    `pxn`: another GPU of the node may hand data to its NIC.
    """

    def __init__(self, cluster: Cluster, *, pxn: bool = True) -> None:
        self._cluster = cluster
        self.pxn = pxn
        self._routes: dict[tuple[int, int], Route] = {}
        self._relayed: dict[tuple[int, int], list[tuple[int, Route]]] = {}
        self._kinds: KindsOfPairs | None = None
        self._by_node = np.argsort(cluster.node_of, kind="stable")
        self._sorted_nodes = cluster.node_of[self._by_node]

    @property
    def cluster(self) -> Cluster:
        """The cluster that routes lead through."""
        return self._cluster

    def route(self, source: int, target: int) -> Route:
        """Return the route from one rank to another.

        Raises:
            TopologyError: no NIC, or no path between the two.
        """
        key = (source, target)
        if key not in self._routes:
            self._routes[key] = self._find(source, target)
        return self._routes[key]

    def columns(self, source: Ints, target: Ints) -> RouteColumns:
        """Return the routes from `source[i]` to `target[i]` as columns. Raises as `route` does."""
        if len(source) <= _FEW:
            pairs = zip(source.tolist(), target.tolist(), strict=True)
            return columns_of([self.route(a, b) for a, b in pairs])
        if self._kinds is None:
            self._kinds = KindsOfPairs(self._cluster)
        return self._kinds.columns(source, target, self.route)

    def by_nics(self, source: int, target: int, *, out: int, into: int, relay: int = -1) -> Route:
        """Return the route from one rank to another on another node, by the NICs named.

        `relay` is the rank whose GPU hands the data to NIC `out`; -1: the source itself.

        Raises:
            TopologyError: the fabric joins the two NICs nowhere.
        """
        key = source * self._cluster.world_size + target
        fabric = self._cluster.fabric_route(out, into, key=key)
        if fabric is None:
            raise TopologyError(
                f"rank {source} cannot reach rank {target} from NIC {out} to NIC {into}: they meet"
                " nowhere in this fabric. Use fabric kind rail_optimized or fat_tree."
            )
        cluster = self._cluster
        way = fabric + cluster.from_nic(into, target)
        if relay in (-1, source):
            return cluster.to_nic(source, out) + way
        hop = cluster.local_route(source, relay)
        assert hop is not None
        return hop + cluster.to_nic(relay, out) + way

    def speed(self, source: int, target: int) -> float:
        """Return the bytes per second that the route between two ranks can carry."""
        route = self.route(source, target)
        capacity = self._cluster.links.capacity
        return min(
            float(capacity[link]) / share
            for link, share in zip(route.link, route.share, strict=True)
        )

    def _find(self, source: int, target: int) -> Route:
        local = self._cluster.local_route(source, target)
        if local is not None:
            return local
        leaving, entering = self._nic(source), self._nic(target)
        rails = self._cluster.nics[leaving].rail, self._cluster.nics[entering].rail
        if rails[0] != rails[1] and self.pxn:
            over_nvlink = self._cross_rail(source, target, entering)
            if over_nvlink is not None:
                return over_nvlink
        key = source * self._cluster.world_size + target
        fabric = self._cluster.fabric_route(leaving, entering, key=key)
        if fabric is None:
            relay = (
                f"no NVLink joins rank {source} to a GPU on rail {rails[1]}"
                if self.pxn
                else "no GPU may relay (NCCL_PXN_DISABLE)"
            )
            raise TopologyError(
                f"rank {source} cannot reach rank {target}: their NICs are on rails {rails[0]} and"
                f" {rails[1]}, which meet nowhere in this fabric, and {relay}. Use fabric kind"
                " rail_optimized or fat_tree, or keep the group on one rail."
            )
        to_nic = self._cluster.to_nic(source, leaving)
        return to_nic + fabric + self._cluster.from_nic(entering, target)

    def _on_node(self, node: int) -> list[int]:
        """Return the ranks of a node, ascending."""
        first, end = np.searchsorted(self._sorted_nodes, (node, node + 1))
        ranks: list[int] = self._by_node[first:end].tolist()
        return ranks

    def _nic(self, rank: int) -> int:
        nics = self._cluster.nics_of(rank)
        if not nics:
            raise TopologyError(
                f"rank {rank} has no NIC to leave its node by. Give the node NICs"
                " (cluster: nics), or keep the group within one node."
            )
        return nics[0]

    def _cross_rail(self, source: int, target: int, entering: int) -> Route | None:
        """Return the route over NVLink to the node's GPU on the destination's rail, then its NIC.

        NCCL's PXN stays on one host, also where NVLink reaches further.
        """
        cluster = self._cluster
        key = source * cluster.world_size + target
        for nic, to_nic in self._relays(source, cluster.nics[entering].rail):
            fabric = cluster.fabric_route(nic, entering, key=key)
            if fabric is not None:
                return to_nic + fabric + cluster.from_nic(entering, target)
        return None

    def _relays(self, source: int, rail: int) -> list[tuple[int, Route]]:
        """Return the NICs on a rail that peers reach for a rank, and the way to each."""
        if (source, rail) not in self._relayed:
            found = self._relayed[source, rail] = []
            cluster = self._cluster
            for peer in self._on_node(int(cluster.node_of[source])):
                nic = self._nic(peer)
                if peer == source or cluster.nics[nic].rail != rail:
                    continue
                hop = cluster.local_route(source, peer)
                if hop and all(cluster.links.kinds[link] == "nvlink" for link in hop.link):
                    found.append((nic, hop + cluster.to_nic(peer, nic)))
        return self._relayed[source, rail]
