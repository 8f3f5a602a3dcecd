"""Fabrics that are graphs: torus, dragonfly+, any; what their links carry, and what is refused."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import networkx
import numpy as np
import pytest
from helpers.optional import present
from hypothesis import given
from hypothesis import strategies as st

from commsim.cluster import Cluster, Route, cluster_from
from commsim.cluster.describe import bisection_bandwidth, describe
from commsim.errors import ScenarioError
from commsim.limits import BYTES_PER_LINK, limited_to

GBPS = 1e9 / 8
NODE = {"gpu": {"count": 1, "spec": "H100-SXM5-80GB"}, "nic": {"count": 1, "bandwidth": "400Gbps"}}
SQUARE: list[dict[str, Any]] = [
    {"between": ["node0", "a"]},
    {"between": ["node1", "b"]},
    {"between": ["node2", "c"]},
    {"between": ["node3", "d"]},
    {"between": ["a", "b"], "bandwidth": "100Gbps"},
    {"between": ["b", "c"], "bandwidth": "100Gbps"},
    {"between": ["c", "d"], "bandwidth": "100Gbps"},
    {"between": ["d", "a"], "bandwidth": "100Gbps"},
]


def of(nodes: int, **fabric) -> Cluster:
    return cluster_from({"node": NODE, "nodes": nodes, "fabric": fabric}, "it")


def torus(*dims: int, **fabric) -> Cluster:
    return of(math.prod(dims), kind="torus", dims=list(dims), link_bandwidth="100Gbps", **fabric)


def dragonfly(groups: int, leaves: int, **fabric) -> Cluster:
    shape = {"nodes_per_leaf": 1, "leaves_per_group": leaves, "spines": 2, **fabric}
    return of(groups * leaves, kind="dragonfly_plus", **shape)


def square(**fabric) -> Cluster:
    return of(4, kind="graph", switches=["a", "b", "c", "d"], links=SQUARE, **fabric)


def payload(cluster: Cluster) -> float:
    return float(cluster.links.efficiency[-1])


def carried(cluster: Cluster, route: Route) -> dict[str, float]:
    """What comes into each vertex less what leaves it, for one byte from end to end."""
    net: dict[str, float] = defaultdict(float)
    for link, share in zip(route.link, route.share, strict=True):
        net[cluster.links.target[link]] += share
        net[cluster.links.source[link]] -= share
    return {name: value for name, value in net.items() if abs(value) > 1e-9}


MANY = [
    torus(4, 4),
    torus(3, 2, 2),
    torus(5, ecmp="hash", seed=3),
    dragonfly(4, 3),
    dragonfly(4, 3, ecmp="hash"),
    dragonfly(5, 2, ecmp="adaptive", global_links=1, link_bandwidth="50Gbps"),
    square(),
    square(ecmp="adaptive"),
]


@pytest.mark.parametrize("cluster", MANY, ids=str)
def test_every_byte_that_leaves_a_nic_arrives_and_none_is_lost_at_a_switch(cluster):
    for b in range(1, len(cluster.nics)):
        route = present(cluster.fabric_route(0, b, key=b))
        assert carried(cluster, route) == {"node0/nic0": -1.0, f"node{b}/nic0": 1.0} or (
            carried(cluster, route)
            == pytest.approx({"node0/nic0": -1.0, f"node{b}/nic0": 1.0}, abs=1e-9)
        )


@pytest.mark.parametrize("cluster", MANY[:5], ids=str)
def test_ways_are_as_short_as_the_graph_allows(cluster):
    graph = cluster.digraph()
    for b in range(1, len(cluster.nics)):
        route = present(cluster.fabric_route(0, b, key=7))
        shortest = networkx.shortest_path_length(graph, "node0/nic0", f"node{b}/nic0")
        assert 1 + route.hop[-1] == shortest


def test_a_torus_goes_round_the_shorter_way_and_both_where_they_are_equal():
    cluster = torus(6)
    ways = [present(cluster.fabric_route(0, b)) for b in range(1, 6)]
    assert [1 + way.hop[-1] for way in ways] == [3, 4, 5, 4, 3]
    assert sorted(ways[2].share) == [0.5] * 6 + [1.0, 1.0]  # three links on either side
    assert set(ways[1].share) == {1.0}


@pytest.mark.parametrize("dims", [(4, 4), (4, 2), (6, 3), (4, 4, 4), (8,)])
def test_the_bisection_of_a_torus_is_two_links_for_each_line_across(dims):
    cluster = torus(*dims)
    lines = math.prod(dims) // dims[0]
    assert present(bisection_bandwidth(cluster)) == pytest.approx(
        2 * lines * 100 * GBPS * payload(cluster)
    )


def test_a_dimension_of_two_has_two_cables():
    cluster = torus(2, 3)
    assert cluster.fabric.parts.trunk_cables == 2 * 3 + 3 * 2  # 3 pairs of two, 2 rings of three
    assert describe(cluster)["fabric"]["dims"] == [2, 3]


def test_a_dragonfly_has_no_more_spines_than_its_cables_fill():
    """4 groups of 2 leaves with 2 nodes of 8 NICs: 32 cables down and 33 across on 64 ports."""
    nodes = Cluster.preset(
        "dgx-h100",
        nodes=16,
        fabric={"kind": "dragonfly_plus", "nodes_per_leaf": 2, "leaves_per_group": 2},
    )
    assert len({name for name in nodes.links.source if "spine" in name}) == 4 * 2


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        (512, {}),  # 1,026 links to the three other groups have no ports; 1,023 have
        (128, {"leaves_per_group": 8, "nodes_per_leaf": 4}),  # 9 spines want 36 of 32 uplinks
        (16, {"leaves_per_group": 2, "nodes_per_leaf": 1, "radix": 16}),
    ],
)
def test_a_dragonfly_by_default_has_the_ports_that_it_needs(nodes: int, shape: dict[str, int]):
    cluster = Cluster.preset(
        "dgx-h100", nodes=nodes, fabric={"kind": "dragonfly_plus", "radix": 64, **shape}
    )
    assert cluster.fabric.parts.wrong == ""


@pytest.mark.parametrize(
    ("nodes", "more"), [(512, {}), (8, {"global_links": 40})], ids=["groups", "global links"]
)
def test_a_dragonfly_that_no_spines_have_the_ports_for(nodes: int, more: dict[str, int]):
    shape = {"nodes_per_leaf": 1, "leaves_per_group": 2, "radix": 16, **more}
    told = (
        rf"a group's 16 links to its leaves and .* {nodes // 2 - 1} other groups fit on no spines"
    )
    with pytest.raises(ScenarioError, match=told):
        Cluster.preset("dgx-h100", nodes=nodes, fabric={"kind": "dragonfly_plus", **shape})
    all_the_same = Cluster.preset(
        "dgx-h100", nodes=nodes, fabric={"kind": "dragonfly_plus", "spines": 8, **shape}
    )
    assert "ports, and a switch has radix 16" in all_the_same.fabric.parts.wrong


def test_a_dragonfly_of_too_many_groups_is_refused_by_its_size():
    """Each two of 20 groups are joined by one link, 190 in all, of 900 bytes."""
    with limited_to(190 * BYTES_PER_LINK):
        assert dragonfly(20, 2, global_links=1).world_size > 0
    with limited_to(190 * BYTES_PER_LINK - 1), pytest.raises(ScenarioError, match="of 20 groups"):
        dragonfly(20, 2, global_links=1)


def test_a_dragonfly_joins_each_two_groups_by_so_many_links_dealt_to_their_spines():
    cluster = dragonfly(4, 3, global_links=2)
    links = cluster.links
    across: dict[tuple[str, str], float] = defaultdict(float)
    at: dict[str, float] = defaultdict(float)
    for link, (a, b) in enumerate(zip(links.source, links.target, strict=True)):
        if "spine" in a and "spine" in b:
            across[a[:6], b[:6]] += links.bandwidth[link] / (400 * GBPS)
            at[a] += links.bandwidth[link] / (400 * GBPS)
    assert set(across.values()) == {2.0}
    assert len(across) == 4 * 3
    assert set(at.values()) == {3.0}  # 3 peers x 2 links over 2 spines
    assert present(bisection_bandwidth(cluster)) == pytest.approx(6 * 400 * GBPS * payload(cluster))


def test_global_links_are_by_default_as_many_as_the_uplinks_of_a_group():
    parts = dragonfly(4, 3).fabric.parts
    assert (parts.leaves, parts.spines) == (12, 8)
    # a leaf's one uplink is one cable to each spine; 3 of a group go to its 3 peers
    assert parts.trunk_cables == 12 * 2 + 6 * 1


def test_what_a_group_sends_to_one_other_is_spread_over_all_by_adaptive_routing():
    """Group g sends to g + 1. Shortest ways use one of its G - 1 trunks; the best fills all alike.

    A part x goes straight, the rest over the G - 2 others, whose trunks carry two such parts:
    x = 2 (1 - x) / (G - 2), so that x = 2 / G.
    """
    groups, leaves = 6, 2
    loads = {}
    for ecmp in ("even", "adaptive"):
        cluster = dragonfly(
            groups, leaves, spines=1, global_links=1, link_bandwidth="50Gbps", ecmp=ecmp
        )
        pairs = [
            (g * leaves + i, (g + 1) % groups * leaves + i) for g in range(groups) for i in (0, 1)
        ]
        load = np.zeros(len(cluster.links))
        for route in cluster.fabric.leaf_routes(pairs, np.ones(len(pairs))):
            np.add.at(load, list(present(route).link), present(route).share[1:-1])
        across = [
            "spine" in a and "spine" in b
            for a, b in zip(cluster.links.source, cluster.links.target, strict=True)
        ]
        loads[ecmp] = load[across].max()
    assert loads["even"] == pytest.approx(2.0)
    assert loads["adaptive"] == pytest.approx(2.0 * 2 / groups, rel=0.02)


def test_adaptive_routing_leaves_shortest_ways_only_where_that_helps():
    pairs = [(0, 2), (1, 3)]
    thick, thin = (
        dragonfly(2, 2, ecmp="adaptive", link_bandwidth=rate, global_links=4)
        for rate in ("400Gbps", "10Gbps")
    )
    for cluster in (thick, thin):  # two groups: no third to go over
        for route, (a, b) in zip(cluster.fabric.leaf_routes(pairs, np.ones(2)), pairs, strict=True):
            assert present(route).hop[-1] == 4
            assert present(cluster.fabric.leaf_route(a, b)).hop[-1] == 4


def test_a_message_alone_takes_detours_where_a_link_is_slower_than_its_nic():
    """On a square of 100 Gbit/s, between neighbours: a half straight, a half round."""
    route = present(square(ecmp="adaptive").fabric_route(0, 1))
    shares = [share for share in route.share if share < 1]
    assert shares == pytest.approx([0.5] * 4, rel=0.02)
    assert present(square().fabric_route(0, 1)).share == (1.0, 1.0, 1.0)


def test_hashed_ways_use_every_equal_path_about_alike():
    cluster = torus(4, 4, ecmp="hash")
    used: dict[int, int] = defaultdict(int)
    for key in range(600):
        for link in present(cluster.fabric_route(0, 5, key=key)).link[1:-1]:
            used[link] += 1
    assert len(used) == 4
    assert max(used.values()) - min(used.values()) < 100


def test_a_graph_written_out_is_the_torus():
    names = [f"r{i}" for i in range(4)]
    links: list[dict[str, Any]] = [{"between": [f"node{i}", f"r{i}"]} for i in range(4)]
    links += [{"between": [f"r{i}", f"r{(i + 1) % 4}"], "bandwidth": "100Gbps"} for i in range(4)]
    one, other = of(4, kind="graph", switches=names, links=links), torus(4)
    assert bisection_bandwidth(one) == bisection_bandwidth(other)
    for a in range(4):
        for b in range(4):
            ways = [present(c.fabric_route(a, b)) for c in (one, other)]
            assert [w.share for w in ways] == [ways[0].share] * 2
            assert ways[0].latency == ways[1].latency


def test_ranges_name_many_ends():
    links = [
        {"between": ["node0..1", "leaf0"]},
        {"between": ["node2..3/nic0", "leaf1"]},
        {"between": ["leaf0..1", "spine0..2"], "bandwidth": "100Gbps", "count": 2},
    ]
    cluster = of(4, kind="graph", switches=["leaf0..1", "spine0..2"], links=links)
    parts = cluster.fabric.parts
    assert (parts.leaves, parts.spines, parts.trunk_cables, parts.nic_cables) == (2, 3, 12, 4)
    assert present(bisection_bandwidth(cluster)) == pytest.approx(600 * GBPS * payload(cluster))


def test_a_cable_may_have_a_latency_of_its_own():
    links = [{**link} for link in SQUARE]
    links[4]["latency"] = "5us"
    slow = of(4, kind="graph", switches=["a", "b", "c", "d"], links=links)
    ways = [present(c.fabric_route(0, 1)).latency for c in (square(), slow)]
    assert ways[1] - ways[0] == 5_000_000


@pytest.mark.parametrize(("part", "counts"), [("cable", (3, 4)), ("switch", (2, 3))])
def test_every_cable_and_every_switch_adds_its_latency(part: str, counts: tuple[int, int]) -> None:
    """From node to node over two switches and over three: a cable at each end too."""
    usual, slow = (square(**{f"{part}_latency": of}) for of in ("100ns", "300ns"))
    for target, count in zip((1, 2), counts, strict=True):
        ways = [present(cluster.fabric_route(0, target)).latency for cluster in (usual, slow)]
        assert ways[1] - ways[0] == count * 200_000


def test_planes_of_rails_that_meet_in_nodes_only_are_a_graph_too():
    node = {"gpu": NODE["gpu"], "nic": {"count": 2, "bandwidth": "400Gbps"}}
    links = [{"between": ["node*/nic0", "a"]}, {"between": ["node*/nic1", "b"]}]
    fabric = {"kind": "graph", "switches": ["a", "b"], "links": links}
    cluster = cluster_from({"node": node, "nodes": 2, "fabric": fabric}, "it")
    assert cluster.fabric_route(0, 2) is not None
    assert cluster.fabric_route(0, 3) is None


@given(st.integers(2, 7), st.data())
def test_any_connected_graph_conserves_bytes(switches, data):
    edges = [(i, data.draw(st.integers(0, i - 1))) for i in range(1, switches)]
    more = st.tuples(st.integers(0, switches - 1), st.integers(0, switches - 1))
    edges += [e for e in data.draw(st.lists(more, max_size=8)) if e[0] != e[1]]
    links = [{"between": [f"node{i}", f"s{i}"]} for i in range(switches)] + [
        {"between": [f"s{a}", f"s{b}"], "bandwidth": "100Gbps"} for a, b in edges
    ]
    ecmp = data.draw(st.sampled_from(["even", "hash", "adaptive"]))
    cluster = of(switches, kind="graph", switches=[f"s0..{switches - 1}"], links=links, ecmp=ecmp)
    a, b = data.draw(st.permutations(range(switches)))[:2]
    route = present(cluster.fabric_route(a, b, key=data.draw(st.integers(0, 99))))
    ends = {f"node{a}/nic0": -1.0, f"node{b}/nic0": 1.0}
    assert carried(cluster, route) == pytest.approx(ends, abs=1e-9)


def test_more_planes_hold_more_nodes_on_as_many_levels():
    """A switch of 64 ports has 128 of half the speed: twice the nodes under two levels."""
    one, two = (
        Cluster.preset("dgx-h100", nodes=64, fabric={"kind": "fat_tree", "planes": planes})
        for planes in (1, 2)
    )
    assert len(one.fabric.leaves.names) == 16
    assert len(two.fabric.leaves.names) == 8
    a, b = one.fabric.parts, two.fabric.parts
    assert (a.switches, a.cables) == (16 + 8, 2 * 512)
    assert (b.switches, b.cables) == (2 * (8 + 4), 2 * 2 * 512)
    assert bisection_bandwidth(one) == pytest.approx(present(bisection_bandwidth(two)))


def test_a_rail_only_plane_holds_as_many_nodes_as_its_split_ports():
    wide = {"kind": "rail_only", "planes": 4}
    assert Cluster.preset("dgx-h100", nodes=256, fabric=wide).fabric.parts.wrong == ""
    assert (
        "64 x 2 planes"
        in Cluster.preset(
            "dgx-h100", nodes=256, fabric={"kind": "rail_only", "planes": 2}
        ).fabric.parts.wrong
    )


@pytest.mark.parametrize(
    ("fabric", "words"),
    [
        ({"kind": "torus"}, "dims: is missing"),
        ({"kind": "torus", "dims": [4, 4]}, "has 16 leaves, and there are 4 nodes"),
        ({"kind": "torus", "dims": [2, 0]}, "1 router or more"),
        ({"kind": "torus", "dims": [4], "spines": 2}, "spines: means nothing with kind: torus"),
        ({"kind": "torus", "dims": [4], "planes": 2}, "planes: means nothing"),
        ({"kind": "fat_tree", "dims": [4]}, "dims: means nothing with kind: fat_tree"),
        ({"kind": "fat_tree", "planes": 0}, "planes: 0 is too few"),
        ({"kind": "dragonfly_plus"}, "fill one group"),
        ({"kind": "dragonfly_plus", "nodes_per_leaf": 1, "leaves_per_group": 3}, "one group"),
        ({"kind": "graph"}, "switches: is missing"),
        ({"kind": "graph", "switches": ["a"]}, "links: is missing"),
        (
            {
                "kind": "fat_tree",
                "sharp": True,
            },
            "sharp",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(fabric, words):
    node = dict(NODE, nic={"count": 1, "bandwidth": "400Gbps", "medium": "ethernet"})
    with pytest.raises(ScenarioError, match=words.replace("(", r"\(")):
        cluster_from({"node": node, "nodes": 4, "fabric": fabric}, "it")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda links: [*links, {"between": ["d", "e"], "bandwidth": "1Gbps"}], "'e' is neither"),
        (lambda links: links[1:], "node0/nic0 hangs on no switch"),
        (lambda links: [*links, {"between": ["node0", "b"]}], "node0/nic0 gets a second link"),
        (lambda links: [*links, {"between": ["node0", "node1"]}], "joins two nodes"),
        (lambda links: [*links, {"between": ["a", "a"], "bandwidth": "1Gbps"}], "with itself"),
        (lambda links: [*links, {"between": ["a", "c"]}], "bandwidth: is missing"),
        (lambda links: links[:4] + links[4:5] + links[6:7], "is in 2 parts"),
        (lambda links: [{"between": ["node9", "a"]}, *links], "'node9' is neither"),
        (lambda links: [{"between": ["node0/nic4", "a"]}, *links], "neither a switch nor a node"),
        (lambda links: [{"between": ["a0..9999999", "a"]}, *links], "counts from 0"),
        (lambda links: [{**links[0], "bandwidth": "1Gbps"}, *links[1:]], "has the NIC's own"),
        (lambda links: [{**links[4], "count": 0}, *links], "count: 0 is too few"),
    ],
)  # fmt: skip
def test_a_graph_that_cannot_be_is_refused_in_words(change, words):
    with pytest.raises(ScenarioError, match=words):
        of(4, kind="graph", switches=["a", "b", "c", "d"], links=change(SQUARE))


@pytest.mark.parametrize("name", ["node3", "3a", "", "a b", "domain0/x"])
def test_a_switch_may_not_be_called_what_others_are(name):
    with pytest.raises(ScenarioError, match="is no name for a switch"):
        of(4, kind="graph", switches=[name], links=SQUARE)
