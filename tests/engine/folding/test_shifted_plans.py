"""A plan that is shifted to other nodes is the plan that would be made there."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.cluster.shifts import Shifts
from commsim.engine.folding.folding import _exits
from commsim.engine.folding.refinement import entries_of
from commsim.engine.folding.shifted_plans import OrbitPlans, ShiftedPlans, _first_equal
from commsim.libraries import Ideal, Library, Plan, PlanPart, Request, Start
from commsim.libraries.nccl import Nccl

FABRIC = {"kind": "rail_optimized", "nodes_per_leaf": 4}


def dgx(nodes: int = 12, **fabric: object) -> Cluster:
    return Cluster.preset("dgx-h100", nodes=nodes, fabric={**FABRIC, **fabric})


def made_and_shifted(
    cluster: Cluster, library: Library, kind: str, rows: np.ndarray
) -> tuple[list[Plan], OrbitPlans, int]:
    """Return the plans of groups, each made by itself; shifted ones; and how many were made."""
    asked: list[tuple[int, ...]] = []

    def make(request: Request, ranks: tuple[int, ...]) -> Plan:
        asked.append(ranks)
        return library.plan(replace(request, ranks=ranks), cluster)

    request = Request(kind, 3 << 20, tuple(rows[0].tolist()))
    shifted = ShiftedPlans(cluster, make).plans(request, rows)
    count = len(asked)
    return [make(request, tuple(row)) for row in rows.tolist()], shifted, count


def held_equal(made: list[Plan], shifted: OrbitPlans) -> None:
    entries = shifted.entries
    assert (np.diff(entries.plan) >= 0).all()
    for at, a in enumerate(made):
        b = shifted.templates[shifted.of[at]]
        for fact in Plan.__struct_fields__:
            if fact not in ("parts", "programs"):
                assert getattr(a, fact) == getattr(b, fact)
        for mine, theirs in zip(a.parts, b.parts, strict=True):
            assert mine.joins.tolist() == theirs.joins.tolist()
            assert mine.leaves.tolist() == theirs.leaves.tolist()
            for p, q in zip(mine.phases, theirs.phases, strict=True):
                assert (p.idle, p.lead, p.tail) == (q.idle, q.lead, q.tail)
        for number, phase in enumerate(phase for part in a.parts for phase in part.phases):
            own = np.flatnonzero((entries.plan == at) & (entries.phase == number))
            own = own[np.argsort(entries.link[own])]
            assert phase.link.tolist() == entries.link[own].tolist()
            assert phase.load == pytest.approx(entries.load[own], rel=1e-12)
            assert phase.conns == pytest.approx(entries.conns[own], rel=1e-12)


PAIRS = np.stack((np.arange(64), np.arange(64) + 32), axis=1)
BACK = PAIRS[:, ::-1]
CROSSED = np.stack((np.arange(64), (np.arange(64) + 35) % 96), axis=1)
NODES = np.arange(96).reshape(12, 8)
HALVES = np.arange(96).reshape(6, 16)


@pytest.mark.share(0.5)
@pytest.mark.parametrize("library", [Ideal(), Nccl()], ids=["ideal", "nccl"])
@pytest.mark.parametrize(
    ("kind", "rows", "most"),
    [
        pytest.param("send_recv", PAIRS, 16, id="pairs"),
        pytest.param("send_recv", BACK, 16, id="pairs back"),
        pytest.param("send_recv", CROSSED, 32, id="pairs across rails"),
        pytest.param("all_reduce", NODES, 1, id="nodes"),
        pytest.param("all_reduce", HALVES, 3, id="two nodes each"),
    ],
)
def test_shifted_plans_are_those_made_there(
    library: Library, kind: str, rows: np.ndarray, most: int
) -> None:
    made, shifted, count = made_and_shifted(dgx(), library, kind, rows)
    held_equal(made, shifted)
    assert count <= most


def test_a_node_with_a_slow_link_is_planned_by_itself() -> None:
    cluster = dgx()
    slow = copy.copy(cluster)
    capacity = cluster.links.capacity.copy()
    used = Ideal().plan(Request("all_reduce", 3 << 20, tuple(range(40, 48))), cluster)
    capacity[used.parts[0].phases[0].link[0]] /= 2
    capacity[cluster.fabric.nic_link(cluster.first_nic(2))] /= 2
    slow.links = replace(cluster.links, capacity=capacity)
    for kind, rows in (("send_recv", PAIRS), ("all_reduce", NODES)):
        made, shifted, _ = made_and_shifted(slow, Ideal(), kind, rows)
        held_equal(made, shifted)
        assert len({plan.idle for plan in made}) > 1


def test_paths_that_a_hash_picks_are_not_shifted() -> None:
    cluster = dgx(kind="fat_tree", ecmp="hash")
    made, shifted, count = made_and_shifted(cluster, Ideal(), "send_recv", PAIRS)
    held_equal(made, shifted)
    assert count == len(PAIRS)


@pytest.mark.share(0.5)
@pytest.mark.parametrize("library", [Ideal(), Nccl()], ids=["ideal", "nccl"])
@pytest.mark.parametrize(
    ("rows", "most"),
    [
        pytest.param(np.arange(96).reshape(4, 24), 3, id="three nodes, on leaves in three ways"),
        pytest.param(np.arange(96).reshape(6, 2, 8).transpose(1, 2, 0).reshape(16, 6), 8,
                     id="every other node"),
        pytest.param(np.arange(96).reshape(3, 4, 8).transpose(1, 2, 0).reshape(32, 3), 8,
                     id="a node of each leaf"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all"])
def test_groups_over_many_nodes_are_shifted(
    library: Library, kind: str, rows: np.ndarray, most: int
) -> None:
    made, shifted, count = made_and_shifted(dgx(), library, kind, rows)
    held_equal(made, shifted)
    assert count == most


def trunk(cluster: Cluster) -> int:
    """Return the first link above the second pod's leaves."""
    return cluster.fabric.uplinks(cluster.fabric.leaves.of[cluster.first_nic(4)])[0]


def test_a_pod_with_a_slow_trunk_is_planned_by_itself() -> None:
    cluster = dgx()
    slow = copy.copy(cluster)
    capacity = cluster.links.capacity.copy()
    capacity[trunk(cluster)] /= 64
    slow.links = replace(cluster.links, capacity=capacity)
    rows = np.stack((np.arange(32), np.arange(32) + 32), axis=1)  # the first pod to the second
    rows = np.concatenate((rows, rows + 32, (rows + 64) % 96))
    made, shifted, count = made_and_shifted(slow, Ideal(), "send_recv", rows)
    held_equal(made, shifted)
    assert count == 24  # by place, and by whether the slow trunk is that of the first or second
    assert len({plan.idle for plan in made}) == 2


def test_pods_below_other_spines_are_reached_over_the_cores() -> None:
    cluster = Cluster.preset(
        "dgx-h100", nodes=16,
        fabric={"kind": "fat_tree", "nodes_per_leaf": 2, "radix": 4, "oversubscription": 1},
    )  # fmt: skip
    assert max(cluster.fabric.leaves.group) > 0
    step = np.arange(16)
    pairs = np.stack((8 * step, 8 * ((step + 3) % 16)), axis=1)
    made, shifted, count = made_and_shifted(cluster, Ideal(), "send_recv", pairs)
    held_equal(made, shifted)
    assert count < 5
    rows = np.arange(128).reshape(2, 2, 4, 8).transpose(2, 3, 0, 1).reshape(32, 4)
    made, shifted, count = made_and_shifted(cluster, Nccl(), "all_reduce", rows)
    held_equal(made, shifted)
    assert count == 8


def test_switches_of_a_torus_are_unlike_each_other() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=8, fabric={"kind": "torus", "dims": [2, 4]})
    for kind, rows, most in (
        ("send_recv", np.stack((np.arange(32), np.arange(32) + 32), axis=1), 32),
        ("all_reduce", np.arange(64).reshape(8, 8), 1),
        ("all_reduce", np.arange(64).reshape(8, 8).T, 8),
    ):
        made, shifted, count = made_and_shifted(cluster, Ideal(), kind, rows)
        held_equal(made, shifted)
        assert count <= most


def test_places_that_hold_the_same_are_named_by_the_first() -> None:
    rows = np.array([[3, 3, 1, 3], [2, 1, 2, 1], [5, 4, 3, 2], [0, 0, 0, 0], [1, 2, 2, 1]])
    assert _first_equal(rows).tolist() == [
        [0, 0, 2, 0], [0, 1, 0, 1], [0, 1, 2, 3], [0, 0, 0, 0], [0, 1, 1, 0],
    ]  # fmt: skip
    assert _first_equal(rows[:, :1]).tolist() == [[0]] * 5


def test_groups_whose_plans_cannot_be_shifted_have_each_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ShiftedPlans, "_shifted", lambda *_, **__: None)
    cluster = dgx()

    def make(request: Request, ranks: tuple[int, ...]) -> Plan:
        plan = Ideal().plan(replace(request, ranks=ranks), cluster)
        return replace(plan, algorithm=str(ranks))

    rows = np.concatenate((NODES[:3], np.arange(8 * 8, 9 * 8)[None]))
    found = ShiftedPlans(cluster, make).plans(Request("all_reduce", 1 << 20, ()), rows)
    names = [found.templates[at].algorithm for at in found.of.tolist()]
    assert names == [str(tuple(row)) for row in rows.tolist()]


class OverSwitch(Ideal):
    """Plans whose first link is one between switches of a torus."""

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        assert cluster is not None
        plan = super().plan(request, cluster)
        part = plan.parts[0]
        link = part.phases[0].link.copy()
        link[-1] = len(cluster.links) - 1
        phases = (replace(part.phases[0], link=link), *part.phases[1:])
        return replace(plan, parts=(replace(part, phases=phases), *plan.parts[1:]))


def test_a_plan_within_a_node_that_uses_a_switch_is_made_for_each_node() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=8, fabric={"kind": "torus", "dims": [2, 4]})
    assert Shifts(cluster).pods_differ
    made, shifted, count = made_and_shifted(cluster, OverSwitch(), "all_reduce", NODES[:8])
    held_equal(made, shifted)
    assert count == 9  # one to find that it cannot be shifted


@pytest.mark.parametrize("differs", ["joins", "leaves"])
def test_plans_that_differ_in_a_later_part_alone_have_other_exits(differs: str) -> None:
    """Of the first two plans only the second part is unlike; the third has one part, as both."""
    none, times = np.zeros(2, np.int64), np.array([0, 5])
    one = PlanPart((), none, none)
    plans = [
        Plan(parts, Start.ALL, 2)
        for parts in ((one, one), (one, replace(one, **{differs: times})), (one,))
    ]
    found = _exits(OrbitPlans(tuple(plans), np.array([0, 1, 2, 1]), entries_of(())))
    assert found.shape == (4, 2)
    assert (found[0] == found[2]).all()
    assert (found[1] == found[3]).all()
    assert (found[0] == found[1]).tolist() == [True, False]
