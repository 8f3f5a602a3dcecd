"""What the best layouts take on other software, of steps that are known for every stack."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.scenario import scenario_from
from commsim.study.advise.layouts import Candidate, Degrees
from commsim.study.advise.stacks import other_stacks

MODULE = "commsim.study.advise.stacks"
MODEL = {"layers": 4, "hidden": 1024, "heads": 8, "vocab": 8192, "seq_len": 2048}


def layout(micro: int) -> Candidate:
    return Candidate(Degrees(8, 1, 1, 1, 1), "1f1b", 1, micro, "none", "ddp")


def ran(one: Candidate, step: float) -> Any:
    return SimpleNamespace(candidate=one, metrics=SimpleNamespace(step_time_s=step))


STEPS: dict[str, dict[int, float | None]] = {
    "slow": {1: 15.0, 2: 12.5},
    "quick": {1: 9.0, 2: 9.0},
    "lacks": {1: None, 2: 20.0},
    "nothing": {1: None, 2: -1.0},
    "own": {1: 1.0, 2: 1.0},
}
"""Seconds of layouts on a stack; None: cannot run there, below zero: does not fit."""


def test_the_fastest_of_the_best_layouts_on_each_other_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against a first of 10 s; of equals the smaller. What does not fit is not run."""
    training = {"model": MODEL, "batch": {"global": 8, "micro": 1}, "precision": "fp16"}
    scenario = scenario_from(
        {"cluster": {"preset": "dgx-h100"}, "workload": {"training": training}}, "x"
    )

    def worker(there: Any) -> Any:
        section = there.file.workload.training
        assert (section.precision, section.model) == ("fp16", scenario.file.workload.training.model)  # type: ignore[union-attr]
        steps = STEPS[section.compute.stack]

        def one(candidate: Candidate) -> Any:
            step = steps[candidate.micro]
            return None if step is None else SimpleNamespace(fits=step > 0)

        def run(candidate: Candidate) -> Any:
            step = steps[candidate.micro]
            assert step is not None
            assert step > 0
            return ran(candidate, step)

        return SimpleNamespace(judge=SimpleNamespace(one=one), run=run)

    def common(gpu: str) -> list[str]:
        assert gpu == "the only GPU"
        return list(STEPS)

    monkeypatch.setattr(sys.modules[MODULE], "Worker", worker)
    monkeypatch.setattr(sys.modules[MODULE], "common_stacks", common)
    here: Any = SimpleNamespace(
        cluster=SimpleNamespace(gpu=["the only GPU"].__getitem__),
        section=SimpleNamespace(compute=SimpleNamespace(stack="own")),
    )
    found = list(other_stacks(scenario, here, [ran(layout(2), 10.0), ran(layout(1), 11.0)]))
    assert [(one.stack, one.layout, one.step_s) for one in found] == [
        ("slow", layout(2).name, 12.5), ("quick", layout(1).name, 9.0),
        ("lacks", layout(2).name, 20.0),
    ]  # fmt: skip
    assert [one.more for one in found] == pytest.approx([0.25, -0.1, 1.0])
    assert found[0].setting == "workload.training.compute.stack=slow"
