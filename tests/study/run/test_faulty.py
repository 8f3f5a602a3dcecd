"""Runs with faults: a healthy one and the draws, one timeline at a time."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import commsim as cs
from commsim.engine import FaultsSection, gc_paused
from commsim.errors import ScenarioError
from commsim.graph import Graph, GraphBuilder
from commsim.scenario import scenario_from
from commsim.sections import decode
from commsim.study.run import Result
from commsim.study.run.faulty import _check, _spread, _summary, _told, with_faults

SCENARIO = {
    "name": "x",
    "cluster": {"preset": "dgx-a100", "nodes": 1},
    "workload": {
        "training": {
            "model": {"preset": "gpt2-124m", "layers": 2, "seq_len": 256},
            "parallel": {"dp": 8},
            "batch": {"global": 8, "micro": 1},
        }
    },
    "faults": {"jitter": [{"spread": 0.05}], "samples": 2},
}


def test_one_timeline_is_there_at_a_time_though_the_collector_is_paused() -> None:
    run_once: Any = importlib.import_module("commsim.study.run.run").run_once
    gone: list[weakref.ref[np.ndarray[Any, Any]]] = []
    left: list[int] = []

    def once(*given: Any, **settings: Any) -> Result:
        left.append(sum(timeline() is not None for timeline in gone))
        result: Result = run_once(*given, **settings)
        gone.append(weakref.ref(result.timeline.start))
        return result

    scenario = scenario_from(SCENARIO, "x")
    with gc_paused():
        result = with_faults(scenario, partial(once))
    assert left == [0] * 4  # healthy, two draws, and the one that is shown
    assert result.extra["faults"]["healthy_step_time_s"] > 0


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        (
            {"slow_links": [{"share": 1e-9, "left": 1e-12}]},
            "a link of which nothing is left for good",
        ),
        ({"slow_links": [{"link": "node7", "left": 0.5}]}, "there is no 'node7'"),
        ({"slow_gpus": [{"rank": 8, "factor": 2}]}, "there is no 8"),
        ({"dead_nics": [{"node": 1, "nic": 0}]}, "there is no NIC 0 on node 1"),
        ({"jitter": [{}]}, "give exactly one of spread and trace"),
    ],
)
def test_faults_that_cannot_be_are_refused_before_the_healthy_run(
    faults: dict[str, Any], told: str
) -> None:
    said: list[str] = []
    with pytest.raises(ScenarioError, match=told):
        cs.run({**SCENARIO, "faults": faults}, progress=said.append)
    assert said == ["the healthy run", "building the work"]


WORK = {"stages": 2, "microbatches": 1, "forward": "1ms", "backward": "2ms"}


@cache
def plain() -> Result:
    return cs.run({"workload": {"pipeline": WORK}})


def faults(**settings: Any) -> FaultsSection:
    return decode(settings, FaultsSection, "x")


def wait(seconds: float, kind: str = "collective", rank: int = 3) -> Any:
    return SimpleNamespace(kind=kind, rank=rank, seconds=seconds, peer="rank 7")


def summary(section: FaultsSection, steps: list[float], *found: Any, base: float = 1.0) -> Result:
    """Return the summary of draws of so many seconds; the one that is shown has waits `found`."""
    middle = replace(plain(), notes=("mine",), extra={"a": 1})
    middle.__dict__["waits"] = found
    draws = [{"step_time_s": step, "faults": [f"fault of {step:g}"]} for step in steps]
    return _summary(section, base, middle, draws, len(steps) // 2)


JITTER = faults(jitter=[{"spread": 0.1}])
SLOW = faults(slow_gpus=[{"rank": 3, "factor": 2.0}])
LINKS = faults(slow_links=[{"link": "x", "left": 0.5}])


def test_what_faults_cost_on_average_and_its_spread() -> None:
    """Of 1, 1.2, 1.4, 1.8 and 2.6 s: the mean 1.6, half up to 1.4, and 99 % up to 2.568."""
    draws = [1.0, 1.2, 1.4, 1.8, 2.6]
    found = summary(replace(JITTER, samples=5), draws)
    told = found.preface
    assert told == (
        "Healthy 1 s, with faults 1.6 s (p50 1.4 s, p99 2.568 s, 5 draws): +60.0%. The median draw:"
    )
    assert found.notes == (
        "faults: timeline and tables are those of the median draw.", "faults: fault of 1.4", "mine",
    )  # fmt: skip
    assert found.extra["a"] == 1
    said = found.extra["faults"]
    assert (said["mean_s"], said["p50_s"]) == (pytest.approx(1.6), pytest.approx(1.4))
    assert said["p99_s"] == pytest.approx(1.8 + 0.96 * 0.8)
    assert (said["seed"], len(said["draws"]), said["healthy_step_time_s"]) == (0, 5, 1.0)
    two = summary(replace(JITTER, samples=2), [1.0, 1.5]).preface
    assert "2 draws" in two
    assert "with faults 1.25 s" in two
    half = summary(replace(JITTER, samples=2), [1.0, 1.5], base=0.5)
    assert half.preface.endswith("+150.0%. The median draw:")
    assert half.notes[0] == "faults: timeline and tables are those of the median draw."
    assert two.endswith("The median draw:")


def test_one_draw_has_no_spread() -> None:
    found = summary(JITTER, [0.5])
    assert found.preface == "Healthy 1 s, with faults 500 ms: -50.0%."
    assert found.notes == ("faults: fault of 0.5", "mine")
    assert summary(JITTER, [0.5], base=0.0).preface.endswith(": +0.0%.")
    dead = summary(faults(dead_nics=[{"count": 1}]), [0.5])
    assert dead.notes[0].startswith("faults: a NIC that dies in a run ends it")


@pytest.mark.parametrize(
    ("section", "waits", "rank"),
    [
        (JITTER, [wait(0.011)], 3),
        (SLOW, [wait(0.011)], 3),
        (LINKS, [wait(0.9)], None),  # the headline names the link
        (JITTER, [wait(0.01)], None),  # no more than a hundredth of the step
        (JITTER, [wait(0.9, "bubble"), wait(0.5, rank=4), wait(0.4, rank=5)], 4),
        (JITTER, [wait(0.9, "bubble")], None),
        (JITTER, [], None),
    ],
)
def test_who_waits_longest_but_in_a_bubble(
    section: FaultsSection, waits: list[Any], rank: int | None
) -> None:
    told = summary(section, [1.0], *waits).preface
    assert ("waits" in told) is (rank is not None)
    assert rank is None or told.split("%. ")[1].startswith(f"Rank {rank} waits ")


def test_what_was_drawn_in_words() -> None:
    names = SimpleNamespace(links=SimpleNamespace(names=["one", "two"]))
    result: Any = SimpleNamespace(timeline=names)
    gpus = [SimpleNamespace(rank=1, factor=1.5, start=None),
            SimpleNamespace(rank=2, factor=2.0, start=3_000_000_000)]  # fmt: skip
    links = [SimpleNamespace(links=[1, 0], left=0.25, windows=None),
             SimpleNamespace(links=[0, 1], left=0.0, windows=[(0, 1), (2, 3)])]  # fmt: skip
    noise = [SimpleNamespace(ranks=None, pool=None, distribution="normal", spread=0.05),
             SimpleNamespace(ranks=(1, 2), pool=[1.0], distribution="", spread=0.0)]  # fmt: skip
    drawn: Any = SimpleNamespace(slow_gpus=gpus, slow_links=links, noise=noise)
    assert _told(drawn, ((4, 2),), result) == [
        "NIC 2 of node 4 is dead",
        "rank 1 computes 1.5 times as long",
        "rank 2 computes 2 times as long from 3 ms on",
        "two carries 25%",
        "one carries 0% in 2 windows",
        "jitter of all ranks, normal 0.05",
        "jitter of 2 ranks as recorded",
    ]
    none: Any = SimpleNamespace(slow_gpus=[], slow_links=[], noise=[])
    twelve = tuple((node, 0) for node in range(12))
    assert len(_told(none, twelve, result)) == 12
    assert _told(none, (*twelve, (12, 0)), result)[11:] == ["NIC 0 of node 11 is dead", "and more"]


@pytest.mark.parametrize(
    ("settings", "engine", "told"),
    [
        ({"slow_links": [{"link": "x", "left": 0.5, "start": "1ms"}]}, {"network": "steps"}, True),
        ({"slow_links": [{"link": "x", "left": 0.5, "end": "1ms"}]}, {"network": "steps"}, True),
        ({"slow_links": [{"link": "x", "left": 0.5, "down": "1ms", "every": "9ms"}]},
         {"network": "steps"}, True),
        ({"slow_links": [{"link": "x", "left": 0.5}]}, {"network": "steps"}, False),
        ({"slow_links": [{"link": "x", "left": 0.5, "start": "1ms"}]}, {}, False),
        ({"slow_gpus": [{"rank": 0, "factor": 2, "start": "1ms"}]}, {"slow": False}, True),
        ({"slow_gpus": [{"rank": 0, "factor": 2, "end": "1ms"}]}, {"slow": False}, True),
        ({"slow_gpus": [{"rank": 0, "factor": 2}]}, {"slow": False}, False),
        ({"slow_gpus": [{"rank": 0, "factor": 2, "end": "1ms"}]}, {}, False),
    ],
)  # fmt: skip
def test_what_comes_and_goes_needs_an_engine_that_can(
    settings: dict[str, Any], engine: dict[str, Any], told: bool
) -> None:
    made = SimpleNamespace(
        network=engine.get("network", "fluid"), overlap_slowdown=engine.get("slow", True)
    )
    scenario: Any = SimpleNamespace(where="x", file=SimpleNamespace(cluster=1, engine=made))
    if not told:
        return _check(scenario, faults(**settings))
    (key,) = settings
    with pytest.raises(ScenarioError, match=f"x: faults.{key}: what comes and goes needs engine"):
        _check(scenario, faults(**settings))


def computing(*times: tuple[int, str, int]) -> Graph:
    """Return compute ops: rank, name, ps."""
    build = GraphBuilder()
    lanes = [build.lane(0), build.lane(1)]
    for rank, name, duration in times:
        build.compute(lanes[rank], duration, name=name)
    return build.build()


def test_the_spread_of_a_trace_is_of_each_op_of_each_rank_over_its_median() -> None:
    """Eight times on rank 0, medians of 10; seven on rank 1 and of another name do not count."""
    eight = [(0, "a", time) for time in (5, 10, 10, 10, 10, 10, 20, 40)]
    few = [(1, "a", 1000)] * 7 + [(0, "b", 7)] * 7 + [(1, "b", 0)] * 9
    found = _spread(computing(*eight, *few), "t")
    assert sorted(found.tolist()) == [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 4.0]
    with pytest.raises(ScenarioError, match="t has no compute op 8 times"):
        _spread(computing(*few), "t")


@cache
def healthy() -> Result:
    return cs.run({key: value for key, value in SCENARIO.items() if key != "faults"})


@pytest.mark.parametrize(
    ("steps", "shown"),
    [([3.0], 0), ([5.0, 4.0], 1), ([5.0, 1.0, 4.0, 2.0], 3), ([5.0, 1.0, 4.0, 2.0, 9.0], 2)],
)
def test_the_median_draw_is_made_again_and_shown(steps: list[float], shown: int) -> None:
    """Of an even number the faster of the two in the middle."""
    made: list[float] = []
    samples: list[int] = []
    heard: list[str] = []
    shares: list[float] = []
    ask: list[Callable[[], float]] = []

    def once(scenario: Any, **settings: Any) -> Result:
        if "dead" not in settings:
            return healthy()
        settings["draw"](healthy().cluster)
        samples.append(settings["draw"].args[1])
        step = (*steps, steps[shown])[len(made)]
        made.append(step)
        shares.append(ask[0]())
        return replace(healthy(), metrics=replace(healthy().metrics, step_time_s=step))

    faulty = {**SCENARIO, "faults": {"jitter": [{"spread": 0.05}], "samples": len(steps)}}
    found = with_faults(scenario_from(faulty, "x"), once, progress=heard.append, follow=ask.append)
    assert found.metrics.step_time_s == steps[shown]
    assert samples == [*range(len(steps)), *([shown] if len(steps) > 1 else [])]
    told = found.extra["faults"]["draws"]
    assert [draw["step_time_s"] for draw in told] == steps
    assert heard == ["the healthy run", f"draws of faults, {len(steps)}"]
    assert shares[: len(steps)] == [at / len(steps) for at in range(len(steps))]
    assert told[0]["faults"] == ["jitter of all ranks, lognormal 0.05"]
