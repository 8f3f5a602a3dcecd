"""Folded and unfolded runs are the same run."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.star import Star

from commsim.cluster import Cluster, cluster_from
from commsim.engine import folded, simulate
from commsim.engine.folding.folding import FoldedPlanner
from commsim.engine.folding.refinement import Entries, PhaseLoads
from commsim.errors import ScenarioError
from commsim.graph import CopyDirection, Fold, Graph, GraphBuilder
from commsim.libraries import Ideal
from commsim.timeline import Timeline

US = 1_000_000
MIB = 2**20


def layout(
    dp: int, pp: int, tp: int
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return stages, groups and pairs; ranks count tp fastest, then dp, then pp."""
    ranks = np.arange(pp * dp * tp).reshape(pp, dp, tp)
    groups = {
        "tp": ranks.reshape(-1, tp),
        "dp": ranks.transpose(0, 2, 1).reshape(-1, dp),
        "pp": ranks.transpose(1, 2, 0).reshape(-1, pp),
    }
    pairs = {"next": np.stack((ranks[:-1].ravel(), ranks[1:].ravel()), axis=1)}
    return np.repeat(np.arange(pp), dp * tp), groups, pairs


def graph_of(fold: Fold, stage: np.ndarray, *, offload: bool = False) -> Graph:
    """Two microbatches through the stages with tensor traffic, then gradients, overlapped."""
    build = GraphBuilder(fold)
    last = int(stage.max())
    for rank in fold.representatives:
        lane, at = build.lane(rank), int(stage[rank])
        tp, dp, pp = (build.orbit(axis, rank) for axis in ("tp", "dp", "pp"))
        before: list[int] = []
        for micro in range(2):
            if at:
                before = [build.recv(lane, "next", 3 * MIB, group=pp, stream="in", after=before)]
            work = build.compute(lane, (90 + 20 * at) * US, name=f"F{micro}", after=before)
            reduced = build.collective(lane, tp, "all_reduce", 8 * MIB, stream="tp", after=[work])
            before = [build.compute(lane, 10 * US, name="tail", after=[reduced])]
            if at < last:
                build.send(lane, "next", 3 * MIB, group=pp, stream="out", after=before)
            build.collective(lane, dp, "all_reduce", 64 * MIB, stream="dp", after=before)
            if offload:
                build.host_copy(
                    lane, 32 * MIB, way=CopyDirection.TO_HOST,
                    name="offload", stream="d2h", after=before,
                )  # fmt: skip
    return build.build()


def ends(
    graph: Graph, timeline: Timeline, stands: np.ndarray | None, world: int
) -> list[list[tuple[int, int]]]:
    """Return (start, end) of the ops of every rank, in order of issue."""
    found: list[list[tuple[int, int]]] = []
    for rank in range(world):
        lane = int(np.flatnonzero(graph.lane_rank == (rank if stands is None else stands[rank]))[0])
        ops = np.flatnonzero(graph.lane == lane)
        found.append([(int(timeline.start[op]), int(timeline.end[op])) for op in ops])
    return found


def run_both(cluster: Cluster, dp: int, pp: int, tp: int, *, offload: bool = False) -> int:
    """Check that both ways agree for every rank; return how many lanes were simulated."""
    stage, groups, pairs = layout(dp, pp, tp)
    whole = graph_of(Fold.none(len(stage), groups, pairs), stage, offload=offload)
    plain = simulate(whole, cluster, library=Ideal())
    coarse = graph_of(Fold.of(stage, groups, pairs), stage, offload=offload)
    graph, planner = folded(coarse, cluster, Ideal())
    timeline = simulate(graph, cluster, library=Ideal(), planner=planner)
    lane_of = np.arange(len(stage)) if graph.folding is None else graph.folding.lane_of
    one = ends(whole, plain, None, len(stage))
    other = ends(graph, timeline, graph.lane_rank[lane_of], len(stage))
    for rank, (a, b) in enumerate(zip(one, other, strict=True)):
        worst = max(
            abs(x - y) for pair in zip(a, b, strict=True) for x, y in zip(*pair, strict=True)
        )
        assert worst <= 20, f"rank {rank}: {a} against {b}"
    return len(graph.lane_rank)


FABRICS = [
    {"kind": "rail_optimized"},
    {"kind": "fat_tree", "oversubscription": 4},
]


@pytest.mark.share(0.5)
@pytest.mark.parametrize("fabric", FABRICS, ids=["rail", "oversubscribed"])
@pytest.mark.parametrize(
    ("nodes", "dp", "pp", "tp"),
    [
        (2, 4, 2, 2),
        (4, 2, 2, 8),
        (4, 4, 1, 8),
        (4, 8, 4, 1),
        (8, 2, 4, 8),
        (3, 3, 2, 4),
        (4, 2, 4, 4),
    ],
)
def test_same_times(nodes: int, dp: int, pp: int, tp: int, fabric: dict[str, object]) -> None:
    cluster = Cluster.preset("dgx-h100", nodes=nodes, fabric=fabric)
    lanes = run_both(cluster, dp, pp, tp)
    assert lanes < dp * pp * tp


def test_shared_nics() -> None:
    """Four GPUs per NIC: replicas of a stage share it."""
    cluster = Cluster.preset("dgx-1v", nodes=4)
    assert run_both(cluster, 8, 4, 1) < 32


def test_copies_to_the_host_share_pcie() -> None:
    cluster = Cluster.preset("dgx-1v", nodes=4)
    assert run_both(cluster, 8, 2, 2, offload=True) < 32


def test_one_slow_node_is_told_apart() -> None:
    cluster = cluster_from(
        {
            "nodes": [
                {"preset": "dgx-h100", "count": 3},
                {"preset": "dgx-h100", "count": 1, "overrides": {"nic": {"bandwidth": "100Gbps"}}},
            ]
        },
        "test",
    )
    lanes = run_both(cluster, 4, 1, 8)
    assert 1 < lanes < 32


def test_unlike_hardware_is_refused_without_refolding() -> None:
    slower = {"preset": "dgx-h100", "count": 1, "overrides": {"nvlink": {"bandwidth": "100GB/s"}}}
    uneven = cluster_from({"nodes": [{"preset": "dgx-h100", "count": 1}, slower]}, "test")
    stage, groups, pairs = layout(2, 1, 8)
    graph = graph_of(Fold.of(stage, groups, pairs), stage)
    with pytest.raises(ScenarioError, match="not equivalent"):
        simulate(graph, uneven, library=Ideal())


def test_single_messages_are_not_folded() -> None:
    stage, groups, pairs = layout(2, 1, 8)
    graph = graph_of(Fold.of(stage, groups, pairs), stage)
    with pytest.raises(ScenarioError, match="folding needs a cluster and network fluid"):
        simulate(graph, Cluster.preset("dgx-h100", nodes=2), library=Ideal(), network="steps")


@pytest.mark.parametrize("duration", [0, 5 * US])
def test_a_copy_of_known_duration_needs_no_links(duration: int) -> None:
    """On a cluster that is laid out without memory of hosts, the ranks of which are one."""
    build = GraphBuilder(Fold.of(np.zeros(4, np.int64), {}, {}))
    build.copy(build.lane(0), duration, name="on the GPU")
    graph, planner = folded(build.build(), Star(4), Ideal())
    timeline = simulate(graph, Star(4), library=Ideal(), planner=planner)
    assert timeline.end.tolist() == [duration]


@pytest.mark.parametrize(("count", "few"), [(1, True), (10, True), (11, False)])
def test_negligible_plans_are_few_in_all(count: int, few: bool) -> None:
    """Each moves 1 of the 128 bytes of a link, once; another plan moves the rest, half of it in
    each of two ops."""
    plans = np.arange(count + 1)
    entries: Any = SimpleNamespace(
        load=np.append(np.ones(count), (128 - count) / 2), plan=plans, link=np.zeros_like(plans)
    )
    planner: Any = SimpleNamespace(
        _collectives=[*plans.tolist()], _messages=[count], _copies={}, _orbits=[None] * (count + 1),
        _first=np.arange(count + 2),
    )  # fmt: skip
    found = FoldedPlanner._negligible(planner, entries, 1 / 128)
    assert found.tolist() == [few] * count + [False]
    assert not FoldedPlanner._negligible(planner, entries, 0.99 / 128).any()


@pytest.mark.parametrize(("after", "rounds"), [(1, 1), (3, 3), (12, 12), (13, 12)])
def test_a_fold_is_given_up_after_twelve_rounds(
    after: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round tells ranks apart until the one that finds them all equivalent."""
    asked: list[np.ndarray] = []

    class Planned:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.number = len(asked) + 1

        def finer_roles(self) -> np.ndarray | None:
            asked.append(np.zeros(4, np.int64))
            return None if self.number == after else asked[-1]

    def refolded(graph: Graph, roles: np.ndarray) -> Graph:
        refolds.append(roles.tolist())
        return graph

    refolds: list[list[int]] = []
    module = sys.modules["commsim.engine.folding.folding"]
    monkeypatch.setattr(module, "FoldedPlanner", Planned)
    monkeypatch.setattr(module, "refold", refolded)
    build = GraphBuilder(Fold.of(np.zeros(4, np.int64), {}, {}))
    build.compute(build.lane(0), 1, name="work")
    _, planner = folded(build.build(), Star(4), Ideal())
    assert len(asked) == rounds
    assert isinstance(planner, Planned) == (after <= 12)
    last = [] if after <= 12 else [list(range(4))]
    assert refolds == [[0] * 4] * min(after - 1, 12) + last


@pytest.mark.parametrize(
    ("color", "lowest"),
    [
        ([], []),
        ([-1, -1], [0, 1]),
        ([0, 0, 1, 0, 1], [0, 0, 2, 0, 2]),
        ([-1, 2, 0, 2], [0, 1, 2, 1]),
    ],
)
def test_traffic_is_on_the_lowest_link_of_its_color(color: list[int], lowest: list[int]) -> None:
    planner: Any = SimpleNamespace(link_color=np.array(color, np.int64))
    assert FoldedPlanner.equivalent_links(planner).tolist() == lowest


def test_links_left_out_have_colors_of_their_own() -> None:
    """Ample ones by the plans that load them, as links 2 and 3 are, the others singly."""
    links = np.array([0, 1, 2, 3, 4, 5, 6])
    loads = PhaseLoads(np.zeros(1, np.int64), np.ones(1), np.ones(1))
    entries = Entries(np.array([0, 1, 0, 0, 1, 0, 1]), links, np.zeros(7, np.int64), loads)
    color = np.array([0, 0, -1, -1, -1, -1, 1, -1])
    planner: Any = SimpleNamespace(link_color=color, _color=np.array([0, 1]))
    ample = np.isin(np.arange(8), (2, 3, 4))
    cluster: Any = SimpleNamespace(links=SimpleNamespace(capacity=np.full(8, 1e9)))
    FoldedPlanner._color_the_rest(planner, entries, ample, cluster)
    found = planner.link_color.tolist()
    assert found[:2] == [0, 0]
    assert (found[6], found[7]) == (1, -1)
    assert found[2] == found[3] != found[4]
    assert len({*found[2:6]}) == 3
    assert min(found[2:6]) > 1
