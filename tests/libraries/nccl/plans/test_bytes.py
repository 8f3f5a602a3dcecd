"""Bytes are conserved: what a plan puts on each link is what its chunk program sends over it."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.share import share_of_each

from commsim.arrays import Floats
from commsim.cluster import Cluster
from commsim.cluster.section import cluster_from
from commsim.libraries import Plan, Request
from commsim.libraries.nccl.plans.library import Nccl
from commsim.libraries.nccl.plans.loads import OpLoads

S = 2**28
ONE_SLOW_NODE = cluster_from(
    {
        "nodes": [
            {"preset": "dgx-h100"},
            {"preset": "dgx-h100", "overrides": {"nic": {"bandwidth": "10Gbps"}}},
        ],
        "fabric": {"kind": "fat_tree"},
    },
    "one slow node",
)
PLACES = {
    "one slow node": ONE_SLOW_NODE,
    "slow nics": Cluster.preset("dgx-h100", nodes=2, overrides={"nic": {"efficiency": 0.2}}),
    "four nodes": Cluster.preset("dgx-h100", nodes=4),
    "three nodes": Cluster.preset("dgx-b200", nodes=3),
    "pcie": Cluster.preset("pcie-a100", nodes=2),
    "no relays": Cluster.preset("aws-g5", nodes=4),
    "racks": Cluster.preset("gb200-nvl72", nodes=4, overrides={"nvlink": {"domain_nodes": 2}}),
    "oversubscribed": Cluster.preset(
        "dgx-a100", nodes=4, fabric={"oversubscription": 4, "nodes_per_leaf": 1}
    ),
}
MESSAGES = [
    ("all_reduce", "Ring"), ("all_reduce", "Tree"), ("all_gather", "Ring"),
    ("reduce_scatter", "Ring"), ("broadcast", "Ring"), ("reduce", "Ring"),
]  # fmt: skip
ROOT = 1


def plan(cluster: Cluster, op: str, algo: str | None = None, **env: str) -> Plan:
    env |= {"NCCL_ALGO": algo} if algo else {}
    rooted = op in ("broadcast", "reduce", "gather", "scatter")
    ranks = tuple(range(cluster.world_size))
    return Nccl(env=env).plan(Request(op, S, ranks, root=ROOT if rooted else -1), cluster)


def loads(found: Plan, cluster: Cluster) -> Floats:
    """Return the bytes on every link of the cluster."""
    phase = found.parts[0].phases[0]
    every = np.zeros(len(cluster.links))
    every[phase.link] = phase.load
    return every


def sent(found: Plan, cluster: Cluster) -> Floats:
    """Return the bytes that the messages of a plan's programs put on every link."""
    every = np.zeros(len(cluster.links))
    for program in found.programs:
        messages = program()
        by_route = np.bincount(
            messages.route, weights=messages.size, minlength=len(messages.routes)
        )
        for size, route in zip(by_route, messages.routes, strict=True):
            np.add.at(every, list(route.link), size * np.array(route.share))
    return every


def across(every: Floats, cluster: Cluster) -> tuple[Floats, Floats]:
    """Return the bytes that leave and that enter each node through its NICs."""
    nodes = len(cluster.spec_of)
    out, into = np.zeros(nodes), np.zeros(nodes)
    for number, nic in enumerate(cluster.nics):
        link = cluster.fabric.nic_link(number)
        out[nic.node] += every[link]
        into[nic.node] += every[link + 1]
    return out, into


@pytest.mark.parametrize(
    ("place", "op", "algo"), share_of_each([(place,) for place in PLACES], MESSAGES, 0.5)
)
def test_every_link_carries_what_the_messages_send(place: str, op: str, algo: str) -> None:
    cluster = PLACES[place]
    found = plan(cluster, op, algo)
    assert found.algorithm.startswith(algo)
    assert loads(found, cluster) == pytest.approx(sent(found, cluster), rel=1e-9, abs=1.0)


@pytest.mark.parametrize(("place", "op"), share_of_each(
    [(place,) for place in PLACES],
    [("all_reduce",), ("all_gather",), ("broadcast",), ("all_to_all",), ("gather",)], 0.4,
))  # fmt: skip
def test_what_enters_a_device_leaves_it(place: str, op: str) -> None:
    """Only GPUs begin and end bytes; NVSwitches alone multiply and merge them."""
    cluster = PLACES[place]
    for algo in ("Ring", "Tree", "NVLSTree") if op == "all_reduce" else (None,):
        if algo == "NVLSTree" and cluster.specs[0].gpu.sm < 90:
            continue
        every = loads(plan(cluster, op, algo), cluster)
        saldo: dict[str, float] = {}
        links = cluster.links
        for source, target, kind, load in zip(
            links.source, links.target, links.kinds, every.tolist(), strict=True
        ):
            if kind == "memory":
                continue
            saldo[source] = saldo.get(source, 0.0) + load
            saldo[target] = saldo.get(target, 0.0) - load
        for device, rest in saldo.items():
            if "gpu" not in device and "nvswitch" not in device:
                assert abs(rest) <= 1e-6 * S, (device, rest)


@pytest.mark.share(0.5)
@pytest.mark.parametrize("place", PLACES)
def test_each_node_sends_and_receives_what_the_op_needs(place: str) -> None:
    cluster = PLACES[place]
    n = cluster.world_size
    domains = np.asarray(cluster.domain_of_node)
    members = np.bincount(domains, weights=np.bincount(cluster.node_of))
    ring = np.full(len(members), S)

    def by_domain(op: str, algo: str | None) -> tuple[Floats, Floats]:
        out, into = across(loads(plan(cluster, op, algo), cluster), cluster)
        sent, got = (np.bincount(domains, weights=each) for each in (out, into))
        return sent.astype(np.float64), got.astype(np.float64)

    for op, algo, needs in (
        ("all_reduce", "Ring", 2 * (n - 1) / n * ring),
        ("all_gather", "Ring", (n - 1) / n * ring),
        ("all_to_all", None, members * (n - members) / n * S),
    ):
        out, into = by_domain(op, algo)
        assert out == pytest.approx(needs), op
        assert into == pytest.approx(needs), op
    if len(members) == 2:
        for algo in ("Tree", "NVLSTree"):
            if algo == "Tree" or cluster.specs[0].gpu.sm >= 90:
                assert by_domain("all_reduce", algo)[0] == pytest.approx(ring), algo
    out, into = by_domain("scatter", None)
    home = domains[cluster.node_of[ROOT]]
    away = np.arange(len(members)) != home
    assert into == pytest.approx(np.where(away, members / n * S, 0.0))
    assert out.sum() == pytest.approx(into.sum())


@pytest.mark.parametrize("algo", ["CollNetDirect", "CollNetChain", "NVLS"])
def test_switches_of_the_network_that_add_up_take_the_buffer_once(algo: str) -> None:
    cluster = Cluster.preset("dgx-h100", nodes=4)
    found = plan(cluster, "all_reduce", algo, NCCL_COLLNET_ENABLE="1")
    assert found.algorithm.startswith(algo)
    out, into = across(loads(found, cluster), cluster)
    assert out == pytest.approx(np.full(4, S))
    assert into == pytest.approx(np.full(4, S))


def test_the_slow_nics_of_one_node_are_waited_for() -> None:
    """One node of two has a tenth of the other's NICs: each way carries the same bytes."""
    out, into = across(loads(plan(ONE_SLOW_NODE, "all_reduce"), ONE_SLOW_NODE), ONE_SLOW_NODE)
    assert out[0] == pytest.approx(into[1])
    assert out[1] == pytest.approx(into[0])
    rate = 8 * float(ONE_SLOW_NODE.links.capacity[ONE_SLOW_NODE.fabric.nic_link(8)])
    assert plan(ONE_SLOW_NODE, "all_reduce").idle >= S / rate * 1e12


def test_only_what_a_switch_copies_is_cut_to_the_time() -> None:
    """10 bytes/s for 3 s: the other 20 bytes of a link stay, of 20 copied ones 10 have room."""
    loads = OpLoads(
        np.array([1, 2]), np.array([0.4, 0.4]), np.ones(2), multicast=np.array([0.2, 0.0])
    )
    capacity = np.array([0.0, 10.0, 10.0])
    assert loads.bytes_in(100.0, 3.0, capacity).tolist() == [30.0, 40.0]
    assert loads.bytes_in(100.0, 9.0, capacity).tolist() == [40.0, 40.0]
    assert loads.bytes_in(100.0, 1.0, capacity).tolist() == [20.0, 40.0]
