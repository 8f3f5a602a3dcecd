"""
What an op of one communicator moves over each link: the bytes of its rings, trees, pairs and heads,
and apart from them what an NVSwitch adds up or copies by itself.
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Floats, Ints
from commsim.cluster import Cluster
from commsim.libraries.expansion import LinkLoads, loads_of
from commsim.libraries.nccl.plans.edges import CommunicatorEdges
from commsim.libraries.nccl.plans.exchange import exchange_loads, identical_nodes
from commsim.libraries.nccl.shapes import Algorithm, Choice
from commsim.libraries.routing import Router

__all__ = ["LARGEST_EXCHANGE", "OpLoads", "OpLoadsOf"]

LARGEST_EXCHANGE = 256
"""Ranks up to which every pair of an all-to-all is routed by itself; beyond, pairs are counted."""

_CUT_OVER_CHANNELS = (Algorithm.Ring, Algorithm.Tree)
"""Algorithms whose channels have rings and trees of their own; the rest use all GPUs equally."""


class OpLoads(msgspec.Struct, frozen=True, eq=False):
    """Shares of S by link (ascending) and the connections that carry them.

    `multicast` is the part of `share` that goes through an NVSwitch's own arithmetic and copies.
    It counts no bytes that a link's payload efficiency is known for (that was measured on
    copies), so the timing model alone decides how fast it goes.
    """

    link: Ints
    share: Floats
    conns: Floats
    multicast: Floats

    @staticmethod
    def plain(loads: LinkLoads) -> OpLoads:
        """Return loads of which no switch does anything."""
        return OpLoads(loads.link, loads.share, loads.conns, np.zeros(len(loads.link)))

    def seconds_per_byte(self, capacity: Floats) -> float:
        """Return the seconds per byte of S that the busiest link needs; `capacity` by link id."""
        needs = (self.share - self.multicast) / capacity[self.link]
        return float(np.max(needs, initial=0.0))

    def bytes_in(self, size: float, seconds: float, capacity: Floats) -> Floats:
        """Return the bytes on each link. Only multicast is cut to what the time leaves room for."""
        room = capacity[self.link] * seconds - (self.share - self.multicast) * size
        cut = np.minimum(self.multicast * size, np.maximum(room, 0.0))
        found: Floats = (self.share - self.multicast) * size + cut
        return found


class OpLoadsOf:
    """The loads of one communicator's ops; every answer is kept.

    `cluster` has the direct ways, which lead to its NVSwitches even where `router` goes by hosts.
    """

    def __init__(self, edges: CommunicatorEdges, router: Router, cluster: Cluster) -> None:
        self._edges, self._router, self._cluster = edges, router, cluster
        self._known: dict[tuple[str, Algorithm | None, int, int], OpLoads] = {}

    def of(self, op: str, choice: Choice | None, root: int) -> OpLoads:
        """Return what an op does to the links; `choice` None for sends and receives."""
        algorithm = None if choice is None else choice.algorithm
        cut = choice is not None and algorithm in _CUT_OVER_CHANNELS
        channels = choice.channels if choice is not None and cut else 1
        key = (op, algorithm, channels, root)
        if key not in self._known:
            self._known[key] = self._make(op, algorithm, channels, root)
        return self._known[key]

    def _make(self, op: str, algorithm: Algorithm | None, channels: int, root: int) -> OpLoads:
        if algorithm is None:
            return OpLoads.plain(self._pairwise(op, root))
        plain = loads_of(self._edges.of(algorithm, op, channels, root), self._router)
        into, out = self._edges.switch_shares(algorithm, op)
        return self._with_switches(plain, into, out) if into else OpLoads.plain(plain)

    def _pairwise(self, op: str, root: int) -> LinkLoads:
        edges, router = self._edges, self._router
        if op == "all_to_all":
            nodes = identical_nodes(edges) if len(edges.gpus) > LARGEST_EXCHANGE else []
            if nodes:
                return exchange_loads(edges, nodes, router)
            return loads_of(edges.exchange(), router)
        if op == "send_recv":
            ranks = np.arange(len(edges.gpus))
            return loads_of(edges.pairs(ranks, np.roll(ranks, -1), 1.0), router)
        return loads_of(edges.fan(root, gather=op == "gather"), router)

    def _with_switches(self, loads: LinkLoads, into: float, out: float) -> OpLoads:
        """Add what each GPU sends into and takes out of the switch of its domain."""
        ports = np.array([self._port(*ends) for ends in self._neighbours()], dtype=np.int64)
        multicast = np.repeat([into, out], len(ports))
        link = np.concatenate((loads.link, ports[:, 0], ports[:, 1]))
        plain = np.concatenate((loads.share, np.zeros(2 * len(ports))))
        conns = np.concatenate((loads.conns, np.ones(2 * len(ports))))
        in_switch = np.concatenate((np.zeros(len(loads.link)), multicast))
        used, where = np.unique(link, return_inverse=True)
        total, count, own = (
            np.bincount(where, weights=column).astype(np.float64)
            for column in (plain + in_switch, conns, in_switch)
        )
        return OpLoads(used, total, count, own)

    def _neighbours(self) -> list[tuple[int, int]]:
        """Return each member's GPU with that of the first other member in its domain."""
        edges = self._edges
        order = np.argsort(edges.node, kind="stable")
        _, start, domain = np.unique(edges.node, return_index=True, return_inverse=True)
        first = start[domain.reshape(-1)]  # by member
        begin = np.searchsorted(edges.node[order], edges.node)
        second = order[np.minimum(begin + 1, len(order) - 1)]
        peer = np.where(first == np.arange(len(first)), second, first)
        return list(zip(edges.gpus.tolist(), edges.gpus[peer].tolist(), strict=True))

    def _port(self, one: int, other: int) -> tuple[int, int]:
        """Return the links of a GPU into its NVSwitch and out of it; `other` is beside it."""
        route, back = self._cluster.local_route(one, other), self._cluster.local_route(other, one)
        assert route is not None
        assert back is not None
        return route.link[0], back.link[-1]
