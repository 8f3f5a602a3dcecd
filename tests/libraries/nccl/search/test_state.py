"""What a channel takes of each link, and which of two graphs is better."""

from __future__ import annotations

import pytest
from helpers.nccl_machines import bridge, cpu, gpu, net, nic, nvlink, root
from hypothesis import given
from hypothesis import strategies as st

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.search.state import BandwidthLeft, ChannelCost, Trial
from commsim.libraries.nccl.shapes import PathType, Pattern
from commsim.libraries.nccl.topology import Paths, rules_of, system_of
from commsim.libraries.nccl.topology.xml_file import Element


def trial(pattern=Pattern.RING, least=1, most=32, **changes):
    return Trial(pattern, least, most, PathType.NVL, PathType.PIX, **changes)


def test_a_new_graph_is_empty():
    new = trial()
    assert (new.cross_nic, new.bw_intra, new.bw_inter, new.latency) == (0, 0, 0, 0.0)
    assert (new.channels, new.hops, new.intra, new.inter) == (0, 0, [], [])
    assert new.same_channels
    assert not new.collnet


@pytest.mark.parametrize(
    ("best", "better"),
    [
        ({"channels": 1, "bw_intra": 39}, True),
        ({"channels": 1, "bw_intra": 41}, False),
        ({"channels": 4, "bw_intra": 10, "hops": 10}, True),
        ({"channels": 4, "bw_intra": 10, "hops": 9}, False),
        ({"channels": 4, "bw_intra": 10, "hops": 8}, False),
        ({"channels": 4, "bw_intra": 10, "hops": 10, "cross_nic": 2}, False),
        ({"channels": 4, "bw_intra": 10, "hops": 10, "pattern": Pattern.TREE}, False),
    ],
)
def test_more_bandwidth_is_better_then_fewer_hops(best, better):
    mine = trial(channels=2, bw_intra=20, hops=9)
    assert mine.better_than(trial(**best), 8) == better


@pytest.mark.parametrize(("channels", "better"), [(2, False), (3, True), (4, True)])
def test_a_graph_needs_its_least_channels(channels, better):
    mine = trial(least=3, channels=channels, bw_intra=20)
    assert mine.better_than(trial(), 8) == better


@pytest.mark.parametrize(
    ("mine", "best", "better"),
    [
        ((4, 10), (3, 50), True),  # a head more, up to one for each GPU
        ((5, 10), (4, 50), False),  # more heads than GPUs
        ((4, 10), (4, 9), True),
        ((4, 10), (4, 10), False),
        ((3, 40), (4, 20), True),
        ((2, 40), (4, 20), False),
        ((5, 10), (4, 12), True),  # 50 > 48
    ],
)
def test_nvls_counts_heads_then_bandwidth_to_the_network(mine, best, better):
    def nvls(figures):
        return trial(Pattern.NVLS, channels=figures[0], bw_inter=figures[1], bw_intra=1)

    assert nvls(mine).better_than(nvls(best), 4) == better


def test_a_graph_takes_the_channels_of_another():
    other = trial(channels=1, bw_intra=5, hops=3, intra=[[0, 1], [1, 0]], inter=[[0, 0], [1, 1]])
    mine = trial(Pattern.TREE)
    mine.take(other)
    assert (mine.pattern, mine.bw_intra, mine.hops, mine.channels) == (Pattern.RING, 5, 3, 1)
    assert (mine.intra, mine.inter) == ([[0, 1]], [[0, 0]])
    copied = other.copy()
    other.intra[0][0] = 7
    assert copied.intra == [[0, 1], [1, 0]]
    assert mine.intra == [[0, 1]]


@pytest.mark.parametrize(
    ("bandwidth", "need", "take", "give"),
    [
        (1000, [1000, 1200, 125, 150], [1000, 1200, 125, 150], [1000, 1200, 125, 150]),
        # 12, 14.4, 1.5 and 1.8: a link needs all of it, then NCCL rounds, halves up.
        (12, [12, 15, 2, 2], [12, 14, 1, 2], [12, 14, 2, 2]),
        # 2, 2.4, 0.25 and 0.3
        (2, [2, 3, 1, 1], [2, 2, 0, 0], [2, 2, 0, 0]),
    ],
)
def test_shares_of_a_channel_are_rounded_as_nccl_rounds(bandwidth, need, take, give):
    cost = ChannelCost(bandwidth)
    assert [list(row) for row in (cost.need, cost.take, cost.give)] == [need, take, give]


@given(st.integers(1, 100_000))
def test_what_is_rounded_is_near(bandwidth):
    cost = ChannelCost(bandwidth)
    for part, need, take, give in zip((40, 48, 5, 6), cost.need, cost.take, cost.give, strict=True):
        exact = bandwidth * part / 40
        assert 0 <= need - exact < 1
        assert abs(take - exact) <= 0.5
        assert abs(give - exact) <= 0.5


def left_of(*cpus):
    rules = rules_of("2.27")
    paths = Paths(system_of(root(*cpus), "f", rules), Knobs(), rules)
    return paths, BandwidthLeft(paths)


def shares(paths, left, source, target):
    """Return what a path takes: the ends of each link, and which share."""
    owner = {link.id: device for device in paths.system.all() for link in device.links}
    links = paths.system.links
    return [
        (owner[number].kind.name, links[number].remote.kind.name, share)
        for number, share in left.plan(source, paths.between(source, target))
    ]


@pytest.mark.parametrize(
    ("vendor", "sm", "tax"),
    [("GenuineIntel", 80, 1), ("AuthenticAMD", 80, 0), ("GenuineIntel", 70, 1)],
)
def test_intel_taxes_pcie_between_gpus(vendor, sm, tax):
    paths, left = left_of(cpu(gpu(0, sm=sm), gpu(1, sm=sm), vendor=vendor))
    assert shares(paths, left, *paths.system.gpus) == [("GPU", "CPU", tax), ("CPU", "GPU", tax)]


@pytest.mark.parametrize(("sm", "taxed"), [(79, True), (80, False), (70, True)])
def test_before_ampere_what_comes_in_takes_of_the_way_back(sm, taxed):
    """An eighth, beside the way in; and no Intel's tax, which is for sending GPUs."""
    paths, left = left_of(cpu(gpu(0, sm=sm), nic(0x10, net(0))))
    (one,), (port,) = paths.system.gpus, paths.system.nets
    way_in = [("NET", "NIC", 0), ("NIC", "CPU", 0), ("CPU", "GPU", 0)]
    assert shares(paths, left, port, one) == way_in + [("GPU", "CPU", 2)] * taxed
    assert shares(paths, left, one, port) == [
        ("GPU", "CPU", 1),
        ("CPU", "NIC", 1),
        ("NIC", "NET", 0),
    ]


def test_paths_below_one_switch_or_across_sockets_are_not_taxed():
    paths, left = left_of(cpu(bridge(1, gpu(0), gpu(1))), cpu(gpu(2), numa=1))
    one, other, far = paths.system.gpus
    assert {share for _, _, share in shares(paths, left, one, other)} == {0}
    across = left.plan(one, paths.between(one, far))
    assert paths.between(one, far).type == PathType.SYS
    assert {share for _, share in across} == {0}


def test_power_takes_nvlink_both_ways_where_it_enters_a_cpu():
    power = Element("nvlink", {"target": "0", "count": "3", "tclass": "0x068001"})
    for arch, both in (("ppc64", True), ("arm64", False)):
        paths, left = left_of(cpu(gpu(0, power, sm=80), gpu(1, power, sm=80), arch=arch))
        one, other = paths.system.gpus
        way = paths.between(one, other)
        assert [paths.system.links[x].type for x in way.links] == [PathType.NVL, PathType.NVL]
        back = [("CPU", "GPU", 0)] if both else []
        assert shares(paths, left, one, other) == [("GPU", "CPU", 0), *back, ("CPU", "GPU", 0)]


def test_bandwidth_is_taken_while_there_is_enough():
    """12 GB/s of PCIe carry 10 GB/s and Intel's fifth more, to the last MB/s, and once."""
    paths, left = left_of(cpu(gpu(0, nvlink(0x81)), gpu(1, nvlink(0x80)), gpu(2)))
    one, _, third = paths.system.gpus
    plan = left.plan(one, paths.between(one, third))
    before = list(left.left)
    assert not left.reserve(plan, ChannelCost(10_001))
    assert left.left == before
    assert left.reserve(plan, ChannelCost(10_000))
    assert sorted(left.left) == [0, 0, 12_000, 12_000, 12_000, 12_000, 20_000, 20_000]
    assert not left.reserve(plan, ChannelCost(1))
    left.give_back(plan, ChannelCost(10_000))
    assert left.left == before
