"""Routes: contiguous, symmetrical, over the right links."""

from __future__ import annotations

import pytest
from helpers.optional import present
from helpers.share import examples
from hypothesis import given
from hypothesis import strategies as st

from commsim.cluster import Cluster, Route, cluster_from
from commsim.errors import TopologyError


def names(cluster: Cluster, route: Route) -> list[str]:
    return [cluster.links.names[link] for link in route.link]


def assert_contiguous(cluster: Cluster, route: Route, start: str, end: str) -> None:
    """Each hop begins where the one before ended, by every one of its parallel links."""
    at = {start}
    for hop in range(route.hop[-1] + 1):
        links = [link for link, h in zip(route.link, route.hop, strict=True) if h == hop]
        assert {cluster.links.source[link] for link in links} == at
        at = {cluster.links.target[link] for link in links}
        shares = [s for s, h in zip(route.share, route.hop, strict=True) if h == hop]
        assert sum(shares) == pytest.approx(1.0, abs=1e-12)
    assert at == {end}
    slowest = [
        max(
            int(cluster.links.latency[link])
            for link, h in zip(route.link, route.hop, strict=True)
            if h == hop
        )
        for hop in range(route.hop[-1] + 1)
    ]
    assert route.latency == sum(slowest)


def whole(cluster: Cluster, a: int, b: int, *, key: int = 0) -> Route:
    """The way between two GPUs by their nearest NICs, or within their node."""
    local = cluster.local_route(a, b)
    if local is not None:
        return local
    out, back = cluster.nics_of(a)[0], cluster.nics_of(b)[0]
    fabric = present(cluster.fabric_route(out, back, key=key))
    return cluster.to_nic(a, out) + fabric + cluster.from_nic(back, b)


def gpu_name(cluster: Cluster, rank: int) -> str:
    return f"node{cluster.node_of[rank]}/gpu{cluster.local_of[rank]}"


@pytest.mark.parametrize("name", ["dgx-1v", "dgx-a100", "dgx-h100", "pcie-a100", "cpu-ethernet"])
def test_every_pair_is_joined_by_a_contiguous_symmetrical_way(name):
    cluster = Cluster.preset(name, nodes=3)
    for a in range(cluster.world_size):
        for b in range(cluster.world_size):
            if a == b:
                continue
            there, back = whole(cluster, a, b), whole(cluster, b, a)
            assert_contiguous(cluster, there, gpu_name(cluster, a), gpu_name(cluster, b))
            assert there.latency == back.latency
            assert there.link != back.link
            ends = [(cluster.links.source[i], cluster.links.target[i]) for i in there.link]
            assert [(cluster.links.target[i], cluster.links.source[i]) for i in back.link] == ends[
                ::-1
            ]


def test_two_hops_join():
    a, b = Route((3, 4), (0.5, 0.5), (0, 0), 7), Route((9,), (1.0,), (0,), 5)
    assert a + b + b == Route((3, 4, 9, 9), (0.5, 0.5, 1.0, 1.0), (0, 0, 1, 2), 17)


def test_a_gpu_reaches_itself_over_nothing():
    cluster = Cluster.preset("dgx-h100")
    here = cluster.local_route(3, 3)
    assert here == Route((), (), (), 0)
    assert here + present(cluster.local_route(3, 4)) == present(cluster.local_route(3, 4))


def test_gpus_of_two_nodes_have_no_local_way():
    assert Cluster.preset("dgx-h100", nodes=2).local_route(0, 8) is None


def test_dgx_1v_pair_with_nvlink_uses_it_and_one_without_crosses_the_sockets():
    cluster = Cluster.preset("dgx-1v")
    assert names(cluster, present(cluster.local_route(0, 3))) == ["node0/gpu0->gpu3"]
    assert names(cluster, present(cluster.local_route(0, 5))) == [
        "node0/gpu0->pcie0",
        "node0/pcie0->cpu0",
        "node0/cpu0->cpu1",
        "node0/cpu1->pcie2",
        "node0/pcie2->gpu5",
    ]


def test_gpus_under_one_switch_meet_there():
    cluster = Cluster.preset("pcie-a100")
    assert names(cluster, present(cluster.local_route(0, 3))) == [
        "node0/gpu0->pcie0",
        "node0/pcie0->gpu3",
    ]
    assert present(cluster.local_route(0, 3)).latency == 2 * 50_000 + 110_000


def test_without_nvlink_gpus_go_through_the_host():
    cluster = Cluster.preset("dgx-h100", overrides={"nvlink": {"kind": "none"}})
    assert names(cluster, present(cluster.local_route(0, 1))) == [
        "node0/gpu0->pcie0",
        "node0/pcie0->cpu0",
        "node0/cpu0->pcie1",
        "node0/pcie1->gpu1",
    ]


def test_nested_switches_meet_at_the_lowest_common_one():
    node = {
        "gpu": {"count": 4, "spec": "A10G"},
        "nic": {"count": 1, "bandwidth": "25Gbps"},
        "pcie": {
            "switches": [
                {"socket": 0, "nics": [0]},
                {"under": 0, "gpus": [0, 1]},
                {"under": 0, "gpus": [2, 3]},
            ]
        },
    }
    cluster = cluster_from({"node": node}, "x")
    assert names(cluster, present(cluster.local_route(0, 3))) == [
        "node0/gpu0->pcie1",
        "node0/pcie1->pcie0",
        "node0/pcie0->pcie2",
        "node0/pcie2->gpu3",
    ]
    assert names(cluster, cluster.to_nic(1, 0)) == [
        "node0/gpu1->pcie1",
        "node0/pcie1->pcie0",
        "node0/pcie0->nic0",
    ]


def test_c2c_replaces_the_gpus_pcie():
    node = {
        "gpu": {"count": 2, "spec": "GH200-96GB"},
        "cpu": {"sockets": 2, "gpus": [[0], [1]]},
        "c2c": {"bandwidth": "450GB/s"},
        "nic": {"count": 2, "bandwidth": "200Gbps"},
    }
    cluster = cluster_from({"node": node}, "x")
    route = cluster.to_nic(1, cluster.nics_of(1)[0])
    assert [cluster.links.kinds[link] for link in route.link] == ["c2c", "pcie"]
    assert float(cluster.links.bandwidth[route.link[0]]) == 450e9


def test_the_nic_beside_a_gpu_is_its_nearest():
    cluster = Cluster.preset("dgx-h100", nodes=2)
    assert [cluster.nics_of(rank)[0] for rank in range(16)] == list(range(16))
    assert cluster.nics_of(5) == (5, 4, 6, 7, 0, 1, 2, 3)


def test_of_two_nics_under_one_switch_a_gpu_takes_its_rails():
    cluster = Cluster.preset("dgx-a100")
    assert cluster.nics_of(0) == (0, 1, 2, 3, 4, 5, 6, 7)
    assert cluster.nics_of(3) == (3, 2, 0, 1, 4, 5, 6, 7)
    assert cluster.nics_of(6) == (6, 7, 0, 1, 2, 3, 4, 5)  # a NUMA domain holds one switch


def test_two_gpus_share_a_dgx_1v_nic():
    cluster = Cluster.preset("dgx-1v", nodes=2)
    assert [cluster.nics_of(rank)[0] for rank in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert cluster.nics_of(9)[0] == 4


def test_listed_nics_lead():
    cluster = Cluster.preset("dgx-h100", overrides={"nic": {"gpu_to_nic": [[7, 2]] * 8}})
    assert cluster.nics_of(0)[:4] == (7, 2, 0, 1)


def test_one_nic_leads_past_the_other_socket():
    cluster = Cluster.preset("cpu-ethernet", nodes=2)
    nic = cluster.nics_of(3)[0]
    assert names(cluster, cluster.to_nic(3, nic)) == [
        "node1/gpu1->cpu1",
        "node1/cpu1->cpu0",
        "node1/cpu0->nic0",
    ]


def test_a_nic_of_another_node_is_out_of_reach():
    cluster = Cluster.preset("dgx-h100", nodes=2)
    with pytest.raises(TopologyError, match="rank 0 is on node 0, NIC 8 on node 1"):
        cluster.to_nic(0, 8)
    with pytest.raises(TopologyError):
        cluster.from_nic(8, 0)


def test_the_host_is_a_gpus_own_socket():
    cluster = Cluster.preset("dgx-h100", nodes=2)
    up, down = (
        ["node1/gpu5->pcie5", "node1/pcie5->cpu1"],
        ["node1/cpu1->pcie5", "node1/pcie5->gpu5"],
    )
    assert names(cluster, cluster.to_host(13)) == [*up, "node1/cpu1->mem1"]
    assert names(cluster, cluster.from_host(13)) == ["node1/cpu1->mem1", *down]


def test_routes_are_kept():
    cluster = Cluster.preset("dgx-h100", nodes=2)
    assert cluster.local_route(8, 9) is cluster.local_route(8, 9)
    assert cluster.to_nic(8, 8) is cluster.to_nic(8, 8)
    assert cluster.fabric_route(0, 8) is cluster.fabric_route(0, 8)


def test_ranks_are_numbered_node_by_node():
    nodes = [{"preset": "dgx-1v"}, {"preset": "pcie-a100", "count": 2}]
    cluster = cluster_from({"nodes": nodes, "fabric": {"kind": "single_switch"}}, "x")
    assert cluster.world_size == 16
    assert cluster.node_of.tolist() == [0] * 8 + [1] * 4 + [2] * 4
    assert cluster.local_of.tolist() == [*range(8), *range(4), *range(4)]
    assert cluster.domains.tolist() == cluster.node_of.tolist()
    assert [cluster.domain_of(gpu) for gpu in (0, 8, 15)] == [0, 1, 2]
    assert cluster.gpu(8).name == "A100-PCIe-40GB"
    assert [nic.node for nic in cluster.nics] == [0] * 4 + [1, 2]
    for a, b in ((0, 15), (9, 13), (12, 5)):
        assert_contiguous(cluster, whole(cluster, a, b), gpu_name(cluster, a), gpu_name(cluster, b))


def test_the_digraph_holds_every_link_once():
    cluster = Cluster.preset("dgx-1v", nodes=2)
    graph = cluster.digraph()
    assert graph.number_of_edges() == len(cluster.links)
    ids = sorted(link for _, _, link in graph.edges(data="link"))
    assert ids == list(range(len(cluster.links)))
    assert graph.edges["node1/gpu0", "node1/gpu3"]["bandwidth"] == 50e9
    assert graph.nodes["node1/gpu0"] == {"kind": "gpu", "node": 1}
    assert graph.nodes["leaf0"]["kind"] == "leaf"


def test_link_names_are_unique():
    links = Cluster.preset("dgx-a100", nodes=3).links
    assert len(set(links.names)) == len(links)


@st.composite
def inline_clusters(draw):
    """Small clusters of any shape: 1 to 3 kinds of nodes, any fabric that joins all."""
    kinds = []
    for _ in range(draw(st.integers(1, 3))):
        gpus = draw(st.integers(1, 6))
        nics = draw(st.sampled_from([d for d in range(1, gpus + 1) if gpus % d == 0]))
        sockets = draw(st.integers(1, 3))
        node = {
            "gpu": {
                "count": gpus,
                "spec": draw(st.sampled_from(["A10G", "H100-SXM5-80GB", "cpu"])),
            },
            "cpu": {"sockets": sockets},
            "nic": {"count": nics, "bandwidth": draw(st.sampled_from(["25Gbps", "400Gbps"]))},
        }
        nvlink = draw(st.sampled_from(["none", "switch", "mesh"]))
        if nvlink == "switch":
            node["nvlink"] = {"kind": "switch", "bandwidth": "300GB/s"}
        elif nvlink == "mesh":
            counts = [[0] * gpus for _ in range(gpus)]
            for a in range(gpus):
                for b in range(a):
                    counts[a][b] = counts[b][a] = draw(st.integers(0, 2))
            node["nvlink"] = {"kind": "mesh", "per_link": "25GB/s", "links": counts}
        switched = draw(st.integers(0, gpus))
        if switched:
            node["pcie"] = {
                "switches": [
                    {"socket": draw(st.integers(0, sockets - 1)), "gpus": list(range(switched))},
                    {"under": 0, "nics": [0]},
                ]
            }
        kinds.append({"node": node, "count": draw(st.integers(1, 3))})
    kind = draw(st.sampled_from(["single_switch", "rail_optimized", "fat_tree"]))
    fabric = {"kind": kind}
    if kind != "single_switch":
        fabric["oversubscription"] = draw(st.sampled_from([1.0, 2.0, 3.5]))
        fabric["radix"] = draw(st.integers(2, 8))
        fabric["nodes_per_leaf"] = draw(st.integers(1, 3))
        fabric["ecmp"] = draw(st.sampled_from(["even", "hash"]))
        if draw(st.booleans()):
            fabric["spines"] = draw(st.integers(1, 3))
    return {"nodes": kinds, "fabric": fabric}


@examples(60)
@given(data=inline_clusters(), key=st.integers(0, 2**40))
def test_any_small_cluster_joins_all_its_gpus(data, key):
    cluster = cluster_from(data, "x")
    assert (cluster.links.capacity > 0).all()
    for a in range(cluster.world_size):
        for b in range(cluster.world_size):
            if a != b:
                route = whole(cluster, a, b, key=key)
                assert_contiguous(cluster, route, gpu_name(cluster, a), gpu_name(cluster, b))
