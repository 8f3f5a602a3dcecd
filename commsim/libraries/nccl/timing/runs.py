"""
Runs to be timed, as columns: what NCCL runs, and what that asks of the links.

A run is one collective of one size with its algorithm, protocol and channels. The columns of one
communicator differ only in size and choice; the fit puts the runs of many systems side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import msgspec
import numpy as np

from commsim.arrays import Bools, Floats, Ints

__all__ = ["ChunkShape", "LinkKind", "NicWay", "Runs"]


class ChunkShape(IntEnum):
    """How the chunks of a run travel."""

    RING = 0
    CHAIN = 1
    """Along a ring from the root on, or towards it: broadcast, reduce."""
    TREE = 2
    NVLS = 3
    NVLS_TREE = 4
    COLLNET = 5
    PAT = 6
    EXCHANGE = 7
    """Each with each: all-to-all."""
    PAIR = 8
    """Each to its neighbour."""
    FAN = 9
    """One with each: gather, scatter."""


class LinkKind(IntEnum):
    """What joins two GPUs of a domain."""

    NVLINK = 0
    PCIE = 1
    SHM = 2
    """Through host memory: no peer-to-peer."""


class NicWay(IntEnum):
    """How a GPU's bytes reach its NIC."""

    DIRECT = 0
    ROOT = 1
    """GPUDirect through the root of the CPU, not through a PCIe switch."""
    STAGED = 2
    """Through host memory."""


class Runs(msgspec.Struct, frozen=True, eq=False):
    """Columns of equal length: sizes in bytes, times in seconds.

    `local` and `net` are the seconds for each byte of S on the busiest link within and between
    domains, `leaving` the bytes out of the busiest node for each byte of S; `hop`, `reach` and
    `longest` are latencies of the cluster's routes (see `link_use`). A chain crosses the network
    `crossings` times on the channel on which it does so most often. `window` bytes arrive before
    the next edge may go on, `loop` bytes of S are one round of chunks on all channels.
    `peer_channels` serve one peer of a send. `gpus_per_process` is 0 if each GPU has its own
    process. `rounds` is 2 for an all-reduce, 1 else. `repeated`: the per-iteration time of
    nccl-tests, which starts the next broadcast before the last rank has this one.
    """

    shape: Ints
    size: Floats
    ranks: Floats
    domains: Floats
    rounds: Floats
    channels: Floats
    peer_channels: Floats
    protocol: Ints
    window: Floats
    loop: Floats
    generation: Ints
    link: Ints
    transport: Ints
    way: Ints
    local: Floats
    net: Floats
    leaving: Floats
    hop: Floats
    reach: Floats
    longest: Floats
    crossings: Floats
    gpus_per_process: Floats
    host_launch: Floats
    """Seconds that the slowest host takes to launch; NaN where no cluster says it."""
    old: Bools
    """NCCL before 2.12."""
    repeated: Bools

    def __len__(self) -> int:
        return len(self.size)

    @property
    def per_domain(self) -> Floats:
        """Ranks in a domain."""
        ppn: Floats = np.maximum(np.floor(self.ranks / self.domains), 1.0)
        return ppn

    @property
    def crosses(self) -> Bools:
        """Whether the network is part of it."""
        crosses: Bools = self.domains > 1
        return crosses

    def at(self, chosen: Bools | Ints) -> Runs:
        """Return some of the runs."""
        columns = (getattr(self, name) for name in self.__struct_fields__)
        return Runs(*(column[chosen] for column in columns))

    @staticmethod
    def joined(parts: Sequence[Runs]) -> Runs:
        """Return the runs of all parts, one after another."""
        names = Runs.__struct_fields__
        return Runs(*(np.concatenate([getattr(part, n) for part in parts]) for n in names))
