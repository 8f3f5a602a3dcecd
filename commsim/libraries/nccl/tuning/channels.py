"""
How many channels and threads NCCL gives an operation.

Large operations get all of them; small ones lose channels, then threads, until each thread has
enough bytes to move. NVLS has channels of its own, always all of them.

Follows topoGetAlgoInfo (src/enqueue.cc) and the thread thresholds of ncclTopoTuneModel
(src/graph/tuning.cc), NCCL 2.18 to 2.30.
"""

from __future__ import annotations

import msgspec

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Algorithm, Communicator, Protocol
from commsim.libraries.nccl.tuning.tables import Tables
from commsim.libraries.nccl.tuning.terms import COLLNET, NVLS

__all__ = ["MOST_THREADS", "Width", "Widths", "execution_channels"]

WARP = 32
MOST_THREADS, MOST_SIMPLE_THREADS, MOST_LL_THREADS, MOST_LL128_THREADS = 640, 512, 512, 640
_FEW = 256
_PCI_GB = 12.0


class Width(msgspec.Struct, frozen=True):
    """Channels at most, and threads of each."""

    channels: int
    threads: int


def execution_channels(comm: Communicator, tables: Tables, knobs: Knobs) -> int:
    """Return the communicator's channels within what the environment allows; doing so twice
    changes nothing, so it does not matter whether `comm` was made under the same environment.
    """
    channels = comm.channels
    for most in (knobs.max_nchannels, knobs.max_ctas):
        if most is not None and most >= 0:
            channels = min(channels, max(most, 1))
    for least in (knobs.min_nchannels, knobs.min_ctas):
        if least is not None:
            channels = max(channels, min(least, tables.max_channels))
    return channels


class Widths:
    """Channels and threads on one communicator."""

    def __init__(
        self, comm: Communicator, tables: Tables, knobs: Knobs, *, nvls_channels: int
    ) -> None:
        self.comm, self.tables, self.knobs = comm, tables, knobs
        self.channels = execution_channels(comm, tables, knobs)
        self.nvls_channels = nvls_channels

    def width(self, algorithm: Algorithm, protocol: Protocol, size: int) -> Width:
        """Return channels and threads for an operation of `size` bytes."""
        threads = self.most_threads(algorithm, protocol)
        threshold = self.threshold(algorithm, protocol)
        if algorithm in NVLS:
            return Width(self._nvls_width(algorithm), threads)
        if algorithm is Algorithm.CollNetDirect:
            return Width(self._collnet_width(size, threads, threshold), threads)
        enough = threads * threshold
        # no threads, or no threshold, leave every operation all channels
        channels = min(self.channels, max(1, size // enough)) if enough else self.channels
        while size < channels * threads * threshold and threads % 128 == 0:
            threads //= 2
        return Width(channels, _with_sync_warps(algorithm, protocol, threads))

    def most_threads(self, algorithm: Algorithm, protocol: Protocol) -> int:
        """Return the threads that a large operation gets; NCCL sets none for PAT."""
        if algorithm is Algorithm.PAT:
            return 0
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
        return 512 if algorithm in COLLNET else 64

    def _heads(self) -> int:
        graph = self.comm.graphs.get("collnet_direct")
        return graph.n_heads if graph else 1

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
        channels, heads, floor = self.channels, max(1, self._heads()), 16
        small = True
        while floor >= 1 and small:
            while (small := size < channels * threads * heads * threshold) and channels > floor:
                if channels == floor + floor // 2:
                    threshold //= 2
                channels -= 1
            floor //= 2
        return channels


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
