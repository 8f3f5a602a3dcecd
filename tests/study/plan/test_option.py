"""What a size comes to, of a step that is known."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.follow import unfollowed
from commsim.study.advise.layouts import Candidate, Degrees
from commsim.study.plan.option import PlanOption, Sized, _times

LAYOUT = Candidate(Degrees(8, 1, 1, 1, 1), "1f1b", 1, 1, "none", "ddp")


def made(
    monkeypatch: pytest.MonkeyPatch, *, goodput: float | None = None, power: float | None = 2000.0,
    price: Any = ("EUR", 50.0),
) -> PlanOption:  # fmt: skip
    """Return the option of steps of 2 s, 43,200 of them: a day."""
    module = sys.modules["commsim.study.plan.option"]
    monkeypatch.setattr(module, "with_settings", lambda data, settings: data | settings)
    monkeypatch.setattr(module, "waits_for", lambda metrics: ["much"])
    size: Any = SimpleNamespace(
        _question=SimpleNamespace(steps=43_200, data=lambda kind, nodes: {"n": nodes}),
        _layouts=SimpleNamespace(settings=lambda one: {"micro": one.micro}),
        _goodput=lambda one, step: None if goodput is None else SimpleNamespace(goodput=goodput),
        _power=power, price=price, kind=SimpleNamespace(name="k", paid=lambda nodes: nodes + 1),
        nodes=3, gpus=24, bought=7.0,
    )  # fmt: skip
    size.cost_of = lambda days: Sized.cost_of(size, days)
    metrics: Any = SimpleNamespace(step_time_s=2.0, mfu=0.4)
    return Sized._option(size, LAYOUT, metrics, 70.5)


def test_days_money_and_energy_of_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """24 hours at 50 an hour and 2 kW."""
    one = made(monkeypatch)
    assert (one.days, one.cost, one.energy_kwh) == (1.0, 1200.0, 48.0)
    assert (one.nodes, one.paid_nodes, one.gpus, one.memory_gib) == (3, 4, 24, 70.5)
    assert (one.scenario, one.waits, one.goodput) == ({"n": 3, "micro": 1}, ("much",), None)
    assert (one.currency, one.per_hour, one.step_s) == ("EUR", 50.0, 2.0)


def test_failures_make_it_longer_and_no_progress_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    half = made(monkeypatch, goodput=0.5)
    assert (half.days, half.cost, half.energy_kwh, half.goodput) == (2.0, 2400.0, 96.0, 0.5)
    assert made(monkeypatch, goodput=0.0).days == float("inf")


def test_what_is_not_known_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    one = made(monkeypatch, power=None, price=None)
    assert (one.cost, one.energy_kwh, one.currency, one.per_hour) == (None, None, None, None)
    assert _times(1.5, ("EUR", 4.0)) == ("EUR", 6.0)
    assert _times(1.5, None) is None


class Layouts:
    """The layouts of three nodes of eight GPUs: so many days of steps each, in this order."""

    remarks, causal_share, stack = ("a remark",), 0.5, "megatron"
    cluster = SimpleNamespace(world_size=24)

    def __init__(self, *steps: float) -> None:
        self.left = list(steps)

    def run_next(self, follow: Any) -> Any:
        assert follow is unfollowed
        if not self.left:
            return None
        metrics = SimpleNamespace(step_time_s=self.left.pop(0), mfu=0.4)
        micro = len(self.left)
        return SimpleNamespace(
            candidate=LAYOUT._replace(micro=micro), metrics=metrics, memory=3 * 2**30
        )

    def settings(self, one: Candidate) -> dict[str, int]:
        return {"micro": one.micro}

    def bound(self) -> float | None:
        return min(self.left, default=None)

    floor = bound


def sized(
    monkeypatch: pytest.MonkeyPatch, *steps: float, bill: Any = (100.0, 200.0), priced: bool = True
) -> Any:
    """Return three nodes, for which four are paid: 300 to buy, 12 an hour and 6 kW for three."""
    module = sys.modules["commsim.study.plan.option"]
    for name, stands in {
        "with_settings": lambda data, settings: data | settings, "waits_for": lambda metrics: [],
        "LayoutQueue": lambda scenario, usual, executor: Layouts(*steps),
        "bill_of": lambda cluster: [SimpleNamespace(total=total) for total in bill],
        "hourly_price": lambda cluster: ("EUR", 12.0) if priced else None,
        "rated_power": lambda cluster: 6000.0 if priced else None,
    }.items():  # fmt: skip
        monkeypatch.setattr(module, name, stands)
    workload = SimpleNamespace(training=None)
    scenario = SimpleNamespace(file=SimpleNamespace(goodput=None, workload=workload))
    question: Any = SimpleNamespace(
        steps=43_200, data=lambda kind, nodes: {"n": nodes}, scenario=lambda kind, nodes: scenario
    )
    kind: Any = SimpleNamespace(name="k", paid=lambda nodes: nodes + 1)
    return Sized(question, kind, 3, usual=True)


def test_whole_racks_are_paid_bought_and_powered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four nodes for three: 400 to buy, 16 an hour and 8 kW."""
    made = sized(monkeypatch, 2.0)
    assert (made.bought, made.price, made.gpus) == (400.0, ("EUR", 16.0), 24)
    assert (made.bound_days(), made.floor_days(), made.cost_of(1.0)) == (1.0, 1.0, 384.0)
    one = made.run_next()
    assert (one.days, one.cost, one.energy_kwh, one.memory_gib) == (1.0, 384.0, 8 * 24.0, 3.0)
    assert (one.paid_nodes, one.bought, one.per_hour) == (4, 400.0, 16.0)
    assert (made.bound_days(), made.floor_days()) == (None, None)
    bare = sized(monkeypatch, bill=(), priced=False)
    assert (bare.bought, bare.price, bare.cost_of(1.0)) == (None, None, None)


def test_the_first_of_the_fastest_layouts_is_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is run whole once, as it stands in its scenario."""
    made = sized(monkeypatch, 3.0, 2.0, 2.0, 4.0)
    made.run_whole(unfollowed)
    assert made.best is None
    while made.run_next() is not None:
        pass
    first: Any = made.best
    assert (first.days, first.scenario) == (1.0, {"n": 3, "micro": 2})
    asked: list[Any] = []

    def run(scenario: Any, *, follow: Any) -> Any:
        asked.append((scenario, follow))
        memory = {"peak": 3.5, "fits": True}
        return SimpleNamespace(
            metrics=SimpleNamespace(step_time_s=2.02, mfu=0.39, memory_gib=memory)
        )

    monkeypatch.setattr(sys.modules["commsim.study.plan.option"], "run", run)
    made.run_whole(unfollowed)
    made.run_whole(unfollowed)
    assert asked == [({"n": 3, "micro": 2}, unfollowed)]
    best: Any = made.best
    assert (best.whole, best.step_s, best.memory_gib, best.layout) == (
        True, 2.02, 3.5, LAYOUT._replace(micro=2).name,
    )  # fmt: skip
