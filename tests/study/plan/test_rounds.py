"""Which sizes are bounded, judged and run for a plan: of sizes whose every figure is known."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from commsim.cluster import ClusterSection
from commsim.follow import unfollowed
from commsim.sections import decode
from commsim.study.plan.option import PlanOption
from commsim.study.plan.search import PlanSearch

DAY = 86400
Layouts = list[tuple[float, float]]
"""The floor of each layout and what a run of it takes, in days; the lowest floor first."""


class Size:
    """So many nodes, each at `rate` a day, and what their layouts take."""

    def __init__(self, nodes: int, layouts: Layouts | None, rate: float | None) -> None:
        self.kind, self.nodes, self.gpus = SimpleNamespace(name="k"), nodes, nodes * 8
        self.layouts, self.rate = list(layouts or ()), rate
        self.bound = min((floor for floor, _ in self.layouts), default=None)
        self.best: PlanOption | None = None
        self.floors = 0
        self.begun: list[int] = []

    def bound_days(self) -> float | None:
        return self.bound

    def floor_days(self) -> float | None:
        self.floors += 1
        return self.layouts[0][0] if self.layouts else None

    def cost_of(self, days: float) -> float | None:
        return None if self.rate is None else self.rate * self.nodes * days

    def begin(self, count: int = 1) -> None:
        self.begun.append(count)

    def run_next(self, follow: Any) -> PlanOption:
        assert follow is unfollowed
        _, days = self.layouts.pop(0)
        option = PlanOption(
            kind="k", nodes=self.nodes, gpus=self.gpus, layout="", step_s=1.0, days=days, mfu=None,
            currency=None, per_hour=None, cost=self.cost_of(days), energy_kwh=None, waits=(),
            scenario={}, memory_gib=1.0,
        )  # fmt: skip
        if self.best is None or days < self.best.days:
            self.best = option
        return option

    def run_whole(self, follow: Any) -> None:
        assert follow is unfollowed
        assert self.best is not None
        self.best = replace(self.best, whole=True)


Searching = Callable[..., tuple[PlanSearch, dict[int, Size]]]


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> Searching:
    """Return a search of sizes by their layouts, and the sizes that it looked at."""

    def made(
        sizes: dict[int, Layouts | None], *, deadline: float | None = 10.0,
        budget: float | None = None, rate: float | None = None, runs: int = 99,
        told: list[str] | None = None,
    ) -> tuple[PlanSearch, dict[int, Size]]:  # fmt: skip
        seen: dict[int, Size] = {}

        def size(question: Any, kind: Any, nodes: int, *, usual: bool, executor: Any) -> Size:
            assert nodes not in seen  # each is made once
            assert usual
            seen[nodes] = Size(nodes, sizes[nodes], rate)
            return seen[nodes]

        monkeypatch.setattr(sys.modules["commsim.study.plan.search"], "Sized", size)
        monkeypatch.setattr(PlanSearch, "_sizes", lambda self, kind: list(sizes))
        question: Any = SimpleNamespace(
            kinds=(SimpleNamespace(name="k"),), budget=budget, most_gpus=1024,
            seconds=None if deadline is None else deadline * DAY,
        )  # fmt: skip
        heard = told if told is not None else []
        found = PlanSearch(
            question, usual=True, runs=runs, progress=heard.append, follow=unfollowed
        )
        return found, seen

    return made


def nodes_of(*options: PlanOption | None) -> list[int | None]:
    return [None if one is None else one.nodes for one in options]


def test_runs_go_upwards_until_one_makes_the_deadline(searching: Searching) -> None:
    """One node takes 12 days at least. Two could take 9, but a run takes 11, and what is left of
    their layouts 10.5. Four make it, and eight, up to twice as many, are faster."""
    told: list[str] = []
    found, sizes = searching(
        {1: [(12, 12)], 2: [(9, 11), (10.5, 10.6)], 4: [(5, 6)], 8: [(3, 3.5)], 9: [(1, 1)]},
        told=told,
    )
    found.run()
    assert nodes_of(*found.winners) == [4, None, 8]
    assert found.at_least == {("k", 1): 12}
    assert (found.simulated, found.runs_left, found.left, found.nothing) == (3, 96, 0, [])
    assert [len(one.layouts) for one in sizes.values()] == [0, 1, 1, 0]
    assert 9 not in sizes
    assert sizes[2].begun == [4]
    assert told == [
        "bounding 4 k", "bounding 2 k", "bounding 1 k", "simulating 2 k, run 1 of at most 99",
        "simulating 4 k, run 2 of at most 99", "bounding 8 k",
        "simulating 8 k, run 3 of at most 99", "running the layout of 4 k (32 GPUs) whole",
        "running the layout of 8 k (64 GPUs) whole",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("floor", "days", "makes"), [(10, 10, True), (9, 10, True), (9, 10.1, False), (10.1, 1, False)]
)
def test_the_last_day_is_in_time(
    searching: Searching, floor: float, days: float, makes: bool
) -> None:
    """A floor above the deadline is kept for what is told, unless a run says more."""
    found, _ = searching({2: [(floor, days)]})
    found.run()
    assert nodes_of(*found.winners) == ([2, None, 2] if makes else [None, None, None])
    assert found.simulated == (floor <= 10)
    assert found.at_least == ({("k", 2): floor} if floor > 10 else {})


def test_what_comes_near_where_nothing_makes_the_deadline(searching: Searching) -> None:
    found, _ = searching({1: [(40, 40)], 2: [(30, 30)], 3: [(31, 31)], 4: None})
    found.run()
    assert found.nothing == ["k: no size up to 1,024 GPUs makes it (2 nodes take at least 30 days)"]
    found, _ = searching({1: None, 2: None})
    found.run()
    assert found.nothing == ["k: no size up to 1,024 GPUs makes it (no layout fits)"]
    assert found.options == []


@pytest.mark.parametrize(
    ("second", "looked_at", "least"),
    [(20, [1, 2, 3], 360), (20.1, [1, 2], 360), (16, [1, 2, 3], 320)],
)
def test_larger_sizes_are_bounded_as_long_as_less_computing_could_pay(
    searching: Searching, second: float, looked_at: list[int], least: float
) -> None:
    """Ten for a node and day, 300 in all: a node takes 36 days. Of what costs up to 4/3 of that a
    larger size may do without recomputing."""
    found, sizes = searching(
        {1: [(36, 36)], 2: [(second, 9)], 3: [(27, 27)]}, deadline=None, budget=300.0, rate=10.0
    )
    found.run()
    assert sorted(sizes) == looked_at
    assert found.nothing == [f"k: no size makes it within the budget (at least {least})"]
    assert found.simulated == 0
    assert not any(one.floors for one in sizes.values())


@pytest.mark.parametrize(("floor", "runs"), [(10.0, 2), (10.1, 0)])
def test_a_floor_beyond_the_budget_is_not_run(
    searching: Searching, floor: float, runs: int
) -> None:
    """A node for ten a day: ten days are all that 100 pay. Its bound is 8 days."""
    found, _ = searching({1: [(floor, 10.0), (8.0, 1.0)]}, budget=100.0, rate=10.0, deadline=20.0)
    found.run()
    assert found.simulated == runs
    assert nodes_of(*found.winners) == ([1] * 3 if runs else [None] * 3)


def test_what_could_be_cheaper_is_run_first_and_then_what_could_be_faster(
    searching: Searching,
) -> None:
    """Ten for a node and day. Four nodes take 9 days: 360. Five could take 6 (300) and take 7
    (350); six could take 5.9 (354), no longer cheaper, but faster; eight cost 400 at least."""
    found, sizes = searching(
        {4: [(8, 9), (8.9, 9)], 5: [(6, 7)], 6: [(5.9, 6)], 8: [(5, 5)]}, rate=10.0
    )
    found.run()
    assert nodes_of(*found.winners) == [4, 5, 8]
    assert found.simulated == 3
    assert [len(sizes[nodes].layouts) for nodes in (4, 5, 6, 8)] == [1, 0, 1, 0]
    assert all(one.best is None or one.best.whole for one in (sizes[4], sizes[5], sizes[8]))
    assert found.left == 0


def test_the_fastest_keeps_to_the_budget(searching: Searching) -> None:
    """Eight nodes would take 380 of 370 in any case."""
    found, _ = searching({4: [(9, 9)], 5: [(7.3, 7.3)], 8: [(4.75, 4.75)]}, rate=10.0, budget=370.0)
    found.run()
    assert nodes_of(*found.winners) == [4, 4, 5]


@pytest.mark.parametrize(("runs", "left"), [(1, 3), (2, 2), (3, 1), (4, 0)])
def test_sizes_with_hope_are_counted_where_runs_are_spent(
    searching: Searching, runs: int, left: int
) -> None:
    """Without prices, after four nodes five, six and eight could each be faster than before."""
    found, _ = searching({4: [(9, 9)], 5: [(6, 8)], 6: [(6.5, 7.5)], 8: [(7, 7)]}, runs=runs)
    found.run()
    assert (found.simulated, found.runs_left, found.left) == (runs, 0, left)


def test_without_runs_the_first_that_has_hope_is_left(searching: Searching) -> None:
    found, _ = searching({4: [(9, 9)]}, runs=0)
    found.run()
    assert (found.simulated, found.left) == (0, 1)
    assert nodes_of(*found.winners) == [None] * 3


def test_the_next_three_are_begun_with_each_run(searching: Searching) -> None:
    """Five sizes could be faster than five nodes; the one with the lowest floor is run."""
    layouts: dict[int, Layouts | None] = {5: [(9, 9)]}
    layouts |= {nodes: [(nodes - 2.0, 8.5)] for nodes in (6, 7, 8, 9, 10)}
    found, sizes = searching(layouts | {3: None})
    found._smallest(found._question.kinds[0])
    for one in sizes.values():
        one.begun.clear()
    found._faster()
    assert {nodes: one.begun for nodes, one in sizes.items() if one.begun} == {
        6: [1], 7: [1, 1], 8: [1, 1, 1], 9: [1, 1, 1, 1], 10: [1, 1, 1, 1],
    }  # fmt: skip


def test_smaller_sizes_of_an_option(searching: Searching) -> None:
    found, _ = searching({1: None, 2: [(9, 9)], 4: [(5, 5)], 8: [(3, 3)]})
    found.run()
    fastest = found.winners[2]
    assert fastest is not None
    assert (fastest.nodes, found.smaller(fastest)) == (4, [1, 2])
    assert (found.deadline, searching({1: None}, deadline=None)[0].deadline) == (10.0, float("inf"))


def test_a_floor_as_long_as_the_fastest_leaves_no_hope(searching: Searching) -> None:
    """Five nodes are bounded by 5 days, and their floor is 6 as well."""
    found, sizes = searching({4: [(6, 6), (9, 9)], 5: [(6, 6), (5, 5)]})
    found.run()
    assert (found.simulated, sizes[5].floors, found.left) == (1, 1, 0)


@pytest.mark.parametrize(("most", "sizes"), [(23, [1, 2]), (24, [1, 2, 3]), (40, [1, 2, 3, 4, 5])])
def test_sizes_go_up_to_the_most_gpus(most: int, sizes: list[int]) -> None:
    """Of nodes of eight; a machine without a network is looked at as one node."""
    cluster = decode({"preset": "dgx-h100"}, ClusterSection, "x")
    one = SimpleNamespace(where="x", file=SimpleNamespace(cluster=cluster))
    question: Any = SimpleNamespace(
        scenario=lambda kind, nodes: {1: one}[nodes], budget=None, most_gpus=most
    )
    found = PlanSearch(question, usual=True, runs=1, progress=lambda _: None, follow=unfollowed)
    assert found._sizes(None) == sizes  # type: ignore[arg-type]
