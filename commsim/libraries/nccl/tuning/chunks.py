"""
How large NCCL's chunks and slices are: what a channel sends before the next rank can go on.

A buffer has eight steps; a ring with Simple sends four at once, in two slices. Small operations
get smaller chunks, so that there are enough of them to pipeline.

Follows calcCollChunking (src/enqueue.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Algorithm, Communicator, Protocol
from commsim.libraries.nccl.tuning.nvls import NvlsSetup
from commsim.libraries.nccl.tuning.tables import Tables
from commsim.libraries.nccl.tuning.terms import COLLNET, GATHERING

__all__ = ["STEPS", "Chunks"]

STEPS = 8
"""Steps of a connection's buffer."""
_GRAIN = {Protocol.LL: 16, Protocol.LL128: 1920, Protocol.Simple: 512}
"""Bytes that a chunk is a multiple of."""
_TREE_STEPS = ((8, 128 << 10), (4, 64 << 10), (1, 32 << 10))
_NVLS_STEPS = ((64, 64 << 10), (8, 32 << 10), (2, 16 << 10))
_NVLSTREE_STEPS = ((32, 256 << 10), (16, 128 << 10), (4, 64 << 10), (1, 32 << 10))
"""(rounds of chunks, bytes): with fewer rounds than that, a chunk is no larger than this."""


class Chunks:
    """Chunk sizes on one communicator.

    `slow_nvls`: NVLS between nodes is slow enough (under 150 GB/s) to want small chunks.
    """

    def __init__(
        self, comm: Communicator, tables: Tables, knobs: Knobs, *, nvls: NvlsSetup, slow_nvls: bool
    ) -> None:
        self.comm, self.tables, self.knobs = comm, tables, knobs
        self.nvls, self.slow_nvls = nvls, slow_nvls
        self.heads = {name: max(1, graph.n_heads) for name, graph in comm.graphs.items()}

    def chunk(self, op: str, algorithm: Algorithm, protocol: Protocol, size: int) -> int:
        """Return the bytes of a chunk on a channel that carries `size` bytes of the operation."""
        chunk = self._buffer(protocol) // STEPS
        if algorithm is Algorithm.Ring and protocol is Protocol.Simple:
            chunk *= _chunk_steps(op)
        elif protocol is Protocol.LL:
            chunk //= 2
        elif protocol is Protocol.LL128:
            chunk = chunk // 8 // 16 * 15 * 8
        chunk = self._fitted(op, algorithm, protocol, size, chunk)
        grain = _GRAIN[protocol]
        return chunk // grain * grain

    def slice(self, op: str, algorithm: Algorithm, protocol: Protocol, chunk: int) -> int:
        """Return the bytes of a slice: rings with Simple cut all but rooted chunks in two."""
        whole = algorithm is not Algorithm.Ring or protocol is not Protocol.Simple
        return chunk if whole or _chunk_steps(op) == 1 else chunk // 2

    def _buffer(self, protocol: Protocol) -> int:
        knobs = self.knobs
        sizes = (knobs.ll_buffsize, knobs.ll128_buffsize, knobs.buffsize)
        return sizes[protocol]

    def _fitted(
        self, op: str, algorithm: Algorithm, protocol: Protocol, size: int, chunk: int
    ) -> int:
        """Shrink the chunk so that a small operation still has chunks enough to pipeline."""
        if algorithm is Algorithm.Tree:
            return self._tree_chunk(protocol, size, chunk)
        if algorithm is Algorithm.NVLS:
            limit = 32 << 10 if self.slow_nvls else self.nvls.chunk
            return _stepped(size, min(chunk, limit), self.heads.get("nvls", 1), _NVLS_STEPS)
        if algorithm is Algorithm.NVLSTree:
            limit = self._nvlstree_limit(chunk)
            return _stepped(size, limit, self.heads.get("nvls", 1), _NVLSTREE_STEPS)
        if algorithm is Algorithm.PAT:
            most = 32 if op == "all_gather" else 16
            while chunk * most > size and chunk > 64 << 10:
                chunk //= 2
            return chunk
        if algorithm is Algorithm.CollNetChain:
            chunk = min(256 << 10, chunk)
        if algorithm in COLLNET:
            return self._collnet_chunk(algorithm, size, chunk)
        return chunk

    def _nvlstree_limit(self, step: int) -> int:
        if self.tables.nvlstree_chunk == "nvls":
            return min(self.nvls.chunk, self.nvls.tree_chunk)
        asked = self.knobs.nvlstree_max_chunksize is not None or self.comm.n_nodes >= 4
        return min(step, self.nvls.tree_chunk) if asked else step

    def _tree_chunk(self, protocol: Protocol, size: int, chunk: int) -> int:
        if protocol is Protocol.LL128:
            return self._tree_ll128_chunk(size, chunk)
        if protocol is Protocol.Simple and self.tables.tree_simple_fits:
            depth = self.comm.ranks_per_node - 1 + self.comm.n_nodes.bit_length() - 1
            return _halved(size, chunk, depth, _TREE_STEPS)
        return chunk

    def _tree_ll128_chunk(self, size: int, chunk: int) -> int:
        per_node = self.comm.n_ranks / self.comm.n_nodes
        depth = 1 + (self.comm.n_nodes.bit_length() - 1) + 0.1 * per_node
        for most, least in ((64, 128 << 10), (16, 32 << 10)):
            while size // chunk < depth * most / per_node and chunk > least:
                chunk //= 2
        return chunk

    def _collnet_chunk(self, algorithm: Algorithm, size: int, chunk: int) -> int:
        """Depth: NIC and head for Direct, and every rank of the node for Chain."""
        direct = algorithm is Algorithm.CollNetDirect
        per_node = self.comm.ranks_per_node
        heads = self.heads.get("collnet_direct", 1) if direct else 1
        depth = min(2, per_node) if direct else per_node
        steps = ((64, 128 << 10), (8, 64 << 10), (8 if direct else 1, 32 << 10))
        return _halved(size // heads, chunk, depth, steps)


def _halved(size: int, chunk: int, depth: int, steps: tuple[tuple[int, int], ...]) -> int:
    """Halve the chunk, down to each step's bytes, until there are so many per hop of depth."""
    for most, least in steps:
        while size // chunk < depth * most and chunk > least:
            chunk //= 2
    return chunk


def _chunk_steps(op: str) -> int:
    return 4 if op == "all_reduce" or op in GATHERING else 1


def _stepped(size: int, chunk: int, heads: int, steps: tuple[tuple[int, int], ...]) -> int:
    for most, smaller in steps:
        if size < most * heads * chunk and chunk > smaller:
            chunk = smaller
    return chunk
