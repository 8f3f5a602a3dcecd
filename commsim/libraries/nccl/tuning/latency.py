"""
The latencies of NCCL's tuning model: a base, and hops over NVLink, PCIe and the network.

Follows ncclTopoTuneModel (src/graph/tuning.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import (
    Algorithm,
    Communicator,
    CpuArch,
    CpuVendor,
    PathType,
    Protocol,
    SearchGraph,
)
from commsim.libraries.nccl.tuning.tables import Tables
from commsim.libraries.nccl.tuning.terms import single, steps

__all__ = ["Latencies"]


class Latencies:
    """Latencies on one communicator, by one release's tables."""

    def __init__(self, comm: Communicator, tables: Tables, knobs: Knobs) -> None:
        self.comm, self.tables, self.knobs = comm, tables, knobs
        self.n, self.nodes = comm.n_ranks, comm.n_nodes

    def of(self, op: str, algorithm: Algorithm, protocol: Protocol, graph: SearchGraph) -> float:
        """Return the latency (us)."""
        tables = self.tables
        base = single(tables.base_latency[algorithm.name][protocol])
        intra = self._hop(self._inside(graph), algorithm, protocol)
        inter = self._between(algorithm, protocol, graph)
        if algorithm is Algorithm.Ring:
            return single(base + self._ring_latency(op, protocol, graph, intra, inter))
        peers = self.n // self.nodes - 1
        doublings = self.nodes.bit_length() - 1
        match algorithm:
            case Algorithm.Tree:
                return single(base + 2 * (peers * intra + doublings * inter))
            case Algorithm.CollNetDirect:
                fan = 2 * (min(1, peers) * intra + peers * tables.collnet_arity)
                return single(base + fan + inter)
            case Algorithm.CollNetChain:
                return single(base + 2 * peers * intra + inter)
            case Algorithm.PAT:
                return single(tables.pat_base + doublings * (inter / 3.5) + self.n * 2.8)
        return self._nvls_latency(algorithm, base, intra, inter)

    def _nvls_latency(self, algorithm: Algorithm, base: float, intra: float, inter: float) -> float:
        if self.tables.nvls_latency == "base":
            hops = min(1, self.nodes - 1) if algorithm is Algorithm.NVLS else 2 * (self.nodes - 1)
            return single(base + hops * self._hop("net", algorithm, Protocol.Simple))
        if algorithm is Algorithm.NVLS:
            return single(intra + inter) if self.nodes > 1 else intra
        return single(base + single(intra + 2 * (self.nodes.bit_length() - 1) * inter))

    def _ring_latency(
        self, op: str, protocol: Protocol, graph: SearchGraph, intra: float, inter: float
    ) -> float:
        if op in ("broadcast", "reduce"):
            where = self._inside(graph) if self.nodes == 1 else "net"
            if graph.same_channels:
                return self._hop(where, Algorithm.Ring, protocol)
            # NCCL counts a chunk here, for which it takes a tree's number
            whose = Algorithm.Tree if protocol is Protocol.Simple else Algorithm.Ring
            return single(self.n * self._hop(where, whose, protocol))
        if self.nodes > 1:
            intra = max(intra, self._overhead() * (3 if protocol is Protocol.Simple else 1))
        crossings = self._inter_steps(op)
        return single(single((steps(op, self.n) - crossings) * intra) + single(crossings * inter))

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
        return single(self.tables.latency[where][algorithm.name][protocol])

    def _between(self, algorithm: Algorithm, protocol: Protocol, graph: SearchGraph) -> float:
        alone = self.tables.alone_uses_tree_latency and self.n == self.nodes
        hop = self._hop("net", Algorithm.Tree if alone else algorithm, protocol)
        # the receive flush of Simple is another trip
        trips = 2 if protocol is Protocol.Simple else 1
        return single(hop + trips * graph.latency_inter)

    def _overhead(self) -> float:
        if self.knobs.net_overhead is not None:
            return single(self.knobs.net_overhead * 0.001)
        amd = self.comm.cpu_arch == CpuArch.X86 and self.comm.cpu_vendor == CpuVendor.AMD
        return 2.0 if amd else 1.0
