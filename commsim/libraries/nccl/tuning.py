"""
NCCL's tuning model: what each algorithm and protocol would cost, by its own reckoning.

It decides what NCCL runs; it does not say how long that takes (the timing model does).

n  ranks     N  nodes (NVLink domains)     p = n/N     S  bytes
bandwidth    of the algorithm, GB/s; 0: not usable
time (us)    latency + S / (1000 bandwidth), with a correction for trees of middle sizes and for
             the plateau of rings between nodes

NCCL reckons in 32-bit floats; so does this module where it matters, since a tie decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import (
    Algorithm,
    Communicator,
    CpuArch,
    CpuVendor,
    PathType,
    Pattern,
    Protocol,
    SearchGraph,
)
from commsim.libraries.nccl.tables import Tables

__all__ = ["GATHERING", "GRAPH", "Cost", "Tuning"]

GATHERING = ("all_gather", "reduce_scatter")
GRAPH = {
    Algorithm.Tree: "tree",
    Algorithm.Ring: "ring",
    Algorithm.CollNetDirect: "collnet_direct",
    Algorithm.CollNetChain: "collnet_chain",
    Algorithm.NVLS: "nvls",
    Algorithm.NVLSTree: "nvls",
    Algorithm.PAT: "tree",
}
"""Whose graph an algorithm's channels, speeds and path types are."""

_COLLNET = (Algorithm.CollNetDirect, Algorithm.CollNetChain)
_NVLS = (Algorithm.NVLS, Algorithm.NVLSTree)
_TREE_CORRECTION = np.array(
    [
        [1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5]
        + [0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6]
        + [0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1],
        [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5]
        + [0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9],
    ],
    dtype=np.float32,
)
"""Share of a tree's bandwidth by protocol and log2(bytes / 64): NCCL's treeCorrectionFactor."""
_TREE_SIZES, _NVLSTREE_SIZES = 23, 24

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cost:
    """Latency (us) and bandwidth (GB/s) of one operation by one algorithm and protocol."""

    latency: float
    bandwidth: float


class Tuning:
    """One communicator's tuning model, by one release's tables, on `channels` channels."""

    def __init__(self, comm: Communicator, tables: Tables, knobs: Knobs, *, channels: int) -> None:
        self.comm, self.tables, self.knobs = comm, tables, knobs
        self.channels = channels
        self.n, self.nodes = comm.n_ranks, comm.n_nodes
        self.per_node = _float(self.n / self.nodes)
        self.scale = min(self.nodes, 3) - 1
        self.generation = tables.generation(comm.min_compute_capability)

    def cost(self, op: str, algorithm: Algorithm, protocol: Protocol) -> Cost:
        """Return latency and bandwidth of a usable algorithm and protocol for `op`."""
        graph = self.comm.graphs[GRAPH[algorithm]]
        return Cost(
            self._latency(op, algorithm, protocol, graph),
            self._bandwidth(op, algorithm, protocol, graph),
        )

    def times(
        self, op: str, algorithm: Algorithm, protocol: Protocol, sizes: Ints, cost: Cost
    ) -> Floats:
        """Return the predicted time (us) of `op` for each size in bytes."""
        bandwidth = np.full(sizes.shape, cost.bandwidth, dtype=np.float32)
        latency = np.full(sizes.shape, cost.latency, dtype=np.float32)
        if op == "all_reduce":
            bandwidth *= self._correction(algorithm, protocol, sizes)
            if algorithm is Algorithm.Ring and protocol is Protocol.Simple and self.nodes > 1:
                plateau = sizes // (self.channels * self.n) >= 64
                factor = 1.9 if self.comm.min_compute_capability < 80 else 1.4
                latency[plateau] = np.float32(float(latency.flat[0]) * factor)
        spent: Floats = latency + sizes.astype(np.float32) / (np.float32(1000) * bandwidth)
        return spent

    def _correction(self, algorithm: Algorithm, protocol: Protocol, sizes: Ints) -> Floats:
        known = {Algorithm.Tree: _TREE_SIZES}
        if (
            self.tables.nvlstree_correction
            and self.comm.min_compute_capability >= 100
            and self.comm.cpu_arch == CpuArch.X86
        ):
            known[Algorithm.NVLSTree] = _NVLSTREE_SIZES
        shares = np.ones(sizes.shape, dtype=np.float32)
        doublings = np.array([(int(size) >> 6).bit_length() - 1 for size in sizes.flat])
        corrected = (doublings >= 0) & (doublings < known.get(algorithm, 0))
        shares[corrected] = _TREE_CORRECTION[protocol][doublings[corrected]]
        return shares

    # -- bandwidth ---------------------------------------------------------------------------

    def _bandwidth(
        self, op: str, algorithm: Algorithm, protocol: Protocol, graph: SearchGraph
    ) -> float:
        bus = self._bus_bandwidth(op, algorithm, protocol, graph)
        if op in GATHERING and algorithm.name not in self.tables.gather_ratio:
            return bus
        return _float(bus * self._ratio(op, algorithm))

    def _bus_bandwidth(
        self, op: str, algorithm: Algorithm, protocol: Protocol, graph: SearchGraph
    ) -> float:
        bus = _float(graph.n_channels * self._channel_bandwidth(op, algorithm, graph))
        if algorithm is Algorithm.Ring:
            return self._ring_bandwidth(op, protocol, bus, graph)
        if algorithm is Algorithm.Tree:
            return self._tree_bandwidth(protocol, bus, graph)
        if algorithm is Algorithm.PAT:
            return _float(bus * self.tables.pat_share)
        if algorithm is Algorithm.CollNetDirect:
            return self._collnet_direct_bandwidth(op, bus, graph)
        return bus

    def _channel_bandwidth(self, op: str, algorithm: Algorithm, graph: SearchGraph) -> float:
        """Return the speed of one channel: within nodes up to two nodes, between them beyond."""
        if algorithm in _NVLS and self.tables.nvls_bandwidth != "graph":
            return self._nvls_bandwidth(op, algorithm, graph)
        within = self.nodes <= 2 or algorithm in _COLLNET
        return graph.bw_intra if within else graph.bw_inter

    def _nvls_bandwidth(self, op: str, algorithm: Algorithm, graph: SearchGraph) -> float:
        if self.tables.nvls_bandwidth == "efficiency":
            return self._nvls_by_efficiency(op, algorithm, graph)
        if algorithm is Algorithm.NVLSTree:
            inter = graph.bw_inter if self.nodes <= 2 else graph.bw_inter / 2
            return min(graph.bw_intra, inter)
        if self.tables.nvls_bandwidth == "gather" and op in GATHERING:
            own = graph.bw_intra * (self.per_node - 1) / self.per_node
            return min(_float(own), _float(graph.bw_inter * _float(0.9)))
        return min(graph.bw_intra, graph.bw_inter)

    def _nvls_by_efficiency(self, op: str, algorithm: Algorithm, graph: SearchGraph) -> float:
        """One channel less works (it synchronises); an all-reduce pipelines two operations."""
        heads = graph.n_channels
        efficiency = _float(self.tables.nvls_efficiency[self.generation])
        intra = _float(graph.bw_intra * efficiency * (heads - 1) / heads)
        own = 2.0 if op == "all_reduce" else (self.per_node - 1) / self.per_node
        limits = [_float(intra * _float(own))]
        both_ways = self.nodes <= 2 and algorithm is Algorithm.NVLSTree
        limits.append(graph.bw_inter * (2 if both_ways else 1))
        if algorithm is Algorithm.NVLSTree:
            limits.append(_float(self.tables.nvlstree_channel[self.generation][self.scale]))
        return min(limits)

    def _ring_bandwidth(self, op: str, protocol: Protocol, bus: float, graph: SearchGraph) -> float:
        tables = self.tables
        if protocol is Protocol.LL:
            heavy = self.nodes > 1 or op in ("all_reduce", "reduce")
            share = tables.ring_ll_share["heavy" if heavy else "light"]
            return _float(min(self._ll_max(), bus * share))
        if protocol is Protocol.LL128:
            channel = tables.ring_ll128_channel[self.generation][self.scale]
            share = tables.ring_ll128_alone if self.per_node < 2 else 0.92
            return _float(min(bus * share, graph.n_channels * channel))
        return bus

    def _tree_bandwidth(self, protocol: Protocol, bus: float, graph: SearchGraph) -> float:
        tables, channels = self.tables, graph.n_channels
        limit = channels * tables.tree_channel[self.generation][self.scale]
        bus = _float(min(bus * 0.92, limit))
        if protocol is Protocol.LL:
            bus = _float(min(bus / 3.8, self._ll_max()))
        elif protocol is Protocol.LL128:
            share = 7 / 9 if self.nodes == 1 else 120 / 128
            channel = tables.tree_ll128_channel[self.generation][self.scale]
            bus = _float(min(bus * share, channels * channel))
        if graph.pattern is Pattern.TREE:
            bus = _float(bus * tables.tree_pattern_share)
        return bus

    def _collnet_direct_bandwidth(self, op: str, bus: float, graph: SearchGraph) -> float:
        """Full speed needs a NIC for each GPU."""
        if op in GATHERING:
            if self.tables.collnet_gather == "minimum":
                return _float(self.per_node * min(graph.bw_intra, _float(graph.bw_inter * 0.9)))
            weight = (self.per_node - 1) / 7
            return _float(self.per_node * graph.bw_intra * (weight * 0.85 + (1 - weight) * 0.95))
        factor = _float(self.per_node / graph.n_channels)
        bus = _float(bus / _float(factor - (factor - 1) / 2))
        return _float(bus * 0.85) if self.comm.min_compute_capability >= 90 else bus

    def _ll_max(self) -> float:
        """Return LL's limit: the GPU's in one node, the CPU's between nodes."""
        if self.nodes == 1:
            return self.tables.ll_max[self.generation][0]
        slow = self.comm.cpu_vendor in (CpuVendor.AMD, CpuVendor.MIXED)
        return self.tables.ll_max["ampere" if slow else "volta"][self.scale]

    def _ratio(self, op: str, algorithm: Algorithm) -> float:
        """Return algorithm bandwidth over bus bandwidth."""
        if algorithm in _NVLS and self.tables.nvls_ratio:
            ratio = self.tables.nvls_ratio[algorithm.name]
            falls = algorithm is Algorithm.NVLSTree and self.tables.nvlstree_ratio_falls
            return _float(ratio * self.nodes / (2 * (self.nodes - 1)) if falls else ratio)
        if algorithm is Algorithm.Ring or algorithm in _NVLS:
            return _float(self.n / self._steps(op))
        return 0.5

    # -- latency -----------------------------------------------------------------------------

    def _latency(
        self, op: str, algorithm: Algorithm, protocol: Protocol, graph: SearchGraph
    ) -> float:
        tables = self.tables
        base = _float(tables.base_latency[algorithm.name][protocol])
        intra = self._hop(self._inside(graph), algorithm, protocol)
        inter = self._between(algorithm, protocol, graph)
        if algorithm is Algorithm.Ring:
            return _float(base + self._ring_latency(op, protocol, graph, intra, inter))
        peers = self.n // self.nodes - 1
        doublings = self.nodes.bit_length() - 1
        match algorithm:
            case Algorithm.Tree:
                return _float(base + 2 * (peers * intra + doublings * inter))
            case Algorithm.CollNetDirect:
                fan = 2 * (min(1, peers) * intra + peers * tables.collnet_arity)
                return _float(base + fan + inter)
            case Algorithm.CollNetChain:
                return _float(base + 2 * peers * intra + inter)
            case Algorithm.PAT:
                return _float(tables.pat_base + doublings * (inter / 3.5) + self.n * 2.8)
        return self._nvls_latency(algorithm, base, intra, inter)

    def _nvls_latency(self, algorithm: Algorithm, base: float, intra: float, inter: float) -> float:
        if self.tables.nvls_latency == "base":
            hops = min(1, self.nodes - 1) if algorithm is Algorithm.NVLS else 2 * (self.nodes - 1)
            return _float(base + hops * self._hop("net", algorithm, Protocol.Simple))
        if algorithm is Algorithm.NVLS:
            return _float(intra + inter) if self.nodes > 1 else intra
        return _float(base + _float(intra + 2 * (self.nodes.bit_length() - 1) * inter))

    def _ring_latency(
        self, op: str, protocol: Protocol, graph: SearchGraph, intra: float, inter: float
    ) -> float:
        if op in ("broadcast", "reduce"):
            where = self._inside(graph) if self.nodes == 1 else "net"
            if graph.same_channels:
                return self._hop(where, Algorithm.Ring, protocol)
            # NCCL counts a chunk here, for which it takes a tree's number
            whose = Algorithm.Tree if protocol is Protocol.Simple else Algorithm.Ring
            return _float(self.n * self._hop(where, whose, protocol))
        if self.nodes > 1:
            intra = max(intra, self._overhead() * (3 if protocol is Protocol.Simple else 1))
        crossings = self._inter_steps(op)
        return _float(_float((self._steps(op) - crossings) * intra) + _float(crossings * inter))

    def _steps(self, op: str) -> int:
        if op == "all_reduce":
            return 2 * (self.n - 1)
        return self.n - 1 if op in GATHERING else self.n

    def _inter_steps(self, op: str) -> int:
        if self.nodes == 1:
            return 0
        if op != "all_reduce":
            return self.nodes - 1
        return 2 * (self.nodes - (self.tables.allreduce_inter_steps == "less_one"))

    def _inside(self, graph: SearchGraph) -> str:
        """Only an exact NVL counts as NVLink: NVLink through a GPU (NVB) reads the PCI row."""
        return "nvlink" if graph.type_intra == PathType.NVL else "pci"

    def _hop(self, where: str, algorithm: Algorithm, protocol: Protocol) -> float:
        power = self.comm.cpu_arch == CpuArch.POWER and where == "pci"
        if power and algorithm is Algorithm.Tree and protocol is Protocol.Simple:
            algorithm = Algorithm.Ring
        return _float(self.tables.latency[where][algorithm.name][protocol])

    def _between(self, algorithm: Algorithm, protocol: Protocol, graph: SearchGraph) -> float:
        alone = self.tables.alone_uses_tree_latency and self.per_node == 1
        hop = self._hop("net", Algorithm.Tree if alone else algorithm, protocol)
        # the receive flush of Simple is another trip
        trips = 2 if protocol is Protocol.Simple else 1
        return _float(hop + trips * graph.latency_inter)

    def _overhead(self) -> float:
        if self.knobs.net_overhead is not None:
            return _float(self.knobs.net_overhead * 0.001)
        amd = self.comm.cpu_arch == CpuArch.X86 and self.comm.cpu_vendor == CpuVendor.AMD
        return 2.0 if amd else 1.0


def _float(value: float) -> float:
    """Round to 32 bits, as storing in a C float does."""
    return float(np.float32(value)) if math.isfinite(value) else value
