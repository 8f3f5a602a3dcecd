"""The most channels and the fewest hops that a search can come to, on machines made by hand."""

from __future__ import annotations

import pytest
from helpers.nccl_machines import cpu, gpu, net, nic, nvlink, root

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.search.bound import SearchBound
from commsim.libraries.nccl.search.state import Trial
from commsim.libraries.nccl.shapes import PathType, Pattern
from commsim.libraries.nccl.topology import Paths, rules_of, system_of


def bound_of(*inside, inter):
    rules = rules_of("2.27")
    system = system_of(root(cpu(*inside)), "f", rules, nets=inter)
    return SearchBound(Paths(system, Knobs(), rules), inter=inter)


def trial(pattern, bandwidth=0, *, least=1, most=32, intra=PathType.PHB, **changes):
    rates = {"bw_intra": bandwidth, "bw_inter": bandwidth} | changes
    return Trial(pattern, least, most, intra, PathType.PHB, **rates)


PAIR = gpu(0), gpu(1)
"""Two GPUs of 12 GB/s each on one socket."""
LINKED = gpu(0, nvlink(0x81, 2)), gpu(1, nvlink(0x80, 2))
"""The same with two NVLinks between them: 40 GB/s."""


@pytest.mark.parametrize(
    ("bandwidth", "ring", "tree"),
    [(12_001, 0, 0), (12_000, 1, 2), (6_001, 1, 2), (6_000, 2, 4), (3_000, 4, 8)],
)
def test_channels_within_a_node_share_the_links_out_of_its_gpus(bandwidth, ring, tree):
    """A ring leaves every GPU, a tree every GPU but one; so does a ring that leaves the node."""
    within = bound_of(*PAIR, inter=False)
    assert within.channels(trial(Pattern.RING, bandwidth)) == ring
    assert within.channels(trial(Pattern.TREE, bandwidth)) == tree
    wide = [nic(0x10 + i, net(i, speed=800_000)) for i in range(2)]
    beyond = bound_of(*PAIR, *wide, inter=True)
    assert beyond.channels(trial(Pattern.RING, bandwidth)) == tree


def test_no_more_channels_than_are_asked_for():
    assert bound_of(*PAIR, inter=False).channels(trial(Pattern.TREE, 3_000, most=5)) == 5


@pytest.mark.parametrize(
    ("reach", "channels"),
    [
        (PathType.NVL, [4, 8]),
        (PathType.NVB, [4, 8]),
        (PathType.C2C, [5, 10]),
        (PathType.PHB, [5, 10]),
    ],
)
def test_near_channels_take_nvlink_alone(reach, channels):
    """40 GB/s of NVLink and 12 of PCIe at 10 GB/s: 4 and 1 for each, over two hops or one."""
    bound = bound_of(*LINKED, inter=False)
    found = [bound.channels(trial(p, 10_000, intra=reach)) for p in (Pattern.RING, Pattern.TREE)]
    assert found == channels


def test_three_gpus_of_a_ring_leave_three_times():
    three = bound_of(*PAIR, gpu(2), inter=False)
    assert three.channels(trial(Pattern.RING, 6_000)) == 2
    assert three.channels(trial(Pattern.TREE, 6_000)) == 3
    assert three.channels(trial(Pattern.TREE, 4_000)) == 4


@pytest.mark.parametrize("pattern", [Pattern.RING, Pattern.TREE])
def test_a_gpu_alone_is_bound_by_the_network(pattern):
    ports = nic(0x10, net(0, speed=64_000, guid="0x1", port="1"), net(1, speed=96_000, port="2"))
    bound = bound_of(gpu(0), ports, inter=True)
    # 8 and 12 GB/s of the ports, 12 GB/s into the GPU
    assert bound.channels(trial(pattern, 4_000)) == 3
    assert bound.channels(trial(pattern, 8_000)) == 1
    assert bound.channels(trial(pattern, 12_001)) == 0
    assert bound_of(gpu(0), inter=False).channels(trial(pattern, 99_000)) == 32


def test_ports_of_one_guid_and_number_are_one():
    """Two NETs of one port count once, as the wider one."""
    eight = [gpu(i) for i in range(8)]
    one = nic(0x10, net(0, speed=64_000, guid="0x1"), net(1, speed=96_000, guid="0x1"))
    two = nic(0x10, net(0, speed=64_000, guid="0x1"), net(1, speed=96_000, guid="0x1", port="2"))
    assert bound_of(*eight, one, inter=True).channels(trial(Pattern.NVLS, 4_000)) == 3
    assert bound_of(*eight, two, inter=True).channels(trial(Pattern.NVLS, 4_000)) == 5


@pytest.mark.parametrize(
    ("bandwidth", "channels"),
    [(2_400, 6), (2_999, 6), (3_000, 4), (1_200, 12), (999, 99), (12_000, 1), (12_001, 0)],
)
def test_the_network_counts_whole_gigabytes(bandwidth, channels):
    """NCCL takes 2 of 12.5 GB/s for 2.4, and below 1 GB/s nothing."""
    bound = bound_of(*PAIR, nic(0x10, net(0)), inter=True)
    assert bound.channels(trial(Pattern.NVLS, bandwidth, most=99)) == channels


@pytest.mark.parametrize("pattern", [Pattern.NVLS, Pattern.COLLNET_DIRECT])
def test_patterns_over_a_switch_are_not_bound_by_links_between_gpus(pattern):
    assert bound_of(*PAIR, inter=False).channels(trial(pattern, 12_001)) == 32


RINGS = [
    # (channels and bandwidth of the best, its hops, whether a ring of 6 GB/s may improve it)
    (2, 6_000, 9, True), (2, 6_000, 8, False), (2, 5_999, 0, True), (2, 6_001, 99, False),
    (1, 12_000, 9, True), (0, 0, 0, True),
]  # fmt: skip


@pytest.mark.parametrize(("channels", "bandwidth", "hops", "may"), RINGS)
def test_a_search_may_find_more_bandwidth_or_fewer_hops(channels, bandwidth, hops, may):
    """Two channels of 6 GB/s; each ring of two GPUs takes four hops."""
    bound = bound_of(*PAIR, inter=False)
    best = trial(Pattern.RING, bandwidth, channels=channels, hops=hops)
    assert bound.can_improve(trial(Pattern.RING, 6_000), best) == may
    if channels == 2 and bandwidth == 6_000:
        for changes in ({"cross_nic": 2}, {"pattern": Pattern.TREE}):
            other = trial(Pattern.RING, 6_000, channels=2, hops=99)
            for name, value in changes.items():
                setattr(other, name, value)
            assert not bound.can_improve(trial(Pattern.RING, 6_000), other)


@pytest.mark.parametrize(("least", "may"), [(1, True), (2, True), (3, False)])
def test_a_search_that_cannot_have_its_least_channels_finds_nothing(least, may):
    bound = bound_of(*PAIR, inter=False)
    assert bound.can_improve(trial(Pattern.RING, 6_000, least=least), trial(Pattern.RING)) == may
    assert not bound.can_improve(trial(Pattern.RING, 12_001, least=0), trial(Pattern.RING))


@pytest.mark.parametrize("pattern", [Pattern.NVLS, Pattern.COLLNET_DIRECT])
def test_patterns_over_a_switch_are_always_tried(pattern):
    bound = bound_of(*PAIR, inter=False)
    best = trial(pattern, 90_000, channels=32)
    assert bound.can_improve(trial(pattern, 3_000), best)
    assert not bound.can_improve(trial(pattern, 3_000, least=33), best)


@pytest.mark.parametrize(
    ("pattern", "within", "beyond"),
    [(Pattern.RING, 4, 8), (Pattern.TREE, 2, 8), (Pattern.BALANCED_TREE, 2, 11)],
)
def test_a_channel_takes_so_many_hops_at_least(pattern, within, beyond):
    """Between GPUs two hops, and three to or from the port: port, card, CPU, GPU."""
    inside, outside = bound_of(*PAIR, inter=False), bound_of(*PAIR, nic(0x10, net(0)), inter=True)
    for bound, hops in ((inside, within), (outside, beyond)):
        one = trial(pattern, 12_000, most=1)
        for more in (0, 1):
            best = trial(pattern, 12_000, channels=1, hops=hops + more)
            assert bound.can_improve(one, best) == bool(more)


def test_a_gpu_alone_takes_no_hops():
    bound = bound_of(gpu(0), inter=False)
    for hops in (0, 1):
        best = trial(Pattern.RING, 12_000, channels=1, hops=hops)
        assert bound.can_improve(trial(Pattern.RING, 12_000, most=1), best) == bool(hops)
