"""
What the best layouts would take under other software: a ranking holds one stack for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from commsim.models import common_stacks
from commsim.scenario import Scenario
from commsim.study.advise.layouts import Candidate
from commsim.study.advise.simulate import Ran, Worker

__all__ = ["OtherStack", "other_stacks"]


class OtherStack(msgspec.Struct, frozen=True):
    """The fastest of the best layouts under another stack; `more` is against the first."""

    stack: str
    layout: str
    step_s: float
    more: float

    @property
    def setting(self) -> str:
        """What to set for a ranking there."""
        return f"workload.training.compute.stack={self.stack}"


def other_stacks(scenario: Scenario, worker: Worker, best: Sequence[Ran]) -> Iterator[OtherStack]:
    """Yield what the `best` layouts take at least under the other stacks that people mostly use.

    Only stacks that published steps were fitted for on the cluster's GPU.
    """
    for stack in common_stacks(worker.cluster.gpu(0)):
        if stack == worker.section.compute.stack:
            continue
        there = Worker(_on(scenario, stack))
        ran = [found for one in best if (found := _ran(there, one.candidate)) is not None]
        first = min(ran, key=lambda one: (one.metrics.step_time_s, one.candidate), default=None)
        if first is not None:
            step = first.metrics.step_time_s
            more = step / best[0].metrics.step_time_s - 1
            yield OtherStack(stack, first.candidate.name, step, more)


def _ran(worker: Worker, candidate: Candidate) -> Ran | None:
    """Return a layout's run; None if it cannot run on a worker's stack, or does not fit."""
    judged = worker.judge.one(candidate)
    return worker.run(candidate) if judged is not None and judged.fits else None


def _on(scenario: Scenario, stack: str) -> Scenario:
    """Return a scenario under another stack; what it says besides stays."""
    replace = msgspec.structs.replace
    training = scenario.file.workload.training
    assert training is not None
    compute = replace(training.compute, stack=stack)
    workload = replace(scenario.file.workload, training=replace(training, compute=compute))
    return replace(scenario, file=replace(scenario.file, workload=workload))
