"""
How replicas keep their parameters equal, as hooks that the builder of a step calls.

A strategy is told when a unit of a stage is about to run and when it has run, and when a rank's
step is over; it adds the collectives and says what has to be waited for.
"""

from __future__ import annotations

import msgspec

from commsim.graph import GraphBuilder, Phase, Tags
from commsim.models import ComputeModel
from commsim.units import to_picoseconds
from commsim.workload.schedules import ScheduleStep
from commsim.workload.training.lanes import Lane
from commsim.workload.training.plan import TrainingPlan

__all__ = ["ActionContext", "ReplicaStrategy", "add_optimizer"]


class ActionContext(msgspec.Struct, frozen=True):
    """Where a rank is in a step: the action, and whether its stage has the first or last one.

    `first`: the stage's first forward of the step; `last`: its last gradient.
    """

    at: ScheduleStep
    step: int
    forward: bool
    first: bool
    last: bool


class ReplicaStrategy:
    """One replica: nothing to keep equal. The base of all strategies."""

    def __init__(self, plan: TrainingPlan, build: GraphBuilder) -> None:
        self.plan = plan
        self.build = build

    def separates_units(self, place: ActionContext) -> bool:
        """Return whether the items of an action must stay apart by unit."""
        return False

    def before_unit(
        self, lane: Lane, place: ActionContext, unit: int, done: list[int]
    ) -> list[int]:
        """Return what the first op of a unit waits for; `done` are the ends of units before it."""
        return []

    def after_unit(self, lane: Lane, place: ActionContext, unit: int, op: int) -> None:
        """Take note that a unit has run; `op` ended it."""

    def finish_reductions(self, lane: Lane, step: int) -> list[int]:
        """Issue what is left of a rank's reductions; return all that its optimizer waits for."""
        return []

    def after_optimizer(self, lane: Lane, step: int, optimizer: int) -> None:
        """Issue what follows the optimizer."""

    def optimizer_entries(self, device: int) -> int:
        """Return the parameters that a rank of a device updates."""
        return sum(stage.parameters for stage in self.plan.held(device))


def add_optimizer(
    build: GraphBuilder,
    lane: Lane,
    entries: int,
    model: ComputeModel,
    *,
    step: int,
    stage: int,
    after: list[int],
) -> int:
    """Issue the optimizer of a rank on its GPU; return the op."""
    work = model.optimizer(entries)
    return build.compute(
        lane.lane,
        to_picoseconds(work.seconds, "the optimizer"),
        name="optimizer",
        after=after,
        tags=Tags(phase=Phase.OPTIMIZER, step=step, stage=stage),
        traffic=work.traffic,
    )
