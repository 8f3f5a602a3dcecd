"""What a size comes to, of a step that is known."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

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
