"""
NCCL's tuning model: what each algorithm and protocol would cost, by its own formulas.

It decides what NCCL runs; it does not say how long that takes (the timing model does).

n  ranks     N  nodes (NVLink domains)     p = n/N     S  bytes
bandwidth    of the algorithm, GB/s; 0: not usable
time (us)    latency + S / (1000 bandwidth), with a correction for trees of middle sizes and for
             the plateau of rings between nodes

NCCL computes in 32-bit floats; so does this module where it matters, since a tie decides.

Follows ncclTopoTuneModel and ncclTopoGetAlgoTime (src/graph/tuning.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Ints, Singles
from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Algorithm, Communicator, CpuArch, Protocol
from commsim.libraries.nccl.tuning.bandwidth import Bandwidths
from commsim.libraries.nccl.tuning.latency import Latencies
from commsim.libraries.nccl.tuning.tables import Tables
from commsim.libraries.nccl.tuning.terms import single

__all__ = ["GRAPH", "TunerCost", "Tuning"]

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


class TunerCost(msgspec.Struct, frozen=True):
    """Latency (us) and bandwidth (GB/s) of one operation by one algorithm and protocol."""

    latency: float
    bandwidth: float


class Tuning:
    """One communicator's tuning model, by one release's tables, on `channels` channels."""

    def __init__(self, comm: Communicator, tables: Tables, knobs: Knobs, *, channels: int) -> None:
        self.comm, self.tables = comm, tables
        self.channels = channels
        self.bandwidths = Bandwidths(comm, tables)
        self.latencies = Latencies(comm, tables, knobs)

    def cost(self, op: str, algorithm: Algorithm, protocol: Protocol) -> TunerCost:
        """Return latency and bandwidth of a usable algorithm and protocol for `op`."""
        graph = self.comm.graphs[GRAPH[algorithm]]
        return TunerCost(
            self.latencies.of(op, algorithm, protocol, graph),
            self.bandwidths.of(op, algorithm, protocol, graph),
        )

    def times(
        self, op: str, algorithm: Algorithm, protocol: Protocol, sizes: Ints, cost: TunerCost
    ) -> Singles:
        """Return the predicted time (us) of `op` for each size in bytes."""
        bandwidth = np.full(sizes.shape, cost.bandwidth, dtype=np.float32)
        latency = np.full(sizes.shape, cost.latency, dtype=np.float32)
        if op == "all_reduce":
            bandwidth *= self._correction(algorithm, protocol, sizes)
            if (
                algorithm is Algorithm.Ring
                and protocol is Protocol.Simple
                and self.comm.n_nodes > 1
            ):
                plateau = sizes // (self.channels * self.comm.n_ranks) >= 64
                factor = 1.9 if self.comm.min_compute_capability < 80 else 1.4
                latency[plateau] = np.float32(single(cost.latency) * factor)
        spent: Singles = latency + sizes.astype(np.float32) / (np.float32(1000) * bandwidth)
        return spent

    def _correction(self, algorithm: Algorithm, protocol: Protocol, sizes: Ints) -> Singles:
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
