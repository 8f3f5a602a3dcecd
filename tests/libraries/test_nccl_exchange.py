"""Loads of an all-to-all by counting, against adding up every pair."""

from __future__ import annotations

import pytest

from commsim.cluster import Cluster
from commsim.libraries.loads import loads_of
from commsim.libraries.nccl.exchange import alike_nodes, exchange_loads
from commsim.libraries.nccl.group import NcclGroup, Site

FABRICS = {
    "rail": {"kind": "rail_optimized", "nodes_per_leaf": 2},
    "tree": {"kind": "fat_tree", "oversubscription": 2, "nodes_per_leaf": 2},
}


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("preset", ["dgx-h100", "dgx-1v", "aws-p5", "pcie-a100"])
@pytest.mark.parametrize("each", [8, 3])
def test_counting_equals_pairs(preset: str, fabric: str, each: int) -> None:
    cluster = Cluster.preset(preset, nodes=5, fabric=FABRICS[fabric])
    gpus = [g for g in range(cluster.world_size) if cluster.local_of[g] < each]
    group = NcclGroup(Site(cluster), gpus)
    router = group.router
    nodes = alike_nodes(group.edges)
    assert nodes == [0, 1, 2, 3, 4]
    counted = exchange_loads(group.edges, nodes, router)
    paired = loads_of(group.edges.exchange(), router)
    assert counted.link.tolist() == paired.link.tolist()
    assert counted.share == pytest.approx(paired.share)
    assert counted.conns == pytest.approx(paired.conns)


def test_uneven_nodes_are_not_alike() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=2)
    group = NcclGroup(Site(cluster), range(12))
    assert alike_nodes(group.edges) == []
