"""NVLink domains of several nodes: numbering, routes over the shared switch, and scale."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.optional import present
from helpers.share import examples
from hypothesis import given
from hypothesis import strategies as st

from commsim.cluster import Cluster, cluster_from, template
from commsim.cluster.describe import bisection_bandwidth, describe
from commsim.errors import ScenarioError, TopologyError


def rack(nodes: int, domain: int = 18) -> Cluster:
    overrides = None if domain == 18 else {"nvlink": {"domain_nodes": domain}}
    return Cluster.preset("gb200-nvl72", nodes=nodes, overrides=overrides)


def names(cluster: Cluster, route) -> list[str]:
    return [cluster.links.names[link] for link in route.link]


def test_a_rack_is_one_domain_and_two_are_two():
    assert rack(18).domains.tolist() == [0] * 72
    two = rack(36)
    assert two.domains.tolist() == [0] * 72 + [1] * 72
    assert [two.domain_of(gpu) for gpu in (0, 71, 72, 143)] == [0, 0, 1, 1]
    assert isinstance(two.domain_of(0), int)


@pytest.mark.parametrize(
    ("nodes", "each"),
    [(20, 10), (32, 16), (54, 18), (64, 16), (80, 16), (144, 18), (256, 16), (270, 18)],
)
def test_racks_hold_equally_many_nodes(nodes: int, each: int):
    """So that groups of a power of two do not straddle racks where none has to."""
    cluster = rack(nodes)
    assert np.bincount(cluster.domain_of_node).tolist() == [each] * (nodes // each)
    said = [note for note in cluster.notes if "NVLink domains" in note]
    full = f"{nodes} nodes of gb200-nvl72 are {each} in each of {nodes // each} domains"
    assert [note.startswith(f"NVLink domains: {full}") for note in said] == [True] * (each < 18)


@pytest.mark.parametrize("nodes", [19, 37, 100])
def test_where_nothing_divides_racks_are_filled_and_the_rest_is_a_smaller_domain(nodes: int):
    found = np.bincount(rack(nodes).domain_of_node).tolist()
    assert found == [18] * (nodes // 18) + [nodes % 18]


def test_half_racks():
    assert rack(32, domain=16).domain_of_node.tolist() == [0] * 16 + [1] * 16


def test_where_nvlink_ends_at_the_node_domains_are_nodes():
    for name in ("dgx-h100", "pcie-a100", "alps"):
        cluster = Cluster.preset(name, nodes=3)
        assert cluster.domains.tolist() == cluster.node_of.tolist()


def test_kinds_of_nodes_do_not_share_a_domain():
    nodes = [{"preset": "gb200-nvl72", "count": 3}, {"preset": "dgx-b200", "count": 2},
             {"preset": "gb200-nvl72", "count": 19}]  # fmt: skip
    cluster = cluster_from({"nodes": nodes}, "x")
    assert cluster.domain_of_node.tolist() == [0] * 3 + [1, 2] + [3] * 18 + [4]


def test_a_way_between_nodes_of_a_rack_is_two_nvlinks():
    cluster = rack(36)
    route = present(cluster.local_route(5, 70))
    assert names(cluster, route) == [
        "node1/gpu1->domain0/nvswitch",
        "domain0/nvswitch->node17/gpu2",
    ]
    assert (route.latency, route.hop, route.share) == (750_000, (0, 1), (1.0, 1.0))
    assert {float(cluster.links.bandwidth[link]) for link in route.link} == {900e9}
    assert cluster.local_route(5, 70) is route
    within = present(cluster.local_route(0, 1))
    assert names(cluster, within)[0] == names(cluster, cluster.local_route(0, 70))[0]
    assert within.latency == route.latency


def test_no_nvlink_between_racks():
    cluster = rack(36)
    assert cluster.local_route(71, 72) is None
    assert cluster.local_route(72, 143) is not None
    out, into = cluster.nics_of(71)[0], cluster.nics_of(72)[0]
    assert cluster.fabric_route(out, into) is not None


def test_host_memory_is_a_nodes_own():
    with pytest.raises(TopologyError, match="share no host memory: they are on two nodes"):
        rack(2).staged_route(0, 4)


def test_the_digraph_has_one_switch_per_domain():
    graph = rack(36).digraph()
    switches = [name for name, kind in graph.nodes(data="kind") if kind == "nvswitch"]
    assert switches == ["domain0/nvswitch", "domain1/nvswitch"]
    assert graph.in_degree("domain0/nvswitch") == graph.out_degree("domain1/nvswitch") == 72
    assert graph.nodes["domain0/nvswitch"]["node"] == -1
    assert graph.number_of_edges() == len(rack(36).links)


def test_link_names_are_unique_and_say_both_nodes():
    links = rack(36).links
    assert len(set(links.names)) == len(links)
    for name, kind, a, b in zip(links.names, links.kinds, links.source, links.target, strict=True):
        if kind == "nvlink":
            assert name == f"{a}->{b}"


def test_bisection_of_a_rack_is_nvlinks():
    # 36 GPUs of 900 GB/s with the payload share of NVLink.
    share = 0.881
    assert bisection_bandwidth(rack(18)) == pytest.approx(36 * 900e9 * share, rel=1e-12)
    # Between two racks it is the fabric's: 72 NICs of 50 GB/s.
    assert bisection_bandwidth(rack(36)) == pytest.approx(72 * 50e9 * 0.97, rel=1e-12)
    assert bisection_bandwidth(rack(54)) is None  # the middle rack belongs to both halves


def test_description_of_two_racks():
    told = describe(rack(36))
    assert (told["nodes"], told["world_size"], told["domains"]) == (36, 144, 2)
    assert told["kinds"][0]["domain_nodes"] == 18
    assert len(told["links"]) < 20
    near, far = told["routes"]
    assert near["via"] == ["node0/gpu0", "domain0/nvswitch", "node0/gpu1"]
    assert far["to"] == 72
    assert far["via"][0] == "node0/gpu0"
    assert far["via"][-1] == "node18/gpu0"


def test_description_of_one_rack_shows_the_way_to_its_next_node():
    told = describe(rack(4))
    assert told["routes"][-1]["via"] == ["node0/gpu0", "domain0/nvswitch", "node1/gpu0"]


@examples(30)
@given(nodes=st.integers(1, 12), domain=st.integers(1, 6), data=st.data())
def test_domains_partition_the_nodes_in_a_row(nodes, domain, data):
    cluster = rack(nodes, domain)
    held = np.bincount(cluster.domain_of_node)
    assert (np.diff(cluster.domain_of_node) >= 0).all()
    assert held.max() <= domain
    assert len(set(held.tolist())) == 1 or set(held[:-1].tolist()) == {domain}
    pair = st.integers(0, cluster.world_size - 1)
    a, b = data.draw(pair), data.draw(pair)
    route = cluster.local_route(a, b)
    same = cluster.domain_of(a) == cluster.domain_of(b)
    assert (route is not None) == same
    if route is not None and a != b:
        assert cluster.links.source[route.link[0]] == f"node{a // 4}/gpu{a % 4}"
        assert cluster.links.target[route.link[1]] == f"node{b // 4}/gpu{b % 4}"
        assert cluster.links.target[route.link[0]] == cluster.links.source[route.link[1]]


def test_big_clusters_lay_out_each_kind_of_node_once(monkeypatch):
    made = []
    start = template.Template.__init__

    def counted(self, spec):
        made.append(spec.name)
        start(self, spec)

    monkeypatch.setattr(template.Template, "__init__", counted)
    cluster = Cluster.preset("dgx-h100", nodes=2048)
    assert made == ["dgx-h100"]
    assert (cluster.world_size, len(cluster.nics)) == (16384, 16384)
    # 84 links a node; 512 leaves (64 pods of 8 rails) with an uplink each, both ways, and
    # between 8-pod groups of spines a core.
    inside = 2048 * 84
    assert len(cluster.links) == inside + 2 * 512 + 2 * 16
    ways = {id(present(cluster.local_route(node * 8, node * 8 + 1)).share) for node in range(2048)}
    assert len(ways) == 1  # shifted, not computed anew


def test_a_hundred_racks():
    cluster = rack(1800)
    assert (cluster.world_size, cluster.domain_of(7199)) == (7200, 99)
    assert np.bincount(cluster.domains).tolist() == [72] * 100
    assert cluster.local_route(7128, 7199) is not None


@pytest.mark.parametrize(
    ("nvlink", "expected"),
    [
        ({"domain_nodes": 0}, "nvlink.domain_nodes: 0 is not a count"),
        ({"kind": "mesh", "per_link": "25GB/s", "links": 4, "domain_nodes": 2},
         "nvlink.domain_nodes: means nothing with kind: mesh"),
        ({"links": [[0, 1], [1, 0]]}, "nvlink.links: must be one count with kind: switch"),
        ({"links": 0}, "nvlink.links: 0 is not a count"),
    ],
)  # fmt: skip
def test_impossible_domains_and_links(nvlink, expected):
    with pytest.raises(ScenarioError) as raised:
        Cluster.preset("gb200-nvl72", overrides={"nvlink": nvlink})
    assert f"overrides.{expected}" in str(raised.value)
