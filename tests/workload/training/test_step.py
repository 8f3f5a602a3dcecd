"""Steps before the measured one may have fewer microbatches: the measured one stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers.toy_cluster import SMALL, ToyCluster

from commsim.engine import simulate
from commsim.libraries import Ideal
from commsim.metrics import measure
from commsim.sections import decode
from commsim.workload import TrainingSection, build_training
from commsim.workload.training import step


def measured(monkeypatch: pytest.MonkeyPatch, *, shorten: bool, **settings: Any) -> tuple[Any, int]:
    monkeypatch.setattr(step, "SHORTENED_ABOVE", 0)
    section = decode(
        {"model": {**SMALL, "layers": 8}, "batch": {"global": 48, "micro": 1}, **settings},
        TrainingSection,
        "x",
    )
    cluster = ToyCluster(8, speed=3e9, latency=1000)
    work = build_training(section, cluster, where="x", shorten=shorten)
    return measure(simulate(work.graph, cluster, library=Ideal())), len(work.graph)


@pytest.mark.share(0.5)
@pytest.mark.parametrize(
    "settings",
    [
        {"parallel": {"pp": 4, "dp": 2}},
        {"parallel": {"pp": 4, "dp": 2, "schedule": "interleaved_1f1b", "virtual_stages": 2}},
        {"parallel": {"pp": 4, "dp": 2, "schedule": "gpipe"}},
        {"parallel": {"pp": 2, "tp": 2, "dp": 2, "schedule": "zb_h1"}},
        {"parallel": {"pp": 2, "dp": 4}, "data_parallel": {"kind": "zero", "stage": 1}},
        {"parallel": {"pp": 2, "dp": 4}, "data_parallel": {"kind": "zero", "stage": 2}},
        {"parallel": {"pp": 2, "dp": 4}, "data_parallel": {"kind": "fsdp"}},
        {"parallel": {"tp": 2, "dp": 4}, "data_parallel": {"kind": "fsdp", "no_sync": True}},
        {"parallel": {"pp": 2, "dp": 4, "schedule": "dualpipev"}},
    ],
)
def test_a_shorter_first_step_leaves_the_measured_one_as_it_is(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    long, ops = measured(monkeypatch, shorten=False, **settings)
    short, fewer = measured(monkeypatch, shorten=True, **settings)
    assert fewer < 0.8 * ops
    assert short.step_time_s == pytest.approx(long.step_time_s, rel=1e-9)
    assert (short.bubble_fraction or 0) == pytest.approx(long.bubble_fraction or 0, rel=1e-9)
    assert short.breakdown.compute_s == pytest.approx(long.breakdown.compute_s, rel=1e-9)
    assert short.breakdown.waiting_s == pytest.approx(long.breakdown.waiting_s, rel=1e-6)


def test_steps_that_are_laid_out_for_their_times_stay_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {"parallel": {"pp": 4, "dp": 2, "schedule": "zb_2p"}}
    assert (
        measured(monkeypatch, shorten=False, **settings)[1]
        == measured(monkeypatch, shorten=True, **settings)[1]
    )


def test_the_share_that_is_issued_grows_by_an_action_to_the_whole() -> None:
    """Two lanes of one layer each, four microbatches forward and backward, in each of two steps."""
    shares: list[Callable[[], float]] = []
    seen: list[float] = []

    class Counting(step.StepBuilder):
        def _perform(self, *given: Any) -> None:
            seen.append(shares[0]())
            super()._perform(*given)

    section = decode(
        {"model": SMALL, "batch": {"global": 4, "micro": 1}, "parallel": {"pp": 2}, "steps": 2,
         "compute": {"efficiency": 0.5}}, TrainingSection, "x",
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(step, "StepBuilder", Counting)
        build_training(section, ToyCluster(2), where="x", follow=shares.append)
    assert seen == pytest.approx([at / 32 for at in range(32)])
    assert shares[0]() == 1.0
