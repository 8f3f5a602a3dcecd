"""The channels that one search finds on machines made by hand, and what it may not use."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.nccl_machines import bridge, cpu, gpu, net, nic, nvlink, root

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.search.channel_search import PERFECT, ChannelSearch
from commsim.libraries.nccl.search.order import SearchPath
from commsim.libraries.nccl.search.state import ChannelCost, Trial
from commsim.libraries.nccl.shapes import PathType, Pattern
from commsim.libraries.nccl.topology import Paths, rules_of, system_of
from commsim.libraries.nccl.topology.paths import Path

PIX, PXN, PHB = PathType.PIX, PathType.PXN, PathType.PHB
FULL = 1 << 14
FAST: Any = {"link_speed": "64.0 GT/s PCIe"}


def search_of(*cpus, inter=True):
    rules = rules_of("2.27")
    system = system_of(root(*cpus), "f", rules, nets=inter)
    return ChannelSearch(Paths(system, Knobs(), rules), inter=inter)


def port(number, **attributes):
    return nic(0x10 + number, net(number, gdr="1", **attributes))


def found(search, pattern, rate, *, most=8, intra=PHB, inter=PHB, budget=FULL, **changes):
    """Search at so many MB/s; return the best graph and the time left."""
    asked: dict[str, Any] = {"bw_intra": rate, "bw_inter": rate, "same_channels": False}
    trial = Trial(pattern, 1, most, intra, inter, **(asked | changes))
    best = Trial(pattern, 1, most, intra, inter)
    left = search.run(trial, best, budget)
    assert trial.channels == trial.hops == 0  # all is given back
    assert search._links.left == [link.bandwidth for link in search._links._paths.system.links]
    assert search._net_left == [one.bandwidth for one in search._nets]
    return best, left


def pair(**linked):
    """Two GPUs with a NIC each, 12 GB/s, and two NVLinks (40 GB/s) between them."""
    return cpu(
        bridge(1, gpu(0, nvlink(0x81, 2)), port(0, **linked)),
        bridge(2, gpu(1, nvlink(0x80, 2)), port(1, **linked)),
    )


def test_rings_that_swap_nics_go_there_and_back():
    """Channel 0 from NIC 0 to NIC 1, channel 1 from there back; three hops to a NIC each."""
    best, left = found(search_of(pair()), Pattern.RING, 12_000, most=2, inter=PIX, cross_nic=2)
    assert (best.intra, best.inter) == ([[0, 1], [1, 0]], [[0, 1], [1, 0]])
    assert (best.channels, best.hops, left) == (2, 14, PERFECT)


@pytest.mark.parametrize(
    ("same", "rate", "channels"), [(True, 12_000, 1), (False, 12_000, 2), (True, 6_000, 2)]
)
def test_the_same_order_needs_a_way_from_every_nic(same, rate, channels):
    """From NIC 1 into GPU 0 is no PIX: the order is repeated from NIC 0, where it fits twice."""
    best, left = found(
        search_of(pair()), Pattern.RING, rate, most=2, inter=PIX, cross_nic=1, same_channels=same
    )
    assert best.channels == channels
    assert (left == PERFECT) == (channels == 2)
    assert best.intra == ([[0, 1]] * channels if same else [[0, 1], [1, 0]])
    assert best.inter == ([[0, 1]] * channels if same else [[0, 1], [1, 0]])


def test_rings_that_keep_their_nic_come_back_over_nvlink():
    best, _ = found(search_of(pair()), Pattern.RING, 12_000, most=2, inter=PXN)
    assert (best.intra, best.inter) == ([[0, 1], [1, 0]], [[0, 0], [1, 1]])
    assert best.hops == 2 * (3 + 1 + 4)
    near, _ = found(search_of(pair()), Pattern.RING, 12_000, most=2, inter=PIX)
    assert near.channels == 0


def test_nics_of_one_rail_count_as_one():
    """The same rail, stated or by card and port: then a ring may end at the other NIC."""
    for attributes, one in (
        ({"rail": "3"}, True), ({"guid": "0x7", "port": "1"}, True), ({}, False),
    ):  # fmt: skip
        best, _ = found(search_of(pair(**attributes)), Pattern.RING, 6_000, most=1, inter=PIX)
        assert best.channels == int(one)


@pytest.mark.parametrize(
    ("pattern", "inter", "ends", "hops"),
    [
        (Pattern.TREE, PIX, [0, 0], 3 + 3 + 1),
        (Pattern.BALANCED_TREE, PHB, [0, 0], 3 + 3 + 1 + 4),
        (Pattern.SPLIT_TREE, PHB, [0, 0], 3 + 1 + 4),
    ],
)
def test_trees_leave_by_their_first_gpus(pattern, inter, ends, hops):
    """By the first, by the first two (half each), or by the second; then on to the others."""
    best, _ = found(search_of(pair()), pattern, 12_000, most=2, inter=inter)
    assert (best.intra, best.inter) == ([[0, 1], [1, 0]], [ends, [1, 1]])
    assert best.hops == 2 * hops
    less, _ = found(search_of(pair()), pattern, 12_000, most=2, inter=PIX)
    assert bool(less.channels) == (inter == PIX)
    assert found(search_of(pair()), pattern, 12_001, most=2, inter=inter)[0].channels == 0


def test_a_balanced_tree_takes_half_for_each_of_two_gpus():
    """Both over the one NIC: 12 GB/s up from GPU 0, half of it for GPU 1's, handed over."""
    one = cpu(bridge(1, gpu(0, nvlink(0x81)), port(0)), bridge(2, gpu(1, nvlink(0x80))))
    best, _ = found(search_of(one), Pattern.BALANCED_TREE, 12_000, most=1)
    assert (best.intra, best.inter, best.channels) == ([[0, 1]], [[0, 0]], 1)
    assert found(search_of(one), Pattern.BALANCED_TREE, 12_001)[0].channels == 0


@pytest.mark.parametrize(
    ("rate", "own", "shared"), [(2_999, 8, 6), (3_000, 8, 4), (5_000, 4, 2), (12_500, 2, 1)]
)
def test_nets_of_one_port_share_it_in_whole_gigabytes(rate, own, shared):
    """A GPU alone with two NETs of 12.5 GB/s; 2 of 2.999 GB/s are taken of the port."""
    cases: Any = ({}, own), ({"guid": "0x7"}, shared)
    for attributes, channels in cases:
        ports = nic(0x10, *(net(i, gdr="1", **attributes) for i in range(2)), **FAST)
        search = search_of(cpu(bridge(1, gpu(0, **FAST), ports)))
        best, _ = found(search, Pattern.RING, rate, most=16, same_channels=True)
        assert best.channels == channels


def test_channels_start_at_one_nic_after_the_other():
    ports = [nic(0x10 + i, net(i, gdr="1"), **FAST) for i in range(3)]
    search = search_of(cpu(bridge(1, gpu(0, **FAST), *ports)))
    best, left = found(search, Pattern.RING, 6_000, most=5)
    assert [row[0] for row in best.inter] == [0, 1, 2, 0, 1]
    assert left == PERFECT


def test_a_graph_has_the_latency_of_its_last_nic():
    search = search_of(cpu(gpu(0), port(0, latency="2.5")))
    assert found(search, Pattern.RING, 3_000, most=1)[0].latency == 2.5


def test_collnet_starts_where_the_network_reduces():
    ports = port(0, coll="0"), port(1, coll="1")
    search = search_of(cpu(bridge(1, gpu(0), gpu(1), *ports)))
    best, _ = found(search, Pattern.TREE, 6_000, most=1, collnet=True)
    assert best.inter == [[1, 1]]
    assert found(search, Pattern.TREE, 6_000, most=1)[0].inter == [[0, 0]]


def meshed(count, links=1):
    """GPUs with NVLinks to each other (20 GB/s each), and a NIC each that reduces."""
    return cpu(
        *(
            bridge(
                1 + i, gpu(i, *(nvlink(0x80 + j, links) for j in range(count) if j != i)),
                port(i, coll="1"),
            )
            for i in range(count)
        )
    )  # fmt: skip


@pytest.mark.parametrize(("rate", "channels"), [(20_000, 3), (20_002, 1), (40_000, 1), (40_002, 0)])
def test_collnet_heads_share_the_links_between_gpus(rate, channels):
    """Three heads, each with half of its bandwidth to and from both others."""
    best, _ = found(
        search_of(meshed(3)), Pattern.COLLNET_DIRECT, rate, bw_inter=3_000, most=3, collnet=True
    )
    assert best.channels == channels
    heads = [[0, 1, 2], [1, 0, 2], [2, 0, 1]][:channels]
    assert best.intra == heads
    assert best.inter == [[head, head] for head in range(channels)]


@pytest.mark.parametrize(("rate", "channels"), [(27_466, 2), (27_467, 1), (41_200, 1), (41_201, 0)])
def test_nvls_takes_the_heads_way_twice(rate, channels):
    """Two GPUs of four links (82.4 GB/s): two heads take three times of each, one head twice."""
    search = search_of(cpu(*(gpu(i, nvlink(None, 4), sm=90) for i in range(2))), inter=False)
    best, left = found(search, Pattern.NVLS, rate, most=2, intra=PathType.NVL)
    assert best.channels == channels
    assert [row[0] for row in best.intra] == list(range(channels))
    assert (left == PERFECT) == (channels == 2)


@pytest.mark.parametrize(("rate", "channels"), [(10_000, 2), (27_466, 2), (30_000, 1)])
def test_nvls_heads_are_the_gpus_of_nics(rate, channels):
    """Two NICs of the first GPU and one of the second: a head for each GPU, and no more."""
    many = cpu(
        bridge(1, gpu(0, nvlink(None, 4), sm=90), port(0), port(1)),
        bridge(2, gpu(1, nvlink(None, 4), sm=90), port(2)),
    )
    best, _ = found(search_of(many), Pattern.NVLS, rate, bw_inter=3_000, intra=PathType.NVL)
    assert best.channels == channels
    assert [row[0] for row in best.intra] == [0, 1][:channels]
    assert best.inter == [[0, 0], [2, 2]][:channels]


RINGS = [
    (Pattern.RING, 20_000, 2), (Pattern.RING, 20_001, 0), (Pattern.RING, 10_000, 4),
    (Pattern.TREE, 20_000, 2), (Pattern.TREE, 20_001, 0),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "rate", "channels"), RINGS)
def test_channels_within_a_node_close_rings_alone(pattern, rate, channels):
    """Three GPUs, 20 GB/s between each two both ways: what two chains leave is no third."""
    three = cpu(*(gpu(i, *(nvlink(0x80 + j) for j in range(3) if j != i)) for i in range(3)))
    best, _ = found(search_of(three, inter=False), pattern, rate, intra=PathType.NVL)
    assert best.channels == channels
    for row in best.intra:
        assert sorted(row) == [0, 1, 2]
    hops = 3 if pattern == Pattern.RING else 2
    assert best.hops == hops * channels


def test_the_same_ring_is_repeated_within_a_node():
    three = cpu(*(gpu(i, *(nvlink(0x80 + j) for j in range(3) if j != i)) for i in range(3)))
    best, _ = found(
        search_of(three, inter=False), Pattern.RING, 10_000, intra=PathType.NVL, same_channels=True
    )
    assert best.channels == 2
    assert best.intra[0] == best.intra[1]


@pytest.mark.parametrize(
    ("pattern", "kind", "back", "limit", "goes"),
    [
        (Pattern.RING, PIX, PHB, PIX, True), (Pattern.RING, PXN, PIX, PIX, False),
        (Pattern.TREE, PIX, PHB, PIX, False), (Pattern.TREE, PIX, PIX, PIX, True),
        (Pattern.BALANCED_TREE, PIX, PHB, PIX, False), (Pattern.SPLIT_TREE, PIX, PHB, PIX, False),
        (Pattern.NVLS, PIX, PHB, PIX, True),
        (Pattern.RING, PathType.DIS, PIX, PathType.DIS, False),
        (Pattern.RING, PathType.NET, PIX, PathType.NET, True),
    ],
)  # fmt: skip
def test_a_way_is_within_the_limit_in_trees_both_ways(pattern, kind, back, limit, goes):
    search = search_of(pair())
    search._trial = Trial(pattern, 1, 1, limit, limit, hops=5)
    way = SearchPath(Path(kind, 9, (0, 1)), back, ((0, 0), (1, 0)))
    assert search._reserve_path(way, ChannelCost(10), limit) == goes
    assert search._trial.hops == (7 if goes else 5)


ENDS = [
    # pattern, cross NIC, channel, step, the NET, where it started, where it left before
    (Pattern.TREE, 1, 0, 0, 0, 0, -1, True), (Pattern.TREE, 1, 0, 0, 1, 0, -1, False),
    (Pattern.RING, 0, 0, 1, 0, 0, -1, True), (Pattern.RING, 0, 0, 1, 1, 0, -1, False),
    (Pattern.RING, 1, 0, 1, 1, 0, -1, True),
    (Pattern.RING, 2, 0, 1, 1, 0, -1, True), (Pattern.RING, 2, 2, 1, 1, 0, -1, True),
    (Pattern.RING, 2, 1, 1, 1, 0, -1, False), (Pattern.RING, 2, 1, 1, 0, 1, -1, True),
    (Pattern.SPLIT_TREE, 0, 0, 1, 1, 0, -1, False), (Pattern.SPLIT_TREE, 2, 0, 1, 1, 0, -1, True),
    (Pattern.BALANCED_TREE, 2, 0, 0, 1, 0, 0, True),
    (Pattern.BALANCED_TREE, 2, 0, 1, 1, 0, 0, False),
    (Pattern.BALANCED_TREE, 2, 0, 1, 1, 0, 1, True),
    (Pattern.BALANCED_TREE, 0, 0, 1, 1, 0, 1, False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "cross", "channel", "step", "at", "start", "last", "may"), ENDS
)
def test_where_a_channel_may_end(pattern, cross, channel, step, at, start, last, may):
    """On its own rail; with NICs swapped, an odd ring where the one before it began."""
    search = search_of(pair())
    search._trial = Trial(pattern, 1, 4, PHB, PHB, cross_nic=cross, channels=channel)
    search._trial.inter = [[0, 1]] * channel + [[start, last]]
    assert search._may_end(at, step) == may


@pytest.mark.parametrize(
    ("pattern", "cross", "channel", "at", "may"),
    [
        (Pattern.RING, 2, 1, 1, True),
        (Pattern.RING, 2, 1, 0, False),
        (Pattern.RING, 2, 2, 0, True),
        (Pattern.RING, 1, 1, 0, True),
        (Pattern.TREE, 2, 1, 0, True),
        (Pattern.RING, 2, 3, 0, False),
    ],
)
def test_where_a_channel_may_start(pattern, cross, channel, at, may):
    """With NICs swapped, an odd ring where the one before it ended."""
    search = search_of(pair())
    search._trial = Trial(pattern, 1, 4, PHB, PHB, cross_nic=cross, channels=channel)
    search._trial.inter = [[1, 0]] * (channel - 1) + [[0, 1], [1, 0]]
    assert search._may_start(at) == may


@pytest.mark.parametrize(
    ("rails", "one"),
    [(("3", "3"), True), (("3", "4"), False), (("0", "0"), True), (("-1", "3"), False)],
)
def test_rails_are_compared_where_both_are_stated(rails, one):
    ports = [port(i, rail=rail) for i, rail in enumerate(rails)]
    assert search_of(cpu(gpu(0), *ports))._one_rail(0, 1) == one


@pytest.mark.parametrize(
    ("first", "second", "one"),
    [
        (("0x7", "1"), ("0x7", "1"), True), (("0x7", "1"), ("0x7", "2"), False),
        (("0x7", "1"), ("0x8", "1"), False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("rails", [("-1", "-1"), ("-1", "3"), ("3", "-1")])
def test_a_rail_is_a_port_of_a_card_unless_both_are_stated(first, second, one, rails):
    ports = [
        port(i, guid=guid, port=number, rail=rails[i])
        for i, (guid, number) in enumerate((first, second))
    ]
    assert search_of(cpu(gpu(0), *ports))._one_rail(0, 1) == one


@pytest.mark.parametrize(("rate", "channels"), [(12_000, 1), (12_001, 0), (6_000, 2), (6_001, 1)])
def test_a_port_is_used_to_its_last_gigabyte(rate, channels):
    search = search_of(cpu(bridge(1, gpu(0), port(0, speed=96_000))))
    assert found(search, Pattern.RING, rate, same_channels=True)[0].channels == channels


def test_the_first_channel_follows_the_numbers_but_behind_a_switch():
    """Three GPUs alike: in order, then freely, which is backwards; behind a switch freely alone."""
    alike = bridge(1, *(gpu(i) for i in range(3)), port(0))
    best, left = found(search_of(cpu(alike)), Pattern.RING, 6_000, most=2)
    assert (best.intra, left) == ([[0, 1, 2], [0, 2, 1]], PERFECT)
    switched = [bridge(1 + i, gpu(i, nvlink(None, 4)), port(i)) for i in range(3)]
    best, left = found(search_of(cpu(*switched)), Pattern.RING, 6_000, most=1, cross_nic=1)
    assert (best.intra, left) == ([[0, 2, 1]], PERFECT)


def test_a_channel_may_start_at_any_gpu_near_its_nic():
    """A row of three with the NIC's own GPU in its middle: the chain begins at the other one."""
    near = bridge(1, gpu(0, nvlink(0x81), nvlink(0x82)), gpu(1, nvlink(0x80)), port(0))
    row = cpu(near, bridge(2, gpu(2, nvlink(0x80))))
    best, _ = found(search_of(row), Pattern.TREE, 6_000, most=1, intra=PathType.NVL, inter=PHB)
    assert (best.intra, best.inter) == ([[1, 0, 2]], [[0, 0]])


def test_a_nic_too_narrow_is_passed_over_for_the_next():
    """In turns from the widest on: 0, 2, then 1, which has 3 GB/s, so 0 again; 0 is full, so 2."""
    fast = [nic(0x10 + i, net(i, gdr="1", speed=(24_000 if i == 1 else 100_000)), **FAST)
            for i in range(3)]  # fmt: skip
    search = search_of(cpu(bridge(1, gpu(0, **FAST), *fast)))
    best, left = found(search, Pattern.RING, 6_000, most=4)
    assert [row[0] for row in best.inter] == [0, 2, 0, 2]
    assert left == PERFECT


def test_collnet_needs_a_way_to_every_gpu():
    apart = cpu(gpu(0), port(0, coll="1")), cpu(gpu(1, bus=0x80), port(1, coll="1"), host="1")
    best, _ = found(search_of(*apart), Pattern.COLLNET_DIRECT, 3_000, most=2, collnet=True)
    assert best.channels == 0


@pytest.mark.parametrize(("rate", "channels"), [(10_000, 2), (10_001, 1), (20_000, 1), (20_001, 0)])
def test_two_collnet_heads_take_all_of_it_to_each_other(rate, channels):
    best, _ = found(
        search_of(meshed(2)), Pattern.COLLNET_DIRECT, rate, bw_inter=3_000, most=2, collnet=True
    )
    assert best.channels == channels


@pytest.mark.parametrize(("rate", "channels"), [(20_600, 3), (20_601, 2), (27_467, 1)])
def test_three_nvls_heads_take_four_times_of_each(rate, channels):
    """82.4 GB/s: twice of the head, once of the others; two heads three times, one head twice."""
    three = cpu(*(gpu(i, nvlink(None, 4), sm=90) for i in range(3)))
    best, _ = found(search_of(three, inter=False), Pattern.NVLS, rate, most=3, intra=PathType.NVL)
    assert best.channels == channels


@pytest.mark.parametrize(("rate", "channels"), [(20_600, 1), (20_601, 0)])
def test_nvls_tries_one_new_head_for_each_channel(rate, channels):
    """The first NIC's GPU has 41.2 GB/s, the second four times that: NCCL stops at the first."""
    uneven = cpu(
        bridge(1, gpu(0, nvlink(None, 2), sm=90), port(0)),
        bridge(2, gpu(1, nvlink(None, 8), sm=90), port(1)),
    )
    best, _ = found(search_of(uneven), Pattern.NVLS, rate, bw_inter=3_000, intra=PathType.NVL)
    assert best.channels == channels


def test_the_same_order_begins_where_its_first_channel_does():
    """From 1 over 0 to 2 there are two links at each step; in order, one from 1 to 2."""
    ends = gpu(0, nvlink(0x81, 2), nvlink(0x82, 2)), gpu(1, nvlink(0x80, 2), nvlink(0x82))
    row = cpu(bridge(1, *ends, port(0)), gpu(2, nvlink(0x80, 2), nvlink(0x81)))
    best, _ = found(
        search_of(row), Pattern.TREE, 20_000, bw_inter=3_000, most=2, intra=PathType.NVL,
        inter=PIX, same_channels=True,
    )  # fmt: skip
    assert best.intra == [[1, 0, 2], [1, 0, 2]]
