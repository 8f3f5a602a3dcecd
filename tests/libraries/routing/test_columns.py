"""Routes as columns are the routes that the router finds one by one, whatever the cluster."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.counting import python_calls

from commsim.cluster import Cluster, ClusterSection, build_cluster, cluster_from
from commsim.libraries.routing import RouteColumns, Router
from commsim.sections import decode


def clusters() -> dict[str, Cluster]:
    ib = {"preset": "dgx-h100", "nodes": 5}
    return {
        "rails": cluster_from(
            {**ib, "fabric": {"kind": "rail_optimized", "nodes_per_leaf": 2}}, "x"
        ),
        "rails only": cluster_from({**ib, "fabric": {"kind": "rail_only"}}, "x"),
        "fat tree": cluster_from(
            {**ib, "fabric": {"kind": "fat_tree", "nodes_per_leaf": 2, "spines": 3}}, "x"
        ),
        "hashed": cluster_from(
            {**ib, "fabric": {"kind": "fat_tree", "nodes_per_leaf": 2, "ecmp": "hash"}}, "x"
        ),
        "one switch": cluster_from({**ib, "fabric": {"kind": "single_switch"}}, "x"),
        "two NICs of four GPUs": Cluster.preset("pcie-a100", nodes=3),
        "racks": Cluster.preset("gb200-nvl72", nodes=36),
        "mesh": Cluster.preset("dgx-1v", nodes=3),
        "part": Cluster.preset("dgx-h100", nodes=4).part([0, 1, 2, 9, 10, 11, 18, 16, 25, 24]),
        "cores": cluster_from(
            {"preset": "dgx-h100", "nodes": 9, "fabric": {"radix": 4, "nodes_per_leaf": 1}}, "x"
        ),
    }  # fmt: skip


def held_to_single_routes(columns: RouteColumns, source, target, router: Router) -> None:
    for at, (a, b) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        route = router.route(a, b)
        own = slice(columns.first[at], columns.first[at] + columns.count[at])
        assert columns.link[own].tolist() == list(route.link), (a, b)
        assert columns.share[own].tolist() == list(route.share), (a, b)
        assert columns.latency[at] == route.latency, (a, b)


@pytest.mark.share(0.4)
@pytest.mark.parametrize("name", list(clusters()))
@pytest.mark.parametrize("pxn", [True, False])
def test_columns_are_the_single_routes(name: str, pxn: bool) -> None:
    cluster = clusters()[name]
    if name == "rails only" and not pxn:
        pytest.skip("rails do not meet")
    source, target = np.nonzero(~np.eye(cluster.world_size, dtype=bool))
    chosen = np.random.default_rng(7).permutation(len(source))[:1500]
    source, target = source[chosen], target[chosen]
    router = Router(cluster, pxn=pxn)
    held_to_single_routes(router.columns(source, target), source, target, Router(cluster, pxn=pxn))


def test_nodes_that_have_lost_a_nic_are_kinds_of_their_own() -> None:
    asked = decode({"preset": "dgx-h100", "nodes": 4}, ClusterSection, "x")
    cluster = build_cluster(asked, "x", dead=[(1, 3), (2, 0)])
    source, target = np.nonzero(~np.eye(32, dtype=bool))
    router = Router(cluster)
    held_to_single_routes(router.columns(source, target), source, target, Router(cluster))


def test_many_pairs_need_few_routes() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=24)
    source, target = np.nonzero(~np.eye(192, dtype=bool))
    calls = python_calls(lambda: Router(cluster).columns(source, target))
    assert calls < len(source) / 5


def test_ways_within_a_node_within_a_rack_and_beyond_are_told_apart() -> None:
    """Racks of 18 nodes of four GPUs: of rank 0 to GPU 1 of its node, of the next, of the rack."""
    router = Router(Cluster.preset("gb200-nvl72", nodes=36))
    source, target = np.zeros(3, np.int64), np.array([1, 5, 73])
    held_to_single_routes(router.columns(source, target), source, target, router)


def test_a_way_within_a_node_is_none_between_nodes_of_the_same_places() -> None:
    """Where each connection between nodes has a path by its hash."""
    fabric = {"kind": "fat_tree", "nodes_per_leaf": 2, "ecmp": "hash"}
    router = Router(cluster_from({"preset": "dgx-h100", "nodes": 5, "fabric": fabric}, "x"))
    pairs = [(8, 0), (0, 9), (0, 1), (1, 0), (9, 0), (16, 8), (24, 17)] * 10  # not one by one
    for first in range(7):
        source, target = np.array(pairs[first:]).T
        held_to_single_routes(router.columns(source, target), source, target, router)
