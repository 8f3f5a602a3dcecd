"""
How many channels and threads NCCL gives an operation, how it cuts the data over the channels,
and how large chunks and slices are.

Threads come first: small operations lose channels until each thread has enough to do. Then the
data is laid on the channels in cells of at least `min_traffic` bytes of traffic, so fewer may
carry data; the first channel has `lo` elements, the last `hi`, those between `mid` each.
"""

from __future__ import annotations

from dataclasses import dataclass

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Algorithm, Communicator, Protocol
from commsim.libraries.nccl.tables import Tables
from commsim.libraries.nccl.tuning import GATHERING

__all__ = ["Chunking", "Cut", "Width", "cut", "execution_channels", "nvls_channels"]

WARP = 32
STEPS = 8
"""Steps of a connection's buffer."""
MOST_THREADS, MOST_SIMPLE_THREADS, MOST_LL_THREADS, MOST_LL128_THREADS = 640, 512, 512, 640
_GRAIN = {Protocol.LL: 16, Protocol.LL128: 1920, Protocol.Simple: 512}
"""Bytes that a chunk is a multiple of."""
_FEW = 256
_PCI_GB = 12.0


@dataclass(frozen=True, slots=True)
class Width:
    """Channels at most, and threads of each."""

    channels: int
    threads: int


@dataclass(frozen=True, slots=True)
class Cut:
    """How the elements lie on the channels: first, each between, last."""

    channels: int
    lo: int
    mid: int
    hi: int

    @property
    def typical(self) -> int:
        """Elements of a channel in the middle, or of the first where there is none."""
        return self.mid or self.lo


def execution_channels(comm: Communicator, knobs: Knobs) -> int:
    """Return the communicator's channels within what the environment allows."""
    most = [each for each in (knobs.max_nchannels, knobs.max_ctas) if each and each > 0]
    least = [each for each in (knobs.min_nchannels, knobs.min_ctas) if each and each > 0]
    return max(min([comm.channels, *most]), *least, 1)


def nvls_channels(comm: Communicator, tables: Tables, knobs: Knobs) -> int:
    """Return the channels of NVLS and NVLSTree."""
    if knobs.nvls_nchannels is not None and knobs.nvls_nchannels > 0:
        return knobs.nvls_nchannels
    row = tables.nvls_channels.get(tables.generation(comm.min_compute_capability), (0, 0))
    channels = row[comm.n_nodes > 1]
    if comm.n_nodes > 1 and comm.min_compute_capability >= 100:
        channels = _by_nic(comm, tables, channels)
    return execution_channels_within(channels, knobs)


def execution_channels_within(channels: int, knobs: Knobs) -> int:
    """Return `channels` within NCCL_MIN_CTAS and NCCL_MAX_CTAS."""
    if knobs.max_ctas is not None and knobs.max_ctas > 0:
        channels = min(channels, knobs.max_ctas)
    return max(channels, knobs.min_ctas or 0)


def _by_nic(comm: Communicator, tables: Tables, channels: int) -> int:
    for row in tables.nvls_nic_channels:
        nodes_fit = row.nodes is None or comm.n_nodes == row.nodes
        ranks_fit = row.ranks_per_node is None or comm.ranks_per_node <= row.ranks_per_node
        if nodes_fit and ranks_fit and comm.net_bandwidth >= row.nic:
            return row.channels
    return channels


class Chunking:
    """Widths and chunk sizes of one communicator."""

    def __init__(
        self, comm: Communicator, tables: Tables, knobs: Knobs, *, slow_nvls: bool
    ) -> None:
        self.comm, self.tables, self.knobs = comm, tables, knobs
        self.slow_nvls = slow_nvls
        self.channels = execution_channels(comm, knobs)
        self.nvls_channels = nvls_channels(comm, tables, knobs)
        self.heads = {
            name: graph.n_channels for name, graph in comm.graphs.items() if graph.n_channels
        }

    # -- channels and threads ----------------------------------------------------------------

    def width(self, algorithm: Algorithm, protocol: Protocol, size: int) -> Width:
        """Return channels and threads for an operation of `size` bytes."""
        threads = self.most_threads(algorithm, protocol)
        threshold = self.threshold(algorithm, protocol)
        if algorithm in (Algorithm.NVLS, Algorithm.NVLSTree):
            return Width(self._nvls_width(algorithm), threads)
        if algorithm is Algorithm.CollNetDirect:
            return Width(self._collnet_width(size, threads, threshold), threads)
        enough = threads * threshold
        channels = min(self.channels, max(1, size // enough)) if enough else self.channels
        while size < channels * threads * threshold and threads % 128 == 0:
            threads //= 2
        return Width(channels, _with_sync_warps(algorithm, protocol, threads))

    def most_threads(self, algorithm: Algorithm, protocol: Protocol) -> int:
        """Return the threads that a large operation gets."""
        if algorithm not in (Algorithm.Tree, Algorithm.Ring):
            return MOST_THREADS
        if protocol is Protocol.LL128:
            most = MOST_LL128_THREADS
            return _threads(self.knobs.ll128_nthreads, most // 4, most, most)
        if protocol is Protocol.LL:
            return _threads(self.knobs.nthreads, 2 * WARP, MOST_LL_THREADS, MOST_LL_THREADS)
        default = MOST_SIMPLE_THREADS
        if algorithm is Algorithm.Ring and self._ring_bandwidth() <= _PCI_GB:
            default = _FEW
        return _threads(self.knobs.nthreads, 2 * WARP, MOST_SIMPLE_THREADS, default)

    def threshold(self, algorithm: Algorithm, protocol: Protocol) -> int:
        """Return the bytes per thread below which an operation loses channels."""
        place = 3 * algorithm + protocol
        set_ = self.knobs.thread_thresholds[:6]
        if place < len(set_) and set_[place] >= 0:
            return set_[place]
        if protocol is not Protocol.Simple:
            ring_ll = algorithm is Algorithm.Ring and protocol is Protocol.LL
            return 8 * self.comm.n_ranks if ring_ll else 8
        return 512 if algorithm in (Algorithm.CollNetDirect, Algorithm.CollNetChain) else 64

    def _ring_bandwidth(self) -> float:
        ring = self.comm.graphs["ring"]
        return ring.n_channels * ring.bw_intra

    def _nvls_width(self, algorithm: Algorithm) -> int:
        bounded = (
            algorithm is Algorithm.NVLS
            and self.comm.n_nodes > 1
            and self.tables.nvls_bandwidth == "efficiency"
        )
        return min(self.nvls_channels, self.channels) if bounded else self.nvls_channels

    def _collnet_width(self, size: int, threads: int, threshold: int) -> int:
        """Take channels away down to 16, 8, 4, 2 and 1, easing the threshold on the way."""
        channels, heads, floor = self.channels, self.heads.get("collnet_direct", 1), 16
        small = True
        while floor >= 1 and small:
            while (small := size < channels * threads * heads * threshold) and channels > floor:
                if channels == floor + floor // 2:
                    threshold //= 2
                channels -= 1
            floor //= 2
        return channels

    # -- chunks ------------------------------------------------------------------------------

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
        if algorithm is Algorithm.Tree and protocol is Protocol.LL128:
            return self._tree_chunk(size, chunk)
        if algorithm is Algorithm.NVLS:
            limit = 32 << 10 if self.slow_nvls else self.knobs.nvls_chunksize
            steps = ((64, 64 << 10), (8, 32 << 10), (2, 16 << 10))
            return _stepped(size, min(chunk, limit), self.heads.get("nvls", 1), steps)
        if algorithm is Algorithm.NVLSTree:
            steps = ((32, 256 << 10), (16, 128 << 10), (4, 64 << 10), (1, 32 << 10))
            return _stepped(size, self._nvlstree_limit(), self.heads.get("nvls", 1), steps)
        if algorithm is Algorithm.PAT:
            most = 32 if op == "all_gather" else 16
            while chunk * most > size and chunk > 64 << 10:
                chunk //= 2
            return chunk
        if algorithm is Algorithm.CollNetChain:
            chunk = min(256 << 10, chunk)
        if algorithm in (Algorithm.CollNetChain, Algorithm.CollNetDirect):
            return self._collnet_chunk(algorithm, size, chunk)
        return chunk

    def _tree_chunk(self, size: int, chunk: int) -> int:
        per_node = self.comm.n_ranks / self.comm.n_nodes
        depth = 1 + (self.comm.n_nodes.bit_length() - 1) + 0.1 * per_node
        for most, least in ((64, 128 << 10), (16, 32 << 10)):
            while size // chunk < depth * most / per_node and chunk > least:
                chunk //= 2
        return chunk

    def _nvlstree_limit(self) -> int:
        chunk = self.knobs.nvls_chunksize
        limit = self.knobs.nvlstree_max_chunksize
        if limit is None:
            limit = 64 << 10 if self.comm.n_nodes >= 4 else chunk
        return min(chunk, limit)

    def _collnet_chunk(self, algorithm: Algorithm, size: int, chunk: int) -> int:
        """Depth: NIC and head for Direct, and every rank of the node for Chain."""
        direct = algorithm is Algorithm.CollNetDirect
        per_node = self.comm.ranks_per_node
        heads = self.heads.get("collnet_direct", 1) if direct else 1
        depth = min(2, per_node) if direct else per_node
        steps = ((64, 128 << 10), (8, 64 << 10), (8 if direct else 1, 32 << 10))
        for most, least in steps:
            while size // (heads * chunk) < depth * most and chunk > least:
                chunk //= 2
        return chunk


def cut(
    count: int,
    element: int,
    *,
    traffic_per_byte: int,
    ll: bool,
    most: int,
    total: int,
    tables: Tables,
) -> Cut:
    """Lay `count` elements of `element` bytes on up to `most` of the `total` channels.

    `traffic_per_byte` is how often a byte of the operation crosses a rank's links: 2 for an
    all-reduce, the ranks for all-gather and reduce-scatter, 1 otherwise; LL counts four times.
    """
    if count == 0:
        return Cut(0, 0, 0, 0)
    if tables.partition == "even":
        share = -(-count // most)
        return Cut(most, share, share if most > 2 else 0, share if most > 1 else 0)
    weight = traffic_per_byte * (4 if ll else 1)
    per_channel = _traffic_per_channel(count * element * weight, most, tables)
    cell = _up(-(-tables.min_traffic // weight), 16)
    per_cell, cells = cell // element, -(-count * element // cell)
    full = min(cells, -(-per_channel // (cell * weight)))
    lo = cells if total == 1 else full
    mids, hi = divmod(cells - lo, full)
    if (lo != 0) + mids + (hi != 0) > total:
        mids = total - 2
        full = (cells - lo) // (mids + 1)
        hi = full + (cells - lo) % (mids + 1)
    if hi == 0 and mids:
        hi, mids = full, mids - 1
    spare = cells * per_cell - count
    counts = [lo * per_cell, full * per_cell if mids else 0, hi * per_cell]
    counts[2 if hi else 0] -= spare
    return Cut(1 + mids + (hi != 0), *counts)


def _traffic_per_channel(traffic: int, most: int, tables: Tables) -> int:
    """Return the traffic a channel should get; until 2.28 never less than the minimum."""
    if tables.min_traffic == 16 << 10:
        return max(tables.min_traffic, max(tables.min_traffic, traffic) // most)
    return _up(max(tables.min_traffic, traffic) // most, 16)


def _with_sync_warps(algorithm: Algorithm, protocol: Protocol, threads: int) -> int:
    if algorithm in (Algorithm.Tree, Algorithm.PAT):
        return MOST_THREADS
    if protocol is Protocol.Simple and algorithm is Algorithm.Ring:
        threads += WARP
    return max(threads, 3 * WARP)


def _threads(asked: int | None, least: int, most: int, default: int) -> int:
    """Return the threads asked for, within what NCCL takes; not a multiple of 32: the most."""
    if asked is None or asked <= 0:
        return default
    return most if asked % WARP else min(max(asked, least), most)


def _chunk_steps(op: str) -> int:
    return 4 if op == "all_reduce" or op in GATHERING else 1


def _stepped(size: int, chunk: int, heads: int, steps: tuple[tuple[int, int], ...]) -> int:
    for most, smaller in steps:
        if size < most * heads * chunk and chunk > smaller:
            chunk = smaller
    return chunk


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
