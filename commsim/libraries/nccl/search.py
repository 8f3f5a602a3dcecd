"""
NCCL's graph search: for a pattern, the channels with the most bandwidth that a node can carry.

Two passes over `search_channels`. The first tries bandwidths per channel from high to low and,
at each, relaxes one demand after another: the same order in all channels, then different ones,
a simpler tree, longer paths between GPUs, longer ones to the NICs, NICs swapped between two
channels. It ends with doubling channels that are wide enough. The second tries to widen what was
found.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType

from commsim.libraries.nccl.paths import Paths
from commsim.libraries.nccl.search_channels import PERFECT, ChannelSearch
from commsim.libraries.nccl.search_state import Trial
from commsim.libraries.nccl.shapes import (
    Channel,
    CpuArch,
    CpuVendor,
    PathType,
    Pattern,
    SearchGraph,
)
from commsim.libraries.nccl.topology import LOCAL_BANDWIDTH, Device, Kind, System

__all__ = ["limits", "search_all"]

_BUDGET_ALL = 1 << 19
_BUDGET = 1 << 14
_BUDGET_SAME = 1 << 8
_MAX_NVLS_HEADS = 32
_MAX_DIRECT_HEADS = 8
_WIDE = 25_000
_HOPPER_WIDE = 50_000
_FALLBACK = 100


def limits(paths: Paths, *, inter: bool) -> tuple[int, int]:
    """Return NCCL's maxBw and totalBw of a system in MB/s: of one path, and of a GPU's links."""
    system = paths.system
    if not inter and len(system.gpus) == 1:
        return LOCAL_BANDWIDTH, LOCAL_BANDWIDTH
    kind = Kind.NET if inter else Kind.GPU
    widest = [
        paths.between(gpu, other).bandwidth
        for gpu in system.gpus
        for other in system.of(kind)
        if paths.between(gpu, other).links
    ]
    return max([0, *widest]), max(_out_of(gpu) for gpu in system.gpus)


def _out_of(gpu: Device) -> int:
    nvlink = sum(link.bandwidth for link in gpu.links if link.type == PathType.NVL)
    pci = [link.bandwidth for link in gpu.links if link.type == PathType.PIX]
    return max(nvlink, *pci[-1:], 0)


def search_all(
    paths: Paths, *, inter: bool, nvls: bool, collnet: bool
) -> Mapping[str, SearchGraph]:
    """Return the graphs of a system by name; NVLS and CollNet only where they are asked for.

    Channels name GPUs and NETs by their index in the system.
    """
    search = _Search(paths, inter=inter)
    most = paths.rules.max_channels
    ring = search.find(Pattern.RING, 1, most // 2)
    count = ring.n_channels
    graphs = {"ring": ring, "tree": search.find(Pattern.BALANCED_TREE, count, count)}
    if collnet:
        graphs["collnet_chain"] = search.find(Pattern.TREE, count, count, collnet=True)
        graphs["collnet_direct"] = search.find(Pattern.COLLNET_DIRECT, 1, most, collnet=True)
    if nvls:
        graphs["nvls"] = search.find(Pattern.NVLS, 1, most)
    return MappingProxyType(graphs)


class _Search:
    """Searches patterns on one system, whose facts it holds."""

    def __init__(self, paths: Paths, *, inter: bool) -> None:
        self.paths = paths
        self.inter = inter
        self.system: System = paths.system
        self.gpus = len(self.system.gpus)
        self.capability = self.system.capability[0]
        self.channels = ChannelSearch(paths, inter=inter)
        self.speeds = paths.rules.speeds(self.capability, inter=inter)
        self.max_bw, self.total_bw = limits(paths, inter=inter)

    def find(
        self, pattern: Pattern, least: int, most: int, *, collnet: bool = False
    ) -> SearchGraph:
        """Return the best graph of a pattern with `least` to `most` channels."""
        if pattern == Pattern.NVLS and not self._multicasts:
            return SearchGraph(pattern, (), 0.0, 0.0, PathType.LOC, PathType.LOC)
        best = self._empty(pattern, least, most, collnet)
        _Passes(self, best).run()
        if not best.channels and not collnet and pattern != Pattern.NVLS:
            self._fall_back(best)
        return _graph(best, self.system, inter=self.inter)

    @property
    def _multicasts(self) -> bool:
        return bool(self.system.of(Kind.NVS)) and self.capability >= 90

    def _empty(self, pattern: Pattern, least: int, most: int, collnet: bool) -> Trial:
        """Return a graph without channels, with the shortest paths that could do."""
        if pattern == Pattern.NVLS:
            most = min(_MAX_NVLS_HEADS, self.gpus)
        if pattern == Pattern.COLLNET_DIRECT:
            most = min(_MAX_DIRECT_HEADS, self.gpus)
        if pattern == Pattern.NVLS and not self.inter:
            least = most
        if self.gpus == 1 and pattern != Pattern.RING:
            pattern = Pattern.TREE
        if pattern == Pattern.RING and least == 1 and most >= 2 and self._split:
            least = 2
        return Trial(
            pattern, least, most, self.nearest[0], self.nearest[1], collnet=collnet,
            cross_nic=int(self.cross_nic(pattern) == 1), same_channels=pattern != Pattern.NVLS,
        )  # fmt: skip

    def cross_nic(self, pattern: Pattern) -> int:
        """Return NCCL_CROSS_NIC as far as it counts for a pattern."""
        crosses = (Pattern.RING, Pattern.BALANCED_TREE, Pattern.SPLIT_TREE)
        several = len(self.system.nets) > 1
        return self.paths.knobs.cross_nic if several and pattern in crosses else 0

    @functools.cached_property
    def nearest(self) -> tuple[PathType, PathType]:
        """The best path types between GPUs, and to NETs."""
        gpus = self.system.gpus
        intra = self.paths.extremes(gpus, Kind.GPU)[0] if self.gpus > 1 else PathType.LOC
        inter = self.paths.extremes(gpus, Kind.NET)[0] if self.inter else PathType.PIX
        return intra, inter

    @functools.cached_property
    def farthest(self) -> tuple[PathType, PathType]:
        """The worst path types that a search may come to accept, between GPUs and to NETs."""
        gpus = self.system.gpus
        intra = self.paths.extremes(gpus, Kind.GPU)[1] if self.gpus > 1 else PathType.SYS
        inter = PathType.SYS
        if self.inter:
            inter = intra = self.paths.extremes(gpus, Kind.NET)[1]
        if self.paths.rules.reach_sys_before_hopper and self.capability < 90:
            inter = PathType.SYS
        return intra, inter

    def reached(self, kind: Kind, limit: PathType) -> PathType:
        """Return the worst type of path, up to a limit, that a GPU has to a device of a kind."""
        return max(t for t in self._types[kind] if t <= limit)

    @functools.cached_property
    def _types(self) -> dict[Kind, list[PathType]]:
        """The types of all paths between GPUs, and between GPUs and NETs both ways."""
        found = {Kind.GPU: [PathType.LOC], Kind.NET: [PathType.LOC]}
        for gpu in self.system.gpus:
            for kind, types in found.items():
                for other in self.system.of(kind):
                    types += [
                        self.paths.between(a, b).type for a, b in ((gpu, other), (other, gpu))
                    ]
        return {kind: list(dict.fromkeys(types)) for kind, types in found.items()}

    @functools.cached_property
    def _split(self) -> bool:
        """Whether there are just two NVLink islands."""
        gpus = self.system.gpus
        island = list(range(self.gpus))
        for one in range(self.gpus):
            for other in range(one + 1, self.gpus):
                if self.paths.between(gpus[one], gpus[other]).type == PathType.NVL:
                    island[other] = island[one]
        return sum(island.count(i) > 1 for i in range(self.gpus)) == 2

    def _fall_back(self, best: Trial) -> None:
        """Take the GPUs in order over one channel of 0.1 GB/s, as NCCL does."""
        best.channels = 1
        best.bw_intra = best.bw_inter = _FALLBACK
        best.type_intra = best.type_inter = PathType.SYS
        best.intra = [list(range(self.gpus))]
        gpus = self.system.gpus
        ends = [self.paths.near_net(gpu, 0) for gpu in (gpus[0], gpus[-1])]
        best.inter = [[net.index if net else 0 for net in ends]]


class _Passes:
    """The two passes for one pattern: what to try next after each search."""

    def __init__(self, search: _Search, best: Trial) -> None:
        self._search = search
        self._best = best
        self._trial = best.copy()
        self._speeds = search.speeds
        self._total = search.total_bw
        self._left = _BUDGET_ALL
        self._tried: dict[object, int] = {}
        self._same = best.same_channels
        self._cross_nic = search.cross_nic(best.pattern)
        self._index = self._first_speed()

    def _first_speed(self) -> int:
        """Return the first speed that a path and all channels' links could carry."""
        search, best = self._search, self._best
        total, gpus = Fraction(self._total), search.gpus
        if gpus > 1 and best.pattern != Pattern.RING:
            total = total * gpus / (gpus - 1)
        index = 0
        while index < len(self._speeds) - 1 and (
            self._speeds[index] > search.max_bw or self._speeds[index] * best.min_channels > total
        ):
            index += 1
        return index

    def run(self) -> None:
        """Fill the best graph."""
        trial = self._trial
        trial.bw_intra = trial.bw_inter = self._speeds[self._index]
        going = True
        while going:
            time = self._try()
            going = not self._is_enough(time) and self._relax(time)
        self._double()
        self._widen()

    def _try(self) -> int:
        budget = _BUDGET_SAME if self._trial.same_channels else _BUDGET
        self._left -= budget
        key = self._effect()
        if key not in self._tried:
            self._tried[key] = self._search.channels.run(self._trial, self._best, budget)
        return self._tried[key]

    def _effect(self) -> object:
        """Return all that decides a search: one that repeats another finds nothing better."""
        trial, search = self._trial, self._search
        return (
            trial.pattern, trial.same_channels, trial.cross_nic, trial.bw_intra, trial.bw_inter,
            trial.min_channels, trial.max_channels,
            search.reached(Kind.GPU, trial.type_intra), search.reached(Kind.NET, trial.type_inter),
        )  # fmt: skip

    def _is_enough(self, time: int) -> bool:
        best = self._best
        return time == PERFECT or best.channels * best.bw_inter >= self._total

    def _relax(self, time: int) -> bool:
        """Loosen the next demand, or lower the speed; False when there is nothing left to try."""
        trial, best = self._trial, self._best
        if trial.same_channels and not self._through_amd():
            trial.same_channels = False
            return True
        trial.same_channels = self._same
        self._left += time
        if self._left < 0 and best.channels:
            return False
        if self._search.capability >= 90 and trial.pattern == Pattern.BALANCED_TREE:
            trial.pattern = Pattern.TREE
            return True
        trial.pattern = best.pattern
        return self._relax_types() or self._relax_nics() or self._slow_down()

    def _through_amd(self) -> bool:
        cpu = self._search.system.cpus[0]
        amd = cpu.arch == CpuArch.X86 and cpu.vendor == CpuVendor.AMD
        return amd and self._trial.type_intra == PathType.SYS

    def _relax_types(self) -> bool:
        trial, best, search = self._trial, self._best, self._search
        farthest = trial.type_inter if search.inter else search.farthest[0]
        if trial.type_intra < farthest and (
            not best.channels or trial.type_intra < best.type_intra
        ):
            trial.type_intra = PathType(trial.type_intra + 1)
            if trial.type_intra < PathType.DIS:
                return True
        trial.type_intra = search.nearest[0]
        if search.inter and trial.type_inter < search.farthest[1] and (
            not best.channels
            or trial.type_inter < best.type_inter
            or trial.type_inter < PathType.PXN
        ):  # fmt: skip
            trial.type_inter = PathType(trial.type_inter + 1)
            if trial.type_inter < PathType.DIS:
                return True
        trial.type_inter = search.nearest[1]
        return False

    def _relax_nics(self) -> bool:
        trial = self._trial
        swaps = self._best.pattern in (Pattern.RING, Pattern.BALANCED_TREE)
        if self._cross_nic == 2 and trial.cross_nic == 0 and swaps:
            trial.cross_nic = 2
            return True
        trial.cross_nic = int(self._cross_nic == 1)
        return False

    def _slow_down(self) -> bool:
        best, following = self._best, self._index + 1
        if following >= len(self._speeds):
            return False
        if best.channels and self._speeds[following] <= best.bw_inter * Fraction(49, 100):
            return False
        self._index = following
        self._trial.bw_intra = self._trial.bw_inter = self._speeds[following]
        return True

    def _double(self) -> None:
        """Split each channel in two where one is wider than a channel should be."""
        best = self._best
        if not best.channels or best.pattern == Pattern.NVLS or best.bw_intra < _WIDE:
            return
        if self._search.capability > 80 and best.bw_intra < _HOPPER_WIDE and best.channels > 4:
            return
        count = min(2 * best.channels, best.max_channels)
        parts = -(-count // best.channels)
        more = count - best.channels
        best.intra += [list(row) for row in best.intra[:more]]
        best.inter += [list(row) for row in best.inter[:more]]
        best.bw_intra //= parts
        best.bw_inter //= parts
        best.channels = count

    def _widen(self) -> None:
        """Try higher bandwidths with as many channels as were found."""
        best, trial = self._best, self._trial
        trial.take(best)
        index = 0
        while index < len(self._speeds) - 1 and self._speeds[index] > best.bw_inter:
            index += 1
        trial.bw_intra = trial.bw_inter = self._speeds[index]
        trial.min_channels = best.channels
        time = PERFECT
        while time != 0 and index > 0 and self._raise(index):
            index -= 1
            time = self._try()

    def _raise(self, index: int) -> bool:
        """Set the next higher bandwidth; False where the pattern has no use for it."""
        trial, best, higher = self._trial, self._best, self._speeds[index - 1]
        if best.pattern == Pattern.RING:
            trial.bw_intra = trial.bw_inter = higher
            return True
        if (
            best.pattern == Pattern.NVLS
            and trial.bw_inter == best.bw_inter
            and trial.bw_inter < 2 * trial.bw_intra
        ):
            trial.min_channels = trial.max_channels = best.channels
            trial.bw_inter = higher
            return True
        if trial.bw_intra == best.bw_intra and trial.bw_intra < 2 * trial.bw_inter:
            trial.bw_intra = higher
            return True
        return False


def _graph(best: Trial, system: System, *, inter: bool) -> SearchGraph:
    width = 1 if best.pattern == Pattern.NVLS else len(system.gpus)
    ends = [tuple(row) for row in best.inter[: best.channels]] if inter else []
    return SearchGraph(
        pattern=best.pattern,
        channels=tuple(
            Channel(tuple(row[:width]), (ends[c][0], ends[c][1]) if inter else None)
            for c, row in enumerate(best.intra[: best.channels])
        ),
        bw_intra=best.bw_intra / 1000,
        bw_inter=best.bw_inter / 1000,
        type_intra=best.type_intra,
        type_inter=best.type_inter,
        cross_nic=best.cross_nic,
        same_channels=best.same_channels,
        latency_inter=best.latency,
    )
