"""Facts of a cluster's drawing: everything is there once, equal things are counted."""

from __future__ import annotations

from functools import cache

import pytest
from helpers.optional import present

from commsim.charts.topology.figure import USE_STEPS, topology, use_step
from commsim.charts.topology.scene import TopologyScene, topology_scene
from commsim.cluster import Cluster
from commsim.metrics import utilization
from commsim.study.run import Result, run


@cache
def placed(name: str, nodes: int, fabric: str = "rail_optimized") -> Cluster:
    return Cluster.preset(name, nodes=nodes, fabric={"kind": fabric})


@cache
def drawn(name: str, nodes: int, fabric: str = "rail_optimized") -> TopologyScene:
    return topology_scene(placed(name, nodes, fabric))


@cache
def quickstart(fold: str) -> Result:
    """Run the quickstart on four nodes, which fold, by rings that use NVLink, PCIe and NICs."""
    large = ("cluster.nodes=4", "workload.training.parallel.dp=32")
    ring = ("workload.training.batch.global=256", "library.name=ideal", "library.algo=ring")
    return run("quickstart", (f"engine.fold={fold}", *large, *ring))


def kinds(scene: TopologyScene) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in scene.nodes:
        found[node.kind] = found.get(node.kind, 0) + 1
    return found


def test_two_nodes_are_drawn_one_to_one() -> None:
    scene, cluster = drawn("dgx-h100", 2), placed("dgx-h100", 2)
    assert kinds(scene) == {
        "cpu": 4, "pcie": 16, "gpu": 16, "nic": 16, "nvswitch": 2, "leaf": 8, "spine": 1,
    }  # fmt: skip
    assert [frame.label for frame in scene.frames] == ["node 0", "node 1"]
    wires = sum(kind != "memory" for kind in cluster.links.kinds) // 2
    assert len(scene.links) == wires
    assert all(link.count == 1 and link.share is None for link in scene.links)
    assert scene.notes == ()


def test_a_large_cluster_is_drawn_once_and_counted() -> None:
    scene, cluster = drawn("dgx-h100", 64), placed("dgx-h100", 64)
    assert [frame.label for frame in scene.frames] == ["64 × dgx-h100"]
    assert {node.count for node in scene.nodes if node.kind == "gpu"} == {64}
    wires = sum(kind != "memory" for kind in cluster.links.kinds) // 2
    assert sum(link.count for link in scene.links) == wires
    assert "drawn once" in scene.notes[0]


def test_leaves_of_a_fat_tree_fold_into_one() -> None:
    scene = drawn("dgx-h100", 64, "fat_tree")
    (leaf,) = [node for node in scene.nodes if node.kind == "leaf"]
    assert leaf.count > 1
    assert leaf.label == f"×{leaf.count}"


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("dgx-h100", 2),
        ("dgx-1v", 2),
        ("gb200-nvl72", 36),
        ("cpu-ethernet", 16),
        ("pcie-rtx4090", 1),
    ],
)
def test_no_two_vertices_share_a_place(name: str, nodes: int) -> None:
    scene = drawn(name, nodes)
    places = [(round(node.x, 6), node.y) for node in scene.nodes]
    assert len(set(places)) == len(places)
    assert all(-0.5 <= node.x <= scene.width for node in scene.nodes)
    assert all(0 <= node.y < len(scene.rows) for node in scene.nodes)


def test_a_device_stands_within_the_columns_of_its_node() -> None:
    scene = drawn("dgx-h100", 2)
    for at, frame in enumerate(scene.frames):
        inside = [n for n in scene.nodes if n.name.startswith(f"node{at}/")]
        assert len(inside) == 27
        assert all(frame.x0 <= n.x <= frame.x1 and frame.y0 <= n.y <= frame.y1 for n in inside)


def test_links_within_a_row_are_arcs() -> None:
    between = [link for link in drawn("dgx-1v", 1).links if link.kind == "nvlink"]
    assert len(between) == 16
    assert all(len(link.points) > 2 for link in between)
    assert all(max(y for _, y in link.points) > link.points[0][1] for link in between)


def test_lines_carry_what_the_metrics_say() -> None:
    result = quickstart("off")
    assert result.cluster is not None
    scene = topology_scene(result.cluster, result.timeline)
    share = dict(zip(result.timeline.links.names, utilization(result.timeline).share, strict=True))
    for link in scene.links:
        assert link.share == pytest.approx(share[link.name])
        assert link.back is None or link.back <= present(link.share)
    assert max(link.share or 0 for link in scene.links) == pytest.approx(max(share.values()))


def test_a_folded_run_shows_the_same_use() -> None:
    """Of equal links a folded run loads one: the drawing does not show the others as idle."""
    pictures = []
    for fold in ("off", "auto"):
        result = quickstart(fold)
        assert result.cluster is not None
        scene = topology_scene(result.cluster, result.timeline)
        assert (result.timeline.graph.folding is not None) == (fold == "auto")
        pictures.append({link.points: round(link.share or 0, 6) for link in scene.links})
    assert pictures[0] == pictures[1]


@pytest.mark.parametrize(
    ("share", "name"),
    [
        (0, "unused"),
        (0.001, "up to 10%"),
        (0.1, "up to 10%"),
        (0.11, "to 25%"),
        (0.76, "above 75%"),
        (1.2, "above 75%"),
    ],
)
def test_steps_of_use(share: float, name: str) -> None:
    assert USE_STEPS[use_step(share)][1] == name


def test_the_title_names_the_busiest_link() -> None:
    result = quickstart("off")
    assert result.cluster is not None
    text = topology(result.cluster, result.timeline).to_dict()["layout"]["title"]["text"]
    best = result.metrics.links[0]
    assert f"{best.utilization:.1%} of the step" in text
