"""NCCL's times follow the links of the cluster: all nodes, all paths, the slowest decides."""

from __future__ import annotations

from typing import Any

import pytest

from commsim.cluster import Cluster, cluster_from
from commsim.libraries import LibrarySection
from commsim.libraries.nccl.env import knobs_of
from commsim.libraries.nccl.plans.group import NcclGroup, Site
from commsim.libraries.nccl.shapes import Algorithm, Protocol
from commsim.libraries.nccl.timing.constants import default_terms
from commsim.study.bench import bench

LARGE, SMALL = 1 << 30, 8
BETWEEN = ("Ring", "Tree", "NVLSTree")
CROSSINGS = {"Ring": 4, "Tree": 2, "NVLSTree": 2}
"""Hops between two nodes of 8 GPUs that the longest way of an all-reduce takes: of a ring's 30
steps every eighth, begun on one of them; up and down of a tree."""


def unlike(*nodes: dict[str, Any], **fabric: Any) -> Cluster:
    """Return a cluster of DGX H100 nodes, each with its own overrides."""
    kinds = [{"preset": "dgx-h100", "overrides": own} if own else {"preset": "dgx-h100"}
             for own in nodes]  # fmt: skip
    return cluster_from({"nodes": kinds, "fabric": {"kind": "fat_tree", **fabric}}, "unlike nodes")


def took(
    cluster: Cluster, op: str, size: int, algorithm: str = "", env: dict[str, Any] | None = None
) -> float:
    """Return the seconds of an op over all GPUs, by an algorithm with Simple or NCCL's choice."""
    group = NcclGroup(Site(cluster, knobs=knobs_of(env or {})), range(cluster.world_size))
    if not algorithm:
        choices = [group.choose(op, size)] if op in ("all_reduce", "all_gather") else None
        return float(group.timing(op, [size], choices).seconds[0])
    made = group.tuner.candidates(op, [size])[Algorithm[algorithm], Protocol.Simple]
    return float(group.timing(op, [size], made).seconds[0])


def two(**overrides: Any) -> Cluster:
    """Return two DGX H100 with overrides."""
    return Cluster.preset("dgx-h100", nodes=2, overrides=overrides)


@pytest.mark.parametrize("algorithm", BETWEEN)
@pytest.mark.parametrize("slow", [0, 1])
def test_a_slow_nic_anywhere_sets_the_rate(algorithm, slow):
    nodes: list[dict[str, Any]] = [{}, {}]
    nodes[slow] = {"nic": {"bandwidth": "10Gbps"}}
    sent = {"Ring": 2 * 15 / 16}.get(algorithm, 1.0) * LARGE
    time = took(unlike(*nodes), "all_reduce", LARGE, algorithm)
    assert time >= sent / (8 * 1.25e9 * 0.97)
    assert time > 10 * took(unlike({}, {}), "all_reduce", LARGE, algorithm)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all", "send_recv"])
def test_a_node_with_slow_nics_takes_as_long_first_or_last(op):
    slow = {"nic": {"bandwidth": "50Gbps"}}
    first, last = took(unlike(slow, {}, {}), op, LARGE), took(unlike({}, {}, slow), op, LARGE)
    assert first == pytest.approx(last, rel=0.02)
    assert first > 3 * took(unlike({}, {}, {}), op, LARGE)


@pytest.mark.parametrize("algorithm", BETWEEN)
def test_an_efficiency_of_a_fifth_takes_five_times(algorithm):
    good, bad = (
        took(two(nic={"efficiency": share}), "all_reduce", 8 << 30, algorithm)
        for share in (0.2, 0.04)
    )
    assert bad / good == pytest.approx(5, rel=0.05)


@pytest.mark.parametrize("algorithm", BETWEEN)
def test_a_hop_takes_the_latency_of_its_nics(algorithm):
    late = took(two(nic={"latency": "1ms"}), "all_reduce", SMALL, algorithm)
    near = took(two(), "all_reduce", SMALL, algorithm)
    assert late - near == pytest.approx(CROSSINGS[algorithm] * 2e-3, rel=0.01)  # a NIC at each end


@pytest.mark.parametrize("algorithm", BETWEEN)
def test_longer_cables_and_slower_switches_count_on_every_hop(algorithm):
    def built(**fabric: str) -> Cluster:
        return Cluster.preset("dgx-h100", nodes=2, fabric={"kind": "single_switch", **fabric})

    near = took(built(), "all_reduce", SMALL, algorithm)
    far = took(built(cable_latency="10ms"), "all_reduce", SMALL, algorithm)
    assert far - near == pytest.approx(CROSSINGS[algorithm] * 2 * 10e-3, rel=0.01)
    slow = took(built(switch_latency="1ms"), "all_reduce", SMALL, algorithm)
    assert slow - near == pytest.approx(CROSSINGS[algorithm] * 1e-3, rel=0.01)


@pytest.mark.share(0.4)
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all", "send_recv"])
@pytest.mark.parametrize(
    "setting",
    [
        {"nvlink": {"latency": "1ms"}}, {"nvlink": {"switch_latency": "1ms"}},
        {"nic": {"latency": "1ms"}}, {"pcie": {"link_latency": "1ms"}},
        {"pcie": {"switch_latency": "1ms"}},
    ],
    ids=str,
)  # fmt: skip
def test_each_latency_of_the_way_moves_a_small_message(setting, op):
    if op in ("all_to_all", "send_recv") and "nvlink" in setting:
        pytest.skip("the way through the network is the longer one")
    assert took(two(**setting), op, SMALL) > took(two(), op, SMALL) + 0.5e-3


@pytest.mark.parametrize("algorithm", ["Ring", "Tree", "NVLS"])
def test_half_of_nvlink_takes_twice(algorithm):
    whole, half = (
        took(Cluster.preset("dgx-h100", overrides={"nvlink": {"bandwidth": rate}}),
             "all_reduce", 8 << 30, algorithm)
        for rate in ("450GB/s", "225GB/s")
    )  # fmt: skip
    assert half / whole == pytest.approx(2, rel=0.1)


def test_an_older_pcie_holds_the_nics_back():
    new, old = (took(two(pcie={"generation": g}), "all_reduce", LARGE, "Ring") for g in (5, 3))
    assert old / new == pytest.approx(50 / 15.75, rel=0.25)


@pytest.mark.parametrize("op", ["all_reduce", "all_to_all"])
def test_without_gpudirect_messages_take_longer(op):
    direct, staged = (two(gpu={"count": 4}, nic={"count": 4, "gdr": gdr}) for gdr in (True, False))
    for size in (SMALL, LARGE):
        assert took(staged, op, size) > took(direct, op, size)


def test_oversubscription_acts_where_rings_cross_it():
    def built(ratio: float) -> Cluster:
        fabric = {"kind": "fat_tree", "oversubscription": ratio, "nodes_per_leaf": 1}
        return Cluster.preset("dgx-h100", nodes=4, fabric=fabric)

    even, four = (took(built(ratio), "all_reduce", 8 << 30, "Ring") for ratio in (1, 4))
    assert four / even == pytest.approx(4, rel=0.15)


@pytest.mark.parametrize(("preset", "nodes", "env", "measured"), [
    ("dgx-b200", 2, {}, 344.7), ("dgx-b200", 16, {}, 306.3), ("hgx-h100", 10, {}, 321.6),
    ("dgx-b200", 16, {"NCCL_COLLNET_ENABLE": "1"}, 385.2),  # 24 channels
])  # fmt: skip
def test_rings_of_sixteen_channels_fall_with_the_nodes_as_measured(preset, nodes, env, measured):
    """16 GiB with NCCL 2.29 on tuned fabrics, bus bandwidth in GB/s (all_gather of the last)."""
    asked = LibrarySection("nccl", version="2.29", env=env)
    op = "all_gather" if env else "all_reduce"
    cluster = Cluster.preset(preset, nodes=nodes)
    (row,) = bench(cluster, op, "16G", algo="Ring", proto="Simple", library=asked).results
    assert row.busbw_gbs == pytest.approx(measured, rel=0.05)


def test_congestion_costs_its_share_for_each_doubling_of_the_nodes():
    def built(nodes: int, **fabric: float) -> Cluster:
        return Cluster.preset("dgx-b200", nodes=nodes, fabric=fabric)

    for nodes, doublings in ((2, 1), (8, 3)):
        tuned, not_tuned = (
            took(built(nodes, **own), "all_to_all", 16 << 30) for own in ({}, {"congestion": 0.1})
        )
        assert not_tuned / tuned == pytest.approx(0.9**-doublings, rel=0.02)


def test_one_channel_for_sends_leaves_each_gpu_its_nic():
    cluster = Cluster.preset("dgx-h100", nodes=2)
    one = took(cluster, "all_to_all", LARGE, env={"NCCL_MAX_P2P_NCHANNELS": 1})
    copied = 15 / 16 * LARGE / default_terms().channel[2, 2]
    assert one == pytest.approx(copied, rel=0.05)  # by its one channel: no NIC waits for another's
    assert took(cluster, "all_to_all", LARGE) < one


def test_a_rack_sends_over_the_nics_of_all_its_machines():
    cluster = Cluster.preset("gb200-nvl72", nodes=36)
    rate = LARGE * 72 / 144 / took(cluster, "all_to_all", LARGE * 16) * 16
    assert 0.85 * 50e9 < rate < 50e9


def test_grouped_sends_wait_for_the_longest_way_within_a_node():
    near, late = (
        Cluster.preset("pcie-l40s", overrides={"cpu": {"latency": own}} if own else {})
        for own in ("", "1ms")
    )
    for op in ("send_recv", "all_to_all"):  # two of eight neighbours are on the other socket
        assert took(late, op, SMALL) - took(near, op, SMALL) == pytest.approx(1e-3, rel=0.05)


def test_no_peer_access_is_one_rule_for_choice_and_time():
    near = Cluster.preset("dgx-a100", overrides={"gpu": {"count": 4}})
    off = took(near, "all_reduce", LARGE, env={"NCCL_P2P_DISABLE": 1})
    assert off > 5 * took(near, "all_reduce", LARGE)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all", "send_recv"])
def test_a_host_that_launches_later_is_later_by_that(op):
    usual = round(default_terms().launch * 1e9)
    quick, slow = (
        took(two(host={"launch": f"{usual + more}ns"}), op, SMALL) for more in (0, 20_000)
    )
    assert quick == pytest.approx(took(two(), op, SMALL), rel=1e-3)
    assert slow - quick == pytest.approx(20e-6, rel=1e-6)


def test_the_slowest_host_of_a_group_decides():
    late = {"host": {"launch": "30us"}}
    assert took(unlike({}, late), "all_reduce", SMALL) == pytest.approx(
        took(two(**late), "all_reduce", SMALL), rel=1e-9
    )
