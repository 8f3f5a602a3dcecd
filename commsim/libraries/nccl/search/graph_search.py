"""
NCCL's graph search: for a pattern, the channels with the most bandwidth that a node can carry.

Two passes of `ChannelSearch`. The first tries bandwidths per channel from high to low and,
at each, relaxes one constraint after another: the same order in all channels, then different ones,
a simpler tree, longer paths between GPUs, longer ones to the NICs, NICs swapped between two
channels. It ends with doubling channels that are wide enough. The second tries to widen what was
found.

Follows ncclTopoCompute (src/graph/search.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from commsim.libraries.nccl.search.facts import SearchFacts
from commsim.libraries.nccl.search.passes import Passes
from commsim.libraries.nccl.search.state import Trial
from commsim.libraries.nccl.shapes import Channel, PathType, Pattern, SearchGraph
from commsim.libraries.nccl.topology import Paths, System

__all__ = ["search_all"]

_MAX_NVLS_HEADS = 32
_MAX_DIRECT_HEADS = 8
_FALLBACK = 100


def search_all(
    paths: Paths, *, inter: bool, nvls: bool, collnet: bool
) -> Mapping[str, SearchGraph]:
    """Return the graphs of a system by name; NVLS and CollNet only if they are asked for.

    Channels name GPUs and NETs by their index in the system.
    """
    search = _PatternSearch(SearchFacts(paths, inter=inter))
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


class _PatternSearch:
    """Searches patterns on one system."""

    def __init__(self, facts: SearchFacts) -> None:
        self._facts = facts

    def find(
        self, pattern: Pattern, least: int, most: int, *, collnet: bool = False
    ) -> SearchGraph:
        """Return the best graph of a pattern with `least` to `most` channels."""
        if pattern == Pattern.NVLS and not self._facts.multicasts:
            return SearchGraph(pattern, (), 0.0, 0.0, PathType.LOC, PathType.LOC)
        best = self._empty(pattern, least, most, collnet)
        Passes(self._facts, best).run()
        if not best.channels and not collnet and pattern != Pattern.NVLS:
            self._fall_back(best)
        return _graph(best, self._facts.system, inter=self._facts.inter)

    def _empty(self, pattern: Pattern, least: int, most: int, collnet: bool) -> Trial:
        """Return a graph without channels, with the shortest paths that could do."""
        facts = self._facts
        if pattern == Pattern.NVLS:
            most = min(_MAX_NVLS_HEADS, facts.gpus)
        if pattern == Pattern.COLLNET_DIRECT:
            most = min(_MAX_DIRECT_HEADS, facts.gpus)
        if pattern == Pattern.NVLS and not facts.inter:
            least = most
        crosses = facts.cross_nic(pattern) == 1
        if facts.gpus == 1 and pattern != Pattern.RING:
            pattern = Pattern.TREE
        if pattern == Pattern.RING and least == 1 and most >= 2 and facts.split:
            least = 2
        return Trial(
            pattern,
            least,
            most,
            *facts.nearest,
            collnet=collnet,
            cross_nic=int(crosses),
            same_channels=pattern != Pattern.NVLS,
        )

    def _fall_back(self, best: Trial) -> None:
        """Take the GPUs in order over one channel of 0.1 GB/s, as NCCL does."""
        best.channels = 1
        best.bw_intra = best.bw_inter = _FALLBACK
        best.type_intra = best.type_inter = PathType.SYS
        best.intra = [list(range(self._facts.gpus))]
        gpus = self._facts.system.gpus
        ends = [self._facts.paths.near_net(gpu, 0) for gpu in (gpus[0], gpus[-1])]
        best.inter = [[net.index if net else 0 for net in ends]]


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
