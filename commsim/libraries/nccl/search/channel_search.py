"""
One search at fixed bandwidths: channel after channel, GPU after GPU, until the budget is spent.

NCCL's depth-first search. A channel starts at a NET (or at a GPU, within a node), visits every
GPU, and returns to the network, or to its first GPU; its bandwidth is reserved on every link it
uses. The next channel is searched inside the last, and each step costs one unit of a budget, so
the order of attempts decides what is found. Steps are generators driven by `run`, for a search
may go deeper than Python's own stack.

Follows ncclTopoSearchRec and the functions it calls: ncclTopoSearchRecNet, ncclTopoSearchRecGpu,
ncclTopoSearchTryGpu (src/graph/search.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TypeAlias

from commsim.libraries.nccl.search.order import ALL, Order, SearchPath, SearchPaths
from commsim.libraries.nccl.search.state import BandwidthLeft, ChannelCost, Trial
from commsim.libraries.nccl.shapes import PathType, Pattern
from commsim.libraries.nccl.topology import DeviceKind, Paths

__all__ = ["PERFECT", "ChannelSearch"]

PERFECT = -1
"""Time left of a search that found all the channels it may have."""

_PCI_BUDGET = 1 << 10
_TREES = (Pattern.BALANCED_TREE, Pattern.SPLIT_TREE, Pattern.TREE)
_FREE, _PCI_ORDER, _REPLAY = 0, 1, 2
_NO = -1

Steps: TypeAlias = "Iterator[Steps]"


class ChannelSearch:
    """Searches one system; `inter`: channels go through the network."""

    def __init__(self, paths: Paths, *, inter: bool) -> None:
        system = paths.system
        self._inter = inter
        self._gpus = list(system.gpus)
        self._nets = list(system.nets)
        self._count = len(self._gpus)
        self._switches = list(system.of(DeviceKind.NVS))
        self._links = BandwidthLeft(paths)
        self._net_left = [net.bandwidth for net in self._nets]
        self._shares = [
            [i for i, b in enumerate(self._nets) if (b.asic, b.port) == (a.asic, a.port)]
            for a in self._nets
        ]
        self._search_paths = SearchPaths(paths, self._links)
        self._order = Order(paths, self._search_paths, self._links)
        found = self._search_paths
        self._hop, self._out, self._in = found.hop, found.out, found.into
        self._own = [paths.near_gpu(net) for net in self._nets]
        self._near = [[gpu.index for gpu in paths.near(net, DeviceKind.GPU)] for net in self._nets]
        self._used: list[int] = []

    def run(self, trial: Trial, best: Trial, budget: int) -> int:
        """Search from `trial`, improve `best`, and return the time left (`PERFECT` if perfect)."""
        self._trial, self._best, self._time = trial, best, budget
        self._used = [0] * self._count
        trial.channels = 0
        trial.intra, trial.inter = [], []
        self._searched: dict[object, tuple[int, int]] = {}
        self._intra, self._to_net = ChannelCost(trial.bw_intra), ChannelCost(trial.bw_inter)
        self._to_net_half = ChannelCost(Fraction(trial.bw_inter, 2))
        stack = [self._channel()]
        while stack:
            below = next(stack[-1], None)
            if below is None:
                stack.pop()
            else:
                stack.append(below)
        return self._time

    def _reserve_path(self, way: SearchPath, cost: ChannelCost, limit: PathType) -> bool:
        """Reserve a path whose type is within the limit, for trees in both directions."""
        if way.type >= PathType.DIS or way.type > limit:
            return False
        if way.back > limit and self._trial.pattern in _TREES:
            return False
        if not self._links.reserve(way.plan, cost):
            return False
        self._trial.hops += way.hops
        return True

    def _release_path(self, way: SearchPath, cost: ChannelCost) -> None:
        self._links.give_back(way.plan, cost)
        self._trial.hops -= way.hops

    def _channel(self) -> Steps:
        """Search one more channel."""
        if self._inter:
            yield self._from_nets()
            return
        trial = self._trial
        back_first = self._count - 1 if trial.pattern == Pattern.RING else _NO
        if trial.pattern == Pattern.NVLS:
            if trial.channels < self._count:
                yield self._start(trial.channels, _NO, back_first, _FREE)
            return
        if trial.channels == 0:
            yield self._start(0, _NO, back_first, _PCI_ORDER)
        else:
            yield self._start(trial.intra[trial.channels - 1][0], _NO, back_first, _REPLAY)
        if trial.channels == 0 or not trial.same_channels:
            for gpu in range(self._count):
                yield self._start(gpu, _NO, back_first, _FREE)

    def _start(self, gpu: int, back_net: int, back_first: int, order: int) -> Steps:
        """Begin a channel within the node at a GPU."""
        self._used[gpu] ^= 1 << self._trial.channels
        yield self._visit(gpu, 0, back_net, back_first, order)
        self._used[gpu] ^= 1 << self._trial.channels

    def _from_nets(self) -> Steps:
        """Begin a channel at each NET in turn that has bandwidth left."""
        trial, left = self._trial, self._net_left
        whole = trial.bw_inter // 1000 * 1000  # NCCL keeps a whole number of GB/s here
        back_net = {Pattern.RING: self._count - 1, Pattern.SPLIT_TREE: 1}.get(trial.pattern, 0)
        heads = trial.pattern in (Pattern.NVLS, Pattern.COLLNET_DIRECT)
        nets = self._order.nets(trial.type_inter, ALL)
        found = False
        for turn in range(len(nets)):
            if heads and found:
                break
            net = nets[(trial.channels + turn) % len(nets)]
            if trial.collnet and not self._nets[net].in_network:
                continue
            if left[net] < whole or not self._may_start(net):
                continue
            _row(trial.inter, trial.channels)[0] = net
            trial.latency = self._nets[net].latency
            for other in self._shares[net]:
                left[other] -= whole
            if heads:
                if trial.channels < len(nets) and self._is_new_head(net):
                    own = self._own[net]
                    yield self._enter(net, own.index if own else 0, back_net, _FREE)
                    found = True
            elif trial.channels > 0 and trial.same_channels:
                yield self._enter(net, trial.intra[trial.channels - 1][0], back_net, _REPLAY)
            else:
                yield self._local_starts(net, back_net)
            for other in self._shares[net]:
                left[other] += whole

    def _local_starts(self, net: int, back_net: int) -> Steps:
        """Begin at the GPUs near a NET: PCI order for reference, its own GPU, the others."""
        if self._trial.channels == 0 and not self._switches:
            saved, self._time = self._time, _PCI_BUDGET
            yield self._enter(net, 0, back_net, _PCI_ORDER)
            self._time = PERFECT if self._time == PERFECT else saved
        own = self._own[net]
        if own is not None:
            yield self._enter(net, own.index, back_net, _FREE)
        for gpu in self._near[net]:
            if own is None or gpu != own.index:
                yield self._enter(net, gpu, back_net, _FREE)

    def _enter(self, net: int, gpu: int, back_net: int, order: int) -> Steps:
        """Go from a NET to a GPU."""
        way = self._in[net][gpu]
        if self._reserve_path(way, self._to_net, self._trial.type_inter):
            self._used[gpu] ^= 1 << self._trial.channels
            yield self._visit(gpu, 0, back_net, _NO, order)
            self._used[gpu] ^= 1 << self._trial.channels
            self._release_path(way, self._to_net)

    def _may_start(self, net: int) -> bool:
        """With crossNic 2, odd channels start at the NIC at which the channel before ended."""
        trial = self._trial
        swaps = trial.pattern == Pattern.RING and trial.cross_nic == 2 and trial.channels & 1
        return not swaps or net == trial.inter[trial.channels - 1][1]

    def _is_new_head(self, net: int) -> bool:
        own, trial = self._own[net], self._trial
        heads = [row[0] for row in trial.intra[: trial.channels]]
        return own is not None and own.index not in heads

    def _visit(self, gpu: int, step: int, back_net: int, back_first: int, order: int) -> Steps:
        """Visit a GPU, the `step`-th of its channel, and search on from it."""
        if self._time <= 0:
            return
        self._time -= 1
        trial = self._trial
        if step == self._count:
            yield from self._complete()
            return
        _row(trial.intra, trial.channels, self._count)[step] = gpu
        if step == back_net:
            if self._inter:
                yield from self._back_to_net(gpu, step, back_first, order)
        elif trial.pattern == Pattern.NVLS:
            yield from self._nvls_channel(gpu)
        elif trial.pattern == Pattern.COLLNET_DIRECT:
            yield from self._collnet_channel(gpu)
        elif step < self._count - 1:
            limit, bit = trial.type_intra, 1 << trial.channels
            for follower in self._next_gpus(gpu, step, back_net, order):
                way = self._hop[gpu][follower]
                if self._reserve_path(way, self._intra, limit):
                    self._used[follower] ^= bit
                    yield self._visit(follower, step + 1, back_net, back_first, order)
                    self._used[follower] ^= bit
                    self._release_path(way, self._intra)
        elif step == back_first:
            first = trial.intra[trial.channels][0]
            way = self._hop[gpu][first]
            if self._reserve_path(way, self._intra, trial.type_intra):
                yield self._visit(first, step + 1, back_net, _NO, order)
                self._release_path(way, self._intra)
        else:
            yield self._visit(gpu, self._count, _NO, _NO, order)

    def _complete(self) -> Steps:
        """Close a channel: keep the graph if it is better, and look for one channel more."""
        trial, best = self._trial, self._best
        trial.channels += 1
        if trial.better_than(best, self._count):
            best.take(trial)
            if trial.channels == trial.max_channels:
                self._time = PERFECT
        if trial.channels < trial.max_channels:
            yield from self._next_channel()
        trial.channels -= 1

    def _next_channel(self) -> Steps:
        """Search one more channel, unless the same was searched in the same state before.

        In that state it finds nothing better again, and costs the same share of the budget.
        """
        state, hops = self._state(), self._trial.hops
        known = self._searched.get(state)
        if known is not None and hops >= known[0]:
            self._time = max(0, self._time - known[1])
            return
        before = self._time
        yield self._channel()
        if self._time > 0:
            self._searched[state] = hops, before - self._time

    def _state(self) -> object:
        """Return all that the search of the next channel depends on, but for its hops."""
        trial, last = self._trial, self._trial.channels - 1
        ends = tuple(trial.inter[last]) if self._inter else ()
        heads = trial.pattern in (Pattern.NVLS, Pattern.COLLNET_DIRECT)
        before = tuple(row[0] for row in trial.intra[: last + 1]) if heads else ()
        if trial.same_channels or not self._inter:
            before += tuple(trial.intra[last])
        return last, ends, before, tuple(self._net_left), tuple(self._links.left)

    def _back_to_net(self, gpu: int, step: int, back_first: int, order: int) -> Steps:
        """Reserve the route from a GPU to each NET that the channel may end at."""
        trial = self._trial
        balanced = trial.pattern == Pattern.BALANCED_TREE
        cost = self._to_net_half if balanced else self._to_net
        following = 1 if balanced and step == 0 else _NO
        for net in self._order.nets(trial.type_inter, gpu):
            if not self._may_end(net, step):
                continue
            way = self._out[gpu][net]
            if self._reserve_path(way, cost, trial.type_inter):
                trial.inter[trial.channels][1] = net
                yield self._visit(gpu, step, following, back_first, order)
                self._release_path(way, cost)

    def _may_end(self, net: int, step: int) -> bool:
        """Say whether crossNic lets a channel end at a NET: it may ask for that of its start."""
        trial = self._trial
        start, last = trial.inter[trial.channels]
        if trial.pattern == Pattern.TREE and net != start:
            return False
        if trial.pattern == Pattern.RING and trial.cross_nic == 2:
            if trial.channels & 1 and net != trial.inter[trial.channels - 1][0]:
                return False
        elif trial.cross_nic == 0 and not self._one_rail(net, start):
            return False
        return not (trial.pattern == Pattern.BALANCED_TREE and step != 0 and net != last)

    def _one_rail(self, one: int, other: int) -> bool:
        a, b = self._nets[one], self._nets[other]
        if a.rail >= 0 and b.rail >= 0:
            return a.rail == b.rail
        return (a.asic, a.port) == (b.asic, b.port)

    def _next_gpus(self, gpu: int, step: int, back_net: int, order: int) -> list[int]:
        """Return the GPUs to try after one, best first."""
        trial = self._trial
        if order == _PCI_ORDER:
            return [step + 1]
        if order == _REPLAY:
            return [trial.intra[trial.channels - 1][step + 1]]
        to_net = None if back_net == _NO else back_net - step
        return self._order.gpus(gpu, trial, self._used, to_net=to_net)

    def _nvls_channel(self, head: int) -> Steps:
        """NVLS: every GPU to and from the switch, the head twice."""
        trial = self._trial
        double = ChannelCost(2 * trial.bw_intra)
        taken: list[tuple[SearchPath, ChannelCost]] = []
        fits = True
        for down in (True, False):
            for gpu in range(self._count):
                way = self._reserve_switch(gpu, down=down)
                cost = double if gpu == head else self._intra
                limit = PathType.NET if gpu == head else trial.type_intra
                fits = fits and self._reserve_path(way, cost, limit)
                if not fits:
                    break
                taken.append((way, cost))
        if fits:
            yield self._visit(_NO, self._count, _NO, _NO, _FREE)
        for way, cost in reversed(taken):
            self._release_path(way, cost)

    def _reserve_switch(self, gpu: int, *, down: bool) -> SearchPath:
        switch, own = self._switches[0], self._gpus[gpu]
        source, target = (switch, own) if down else (own, switch)
        return self._search_paths.between(source, target)

    def _collnet_channel(self, head: int) -> Steps:
        """CollNet: the head to and from every other GPU, each a part of the bandwidth."""
        trial = self._trial
        part = ChannelCost(Fraction(trial.bw_intra, max(self._count - 1, 1)))
        ways = [self._hop[head][g] for g in range(self._count)]
        ways += [self._hop[g][head] for g in range(self._count)]
        taken: list[SearchPath] = []
        for way in ways:
            # Hops are not counted: NCCL adds a fraction and drops it.
            if way.type >= PathType.DIS or not self._links.reserve(way.plan, part):
                break
            taken.append(way)
        if len(taken) == len(ways):
            others = [g for g in range(self._count) if g != head]
            trial.intra[trial.channels] = [head, *others]
            yield self._visit(_NO, self._count, _NO, _NO, _FREE)
        for way in reversed(taken):
            self._links.give_back(way.plan, part)


def _row(rows: list[list[int]], index: int, width: int = 2) -> list[int]:
    """Return a row of a list of rows, adding it if it is missing."""
    while len(rows) <= index:
        rows.append([_NO] * width)
    return rows[index]
