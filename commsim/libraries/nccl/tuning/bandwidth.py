"""
The bandwidths of NCCL's tuning model: the searched graph's, held back by what was once measured.

Bus bandwidth = channels x the speed of one, within limits per GPU generation, CPU and node count
(one, two, more); algorithm bandwidth = that x what the algorithm makes of it.

Follows ncclTopoTuneModel (src/graph/tuning.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

from commsim.libraries.nccl.shapes import (
    Algorithm,
    Communicator,
    CpuVendor,
    Pattern,
    Protocol,
    SearchGraph,
)
from commsim.libraries.nccl.tuning.tables import Tables
from commsim.libraries.nccl.tuning.terms import COLLNET, GATHERING, NVLS, single, steps

__all__ = ["Bandwidths"]

# Shares of the graph's bandwidth that ncclTopoTuneModel writes as literals.
_TREE_SHARE = 0.92
_TREE_LL_DIVISOR = 3.8
_TREE_LL128_SHARE = 7 / 9  # in one node
_LL128_PAYLOAD = 120 / 128  # bytes of data in a line of LL128
_RING_LL128_SHARE = 0.92
_NET_SHARE = 0.9  # of all-gather and reduce-scatter through switches


class Bandwidths:
    """Bandwidths on one communicator, by one release's tables."""

    def __init__(self, comm: Communicator, tables: Tables) -> None:
        self.comm, self.tables = comm, tables
        self.n, self.nodes = comm.n_ranks, comm.n_nodes
        self.per_node = single(self.n / self.nodes)
        self.scale = min(self.nodes, 3) - 1
        self.generation = tables.generation(comm.min_compute_capability)

    def of(self, op: str, algorithm: Algorithm, protocol: Protocol, graph: SearchGraph) -> float:
        """Return the algorithm bandwidth (GB/s); 0: not usable."""
        bus = self._bus_bandwidth(op, algorithm, protocol, graph)
        if op in GATHERING and algorithm.name not in self.tables.gather_ratio:
            return bus
        return single(bus * self._ratio(op, algorithm))

    def _bus_bandwidth(
        self, op: str, algorithm: Algorithm, protocol: Protocol, graph: SearchGraph
    ) -> float:
        bus = single(graph.n_channels * self._channel_bandwidth(op, algorithm, graph))
        if algorithm is Algorithm.Ring:
            return self._ring_bandwidth(op, protocol, bus, graph)
        if algorithm is Algorithm.Tree:
            return self._tree_bandwidth(protocol, bus, graph)
        if algorithm is Algorithm.PAT:
            return single(bus * self.tables.pat_share)
        if algorithm is Algorithm.CollNetDirect:
            return self._collnet_direct_bandwidth(op, bus, graph)
        return bus

    def _channel_bandwidth(self, op: str, algorithm: Algorithm, graph: SearchGraph) -> float:
        """Return the speed of one channel: within nodes up to two nodes, between them beyond."""
        if algorithm in NVLS and self.tables.nvls_bandwidth != "graph":
            return self._nvls_bandwidth(op, algorithm, graph)
        within = self.nodes <= 2 or algorithm in COLLNET
        return graph.bw_intra if within else graph.bw_inter

    def _nvls_bandwidth(self, op: str, algorithm: Algorithm, graph: SearchGraph) -> float:
        if self.tables.nvls_bandwidth == "efficiency":
            return self._nvls_by_efficiency(op, algorithm, graph)
        if algorithm is Algorithm.NVLSTree:
            inter = graph.bw_inter if self.nodes <= 2 else graph.bw_inter / 2
            return min(graph.bw_intra, inter)
        if self.tables.nvls_bandwidth == "gather" and op in GATHERING:
            own = graph.bw_intra * (self.per_node - 1) / self.per_node
            return min(single(own), single(graph.bw_inter * single(_NET_SHARE)))
        return min(graph.bw_intra, graph.bw_inter)

    def _nvls_by_efficiency(self, op: str, algorithm: Algorithm, graph: SearchGraph) -> float:
        """One channel less works (it synchronises); an all-reduce pipelines two operations."""
        heads = graph.n_channels
        efficiency = single(self.tables.nvls_efficiency[self.generation])
        intra = single(graph.bw_intra * efficiency * (heads - 1) / heads)
        own = 2.0 if op == "all_reduce" else (self.per_node - 1) / self.per_node
        limits = [single(intra * single(own))]
        both_ways = self.nodes <= 2 and algorithm is Algorithm.NVLSTree
        limits.append(graph.bw_inter * (2 if both_ways else 1))
        if algorithm is Algorithm.NVLSTree:
            limits.append(single(self.tables.nvlstree_channel[self.generation][self.scale]))
        return min(limits)

    def _ring_bandwidth(self, op: str, protocol: Protocol, bus: float, graph: SearchGraph) -> float:
        tables = self.tables
        if protocol is Protocol.LL:
            heavy = self.nodes > 1 or op in ("all_reduce", "reduce")
            share = tables.ring_ll_share["heavy" if heavy else "light"]
            return single(min(self._ll_max(), bus * share))
        if protocol is Protocol.LL128:
            channel = tables.ring_ll128_channel[self.generation][self.scale]
            share = tables.ring_ll128_alone if self.per_node < 2 else _RING_LL128_SHARE
            return single(min(bus * share, graph.n_channels * channel))
        return bus

    def _tree_bandwidth(self, protocol: Protocol, bus: float, graph: SearchGraph) -> float:
        tables, channels = self.tables, graph.n_channels
        limit = channels * tables.tree_channel[self.generation][self.scale]
        bus = single(min(bus * _TREE_SHARE, limit))
        if protocol is Protocol.LL:
            bus = single(min(bus / _TREE_LL_DIVISOR, self._ll_max()))
        elif protocol is Protocol.LL128:
            share = _TREE_LL128_SHARE if self.nodes == 1 else _LL128_PAYLOAD
            channel = tables.tree_ll128_channel[self.generation][self.scale]
            bus = single(min(bus * share, channels * channel))
        if graph.pattern is Pattern.TREE:
            bus = single(bus * tables.tree_pattern_share)
        return bus

    def _collnet_direct_bandwidth(self, op: str, bus: float, graph: SearchGraph) -> float:
        """Full speed needs a NIC for each GPU."""
        if op in GATHERING:
            if self.tables.collnet_gather == "minimum":
                slower = min(graph.bw_intra, single(graph.bw_inter * _NET_SHARE))
                return single(self.per_node * slower)
            weight = (self.per_node - 1) / 7
            return single(self.per_node * graph.bw_intra * (weight * 0.85 + (1 - weight) * 0.95))
        factor = single(self.per_node / graph.n_channels)
        bus = single(bus / single(factor - (factor - 1) / 2))
        return single(bus * 0.85) if self.comm.min_compute_capability >= 90 else bus

    def _ll_max(self) -> float:
        """Return LL's limit: the GPU's in one node, the CPU's between nodes."""
        if self.nodes == 1:
            return self.tables.ll_max[self.generation][0]
        slow = self.comm.cpu_vendor in (CpuVendor.AMD, CpuVendor.MIXED)
        return self.tables.ll_max["ampere" if slow else "volta"][self.scale]

    def _ratio(self, op: str, algorithm: Algorithm) -> float:
        """Return algorithm bandwidth over bus bandwidth."""
        if algorithm in NVLS and self.tables.nvls_ratio:
            ratio = self.tables.nvls_ratio[algorithm.name]
            falls = algorithm is Algorithm.NVLSTree and self.tables.nvlstree_ratio_falls
            return single(ratio * self.nodes / (2 * (self.nodes - 1)) if falls else ratio)
        if algorithm is Algorithm.Ring or algorithm in NVLS:
            return single(self.n / steps(op, self.n))
        return 0.5
