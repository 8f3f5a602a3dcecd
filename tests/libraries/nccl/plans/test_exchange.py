"""Loads of an all-to-all by counting, against adding up every pair."""

from __future__ import annotations

import pytest

from commsim.cluster import Cluster
from commsim.libraries.expansion.loads import LinkLoads, loads_of
from commsim.libraries.nccl.plans.exchange import exchange_loads, identical_nodes
from commsim.libraries.nccl.plans.group import NcclGroup, Site
from commsim.study.bench.bench import bench

FABRICS = {
    "rail": {"kind": "rail_optimized", "nodes_per_leaf": 2},
    "tree": {"kind": "fat_tree", "oversubscription": 2, "nodes_per_leaf": 2},
}


@pytest.mark.share(0.4)
@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("preset", ["dgx-h100", "dgx-1v", "aws-p5", "pcie-a100"])
@pytest.mark.parametrize("each", [8, 3])
def test_counting_equals_pairs(preset: str, fabric: str, each: int) -> None:
    cluster = Cluster.preset(preset, nodes=5, fabric=FABRICS[fabric])
    gpus = [g for g in range(cluster.world_size) if cluster.local_of[g] < each]
    group = NcclGroup(Site(cluster), gpus)
    router = group.router
    nodes = identical_nodes(group.edges)
    assert nodes == [0, 1, 2, 3, 4]
    counted = exchange_loads(group.edges, nodes, router)
    paired = loads_of(group.edges.exchange(), router)
    assert counted.link.tolist() == paired.link.tolist()
    assert counted.share == pytest.approx(paired.share)
    assert counted.conns == pytest.approx(paired.conns)


@pytest.mark.parametrize("kind", ["fat_tree", "rail_optimized"])
def test_of_many_hashed_paths_each_gets_about_as_many(kind: str) -> None:
    def loads(ecmp: str) -> LinkLoads:
        fabric = {"kind": kind, "nodes_per_leaf": 2, "ecmp": ecmp, "spines": 2}
        cluster = Cluster.preset("dgx-h100", nodes=5, fabric=fabric)
        group = NcclGroup(Site(cluster), range(cluster.world_size))
        return exchange_loads(group.edges, identical_nodes(group.edges), group.router)

    even, hashed = loads("even"), loads("hash")
    assert hashed.link.tolist() == even.link.tolist()
    assert hashed.share.tolist() == even.share.tolist()


def test_more_ranks_do_not_gather_on_one_hashed_path() -> None:
    # among up to 256 ranks every pair is hashed; beyond, their average is taken
    times = []
    for nodes in (32, 33):
        cluster = Cluster.preset("dgx-h100", nodes=nodes, fabric={"ecmp": "hash"})
        result = bench(cluster, "all_to_all", "1G")
        times.append(result.results[0].time_us)
        assert any("ecmp hash gives every path its even share" in n for n in result.notes) is (
            nodes == 33
        )
    assert times[1] == pytest.approx(times[0], rel=0.05)


def test_uneven_nodes_are_not_alike() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=2)
    group = NcclGroup(Site(cluster), range(12))
    assert identical_nodes(group.edges) == []


def test_identical_nodes_are_two_at_least_with_the_same_gpus_in_each() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=3)

    def nodes(gpus: list[int]) -> list[int]:
        return identical_nodes(NcclGroup(Site(cluster), gpus).edges)

    assert nodes([0, 1, 8, 9, 16, 17]) == [0, 1, 2]
    assert nodes([0, 1, 8, 10]) == []  # not the same GPUs
    assert nodes([0, 1, 2, 3]) == []  # one node


def test_many_ranks_of_one_node_are_counted_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Cluster.preset("dgx-h100")
    times = []
    for largest in (256, 4):
        monkeypatch.setattr("commsim.libraries.nccl.plans.loads.LARGEST_EXCHANGE", largest)
        times.append(bench(alone, "all_to_all", "64M").results[0].time_us)
    assert times[0] == times[1]
