"""The bytes that a step sends between nodes, of a cluster of a few links and plans by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from commsim.libraries import Request
from commsim.study.advise.traffic import AxisGroups, StepTraffic
from commsim.workload import Work
from commsim.workload.training.work_items import COMPUTE, EXCHANGE, WorkItem

PS = 10**12
PROBE = 2**26
NAMES = ["node0/nic0->leaf0", "leaf0->node0/nic0", "node0/gpu0->node0/nvswitch", "leaf0->spine0",
         "node1/nic0->leaf0"]  # fmt: skip
KINDS = ["network", "network", "nvlink", "network", "network"]
CAPACITY = [1e9, 9e9, 9e9, 9e9, 3e9]
"""Bytes a second: the two NICs send 4e9 together."""


class Planned:
    """Each pair that sends over node0's NIC sends its size; a group also over links within."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def plan(self, request: Request, cluster: Any) -> Any:
        self.asked.append(request)
        size, kernel = float(request.size), [5] if request.size == PROBE else []
        phases = [
            SimpleNamespace(link=np.array([0, 2]), load=np.array([size, 7 * size])),
            SimpleNamespace(
                link=np.array([4, *kernel]), load=np.array([2 * size, *[90 * size for _ in kernel]])
            ),
        ]
        return SimpleNamespace(idle=0, parts=[SimpleNamespace(phases=phases)])


def traffic(out: bool = True) -> Any:
    links = SimpleNamespace(
        names=NAMES, kinds=KINDS if out else ["nvlink"] * 5, capacity=np.array(CAPACITY)
    )
    return StepTraffic(SimpleNamespace(links=links), Planned())  # type: ignore[arg-type]


def test_only_what_leaves_a_node_counts() -> None:
    """Three bytes for each of a request over NICs that send 4e9 bytes a second."""
    made = traffic()
    assert made._bytes("all_reduce", 100, (0, 1)) == 300.0
    assert made._seconds("all_reduce", 4 * 10**9, (0, 1)) == pytest.approx(3.0)
    made._bytes("all_reduce", 100, (0, 1))
    assert len(made._library.asked) == 2


def test_groups_together_are_held_up_by_their_busiest_link() -> None:
    """Of three groups: 3 x size over node0's NIC at 1e9, 21 within at 9e9, 6 over node1's at 3e9.

    Link 5 is the kernel's, not the cluster's.
    """
    made = traffic()
    rows = [(0, 1), (2, 3), (4, 5)]
    took = made.together("all_gather", 10**9, lambda: rows, key="x")
    assert took == pytest.approx(3 * PS, rel=1e-9)
    assert made.together("all_gather", 2 * 10**9, None, key="x") == pytest.approx(6 * PS, rel=1e-9)
    assert {request.size for request in made._library.asked} == {PROBE}
    two = made.together("all_gather", 10**9, lambda: rows[:2], key="y")
    assert two == pytest.approx(2 * PS, rel=1e-9)


def item(kind: str, size: int = 30, unit: int = 0) -> WorkItem:
    return WorkItem(unit, "", 0, kind, size=size, axis="cp")


def test_what_a_rank_sends_for_an_item() -> None:
    """A group of three sends three bytes a byte; a ring is three pairs."""
    made = traffic()
    assert made._item(item("all_gather"), (0, 1, 2)) == 30.0
    assert made._item(item("all_to_all_skewed"), (0, 1, 2)) == 30.0
    assert [request.kind for request in made._library.asked] == ["all_gather", "all_to_all"]
    made._library.asked.clear()
    assert made._item(item(EXCHANGE), (0, 1, 2)) == 3 * 90.0 / 3
    assert [request.ranks for request in made._library.asked] == [(0, 1), (1, 2), (2, 0)]


def test_items_of_a_unit_count_for_every_layer_of_it() -> None:
    made = traffic()
    groups: Any = SimpleNamespace(ranks=lambda axis: (0, 1, 2))
    items = (item("all_gather"), item(COMPUTE), item("all_gather", unit=1), item("reduce", 60))
    assert made._sent(items, (4, 2), groups, {}) == 4 * 30 + 2 * 30 + 4 * 60


def plan(**more: Any) -> Any:
    """Eight ranks in two stages; each stage's unit has 12 entries of parameters, 40 of experts."""
    unit = SimpleNamespace(entries=lambda expert: 40 if expert else 12)
    fixed = {
        "layout": SimpleNamespace(world=8, degree=lambda axis: {"pp": 2}[axis]),
        "stages": [SimpleNamespace(units=[unit]), SimpleNamespace(units=[unit])],
        "gradient_width": 4, "width": 2, "sharers": 4, "microbatches": 6, "boundary": 10,
        "parameter_gathers": 5, "gradient_reductions": 3,
    }  # fmt: skip
    data = more.pop("data", {"kind": "ddp"})
    fixed["section"] = SimpleNamespace(data_parallel=SimpleNamespace(
        **{"stage": 1, "no_sync": True, "shard": "all"} | data))  # fmt: skip
    return SimpleNamespace(**fixed | more)


class Groups:
    """Four replicas, experts in two groups; HSDP's shards are of two ranks."""

    def __init__(self, dp: int = 4, edp: int = 1) -> None:
        self.of = {"dp": tuple(range(dp)), "edp": tuple(range(edp)), "pp": (0, 4)}

    def ranks(self, axis: str) -> tuple[int, ...]:
        return self.of[axis]

    def shard(self, size: int) -> tuple[int, ...]:
        return self.of["dp"][:size]

    def between(self, size: int) -> tuple[int, ...]:
        return self.of["dp"][::size]


def shared(groups: Groups | None = None, **data: Any) -> float:
    """Return the bytes of a group that replicas share, over those of one request."""
    made = traffic()
    found = made.sharing(plan(data=data), groups or Groups())
    return float(found * 4e9 / 3)


def test_what_replicas_share_of_dense_parameters() -> None:
    """24 entries, of 4 bytes as gradients and 2 as parameters; a group of four for each stage."""
    assert shared(kind="ddp") == pytest.approx(24 * 4)
    assert shared(kind="zero") == pytest.approx(24 * 4 + 24 * 2)
    assert shared(kind="zero", stage=2, no_sync=True) == pytest.approx(24 * 6)
    assert shared(kind="zero", stage=3, no_sync=False) == pytest.approx(24 * 6)
    assert shared(kind="zero", stage=2, no_sync=False) == pytest.approx(6 * 24 * 4 + 24 * 2)
    assert shared(kind="fsdp") == pytest.approx(5 * 24 * 2 + 3 * 24 * 4)
    assert shared(Groups(dp=2), kind="ddp") == pytest.approx(2 * 24 * 4)  # two groups a stage


def test_what_replicas_share_of_experts_too() -> None:
    """80 entries between two holders, two groups to a stage."""
    assert shared(Groups(edp=2), kind="ddp") == pytest.approx(24 * 4 + 2 * 80 * 4)
    assert shared(Groups(edp=4), kind="ddp") == pytest.approx(24 * 4 + 80 * 4)


def test_hsdp_shares_within_each_copy_and_its_gradients_between_them() -> None:
    """Two copies of two shards: gathers and reductions of each; 48 bytes between, twice."""
    between = 3 * 2 * 48
    inside = 2 * (5 * 24 * 2 + 3 * 24 * 4)
    assert shared(kind="hsdp", shard=2) == pytest.approx(between + inside)
    assert shared(Groups(edp=4), kind="hsdp", shard=2) == pytest.approx(between + inside)


def test_nothing_is_shared_by_one_replica_or_on_a_node() -> None:
    assert traffic().sharing(plan(sharers=1), Groups()) == 0.0
    assert traffic(out=False).sharing(plan(), Groups()) == 0.0
    assert traffic(out=False).inside(plan(), None, None) == 0.0


def test_messages_between_stages_go_both_ways_once_a_microbatch() -> None:
    """Pipes (0, 1) and (0, 1, 0): one and two crossings, 30 bytes each way, three microbatches."""
    given = plan(schedule=SimpleNamespace(pipes=[[0, 1], [0, 1, 2]], home={0: 0, 1: 1, 2: 0}))
    assert traffic()._boundaries(given, Groups()) == 3 * (2 * 30) * 3 * 8 / 2
    given.schedule.pipes = [[0, 2], [0, 1]]  # two stages of one device need no message
    assert traffic()._boundaries(given, Groups()) == 1 * (2 * 30) * 3 * 8 / 2


def test_what_is_sent_inside_a_step() -> None:
    """By a rank 5 bytes a forward and 7 a backward of stage 0, ten times as many of stage 1; four
    ranks to a stage; and what goes between the stages, over 4e9 bytes a second."""
    actions: Any = SimpleNamespace(of_each=lambda timed: {Work.F: [5, 50], Work.B: [7, 70]})

    def action(work: Work, stage: int) -> Any:
        return SimpleNamespace(work=work, stage=stage)

    schedule = SimpleNamespace(
        actions=[[action(Work.F, 0), action(Work.F, 0), action(Work.B, 0)], [action(Work.B, 1)]],
        pipes=[[0, 1]], home=[0, 1],
    )  # fmt: skip
    given = plan(schedule=schedule)
    between = 2 * 30 * 6 * 8 / 2
    found = traffic().inside(given, actions, Groups())
    assert found == pytest.approx((4 * (5 + 5 + 7 + 70) + between) / 4e9)


def test_rows_of_an_axis_are_those_of_the_first_stage() -> None:
    """Eight ranks: pairs of a ring, the replicas of each, and the stages of every pipeline."""
    layout = {
        "cp": np.array([[0, 1], [2, 3], [4, 5], [6, 7]]),
        "pp": np.array([[0, 4], [1, 5], [2, 6], [3, 7]]),
    }
    made: Any = object.__new__(AxisGroups)
    made._same = np.array([[0], [4]])
    made.layout = SimpleNamespace(
        groups=layout.__getitem__, replicas=lambda: np.array([[0, 2], [1, 3], [4, 6], [5, 7]]),
        places=lambda: {"pp": np.array([0, 0, 0, 0, 1, 1, 1, 1])},
    )  # fmt: skip
    assert made.rows("cp") == [(0, 1), (2, 3)]
    assert made.rows("ring") == [(0, 1), (1, 0), (2, 3), (3, 2)]
    assert made.rows("dp") == [(0, 2), (1, 3)]
    assert made.rows("edp") == [(0,)]
    assert made.hops(1, 0) == [(4, 0), (5, 1), (6, 2), (7, 3)]
