"""
Runs to be timed, as columns: what NCCL runs, and the wires it runs on.

A run is one collective of one size with its algorithm, protocol and channels. The columns of one
communicator differ only in size and choice; the fit puts the runs of many systems side by side.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from commsim.arrays import Bools, Floats, Ints

__all__ = ["LinkKind", "Runs", "Shape", "Way"]


class Shape(IntEnum):
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


class Way(IntEnum):
    """How a GPU's bytes reach its NIC."""

    DIRECT = 0
    ROOT = 1
    """GPUDirect through the root of the CPU, not through a PCIe switch."""
    STAGED = 2
    """Through host memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Columns of equal length. Sizes in bytes, rates in bytes/s of one GPU or NIC, one way.

    `port` is what a GPU's links within its domain carry physically; `nics` counts the NICs of
    a domain that the group uses, each of `nic_rate`. `gpus_per_process` is 0 where each GPU has
    its own process. `rounds` is 2 for an all-reduce, 1 else. `repeated`: the per-iteration time
    of nccl-tests, which starts the next broadcast before the last rank has this one.
    """

    shape: Ints
    size: Floats
    ranks: Floats
    domains: Floats
    rounds: Floats
    channels: Floats
    protocol: Ints
    generation: Ints
    link: Ints
    port: Floats
    nics: Floats
    nic_rate: Floats
    transport: Ints
    way: Ints
    gpus_per_process: Floats
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
        columns = (getattr(self, f.name) for f in dataclasses.fields(self))
        return Runs(*(column[chosen] for column in columns))

    @staticmethod
    def joined(parts: Sequence[Runs]) -> Runs:
        """Return the runs of all parts, one after another."""
        names = [f.name for f in dataclasses.fields(Runs)]
        return Runs(*(np.concatenate([getattr(part, n) for part in parts]) for n in names))
