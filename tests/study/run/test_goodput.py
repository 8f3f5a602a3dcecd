"""Goodput: formulas against months of simulation, textbook limits, published figures."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

import commsim as cs
from commsim.scenario import FailureRates, GoodputSection
from commsim.sections import decode
from commsim.study.run.goodput import (
    Recovery,
    best_interval,
    goodput_of,
    progress,
    simulate_progress,
)
from commsim.study.run.goodput.closed_form import away, longest_interval, standing

HOUR, DAY = 3600.0, 86400.0
MONTHS = 720 * DAY
SYNC = Recovery(rate=1 / (3 * HOUR), blocked=30.0, safe_after=0.0, recover=600.0)


@pytest.mark.share(0.4)
@pytest.mark.parametrize("interval", [300.0, 1200.0, 5400.0])
@pytest.mark.parametrize(
    "one",
    [
        SYNC,
        replace(SYNC, blocked=2.0, safe_after=240.0),
        replace(SYNC, rate=1 / HOUR, blocked=60.0, recover=900.0),
        replace(SYNC, rate=1 / (40 * HOUR)),
    ],
)
def test_the_closed_form_is_what_months_come_to(one: Recovery, interval: float) -> None:
    found = simulate_progress(one, interval, MONTHS, seed=3)
    assert progress(one, interval) == pytest.approx(found, rel=0.02)


@pytest.mark.parametrize("spares", [0, 2])
@pytest.mark.parametrize("elastic", [False, True])
def test_repairs_and_spares_are_what_months_come_to(spares: int, elastic: bool) -> None:
    """A failure in 6 h takes a node away for 12 h: two are away on average."""
    one = Recovery(
        rate=1 / (6 * HOUR), blocked=10.0, safe_after=0.0, recover=300.0, hardware=1 / (6 * HOUR),
        repair=12 * HOUR, spares=spares, elastic=elastic, replicas=64, nodes=64,
    )  # fmt: skip
    closed = progress(one, 1200.0) * (1 - standing(one)) * (1 - away(one))
    found = simulate_progress(one, 1200.0, MONTHS, seed=5)
    assert closed == pytest.approx(found, rel=0.02)


def test_the_best_interval_is_youngs_where_failures_are_rare() -> None:
    """sqrt(2 d / l), up to terms of sqrt(d l): Young 1974."""
    for mean in (DAY, 10 * DAY, 100 * DAY):
        one = replace(SYNC, rate=1 / mean)
        young = math.sqrt(2 * one.blocked * mean)
        assert best_interval(one) == pytest.approx(young, rel=0.03)


def test_the_best_interval_has_the_most_progress() -> None:
    one = replace(SYNC, blocked=5.0, safe_after=100.0)
    best = best_interval(one)
    assert all(progress(one, best) >= progress(one, best * by) for by in (0.5, 0.9, 1.1, 2.0))
    assert best >= one.safe_after - one.blocked  # the next one does not queue behind it


@pytest.mark.parametrize("blocked", [0.005, 2.0, 20.0])
def test_checkpoints_may_be_rarer_than_the_best_by_what_a_thousandth_allows(blocked: float) -> None:
    """To first order l t / 2 + d / t is lost: the longest t has a thousandth more of it."""
    one = Recovery(rate=1 / 11_000, blocked=blocked, safe_after=0.0, recover=400.0)
    best = best_interval(one)
    longest = longest_interval(one, best)
    assert progress(one, longest) == pytest.approx(0.999 * progress(one, best), rel=1e-9)
    rate, more = one.rate, 1e-3 + one.rate * best / 2 + blocked / best
    root = (more + math.sqrt(more**2 - 2 * rate * blocked)) / rate
    assert longest == pytest.approx(root, rel=0.06)
    never = Recovery(rate=0.0, blocked=1.0, safe_after=0.0, recover=0.0)
    assert longest_interval(never, 60.0) == 60.0


def test_no_failures_leave_the_checkpoints_alone() -> None:
    none = replace(SYNC, rate=0.0)
    assert progress(none, 270.0) == pytest.approx(0.9)


def test_more_failures_and_slower_recovery_are_never_better() -> None:
    for field, values in {
        "rate": (1e-6, 1e-5, 1e-4, 1e-3),
        "blocked": (0.0, 1.0, 10.0, 100.0),
        "safe_after": (0.0, 10.0, 100.0),
        "recover": (0.0, 60.0, 600.0, 6000.0),
    }.items():
        changed: list[Any] = [{field: value} for value in values]
        found = [progress(replace(SYNC, **change), 600.0) for change in changed]
        assert found == sorted(found, reverse=True), field


@cache
def llamas_cluster() -> cs.Cluster:
    return cs.Cluster.preset("dgx-h100", nodes=2048)


def goodput(**section: Any) -> Any:
    return goodput_of(
        decode(section, GoodputSection, "t"),
        llamas_cluster(),
        parameters=405_853_388_800,
        precision="bf16",
        replicas=128,
        step_time_s=5.0,
    )


def test_the_default_rates_are_those_of_llama_3() -> None:
    """419 unexpected interruptions in 54 days on 16,384 GPUs (arXiv 2407.21783, table 5)."""
    found = goodput(storage="2TB/s")
    assert 54 * DAY / found.mtbf_s == pytest.approx(419, rel=0.002)
    by_part = {part: 54 * rate for part, rate in found.failures_per_day.items()}
    assert by_part["gpu"] == pytest.approx(148 + 72 + 19 + 17 + 6 + 6, rel=0.005)
    assert by_part["link"] == pytest.approx(35, rel=0.01)
    assert by_part["nic"] == pytest.approx(7, rel=0.01)
    assert sum(getattr(FailureRates(), f) > 0 for f in FailureRates.__struct_fields__) == 5


def test_llama_3_kept_more_than_90_percent() -> None:
    """Published: above 90 %, on storage of 2 TB/s (7 at peak); recovery times are not published.

    With the defaults (a minute to detect, five to restart) it is above, and by not more than what
    a mean recovery of a few minutes can give: 466 interruptions with planned ones leave 2.8 h each.
    """
    found = goodput(storage="2TB/s")
    assert 0.90 < found.goodput < 0.97
    assert found.checkpoint_bytes == 14 * 405_853_388_800


def test_a_checkpoint_is_as_slow_as_its_slowest_way() -> None:
    state = 14 * 405_853_388_800
    sync = goodput(storage="100GB/s", checkpoint="sync")
    copy = sync.blocked_s - state / 100e9
    assert 0 < copy < 0.01  # 347 MB of each GPU over PCIe 5
    fast = goodput(storage="9000TB/s", checkpoint="sync")
    nics = 2048 * 8 * 50e9
    assert fast.blocked_s - copy == pytest.approx(state / nics, rel=0.1)
    background = goodput(storage="100GB/s")
    assert background.blocked_s == pytest.approx(copy)
    assert background.safe_after_s == pytest.approx(state / 100e9)
    memory = goodput(checkpoint="memory")
    assert memory.goodput > background.goodput > sync.goodput


def test_shares_add_up_to_all_of_the_time() -> None:
    for more in ({}, {"repair": "86400s", "spares": 4}, {"repair": "86400s", "elastic": True}):
        one = goodput(storage="500GB/s", **more)
        parts = one.checkpoints + one.failures + one.standing + one.fewer_replicas
        assert one.goodput + parts == pytest.approx(1, abs=1e-9)


def test_a_run_says_it_and_asks_for_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    from commsim.cli.main import call

    assert call(["run", "ddp", "--goodput", "--set", "goodput.storage=10GB/s", "-q"]) == 0
    assert "Goodput 100.0%: of 30 days" in capsys.readouterr().out
    assert call(["run", "ddp", "--goodput", "-q"]) == 2
    assert "goodput.storage: is missing" in capsys.readouterr().err
    assert call(["run", "ring-all-reduce", "--goodput", "-q"]) == 2
    assert "is of a training" in capsys.readouterr().err
    found = cs.run("ddp", goodput={"storage": "10GB/s"})
    assert found.extra["goodput"]["effective_step_s"] >= found.metrics.step_time_s
