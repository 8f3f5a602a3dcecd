"""
The order in which a search tries NETs and GPUs: it decides ties, and what the budget omits.

Follows ncclTopoSelectNets and ncclTopoSearchNextGpuSort (src/graph/search.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

from collections.abc import Sequence

from commsim.libraries.nccl.search.state import BandwidthLeft, Plan, Trial
from commsim.libraries.nccl.shapes import PathType, Pattern
from commsim.libraries.nccl.topology import DeviceKind, Path, Paths, TopologyDevice

__all__ = ["ALL", "Order", "SearchPath", "SearchPaths"]

ALL = -1
"""In place of a GPU: all of them."""

_Row = tuple[int, tuple[int, int], object, int]


class SearchPath:
    """A path as the search uses it: the bandwidth it takes, its types both ways, its rank."""

    __slots__ = ("back", "hops", "plan", "rank", "type")

    def __init__(self, path: Path, back: PathType, plan: Plan) -> None:
        self.type = path.type
        self.back = back
        self.plan = plan
        self.hops = len(path.links)
        self.rank = (-(path.bandwidth // 1000), self.hops)


class SearchPaths:
    """Paths between GPUs (`hop`), from GPUs to NETs (`out`) and from NETs to GPUs (`into`)."""

    def __init__(self, paths: Paths, links: BandwidthLeft) -> None:
        gpus, nets = paths.system.gpus, paths.system.nets
        self._paths = paths
        self._links = links
        self.hop = [[self.between(a, b) for b in gpus] for a in gpus]
        self.out = [[self.between(a, b) for b in nets] for a in gpus]
        self.into = [[self.between(a, b) for b in gpus] for a in nets]

    def between(self, source: TopologyDevice, target: TopologyDevice) -> SearchPath:
        """Return the path from one device to another."""
        path, back = self._paths.between(source, target), self._paths.between(target, source)
        return SearchPath(path, back.type, self._links.plan(source, path))


class Order:
    """NCCL's order for one system."""

    def __init__(self, paths: Paths, ways: SearchPaths, links: BandwidthLeft) -> None:
        gpus = paths.system.gpus
        self._paths = paths
        self._search_paths = ways
        self._links = links
        self._count = len(gpus)
        self._switched = bool(paths.system.of(DeviceKind.NVS))
        self._slots = [_slot(gpu) for gpu in gpus]
        self._preferred = [[net.index for net in paths.near_nets(gpu)] for gpu in gpus]
        self._others = [
            [g for g in ((gpu + i) % self._count for i in range(1, self._count)) if row[g].hops]
            for gpu, row in enumerate(ways.hop)
        ]
        self._by_nearness = [
            sorted(others, key=[way.rank for way in row].__getitem__)
            for others, row in zip(self._others, ways.hop, strict=True)
        ]
        self._nets: dict[tuple[PathType, int], list[int]] = {}
        self._from_net: dict[tuple[int, int], list[_Row]] = {}

    def nets(self, reach: PathType, gpu: int) -> list[int]:
        """Return the NETs to try for a GPU (or `ALL`): the preferred ones, then by distance."""
        key = reach, gpu
        if key not in self._nets:
            self._nets[key] = self._choose(reach, range(self._count) if gpu == ALL else [gpu])
        return self._nets[key]

    def _choose(self, reach: PathType, gpus: Sequence[int]) -> list[int]:
        turns = [self._preferred[gpu] for gpu in gpus]
        if len(self._paths.system.hosts) > 1:
            # Over several machines NCCL deals by GPU first: one NET of each, then the next.
            longest = max((len(row) for row in turns), default=0)
            chosen = [row[i] for i in range(longest) for row in turns if i < len(row)]
        else:
            chosen = [net for row in turns for net in row]
        preferred = list(dict.fromkeys(chosen))
        most = self._paths.rules.max_channels
        for kind in range(reach + 1):
            for gpu in gpus:
                ways = self._search_paths.out[gpu][:most]
                chosen += [net for net, way in enumerate(ways) if way.type == kind]
        found, limit = list(dict.fromkeys(chosen)), self._paths.net_limit
        return found if limit is None else found[: max(limit * len(gpus), len(preferred))]

    def gpus(self, gpu: int, trial: Trial, used: Sequence[int], *, to_net: int | None) -> list[int]:
        """Return the GPUs to try after one, best first.

        `used` has a bit per channel that has been at a GPU. `to_net` is how many GPUs on the
        channel comes to its way back to a NET; None if it does not.
        """
        bit = 1 << trial.channels
        if self._switched:
            return self._neighbours(gpu, trial.pattern, used, bit)
        if to_net is None:
            return [g for g in self._by_nearness[gpu] if not used[g] & bit]
        left = self._links.left
        ranked = sorted(
            [
                (rate, -(min(left[up], left[down]) // 1000), rest, g)
                for rate, (up, down), rest, g in self._rows(trial.inter[trial.channels][0], gpu)
                if not used[g] & bit
            ]
        )
        free = [row[3] for row in ranked]
        one_rank = len({self._search_paths.hop[gpu][g].rank for g in free}) <= 1
        return free[::-1] if to_net != 1 and one_rank else free

    def _rows(self, net: int, gpu: int) -> list[_Row]:
        """Return how the others rank after a GPU in a channel from a NET.

        Per GPU: bandwidth from the NET (negative), the slot's links, all that counts less, itself.
        """
        key = net, gpu
        if key not in self._from_net:
            start, hop = self._search_paths.into[net], self._search_paths.hop[gpu]
            self._from_net[key] = [
                (start[g].rank[0], self._slots[g], (start[g].hops, hop[g].rank, i), g)
                for i, g in enumerate(self._others[gpu])
            ]
        return self._from_net[key]

    def _neighbours(self, gpu: int, pattern: Pattern, used: Sequence[int], bit: int) -> list[int]:
        """Behind an NVSwitch NCCL tries only the neighbours by number, which keeps peers few."""
        before, after = (gpu - 1) % self._count, (gpu + 1) % self._count
        if pattern == Pattern.RING:
            tried = [before, after]
        elif pattern in (Pattern.SPLIT_TREE, Pattern.BALANCED_TREE):
            tried = [after, before]
        else:
            tried = [after]
        if before == after:
            tried = tried[:1]
        hops = self._search_paths.hop[gpu]
        return [g for g in tried if g != gpu and hops[g].hops and not used[g] & bit]


def _slot(gpu: TopologyDevice) -> tuple[int, int]:
    """Return the PCI links of a GPU, up and down."""
    return next((link.id, link.reverse) for link in gpu.links if link.type == PathType.PIX)
