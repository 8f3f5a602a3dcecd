"""A long step from two short ones: what advice says of it is what the whole step gives."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from helpers.share import later
from msgspec.structs import replace

from commsim.metrics import CollectiveMetrics, Metrics, Times
from commsim.scenario import Scenario, scenario_from
from commsim.study.advise.layouts import Candidate, Degrees
from commsim.study.advise.simulate import Worker
from commsim.study.advise.steady import Short, extended, few, short_counts

MODEL = {"layers": 8, "hidden": 2048, "heads": 16, "vocab": 32000, "seq_len": 2048}


def scenario(nodes: int = 2, **more: Any) -> Scenario:
    training = {"model": MODEL, "batch": {"global": 64, "micro": 1}, **more}
    cluster = {"preset": "dgx-a100", "nodes": nodes}
    return scenario_from({"cluster": cluster, "workload": {"training": training}}, "steady.yaml")


CASES = [
    Candidate(Degrees(4, 2, 2, 1, 1), "1f1b", 1, 1, "none", "ddp"),
    Candidate(Degrees(2, 2, 4, 1, 1), "interleaved_1f1b", 2, 1, "none", "zero-1"),
    later(Candidate(Degrees(2, 2, 4, 1, 1), "gpipe", 1, 1, "full", "zero-1")),
    later(Candidate(Degrees(2, 2, 4, 1, 1), "zb_h1", 1, 1, "none", "zero-2")),
    later(Candidate(Degrees(4, 1, 4, 1, 1), "zb_h1", 1, 1, "none", "fsdp")),
    later(Candidate(Degrees(2, 1, 4, 2, 1), "1f1b", 1, 1, "none", "zero-2")),
    later(Candidate(Degrees(4, 4, 1, 1, 1), "1f1b", 1, 1, "none", "fsdp")),
    later(Candidate(Degrees(4, 4, 1, 1, 1), "1f1b", 1, 1, "none", "ddp")),
]


@pytest.mark.parametrize("candidate", CASES, ids=lambda one: one.name)
def test_the_whole_step_is_as_said(candidate: Candidate, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(scenario())
    monkeypatch.setattr(sys.modules["commsim.study.advise.steady"], "_WORTH", 10**9)
    whole = worker.run(candidate)
    assert not whole.short
    monkeypatch.setattr(sys.modules["commsim.study.advise.steady"], "_WORTH", 1)
    short = worker.run(candidate)
    assert short.short
    assert short.metrics.step_time_s == pytest.approx(whole.metrics.step_time_s, rel=0.002)
    for name in ("mfu", "tokens_per_s", "tflops_per_gpu"):
        said, found = getattr(short.metrics, name), getattr(whole.metrics, name)
        assert said == pytest.approx(found, rel=0.002)
    assert (short.metrics.bubble_fraction or 0.0) == pytest.approx(
        whole.metrics.bubble_fraction or 0.0, abs=0.005
    )
    for name in ("compute_s", "exposed_transfer_s", "idle_s"):
        said, found = (getattr(one.metrics.breakdown, name) for one in (short, whole))
        assert said == pytest.approx(found, abs=0.005 * whole.metrics.step_time_s)
    uses = [
        {(use.op, use.group): (use.count, use.bytes) for use in one.metrics.collectives}
        for one in (short, whole)
    ]
    assert uses[0] == uses[1]
    assert short.memory == pytest.approx(whole.memory, rel=1e-6)


def test_few_microbatches_are_run_as_they_are() -> None:
    assert few(512, layers=80, stages=4, schedule="1f1b") == (4, 8)
    assert few(512, layers=80, stages=4, schedule="zb_h1") == (8, 12)
    assert few(512, layers=80, stages=1, schedule="1f1b") == (2, 4)
    assert few(11, layers=800, stages=4, schedule="1f1b") is None
    assert few(12, layers=800, stages=4, schedule="1f1b") == (4, 8)
    assert few(64, layers=2, stages=4, schedule="1f1b") is None
    assert few(124, layers=2, stages=4, schedule="1f1b") is None  # 248 layers to run, not 250
    assert few(125, layers=2, stages=4, schedule="1f1b") == (4, 8)


def test_whole_rounds_of_a_pipeline_are_run() -> None:
    assert short_counts(4, "1f1b") == (4, 8)
    assert short_counts(4, "interleaved_1f1b", virtual=2) == (8, 12)
    assert short_counts(2, "zb_h1") == (4, 6)
    assert short_counts(1, "1f1b") == (2, 4)


def test_rates_are_carried_on_by_what_a_step_does() -> None:
    """Twice the microbatches in 1.5 times the time are 4/3 of the rate."""
    worker = Worker(scenario(1))
    metrics = worker.run(Candidate(Degrees(8, 1, 1, 1, 1), "1f1b", 1, 1, "none", "ddp")).metrics
    two = replace(metrics, step_time_s=metrics.step_time_s * 1.5, mfu=(metrics.mfu or 0) * 4 / 3)
    four = extended(Short(1, metrics, 0.0), Short(2, two, 0.0), 4)
    assert four.step_time_s == pytest.approx(2.5 * metrics.step_time_s)
    assert four.mfu == pytest.approx((metrics.mfu or 0) * 4 / 2.5)
    assert four.critical_path == ()


def carried(one: Any, two: Any, *spans: float) -> Metrics:
    """Return the metrics of four microbatches from those of one and of two, of given parts."""
    plain = Times(*[1.0] * len(Times.__struct_fields__))
    empty: dict[str, Any] = dict.fromkeys(Metrics.__struct_fields__)
    several = dict.fromkeys(("ranks", "collectives", "links", "critical_path"), ())
    base = Metrics(**empty | several | {"step_time_s": 1.0, "breakdown": plain})
    shorter, longer = (replace(base, **parts) for parts in (one, two))
    return extended(Short(1, shorter, spans[0]), Short(2, longer, spans[1]), 4)


def test_a_bubble_is_the_idle_share_of_the_span() -> None:
    """Half of 2 s and a quarter of 4 s are a second each, and so it is of 8 s."""
    found = carried({"bubble_fraction": 0.5}, {"bubble_fraction": 0.25}, 2.0, 4.0)
    assert found.bubble_fraction == pytest.approx(1 / 8)
    assert found.bubble_ratio == pytest.approx(1 / 7)
    for one, two in ((None, 0.25), (0.5, None), (None, None)):
        none = carried({"bubble_fraction": one}, {"bubble_fraction": two}, 2.0, 4.0)
        assert (none.bubble_fraction, none.bubble_ratio) == (None, None)


def test_what_grows_shorter_is_not_below_nothing() -> None:
    """Each further microbatch adds what the second does, of times and of collectives."""

    def use(op: str, *figures: Any) -> CollectiveMetrics:
        count, size, time, wait, exposed = figures
        return CollectiveMetrics(op, "dp0", count, size, time, wait, exposed, None)

    names = Times.__struct_fields__
    times = [Times(**dict.fromkeys(names, 1.0) | {names[0]: each}) for each in (3.0, 2.5)]
    fewer = [Times(**dict.fromkeys(names, each)) for each in (3.0, 1.0)]
    found = carried({"breakdown": times[0]}, {"breakdown": times[1]}, 1.0, 2.0)
    assert getattr(found.breakdown, names[0]) == pytest.approx(1.5)
    found = carried({"breakdown": fewer[0]}, {"breakdown": fewer[1]}, 1.0, 2.0)
    assert {getattr(found.breakdown, name) for name in names} == {0.0}
    uses = ((use("x", 2, 10, 1.0, 3.0, 1.0),), (use("x", 4, 21, 1.5, 1.0, 0.4),
                                                 use("y", 5, 6, 7.0, 8.0, 9.0)))  # fmt: skip
    found = carried({"collectives": uses[0]}, {"collectives": uses[1]}, 1.0, 2.0)
    assert found.collectives == (use("x", 8, 43, 2.5, 0.0, 0.0), uses[1][1])
    rates = carried({"mfu": None}, {"mfu": 0.5}, 1.0, 2.0), carried({"mfu": 0.5}, {}, 1.0, 2.0)
    assert [one.mfu for one in rates] == [None, None]


def test_ranks_alike_are_built_and_simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen replicas are one rank, two stages of eight are two."""
    module, ranks = sys.modules["commsim.study.advise.simulate"], list[int]()
    fold = module.folded

    def folded(graph: Any, *rest: Any, **more: Any) -> Any:
        ranks.append(len(graph.multiplicity))
        return fold(graph, *rest, **more)

    monkeypatch.setattr(module, "folded", folded)
    worker = Worker(scenario(batch={"global": 16, "micro": 1}))
    for degrees in (Degrees(16, 1, 1, 1, 1), Degrees(8, 1, 2, 1, 1)):
        worker.run(Candidate(degrees, "1f1b", 1, 1, "none", "ddp"))
    assert ranks == [1, 2]
