"""The bound: computed by hand on small clusters, and never above what an algorithm takes."""

from __future__ import annotations

import copy
import sys
from functools import partial
from itertools import permutations
from typing import Any

import networkx
import pytest
from helpers.counting import python_calls
from helpers.optional import present
from helpers.share import examples
from helpers.star import Star
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.cluster.section import cluster_from
from commsim.collectives import algorithms_for
from commsim.errors import ScenarioError
from commsim.libraries import Ideal, Request
from commsim.metrics.bound import Bound, bound, slowest
from commsim.metrics.bound_cuts import _usable, cuts_of, slowest_link
from commsim.ops import ROOTED

GIB = 2**30
EVERY = [
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "scatter",
    "gather", "barrier",
]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"gpus": [0, 0]}, "give each once, from 0 to 7"),
        ({"gpus": [0, 8]}, "give each once, from 0 to 7"),
        ({"gpus": [-1, 0]}, "give each once, from 0 to 7"),
        ({"root": 3}, "root: 3 is no member: give 0 to 2"),
        ({"size": -1}, "a size is from 0 to 4 EiB"),
        ({"size": float("nan")}, "a size is from 0 to 4 EiB"),
        ({"op": "all_to_all_v", "splits": [[1, 2], [3]]}, "give 3 rows of 3 sizes"),
        ({"op": "all_to_all_v", "splits": [[-1] * 3] * 3}, "give 3 rows of 3 sizes"),
    ],
)
def test_what_has_no_bound_is_refused(changed: dict[str, Any], told: str) -> None:
    given = {"op": "broadcast", "size": 8, "gpus": [0, 1, 2], **changed}
    with pytest.raises(ScenarioError, match=told):
        bound(Cluster.preset("dgx-h100"), **given)


def nodes(preset: str, count: int, **fabric: object) -> Cluster:
    return Cluster.preset(preset, nodes=count, fabric=fabric or None)


def port(cluster: Cluster, kind: str) -> float:
    """Return the payload bytes/s of one link of a kind."""
    at = cluster.links.kinds.index(kind)
    return float(cluster.links.capacity[at])


def test_one_nvswitch_node() -> None:
    """Every GPU has one port: ring and direct all-reduce are the best there can be."""
    cluster = nodes("dgx-h100", 1)
    B = port(cluster, "nvlink")
    expected = {
        "all_reduce": 2 * 7 / 8, "all_gather": 7 / 8, "reduce_scatter": 7 / 8,
        "all_to_all": 7 / 8, "broadcast": 1, "reduce": 1, "scatter": 7 / 8, "gather": 7 / 8,
        "send_recv": 1,
    }  # fmt: skip
    for op, share in expected.items():
        found = bound(cluster, op, GIB, range(8))
        assert found.seconds == pytest.approx(share * GIB / B, rel=1e-3), op
        assert found.kind == "proven"


def test_the_wire_and_its_latency_exactly() -> None:
    cluster = nodes("dgx-h100", 1)
    at = cluster.links.kinds.index("nvlink")
    B, latency = float(cluster.links.capacity[at]), int(cluster.links.latency[at]) / 1e12
    assert latency > 0
    found = bound(cluster, "all_reduce", GIB, range(8))
    assert found.seconds == pytest.approx(2 * 7 / 8 * GIB / B + latency, rel=1e-12)


def test_a_switch_that_adds_halves_the_bound_at_most() -> None:
    cluster = nodes("dgx-h100", 1)
    found = bound(cluster, "all_reduce", GIB, range(8), in_network=True)
    assert found.seconds == pytest.approx(GIB / port(cluster, "nvlink"), rel=1e-3)
    assert found.cut == "out of GPU 0"


def test_across_nodes_the_nics_bound() -> None:
    cluster = nodes("dgx-h100", 16)
    C = 8 * port(cluster, "network")
    alone = bound(cluster, "all_reduce", GIB, range(128))
    added = bound(cluster, "all_reduce", GIB, range(128), in_network=True)
    assert alone.seconds == pytest.approx(2 * 15 / 16 * GIB / C, rel=1e-3)
    assert alone.cut == "between 16 nodes"
    assert added.seconds == pytest.approx(GIB / C, rel=1e-3)
    exchange = bound(cluster, "all_to_all", GIB, range(128))
    assert exchange.seconds == pytest.approx(8 * 120 / 128 * GIB / C, rel=1e-3)


def test_a_group_on_one_rail_has_one_nic_per_node() -> None:
    cluster = nodes("dgx-h100", 4)
    rail = range(0, 32, 8)
    found = bound(cluster, "all_gather", GIB, rail)
    assert found.seconds == pytest.approx(3 / 4 * GIB / (8 * port(cluster, "network")), rel=1e-3)


def test_an_oversubscribed_spine_bounds_what_crosses_it() -> None:
    """Two pods of two nodes; 4 : 1 above the leaves."""
    cluster = nodes("dgx-h100", 4, kind="fat_tree", oversubscription=4, nodes_per_leaf=2)
    found = bound(cluster, "all_to_all", GIB, range(32))
    uplinks = 16 * port(cluster, "network") / 4
    assert found.seconds == pytest.approx(16 * 16 / 32 * GIB / uplinks, rel=0.02)
    assert found.cut.endswith("leaf of GPU 0")


@pytest.mark.parametrize("preset", ["dgx-1v", "dgx-h100"])
def test_every_set_of_a_small_node_has_its_least_cut(preset: str) -> None:
    """Against maximum flow, from all GPUs of a set to all others."""
    cluster = nodes(preset, 1)
    (*_, every), _ = cuts_of(cluster, tuple(range(8)))
    mask = present(every.mask)
    assert len(every.cuts.members) == 2**8 - 2
    graph = networkx.DiGraph()
    for a, b in permutations(range(8), 2):
        for link in present(cluster.local_route(a, b)).link:
            ends = cluster.links.source[link], cluster.links.target[link]
            graph.add_edge(*ends, capacity=float(cluster.links.capacity[link]))
    for gpu in range(8):
        graph.add_edge("out", f"node0/gpu{gpu}")
        graph.add_edge(f"node0/gpu{gpu}", "in")
    for at in range(0, 254, 37):
        inside = mask[at]
        flow = graph.copy()
        for gpu in range(8):
            flow.remove_edge(*(("out", f"node0/gpu{gpu}") if not inside[gpu]
                               else (f"node0/gpu{gpu}", "in")))  # fmt: skip
        assert every.cuts.out[at] == pytest.approx(networkx.maximum_flow_value(flow, "out", "in"))
        assert every.cuts.members[at] == inside.sum()


def test_pcie_bounds_where_nics_are_faster() -> None:
    """Two 800 Gb/s NICs' worth of wire behind one PCIe slot each."""
    cluster = Cluster.preset("dgx-h100", nodes=2, overrides={"nic": {"bandwidth": "800Gbps"}})
    links = cluster.links
    slots = sum(
        float(links.capacity[i]) for i in range(len(links))
        if links.target[i].startswith("node0/nic") and links.kinds[i] == "pcie"
    )  # fmt: skip
    assert slots < 8 * port(cluster, "network")
    found = bound(cluster, "all_to_all", GIB, range(16))
    assert found.seconds == pytest.approx(8 * 8 / 16 * GIB / slots, rel=1e-3)
    assert "node without NICs" in found.cut


def test_data_gathers_inwards_and_scatters_outwards() -> None:
    cluster = nodes("dgx-h100", 1)
    assert bound(cluster, "all_gather", GIB, range(8)).cut == "into GPU 0"
    assert bound(cluster, "reduce_scatter", GIB, range(8)).cut == "out of GPU 0"
    assert bound(cluster, "gather", GIB, range(8), root=3).cut == "into GPU 3"
    assert bound(cluster, "scatter", GIB, range(8), root=3).cut == "out of GPU 3"
    assert bound(cluster, "broadcast", GIB, range(8), root=3).cut == "out of GPU 3"


def test_latency_is_in_it() -> None:
    found = bound(nodes("dgx-h100", 2), "barrier", 0, range(16))
    assert 1e-7 < found.seconds < 1e-5


def test_splits_bound_by_their_busiest_gpu() -> None:
    cluster = nodes("dgx-h100", 1)
    splits = [[0] * 4 for _ in range(4)]
    splits[2][0] = splits[2][1] = 1 << 30
    found = bound(cluster, "all_to_all_v", 2 * GIB, range(4), splits=splits)
    assert found.seconds == pytest.approx(2 * GIB / port(cluster, "nvlink"), rel=1e-3)
    assert found.cut == "out of GPU 2"


def test_who_neither_sends_nor_receives_adds_no_latency() -> None:
    """GPUs 0 and 1 of one node exchange; GPU 8 of another is in the group, and gets nothing."""
    cluster = nodes("dgx-h100", 2)
    across = bound(cluster, "all_reduce", 8, [0, 8]).seconds
    for splits in ([[0, 8], [0, 0]], [[0, 0], [8, 0]], [[0, 8], [8, 0]]):
        pair = bound(cluster, "all_to_all_v", 8, [0, 1], splits=splits).seconds
        wider = [[*splits[0], 0], [*splits[1], 0], [0, 0, 0]]
        found = bound(cluster, "all_to_all_v", 8, [0, 1, 8], splits=wider).seconds
        assert 0 < found <= pair < across


@pytest.mark.parametrize(
    ("latency", "by_latency"), [(0.0, False), (0.9, False), (1.0, False), (1.01, True), (2.0, True)]
)
def test_a_bound_that_is_latency_by_more_than_half_is_of_the_slowest_to_arrive(
    latency: float, by_latency: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    module = sys.modules["commsim.metrics.bound"]
    monkeypatch.setattr(module, "slowest_link", lambda *_, by_latency: asked.append(by_latency))
    slowest(nodes("dgx-h100", 1), [0, 1], Bound(2.0, "proven", "out of GPU 0", latency))
    assert asked == [by_latency]


def test_one_gpu_alone_and_unknown_ops() -> None:
    cluster = nodes("dgx-h100", 1)
    assert bound(cluster, "all_reduce", GIB, [3]).seconds == 0
    with pytest.raises(ScenarioError, match="no bound"):
        bound(cluster, "allreduce", GIB, range(8))
    with pytest.raises(ScenarioError, match="splits"):
        bound(cluster, "all_to_all_v", GIB, range(8))


def test_the_cuts_of_2048_nodes_are_worked_out_once_and_without_a_loop_over_pairs() -> None:
    cluster = nodes("dgx-h100", 2048)
    found = []

    def ask() -> None:
        found.append(bound(cluster, "all_reduce", GIB, range(cluster.world_size)))

    assert python_calls(ask) < 40 * cluster.world_size
    assert python_calls(ask) < cluster.world_size / 10
    assert found[0] == found[1]


CLUSTERS = [
    {"preset": "dgx-h100", "nodes": 1},
    {"preset": "dgx-h100", "nodes": 3},
    {"preset": "dgx-a100", "nodes": 2},
    {"preset": "dgx-1v", "nodes": 1},
    {"preset": "pcie-a100", "nodes": 2},
    {"preset": "cpu-ethernet", "nodes": 5},
    {"preset": "dgx-h100", "nodes": 4,
     "fabric": {"kind": "fat_tree", "oversubscription": 3, "nodes_per_leaf": 2}},
    {"preset": "dgx-h100", "nodes": 3, "fabric": {"kind": "single_switch"}},
]  # fmt: skip


@examples(60)
@given(data=st.data(), section=st.sampled_from(CLUSTERS), op=st.sampled_from(EVERY))
def test_no_algorithm_is_faster(data: st.DataObject, section: dict[str, object], op: str) -> None:
    """Random groups of random clusters, sizes from none to large, every algorithm."""
    cluster = cluster_from(dict(section), "here")
    world = list(range(cluster.world_size))
    ranks = tuple(sorted(data.draw(
        st.lists(st.sampled_from(world), min_size=2, max_size=10, unique=True)
    )))  # fmt: skip
    size = data.draw(st.sampled_from([0, 1000, 1 << 20, 1 << 28]))
    root = data.draw(st.integers(0, len(ranks) - 1)) if op in ROOTED else -1
    added = bound(cluster, op, size, ranks, in_network=True, root=max(root, 0)).seconds
    alone = bound(cluster, op, size, ranks, root=max(root, 0)).seconds
    assert added <= alone
    for algorithm in algorithms_for(op, switched=True):
        switched = algorithm not in algorithms_for(op)
        try:
            plan = Ideal(algorithm).plan(Request(op, size, ranks, root=root), cluster)
        except ScenarioError:
            continue  # this group cannot run it
        taken = plan.idle / 1e12
        assert taken >= (added if switched else alone) * (1 - 1e-9), algorithm


def test_hierarchical_all_reduce_reaches_the_bound_of_two_nodes_up_to_its_stages() -> None:
    """The bound is not idle talk: the best algorithm comes within its own NVLink stages of it."""
    cluster = nodes("dgx-h100", 2)
    request = Request("all_reduce", GIB, tuple(range(16)))
    best = min(Ideal(a).plan(request, cluster).idle for a in ("ring", "hierarchical")) / 1e12
    assert best < 1.2 * bound(cluster, "all_reduce", GIB, range(16)).seconds


def test_links_of_pairs_are_collected_of_up_to_144_gpus_of_one_domain() -> None:
    """Two links for each GPU of a star; of more GPUs all links may be used, as of two domains."""
    star = Star(150)
    assert [len(_usable(star, tuple(range(count)))) for count in (2, 144, 145)] == [4, 288, 300]
    for count in (1, 2):
        cluster = nodes("dgx-h100", count)
        used = _usable(cluster, (0, 1) if count == 1 else (0, 8))
        assert len(used) == (4 if count == 1 else len(cluster.links))


def test_levels_are_named_in_full_with_the_link_that_sets_the_bound() -> None:
    """One GPU in each of four nodes: what leaves a node is slower than what leaves its PCIe."""
    cluster, rail = nodes("dgx-h100", 4), (0, 8, 16, 24)
    found = bound(cluster, "all_reduce", GIB, rail)
    assert found.cut == "between 4 nodes"
    assert slowest(cluster, rail, found) == "node0/nic0->leaf0"
    names = [part.name for part in cuts_of(cluster, rail)[1]]
    assert names == [
        "between 4 GPUs", "between 4 PCIe switches", "between 4 sockets",
        "between 4 nodes without NICs", "between 4 nodes", "between 4 NVLink domains",
    ]  # fmt: skip


@pytest.mark.parametrize("by_latency", [False, True])
def test_the_slowest_link_of_a_set_is_one_of_its_own(by_latency: bool) -> None:
    """GPU 2's ways in and out are the slowest; a GPU that is asked for has its own."""
    cluster = copy.copy(nodes("dgx-h100", 1))
    capacity, latency = cluster.links.capacity.copy(), cluster.links.latency.copy()
    slow = [at for at, name in enumerate(cluster.links.names) if "gpu2" in name]
    capacity[slow] /= 2
    latency[slow] *= 2
    cluster.links = replace(cluster.links, capacity=capacity, latency=latency)
    link = partial(slowest_link, by_latency=by_latency)
    for gpu in range(4):
        assert link(cluster, (0, 1, 2, 3), f"out of GPU {gpu}") == f"node0/gpu{gpu}->nvswitch"
        assert link(cluster, (0, 1, 2, 3), f"into GPU {gpu}") == f"node0/nvswitch->gpu{gpu}"
    least = "node0/gpu0->nvswitch" if by_latency else "node0/gpu2->nvswitch"
    assert link(cluster, (0, 1, 2, 3), "between 4 GPUs") == least
    assert link(cluster, (0, 1, 2, 3), "out of GPUs 0 1") == ""


@pytest.mark.parametrize(
    ("slow", "cut"),
    [("node0/gpu2->nvswitch", "out of GPU 2"), ("node0/nvswitch->gpu2", "into GPU 2")],
)
def test_a_way_that_is_slower_than_all_others_bounds_what_takes_it(slow: str, cut: str) -> None:
    """Every GPU sends and receives S once to have a sum, 3/4 of S to have it gathered."""
    cluster = copy.copy(nodes("dgx-h100", 1))
    capacity = cluster.links.capacity.copy()
    capacity[cluster.links.names.index(slow)] /= 4
    cluster.links = replace(cluster.links, capacity=capacity)
    B = port(cluster, "nvlink") / 4
    found = bound(cluster, "all_reduce", GIB, range(4), in_network=True)
    assert found.seconds == pytest.approx(GIB / B, rel=1e-3)
    assert found.cut == cut
    for op in ("all_to_all", "all_gather", "reduce_scatter"):
        least = bound(cluster, op, GIB, range(4))
        one = (op == "all_gather" and "out" in cut) or (op == "reduce_scatter" and "into" in cut)
        share = 1 / 4 if one else 3 / 4  # of S over the slow way, and 3/4 over the others
        assert least.seconds == pytest.approx(share * GIB / B, rel=1e-3), op
