"""Host memory, staging, transports and CPUs: what a cluster says of them, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.optional import present
from helpers.share import examples
from hypothesis import given
from hypothesis import strategies as st

from commsim.cluster import Cluster, NicSpec, Route, cluster_from, load_cluster
from commsim.errors import ScenarioError, TopologyError


def names(cluster: Cluster, route: Route) -> list[str]:
    return [cluster.links.names[link] for link in route.link]


def kinds(cluster: Cluster, route: Route) -> list[str]:
    return [cluster.links.kinds[link] for link in route.link]


def error(overrides: dict[str, Any], preset: str = "dgx-h100") -> str:
    with pytest.raises(ScenarioError) as raised:
        Cluster.preset(preset, nodes=2, overrides=overrides)
    return str(raised.value)


def nic_of(overrides: dict[str, Any], preset: str = "dgx-h100") -> NicSpec | None:
    return Cluster.preset(preset, nodes=2, overrides=overrides).node_spec(0).nic


# --- host memory ---------------------------------------------------------------------


def test_memory_is_one_link_for_reads_and_writes():
    cluster = Cluster.preset("dgx-h100", nodes=2)
    write, read = cluster.to_host(9), cluster.from_host(9)
    assert names(cluster, write)[-1] == names(cluster, read)[0] == "node1/cpu0->mem0"
    assert cluster.links.capacity[write.link[-1]] == pytest.approx(307.2e9 * 0.8)
    assert write.latency == read.latency == 107_500 + 232_500


def test_a_staged_way_passes_memory_twice():
    cluster = Cluster.preset("pcie-rtx4090")
    route = present(cluster.local_route(0, 7))
    assert names(cluster, route) == [
        "node0/gpu0->cpu0", "node0/cpu0->cpu1", "node0/cpu1->mem1", "node0/cpu1->mem1",
        "node0/cpu1->gpu7",
    ]  # fmt: skip
    assert route.hop == (0, 1, 2, 3, 4)


def test_p2p_can_be_switched_off_and_on():
    off = Cluster.preset("pcie-a100", overrides={"pcie": {"p2p": False}})
    assert off.local_route(0, 1) == off.staged_route(0, 1)
    assert (
        kinds(off, present(off.local_route(0, 1))) == ["pcie"] * 2 + ["memory"] * 2 + ["pcie"] * 2
    )
    on = Cluster.preset("pcie-rtx5090", overrides={"pcie": {"p2p": True}})
    assert names(on, present(on.local_route(0, 1))) == ["node0/gpu0->cpu0", "node0/cpu0->gpu1"]


def test_nvlink_needs_no_p2p_over_pcie():
    cluster = Cluster.preset("dgx-1v", overrides={"pcie": {"p2p": False}})
    assert kinds(cluster, present(cluster.local_route(0, 1))) == ["nvlink"]
    assert "memory" in kinds(cluster, present(cluster.local_route(0, 5)))


def test_without_memory_bandwidth_memory_is_no_link():
    node = {"gpu": {"count": 2, "spec": "A10G"}, "pcie": {"p2p": False}}
    cluster = cluster_from({"node": node}, "x")
    assert "memory" not in cluster.links.kinds
    assert names(cluster, present(cluster.local_route(0, 1))) == [
        "node0/gpu0->cpu0",
        "node0/cpu0->gpu1",
    ]
    assert cluster.host_route(0, 1) == Route((), (), (), 0)


def test_host_to_host_on_one_socket_is_a_copy():
    cluster = Cluster.preset("dgx-h100", nodes=2)
    assert names(cluster, present(cluster.host_route(0, 3))) == ["node0/cpu0->mem0"] * 2


def test_host_to_host_across_sockets():
    cluster = Cluster.preset("dgx-h100", nodes=2)
    assert names(cluster, present(cluster.host_route(8, 15))) == [
        "node1/cpu0->mem0", "node1/cpu0->cpu1", "node1/cpu1->mem1",
    ]  # fmt: skip


def test_host_to_host_over_the_network_takes_the_sockets_nics():
    cluster = Cluster.preset("cpu-ethernet", nodes=2)
    assert names(cluster, present(cluster.host_route(1, 2))) == [
        "node0/cpu1->mem1", "node0/cpu1->cpu0", "node0/cpu0->nic0", "node0/nic0->switch",
        "switch->node1/nic0", "node1/nic0->cpu0", "node1/cpu0->mem0",
    ]  # fmt: skip


def test_hosts_on_different_rails_only_may_not_meet():
    nic = {"gpu_to_nic": [1] * 8}
    fabric = {"kind": "rail_only"}
    cluster = Cluster.preset("dgx-h100", nodes=2, fabric=fabric, overrides={"nic": nic})
    assert cluster.host_route(0, 8) is not None
    assert cluster.host_route(0, 12) is None  # sockets' NICs 1 and 4: two rails


def test_nics_nearest_to_the_socket_lead():
    cluster = Cluster.preset("dgx-h100", nodes=2)
    assert cluster.host_nics_of(5) == (5, 4, 6, 7, 0, 1, 2, 3)
    assert cluster.host_nics_of(8) == (8, 9, 10, 11, 12, 13, 14, 15)
    assert Cluster.preset("pcie-rtx5090").host_nics_of(0) == ()
    with pytest.raises(TopologyError, match="NIC 8 on node 1"):
        cluster.host_to_nic(0, 8)


def test_without_gpudirect_data_passes_host_memory():
    cluster = Cluster.preset("gcp-a2-high", nodes=2)
    out, into = cluster.to_nic(7, 0), cluster.from_nic(1, 8)
    assert names(cluster, out) == [
        "node0/gpu7->pcie3", "node0/pcie3->cpu1", "node0/cpu1->mem1", "node0/cpu1->mem1",
        "node0/cpu1->cpu0", "node0/cpu0->nic0",
    ]  # fmt: skip
    assert kinds(cluster, into).count("memory") == 2
    assert cluster.to_nic(7, 0, staged=False) == Cluster.preset(
        "gcp-a2-high", nodes=2, overrides={"nic": {"transport": "tcpx", "gdr": True}}
    ).to_nic(7, 0)


def test_with_gpudirect_staging_must_be_asked_for():
    cluster = Cluster.preset("dgx-h100", nodes=2)
    assert kinds(cluster, cluster.to_nic(0, 0)) == ["pcie", "pcie"]
    assert cluster.to_nic(0, 0, staged=True) == cluster.to_host(0) + cluster.host_to_nic(0, 0)
    assert cluster.from_nic(8, 8, staged=True) == cluster.nic_to_host(8, 8) + cluster.from_host(8)


def test_a_cpu_worker_is_in_host_memory_already():
    cluster = Cluster.preset("cpu-ethernet", nodes=2)
    assert "memory" not in kinds(cluster, cluster.to_nic(0, 0))
    assert kinds(cluster, present(cluster.local_route(0, 1))) == ["cpu", "cpu", "cpu"]


# --- transports ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nic", "transport", "gdr"),
    [
        ({}, "ib", True),
        ({"medium": "ethernet"}, "roce", True),
        ({"medium": "slingshot"}, "slingshot", True),
        ({"transport": "tcp"}, "tcp", False),
        ({"medium": "ethernet", "transport": "tcp"}, "tcp", False),
        ({"medium": "ethernet", "transport": "tcpxo"}, "tcpxo", True),
        ({"gdr": False}, "ib", False),
    ],
)
def test_an_override_of_the_network(nic, transport, gdr):
    found = present(nic_of({"nic": nic}))
    assert (found.transport, found.gdr) == (transport, gdr)


def test_rdma_on_another_medium_is_said():
    cluster = Cluster.preset("dgx-h100", nodes=2, overrides={"nic": {"medium": "ethernet"}})
    assert cluster.notes == ("nic.transport: roce, RDMA as before, but over ethernet.",)
    assert {nic.transport for nic in cluster.nics} == {"roce"}


@pytest.mark.parametrize(
    ("medium", "transport"),
    [("infiniband", "ib"), ("ethernet", "tcp"), ("slingshot", "slingshot")],
)
def test_an_inline_nic_speaks_what_is_usual_on_its_medium(medium, transport):
    node = {"gpu": {"count": 1, "spec": "A10G"},
            "nic": {"count": 1, "bandwidth": "25Gbps", "medium": medium}}  # fmt: skip
    cluster = cluster_from({"node": node, "nodes": 2}, "x")
    assert cluster.nics[0].transport == transport
    assert cluster.nics[0].gdr == (transport != "tcp")
    assert f"nic.transport ({transport})" in cluster.notes[0]


@pytest.mark.parametrize(
    ("nic", "expected"),
    [
        (
            {"transport": "roce"},
            "nic.transport: roce does not run over infiniband. Known: ib, tcp.",
        ),
        (
            {"medium": "ethernet", "transport": "ib"},
            "nic.transport: ib does not run over ethernet.",
        ),
        ({"transport": "rdma"}, "'rdma' is not one of: ib, roce, efa_v1"),
        ({"transport": "tcp", "gdr": True}, "nic.gdr: true is impossible: TCP needs host memory"),
    ],
)
def test_impossible_networks(nic, expected):
    assert expected in error({"nic": nic})


def test_a_cpu_worker_has_no_gpudirect():
    message = error({"nic": {"transport": "tcpx", "gdr": True}}, "cpu-ethernet")
    assert "a CPU worker has no GPU memory" in message


def test_gpudirect_over_ethernet_is_rdma():
    nic = {"count": 1, "bandwidth": "25Gbps", "medium": "ethernet", "gdr": True}
    cluster = cluster_from({"node": {"gpu": {"count": 1, "spec": "A10G"}, "nic": nic}}, "x")
    assert cluster.nics[0].transport == "roce"
    assert "nic.transport (roce)" in cluster.notes[0]


# --- CPUs, prices, files -------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        ({"arch": "arm64"}, "overrides.cpu.arch: arm64 does not fit vendor intel: x86_64."),
        ({"vendor": "nvidia"}, "is not one of: intel, amd, zhaoxin, arm, ibm"),
        ({"dram_efficiency": 1.5}, "overrides.cpu.dram_efficiency: 1.5 is not a share"),
    ],
)
def test_impossible_cpus(cpu, expected):
    assert expected in error({"cpu": cpu})


def test_an_x86_cpu_needs_its_family_and_model():
    node = {"gpu": {"count": 1, "spec": "A10G"}, "cpu": {"vendor": "intel", "family": 6}}
    with pytest.raises(ScenarioError, match=r"x: node\.cpu\.model_id: is missing"):
        cluster_from({"node": node}, "x")
    arm = {"gpu": {"count": 1, "spec": "A10G"}, "cpu": {"vendor": "arm"}}
    assert cluster_from({"node": arm}, "x").node_spec(0).cpu.arch == "arm64"


def test_memory_share_without_a_bandwidth_means_nothing():
    node = {"gpu": {"count": 1, "spec": "A10G"}, "cpu": {"dram_efficiency": 0.5}}
    with pytest.raises(ScenarioError, match="means nothing without dram_bandwidth"):
        cluster_from({"node": node}, "x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("preset: dgx-h100\nnodes: 2\nnodes: 3\n", "line 3: 'nodes' stands here a second time"),
        ("node: {gpu: {count: 1, count: 2, spec: A10G}}\n", "'count' stands here a second time"),
    ],
)
def test_a_setting_that_stands_twice_is_refused(tmp_path, text, expected):
    file = tmp_path / "c.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as raised:
        load_cluster(file)
    assert expected in str(raised.value)
    assert str(file) in str(raised.value)


# --- any sensible change of a preset gives a sound cluster -----------------------------

CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "gpu": st.sampled_from([1, 2, 4]).map(lambda count: {"count": count}),
        "nic": st.fixed_dictionaries(
            {},
            optional={
                "count": st.sampled_from([1, 2, 4, 8]),
                "bandwidth": st.sampled_from(["25Gbps", "200Gbps", "800Gbps"]),
                "transport": st.just("tcp"),
                "medium": st.sampled_from(["ethernet", "infiniband", "slingshot"]),
            },
        ),
        "pcie": st.fixed_dictionaries(
            {}, optional={"p2p": st.booleans(), "generation": st.integers(3, 6)}
        ),
        "nvlink": st.sampled_from(
            [{"kind": "none"}, {"kind": "mesh", "per_link": "25GB/s", "links": 3},
             {"kind": "switch", "bandwidth": "300GB/s", "domain_nodes": 2}]
        ),
        "cpu": st.just({"dram_bandwidth": "100GB/s"}),
    },
)  # fmt: skip


@examples(60)
@given(
    name=st.sampled_from(["dgx-h100", "dgx-a100", "dgx-1v", "polaris", "gb200-nvl72", "aws-g5"]),
    changes=CHANGES,
    data=st.data(),
)
def test_changed_presets_stay_sound(name, changes, data):
    plain = Cluster.preset(name)
    gpus = changes.get("gpu", {}).get("count", plain.world_size)
    count = changes.get("nic", {}).get("count", len(plain.nics))
    if gpus % count and count % gpus:
        with pytest.raises(ScenarioError, match="do not divide"):
            Cluster.preset(name, nodes=3, overrides=changes)
        return
    try:
        cluster = Cluster.preset(name, nodes=3, overrides=changes)
    except ScenarioError as refused:
        assert "does not run over" in str(refused)  # noqa: PT017
        return
    spec, links = cluster.specs[0], cluster.links
    assert (cluster.world_size, spec.gpus, len(cluster.nics)) == (3 * gpus, gpus, 3 * count)
    own, before = present(spec.nic), present(plain.node_spec(0).nic)
    assert own.gdr == (own.transport != "tcp" and before.gdr)
    rank = st.integers(0, cluster.world_size - 1)
    a, b = data.draw(rank), data.draw(rank)
    local = cluster.local_route(a, b)
    assert (local is None) == (cluster.domain_of(a) != cluster.domain_of(b))
    nic, far = cluster.nics_of(a)[0], cluster.nics_of(b)[0]
    for way in (local, cluster.to_nic(a, nic) + cluster.from_nic(nic, a), cluster.host_route(a, b),
                cluster.to_nic(a, nic) + present(cluster.fabric_route(nic, far))):  # fmt: skip
        if way is None:
            continue
        assert all(0 <= link < len(links) for link in way.link)
        slowest: dict[int, int] = {}
        for link, hop in zip(way.link, way.hop, strict=True):
            slowest[hop] = max(slowest.get(hop, 0), int(links.latency[link]))
        assert way.latency == sum(slowest.values())
    assert (links.capacity > 0).all()
