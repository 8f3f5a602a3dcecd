"""Which layouts are looked at more closely, and which are simulated: of bounds made by hand."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.models import MemoryUse
from commsim.study.advise.advise import _below_floors, _shortened, _untried
from commsim.study.advise.judge import Judged
from commsim.study.advise.layouts import Candidate, Degrees
from commsim.study.advise.search import SLACK, Known, Search, search

DP, TP = Degrees(8, 1, 1, 1, 1), Degrees(4, 2, 1, 1, 1)


def layout(degrees: Degrees = DP, micro: int = 1, shard: str = "ddp") -> Candidate:
    return Candidate(degrees, "1f1b", 1, micro, "none", shard)


def judged(one: Candidate, floor: float = 1.0, *, need: int = 1) -> Judged:
    return Judged(one, MemoryUse(need, 0, 0, 0), 0, 100, floor)


class Judge:
    """Two degrees with two and three ways to shard, and what is said of each layout."""

    shape = None
    recomputes = ("none", "full")

    def __init__(self) -> None:
        self.bounds: dict[Degrees, list[tuple[float, Candidate, int]]] = {}
        self.floors: dict[Candidate, float] = {}
        self.needs: dict[tuple[Degrees, str, str], int] = {}
        self.asked: list[Any] = []

    def degrees(self) -> list[Degrees]:
        return [DP, TP]

    def shardings(self, degrees: Degrees) -> list[str]:
        return ["ddp", "fsdp"] if degrees == DP else ["ddp", "zero-1", "fsdp"]

    def relaxed(self, degrees: Degrees) -> list[tuple[float, Candidate, int]]:
        return self.bounds.get(degrees, [])

    def variants(self, shape: Candidate) -> list[tuple[float, Candidate]]:
        return [(2.0, shape), (3.0, shape._replace(recompute="full"))]

    def ways(self, shape: Candidate) -> list[Judged]:
        found = [shape._replace(shard=shard) for shard in self.shardings(shape.degrees)]
        return [judged(one, self.floors[one]) for one in found if one in self.floors] + [
            judged(one, need=1000) for one in found if one not in self.floors
        ]

    def least(self, degrees: Degrees, shard: str, recompute: str) -> Judged | None:
        self.asked.append((degrees, shard, recompute))
        need = self.needs.get((degrees, shard, recompute))
        return judged(layout(degrees, shard=shard), need=need) if need else None

    def one(self, candidate: Candidate) -> Judged | None:
        self.asked.append(candidate)
        return judged(candidate, self.floors[candidate]) if candidate in self.floors else None

    def section(self, candidate: Candidate) -> Candidate:
        return candidate


def new(judge: Judge | None = None) -> Search:
    return Search(judge or Judge())  # type: ignore[arg-type]


def test_what_is_considered_is_every_way_to_shard_every_variant() -> None:
    """Two ways of 2 + 3 layouts, three ways of 4."""
    judge, ticks = Judge(), list[int]()
    judge.bounds = {
        DP: [(3.0, layout(), 2), (2.0, layout(micro=2), 3)], TP: [(1.0, layout(TP), 4)],
    }  # fmt: skip
    found = new(judge)
    found.open(lambda: ticks.append(1))
    assert (found.considered, len(ticks)) == (2 * (2 + 3) + 3 * 4, 2)
    assert [heapq.heappop(found.queue) for _ in range(3)] == [
        (seconds / SLACK, one, Known.RELAXED)
        for seconds, one in ((1.0, layout(TP)), (2.0, layout(micro=2)), (3.0, layout()))
    ]


def test_a_relaxed_layout_becomes_its_variants_and_a_bound_what_fits_of_its_ways() -> None:
    judge = Judge()
    judge.needs[DP, "fsdp", "none"] = 50
    judge.floors[layout(shard="fsdp")] = 4.0
    found = new(judge)
    found.expand(layout(), Known.RELAXED)
    assert sorted(found.queue) == [
        (2.0 / SLACK, layout(), Known.BOUND),
        (3.0 / SLACK, layout()._replace(recompute="full"), Known.BOUND),
    ]
    found.queue.clear()
    found.expand(layout(), Known.BOUND)
    assert found.queue == [(4.0 / SLACK, layout(shard="fsdp"), Known.FLOOR)]
    assert set(found.judged) == {layout(), layout(shard="fsdp")}


@pytest.mark.parametrize(("need", "fits"), [(100, True), (101, False), (0, False)])
def test_degrees_where_nothing_fits_are_left_out(need: int, fits: bool) -> None:
    """Recomputing all, which needs least, is asked first; the answer is kept."""
    judge = Judge()
    judge.needs[DP, "fsdp", "full"] = need
    found = new(judge)
    for _ in range(2):
        found.expand(layout(), Known.RELAXED)
    assert len(found.queue) == (4 if fits else 0)
    assert judge.asked[:2] == [(DP, "ddp", "full"), (DP, "fsdp", "full")]
    assert len(judge.asked) == (2 if fits else 4)


def test_a_layout_is_judged_once() -> None:
    judge = Judge()
    judge.floors[layout()] = 1.5
    found = new(judge)
    assert found.known(layout()) == found.known(layout()) == judged(layout(), 1.5)
    assert found.known(layout(TP)) is None
    assert judge.asked == [layout(), layout(TP)]


def test_the_floor_of_what_was_not_simulated() -> None:
    """Relaxed layouts are looked at more closely before they say anything."""
    judge = Judge()
    judge.needs = {(DP, "ddp", "none"): 50, (DP, "fsdp", "full"): 200}
    found = new(judge)
    done, left, better = layout(micro=2), layout(micro=4), layout(micro=8)
    found.push(1.0, layout(), Known.RELAXED)
    found.push(1.9, done, Known.FLOOR)
    found.push(5.0, left, Known.FLOOR)
    found.push(6.0, better, Known.ESTIMATE)
    found.ran[done] = None  # type: ignore[assignment]
    assert found.floor(lambda one: one.micro in (2, 4)) == 5.0
    assert found.floor(lambda one: one.micro == 8) == 6.0
    assert found.floor(lambda one: one.micro == 2) == float("inf")
    assert found.floor(lambda one: one.micro == 1 and one.shard == "fsdp") == float("inf")
    assert (1.0, layout(), Known.RELAXED) in found.queue
    assert found.floor(lambda one: one.micro == 1 and one.shard == "ddp") == 2.0 / SLACK
    assert (1.0, layout(), Known.RELAXED) not in found.queue


def test_the_layout_that_needs_least() -> None:
    judge = Judge()
    judge.needs = {(DP, "ddp", "none"): 50, (DP, "fsdp", "full"): 30, (TP, "zero-1", "none"): 40}
    found = new(judge)
    assert len(list(found.smallest())) == 3
    assert [one.use.total for one in found.smallest(lambda one: one.degrees == TP)] == [40]
    found.judged[layout(TP, 2)] = judged(layout(TP, 2), need=35)
    least = found.least(lambda one: one.degrees == TP)
    assert least is not None
    assert (least.use.total, least.candidate.micro) == (35, 2)
    assert found.least(lambda one: one.shard == "hsdp-8") is None


class Pool:
    """Says what runs and estimates take, and keeps in which order they were begun and asked for."""

    def __init__(self, steps: dict[Candidate, float], guesses: dict[Candidate, float]) -> None:
        self.steps, self.guesses = steps, guesses
        self.begun: list[Candidate] = []

    def run(self, one: Candidate) -> Callable[[], Any]:
        self.begun.append(one)
        step = self.steps[one]
        metrics = SimpleNamespace(step_time_s=abs(step))
        return lambda: SimpleNamespace(candidate=one, metrics=metrics, fits=step > 0)

    def estimate(self, one: Candidate) -> Callable[[], float]:
        return lambda: self.guesses[one]


def searched(
    monkeypatch: pytest.MonkeyPatch, floors: dict[Candidate, float], steps: dict[Candidate, float],
    guesses: Any = (), *, top: int, most: int = 300,
) -> tuple[Search, list[Candidate]]:  # fmt: skip
    """Return a search and what it simulated; a step below zero does not fit after all."""
    module, guesses = sys.modules["commsim.study.advise.search"], dict(guesses)
    monkeypatch.setattr(module, "worth", lambda shape, section: section in guesses)
    monkeypatch.setattr(module, "MOST", most)
    found, pool, ticks = new(), Pool(steps, guesses), list[int]()
    for one, floor in floors.items():
        found.push(floor, one, Known.FLOOR)
    search(pool, found, top=top, tick=lambda: ticks.append(1))  # type: ignore[arg-type]
    assert len(ticks) == len(pool.begun) + found.estimated
    assert list(found.ran) == pool.begun
    return found, pool.begun


LAYOUTS = [layout(micro=micro) for micro in range(1, 10)]


def simulated(
    monkeypatch: pytest.MonkeyPatch, floors: list[float], steps: list[float], **settings: int
) -> int:
    """Return how many were simulated, which must be those with the lowest floors."""
    given = dict(zip(LAYOUTS, floors, strict=False))
    ran = dict(zip(LAYOUTS, steps, strict=False))
    _, begun = searched(monkeypatch, given, ran, **settings)
    assert begun == LAYOUTS[: len(begun)]
    return len(begun)


def test_four_runs_are_begun_before_the_first_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slowest of the two best is known when the second is: the sixth has begun by then."""
    steps = [4.0, 3.0, *[9.0] * 7]
    floors = [1.0, 2.0, 3.0, 3.5, 3.6, 3.7]
    assert simulated(monkeypatch, [*floors, 4.1, 4.2, 4.3], steps, top=2) == 6
    assert simulated(monkeypatch, [*floors, 4.0, 4.2, 4.3], steps, top=2) == 7  # as fast, it may be
    assert simulated(monkeypatch, [*floors, 4.1, 4.2, 4.3], steps, top=1) == 6
    assert simulated(monkeypatch, [*floors, 3.9, 3.9, 3.9], steps, top=1) == 6
    assert simulated(monkeypatch, [*floors, 4.1, 4.2, 4.3], steps, top=3) == 9
    assert simulated(monkeypatch, floors, steps, top=9) == 6
    assert simulated(monkeypatch, [], steps, top=1) == 0


def test_a_run_that_does_not_fit_is_none_of_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    floors = [1.0, 2.0, 3.0, 3.5, 3.6, 3.7, 4.1, 4.2, 6.0]
    assert simulated(monkeypatch, floors, [-4.0, *[5.0] * 8], top=1) == 8
    assert simulated(monkeypatch, floors, [4.0, *[5.0] * 8], top=1) == 6


def test_no_more_are_simulated_than_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    floors = [float(floor) for floor in range(9)]
    for most in (1, 3, 8):
        assert simulated(monkeypatch, floors, [99.0] * 9, top=2, most=most) == most
    assert simulated(monkeypatch, floors, [99.0] * 9, top=2, most=10) == 9


@pytest.mark.parametrize(
    ("shard", "guess", "runs"),
    [("ddp", 50.2, True), ("ddp", 50.3, False), ("zero-2", 50.9, True), ("zero-2", 51.1, False)],
)
def test_an_estimate_leaves_hope_up_to_what_it_may_be_off(
    monkeypatch: pytest.MonkeyPatch, shard: str, guess: float, runs: bool
) -> None:
    """A run of 50 s: an estimate of 50.25 could be one of 50, of ZeRO-2 one of 51."""
    sure, guessed = layout(TP), layout(shard=shard)
    found, begun = searched(
        monkeypatch, {sure: 1.0, guessed: 2.0}, {sure: 50.0, guessed: 60.0}, {guessed: guess},
        top=1,
    )  # fmt: skip
    assert found.estimated == 1
    assert begun == ([sure, guessed] if runs else [sure])


def test_what_was_left_out_with_hope_is_told() -> None:
    queue = [(seconds, layout(), known) for seconds, known in (
        (1.0, Known.RELAXED), (1.0, Known.BOUND), (1.0, Known.FLOOR), (2.0, Known.ESTIMATE),
        (2.1, Known.FLOOR),
    )]  # fmt: skip

    def told(ran: int, slowest: float) -> tuple[str, ...]:
        return _untried(SimpleNamespace(queue=queue, ran=range(ran)), slowest)  # type: ignore[arg-type]

    assert told(300, 2.0) == (
        "2 more layouts have floors under the last of these, and were not simulated: the 300 with"
        " the lowest floors were",
    )
    assert told(300, 0.5) == told(299, 2.0) == ()
    assert told(301, 2.0)[0].startswith("2 more")


def test_runs_faster_than_their_floors_are_told() -> None:
    def told(*steps: float) -> tuple[str, ...]:
        ran = {at: SimpleNamespace(candidate=at, metrics=SimpleNamespace(step_time_s=step))
               for at, step in enumerate(steps)}  # fmt: skip
        floors = {at: SimpleNamespace(floor=SLACK) for at in ran}
        return _below_floors(SimpleNamespace(ran=ran, judged=floors))  # type: ignore[arg-type]

    assert told(1.0, 1.2) == ()
    assert told(0.9, 0.95, 1.0) == (
        "2 simulated layouts were up to 10.0% faster than their floors",
    )


def test_steps_that_were_shortened_are_counted() -> None:
    ran: Any = [SimpleNamespace(short=short) for short in (True, False, True)]
    (told,) = _shortened(ran)
    assert told.startswith("2 of those simulated have long steps")
    assert _shortened(ran[1:2]) == ()
