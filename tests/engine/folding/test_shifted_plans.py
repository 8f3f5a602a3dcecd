"""A plan that is shifted to other nodes is the plan that would be made there."""

from __future__ import annotations

import copy
from dataclasses import fields, replace

import numpy as np
import pytest

from commsim.cluster import Cluster
from commsim.engine.folding.shifted_plans import ShiftedPlans
from commsim.libraries import Ideal, Library, Plan, Request
from commsim.libraries.nccl import Nccl

FABRIC = {"kind": "rail_optimized", "nodes_per_leaf": 4}


def dgx(nodes: int = 12, **fabric: object) -> Cluster:
    return Cluster.preset("dgx-h100", nodes=nodes, fabric={**FABRIC, **fabric})


def made_and_shifted(
    cluster: Cluster, library: Library, kind: str, rows: np.ndarray
) -> tuple[list[Plan], list[Plan], int]:
    """Return the plans of groups, each made by itself; shifted ones; and how many were made."""
    asked: list[tuple[int, ...]] = []

    def make(ranks: tuple[int, ...]) -> Plan:
        asked.append(ranks)
        return library.plan(Request(kind, 3 << 20, ranks), cluster)

    shifted = ShiftedPlans(cluster).plans(rows, make)
    count = len(asked)
    return [make(tuple(row)) for row in rows.tolist()], shifted, count


def held_equal(made: list[Plan], shifted: list[Plan]) -> None:
    for a, b in zip(made, shifted, strict=True):
        for fact in fields(Plan):
            if fact.name not in ("parts", "programs"):
                assert getattr(a, fact.name) == getattr(b, fact.name)
        for mine, theirs in zip(a.parts, b.parts, strict=True):
            assert mine.joins.tolist() == theirs.joins.tolist()
            assert mine.leaves.tolist() == theirs.leaves.tolist()
            for p, q in zip(mine.phases, theirs.phases, strict=True):
                assert (p.idle, p.lead, p.tail) == (q.idle, q.lead, q.tail)
                assert p.link.tolist() == q.link.tolist()
                assert p.load == pytest.approx(q.load, rel=1e-12)
                assert p.conns == pytest.approx(q.conns, rel=1e-12)


PAIRS = np.stack((np.arange(64), np.arange(64) + 32), axis=1)
BACK = PAIRS[:, ::-1]
CROSSED = np.stack((np.arange(64), (np.arange(64) + 35) % 96), axis=1)
NODES = np.arange(96).reshape(12, 8)
HALVES = np.arange(96).reshape(6, 16)


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


def test_a_group_over_three_nodes_is_made_as_it_is() -> None:
    rows = np.arange(96).reshape(4, 24)
    made, shifted, count = made_and_shifted(dgx(), Ideal(), "all_reduce", rows)
    held_equal(made, shifted)
    assert count == len(rows)
