"""
The state of a search: the graph being built, the best one so far, bandwidth left on links.

Follows ncclTopoCompareGraphs and ncclTopoFollowPath (src/graph/search.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import msgspec

from commsim.libraries.nccl.shapes import CpuArch, CpuVendor, PathType, Pattern
from commsim.libraries.nccl.topology import DeviceKind, Path, Paths, TopologyDevice

__all__ = ["BandwidthLeft", "Plan", "Trial"]

Plan = tuple[tuple[int, int], ...]
"""What a path takes: (link, which share of the channel's bandwidth) in order."""

_SHARES = (Fraction(1), Fraction(6, 5), Fraction(1, 8), Fraction(6, 40))
"""Full; Intel's tax on PCIe between GPUs; the way back before Ampere; both."""


class Trial(msgspec.Struct):
    """A graph being searched, or the best one found: bandwidths in MB/s per channel.

    `intra[c]` holds GPU indices, `inter[c]` the indices of the NETs in and out.
    """

    pattern: Pattern
    min_channels: int
    max_channels: int
    type_intra: PathType
    type_inter: PathType
    cross_nic: int = 0
    collnet: bool = False
    same_channels: bool = True
    bw_intra: int = 0
    bw_inter: int = 0
    latency: float = 0.0
    channels: int = 0
    hops: int = 0
    intra: list[list[int]] = msgspec.field(default_factory=list)
    inter: list[list[int]] = msgspec.field(default_factory=list)

    def copy(self) -> Trial:
        """Return the same graph with lists of its own."""
        return msgspec.structs.replace(
            self, intra=[list(row) for row in self.intra], inter=[list(row) for row in self.inter]
        )

    def take(self, other: Trial) -> None:
        """Copy another graph into this one: its first `channels` channels."""
        for name in _FIELDS:
            setattr(self, name, getattr(other, name))
        self.intra = [list(row) for row in other.intra[: other.channels]]
        self.inter = [list(row) for row in other.inter[: other.channels]]

    def better_than(self, best: Trial, gpus: int) -> bool:
        """Say whether this graph replaces the best one: more bandwidth, or fewer hops."""
        if self.channels < self.min_channels:
            return False
        if self.pattern == Pattern.NVLS:
            heads = best.channels < self.channels <= gpus
            return heads or self.channels * self.bw_inter > best.channels * best.bw_inter
        mine, other = self.channels * self.bw_intra, best.channels * best.bw_intra
        if mine != other:
            return mine > other
        comparable = self.pattern == best.pattern and self.cross_nic == best.cross_nic
        return comparable and self.hops < best.hops


_FIELDS = tuple(field for field in Trial.__struct_fields__ if field not in ("intra", "inter"))


class BandwidthLeft:
    """The bandwidth that is left on every link, in MB/s; paths reserve it and give it back."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self.left: list[int] = [link.bandwidth for link in paths.system.links]

    def plan(self, source: TopologyDevice, path: Path) -> Plan:
        """Return what a path takes, with NCCL's taxes."""
        links = self._paths.system.links
        taxed = path.type == PathType.PHB and source.kind == DeviceKind.GPU and self._intel(path)
        plan: list[tuple[int, int]] = []
        for number in path.links:
            link = links[number]
            pci = int(taxed and link.type == PathType.PIX)
            plan.append((number, pci))
            end = link.remote
            if end.kind == DeviceKind.GPU and end.capability < 80 and source.kind != DeviceKind.GPU:
                plan.append((link.reverse, 2 + pci))
            power = end.kind == DeviceKind.CPU and end.arch == CpuArch.POWER
            if power and link.type == PathType.NVL:
                plan.append((link.reverse, pci))
        return tuple(plan)

    def _intel(self, path: Path) -> bool:
        cpus = [end for end in self._paths.ends(path) if end.kind == DeviceKind.CPU]
        return any(c.arch == CpuArch.X86 and c.vendor == CpuVendor.INTEL for c in cpus)

    def reserve(self, plan: Plan, cost: ChannelCost) -> bool:
        """Take a path's bandwidth; return False, and take nothing, if a link has too little."""
        left, need = self.left, cost.need
        for link, share in plan:
            if left[link] < need[share]:
                return False
        take = cost.take
        for link, share in plan:
            left[link] -= take[share]
        return True

    def give_back(self, plan: Plan, cost: ChannelCost) -> None:
        """Undo `reserve`."""
        left, give = self.left, cost.give
        for link, share in plan:
            left[link] += give[share]


class ChannelCost:
    """What one channel takes per share; `take` and `give` round as NCCL does after each step."""

    __slots__ = ("give", "need", "take")

    def __init__(self, bandwidth: Fraction | int) -> None:
        exact = [share * bandwidth for share in _SHARES]
        half = Fraction(1, 2)
        self.need: Sequence[int] = [math.ceil(rate) for rate in exact]
        self.take: Sequence[int] = [math.ceil(rate - half) for rate in exact]
        self.give: Sequence[int] = [math.floor(rate + half) for rate in exact]
