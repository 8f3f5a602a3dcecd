"""The order in which a search tries NETs and GPUs, on machines made by hand."""

from __future__ import annotations

import pytest
from helpers.nccl_machines import bridge, cpu, gpu, net, nic, nvlink, root

from commsim.libraries.nccl.env import knobs_of
from commsim.libraries.nccl.search.order import ALL, Order, SearchPaths
from commsim.libraries.nccl.search.state import BandwidthLeft, Trial
from commsim.libraries.nccl.shapes import PathType, Pattern
from commsim.libraries.nccl.topology import Paths, rules_of, system_of


class Made:
    """The order of a machine, its paths as the search has them, and what is left on its links."""

    def __init__(self, *cpus, nets=True, env=None):
        rules = rules_of("2.27")
        system = system_of(root(*cpus), "f", rules, nets=nets)
        self.paths = Paths(system, knobs_of(env or {}), rules)
        self.links = BandwidthLeft(self.paths)
        self.ways = SearchPaths(self.paths, self.links)
        self.order = Order(self.paths, self.ways, self.links)

    def leave(self, gpu, rate, *, up=False):
        """Leave so much of a GPU's slot, one way."""
        link = self.paths.system.gpus[gpu].links[-1]
        self.links.left[link.id if up else link.reverse] = rate

    def gpus(self, gpu, *, to_net=None, pattern=Pattern.RING, channels=0, used=(), start=0):
        trial = Trial(pattern, 1, 8, PathType.SYS, PathType.SYS, channels=channels)
        trial.inter = [[start, start] for _ in range(channels + 1)]
        been = [sum(1 << c for c, g in used if g == one) for one in range(8)]
        return self.order.gpus(gpu, trial, been, to_net=to_net)


def port(number):
    return nic(0x10 + number, net(number, gdr="1"))


FOUR = (
    cpu(bridge(1, gpu(0), port(0)), bridge(2, gpu(1), port(1)), port(2)),
    cpu(port(3), numa=1),
)
"""Two GPUs with a NIC each, a NIC on their socket, and one across."""


@pytest.mark.parametrize(
    ("reach", "first", "second", "every"),
    [
        ("LOC", [0], [1], [0, 1]),
        ("PIX", [0], [1], [0, 1]),
        ("PXN", [0], [1], [0, 1]),
        ("PHB", [0, 1, 2], [1, 0, 2], [0, 1, 2]),
        ("SYS", [0, 1, 2, 3], [1, 0, 2, 3], [0, 1, 2, 3]),
    ],
)
def test_nics_are_tried_from_the_gpus_own_outwards(reach, first, second, every):
    order = Made(*FOUR).order
    for asked, wanted in ((0, first), (1, second), (ALL, every)):
        assert order.nets(PathType[reach], asked) == wanted


@pytest.mark.parametrize(
    ("policy", "one", "every"),
    [("MAX:1", [0], [0, 1]), ("MAX:2", [0, 1], [0, 1, 2, 3]), ("ALL", [0, 1, 2, 3], [0, 1, 2, 3])],
)
def test_a_policy_limits_nics_for_each_gpu(policy, one, every):
    order = Made(*FOUR, env={"NCCL_NETDEVS_POLICY": policy}).order
    assert order.nets(PathType.SYS, 0) == one
    assert order.nets(PathType.SYS, ALL) == every


def test_over_several_machines_one_nic_of_each_gpu_comes_first():
    """Two GPUs with two NICs each: on one machine all of the first GPU, on two in turns."""

    def half(rank, host):
        ports = [port(2 * rank + i) for i in range(2)]
        inside = gpu(rank, nvlink(None), dev=0, bus=0x20 + rank), *ports
        return cpu(bridge(1 + rank, *inside), host=str(host), numa=rank)

    assert Made(half(0, 0), half(1, 0)).order.nets(PathType.LOC, ALL) == [0, 1, 2, 3]
    assert Made(half(0, 0), half(1, 1)).order.nets(PathType.LOC, ALL) == [0, 2, 1, 3]


ROW = cpu(bridge(1, gpu(0, nvlink(0x83, 2)), gpu(1)), gpu(2), gpu(3, nvlink(0x80, 2)))
"""GPU 0: 40 GB/s of NVLink to 3, a switch to 1, a switch and the socket to 2."""


def test_within_a_node_wider_and_shorter_ways_come_first():
    made = Made(ROW, nets=False)
    assert made.gpus(0) == [3, 1, 2]
    assert made.gpus(3) == [0, 2, 1]
    assert made.gpus(2) == [3, 0, 1]  # two hops, and two of three, after 2 in order


def test_gpus_that_a_channel_has_been_at_are_left_out():
    made = Made(ROW, nets=False)
    assert made.gpus(0, used=[(0, 3), (0, 2)]) == [1]
    assert made.gpus(0, channels=1, used=[(0, 3), (0, 2)]) == [3, 1, 2]
    assert made.gpus(0, channels=1, used=[(1, 3)]) == [1, 2]


def test_ways_are_ranked_by_whole_gigabytes():
    made = Made(ROW, nets=False)
    assert [way.rank for way in made.ways.hop[0]] == [(-5000, 0), (-12, 2), (-12, 3), (-40, 1)]
    assert [way.hops for way in made.ways.hop[0]] == [0, 2, 3, 1]
    half = Made(cpu(gpu(0, link_speed="2.5 GT/s", link_width="8"), gpu(1)), nets=False)
    assert half.ways.hop[0][1].rank == (-1, 2)  # 1.5 GB/s


ALIKE = cpu(bridge(1, *(gpu(i) for i in range(4)), port(0)))


def test_from_the_network_gpus_alike_are_tried_backwards_but_before_its_end():
    made = Made(ALIKE)
    assert made.gpus(0, to_net=3) == [3, 2, 1]
    assert made.gpus(0, to_net=2) == [3, 2, 1]
    assert made.gpus(0, to_net=1) == [1, 2, 3]
    assert made.gpus(0, to_net=0) == [3, 2, 1]
    assert made.gpus(2, to_net=1) == [3, 0, 1]
    assert made.gpus(2, to_net=3, used=[(0, 0)]) == [1, 3]


@pytest.mark.parametrize("up", [False, True])
def test_slots_with_more_left_come_first(up):
    """In whole GB/s, and the narrower direction of each."""
    made = Made(ALIKE)
    made.leave(1, 10_999, up=up)
    made.leave(2, 11_000, up=up)
    assert made.gpus(0, to_net=1) == [3, 2, 1]
    made.leave(1, 11_999, up=up)
    assert made.gpus(0, to_net=1) == [3, 1, 2]


def test_wider_from_the_nic_comes_before_slots_and_hops():
    """GPU 2 has a slot of half the width: last, whatever is left of the others."""
    narrow = cpu(bridge(1, gpu(0), gpu(1), gpu(2, link_width="8"), port(0)), gpu(3))
    made = Made(narrow)
    made.leave(1, 1_000)
    # 3 is one hop further from the NIC than 1, but has more left
    assert made.gpus(0, to_net=1) == [3, 1, 2]
    assert made.gpus(0, to_net=3) == [3, 1, 2]  # they differ in their way from 0: as they are
    made.leave(1, 12_000)
    assert made.gpus(0, to_net=1) == [1, 3, 2]


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        (Pattern.RING, [3, 1]), (Pattern.BALANCED_TREE, [1, 3]), (Pattern.SPLIT_TREE, [1, 3]),
        (Pattern.TREE, [1]),
    ],
)  # fmt: skip
def test_behind_a_switch_neighbours_by_number_are_tried(pattern, wanted):
    many = [gpu(i, nvlink(None, 4)) for i in range(4)]
    made = Made(cpu(*many, port(0)))
    assert made.gpus(0, pattern=pattern) == wanted
    assert made.gpus(0, pattern=pattern, to_net=1) == wanted
    assert made.gpus(0, pattern=pattern, used=[(0, 1)]) == [g for g in wanted if g != 1]
    assert made.gpus(3, pattern=pattern) == [(g + 3) % 4 for g in wanted]


@pytest.mark.parametrize("pattern", [Pattern.RING, Pattern.BALANCED_TREE, Pattern.TREE])
def test_of_two_gpus_behind_a_switch_each_has_one_neighbour(pattern):
    made = Made(cpu(*(gpu(i, nvlink(None, 4)) for i in range(2))), nets=False)
    assert made.gpus(0, pattern=pattern) == [1]
    assert made.gpus(1, pattern=pattern) == [0]
    alone = Made(cpu(gpu(0, nvlink(None, 4))), nets=False)
    assert alone.gpus(0, pattern=pattern) == []
