"""
Facts that all searches of one system share: speeds, limits, and the types of its paths.

Follows ncclTopoSearchInit (src/graph/search.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

import functools

from commsim.libraries.nccl.search.bound import SearchBound
from commsim.libraries.nccl.search.channel_search import ChannelSearch
from commsim.libraries.nccl.shapes import PathType, Pattern
from commsim.libraries.nccl.topology import (
    LOCAL_BANDWIDTH,
    DeviceKind,
    Paths,
    System,
    TopologyDevice,
)

__all__ = ["SearchFacts", "limits"]


def limits(paths: Paths, *, inter: bool) -> tuple[int, int]:
    """Return NCCL's maxBw and totalBw of a system in MB/s: of one path, and of a GPU's links."""
    system = paths.system
    if not inter and len(system.gpus) == 1:
        return LOCAL_BANDWIDTH, LOCAL_BANDWIDTH
    kind = DeviceKind.NET if inter else DeviceKind.GPU
    widest = [
        paths.between(gpu, other).bandwidth
        for gpu in system.gpus
        for other in system.of(kind)
        if paths.between(gpu, other).links
    ]
    return max([0, *widest]), max(_out_of(gpu) for gpu in system.gpus)


def _out_of(gpu: TopologyDevice) -> int:
    nvlink = sum(link.bandwidth for link in gpu.links if link.type == PathType.NVL)
    pci = [link.bandwidth for link in gpu.links if link.type == PathType.PIX]
    return max(nvlink, *pci[-1:], 0)


class SearchFacts:
    """One system, ready to be searched; `inter`: channels go through the network."""

    def __init__(self, paths: Paths, *, inter: bool) -> None:
        self.paths = paths
        self.inter = inter
        self.system: System = paths.system
        self.gpus = len(self.system.gpus)
        self.capability = self.system.capability[0]
        self.channels = ChannelSearch(paths, inter=inter)
        self.bound = SearchBound(paths, inter=inter)
        self.speeds = paths.rules.speeds(self.capability, inter=inter)
        self.max_bw, self.total_bw = limits(paths, inter=inter)

    @property
    def multicasts(self) -> bool:
        """Whether the GPUs have an NVSwitch that reduces and multicasts."""
        return bool(self.system.of(DeviceKind.NVS)) and self.capability >= 90

    def cross_nic(self, pattern: Pattern) -> int:
        """Return NCCL_CROSS_NIC as far as it counts for a pattern."""
        crosses = (Pattern.RING, Pattern.BALANCED_TREE, Pattern.SPLIT_TREE)
        several = len(self.system.nets) > 1
        return self.paths.knobs.cross_nic if several and pattern in crosses else 0

    @functools.cached_property
    def nearest(self) -> tuple[PathType, PathType]:
        """The best path types between GPUs, and to NETs."""
        gpus = self.system.gpus
        intra = self.paths.extremes(gpus, DeviceKind.GPU)[0] if self.gpus > 1 else PathType.LOC
        inter = self.paths.extremes(gpus, DeviceKind.NET)[0] if self.inter else PathType.PIX
        return intra, inter

    @functools.cached_property
    def farthest(self) -> tuple[PathType, PathType]:
        """The worst path types that a search may come to accept, between GPUs and to NETs."""
        if self.paths.rules.reach == "sys":
            return PathType.SYS, PathType.SYS
        gpus = self.system.gpus
        intra = self.paths.extremes(gpus, DeviceKind.GPU)[1] if self.gpus > 1 else PathType.SYS
        inter = PathType.SYS
        if self.inter:
            inter = intra = self.paths.extremes(gpus, DeviceKind.NET)[1]
        if self.paths.rules.reach == "paths_from_hopper" and self.capability < 90:
            inter = PathType.SYS
        return intra, inter

    def reached(self, kind: DeviceKind, limit: PathType) -> PathType:
        """Return the worst type of path, up to a limit, that a GPU has to a device of a kind."""
        return max(t for t in self._types[kind] if t <= limit)

    @functools.cached_property
    def _types(self) -> dict[DeviceKind, list[PathType]]:
        """The types of all paths between GPUs, and between GPUs and NETs both ways."""
        found = {DeviceKind.GPU: [PathType.LOC], DeviceKind.NET: [PathType.LOC]}
        for gpu in self.system.gpus:
            for kind, types in found.items():
                for other in self.system.of(kind):
                    types += [
                        self.paths.between(a, b).type for a, b in ((gpu, other), (other, gpu))
                    ]
        return {kind: list(dict.fromkeys(types)) for kind, types in found.items()}

    @functools.cached_property
    def split(self) -> bool:
        """Whether there are just two NVLink islands."""
        gpus = self.system.gpus
        island = list(range(self.gpus))
        for one in range(self.gpus):
            for other in range(one + 1, self.gpus):
                if self.paths.between(gpus[one], gpus[other]).type == PathType.NVL:
                    island[other] = island[one]
        return sum(island.count(i) > 1 for i in range(self.gpus)) == 2
