"""
A pipeline of stages with stated times: no model, no cluster, one lane per stage.

F, B, W are the times of one microbatch on one stage, c the time from one stage to the next.
An action starts when its stage is free and c after its producer has ended: c is a pure delay
that occupies neither stage (conventions of Qi et al., "Zero Bubble Pipeline Parallelism",
2023). A fused backward takes B + W, and the stage before waits for the whole of it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from commsim.errors import ScenarioError
from commsim.graph import GraphBuilder, Phase, Tags
from commsim.sections import Durations, Section
from commsim.workload.result import Workload
from commsim.workload.schedule import Schedule, Step, execution_order, make_schedule

__all__ = ["PipelineSection", "build_pipeline"]

Count = Annotated[int, msgspec.Meta(ge=1)]
_LETTER = {Phase.FORWARD: "F", Phase.BACKWARD: "B", Phase.WEIGHT: "W"}
_NOTHING = Durations((0,))


class PipelineSection(Section, frozen=True, kw_only=True):
    """What a user writes under `pipeline`: times are one for all stages, or a list of them.

    `weight` 0 means that `backward` holds both gradients. Entry i of a `p2p` list is the delay
    between stages i and i + 1; that of the last stage, which only a schedule that wraps around
    would use, may be left out.
    """

    stages: Count
    microbatches: Count
    forward: Durations
    backward: Durations
    schedule: str = "1f1b"
    weight: Durations = _NOTHING
    p2p: Durations = _NOTHING


def build_pipeline(section: PipelineSection, *, where: str = "pipeline") -> Workload:
    """Return the graph of one step of the pipeline, tagged by phase, microbatch and stage.

    Raises:
        ScenarioError: a schedule that is unknown or not built, or a list of the wrong length.
    """
    schedule = make_schedule(
        section.schedule, section.stages, section.microbatches, where=f"{where}.schedule"
    )
    times = _action_times(section, schedule, where)
    delays = _boundary_delays(section, where)
    build = GraphBuilder()
    lanes = [build.lane(device) for device in range(schedule.devices)]
    ops: dict[tuple[int, int], int] = {}
    for step in execution_order(schedule):
        phase, microbatch, _ = step.action
        ops[step.device, step.position] = build.compute(
            lanes[step.device],
            times[phase][step.stage],
            name=f"{_LETTER[phase]}{microbatch}",
            after=_after(step, ops, delays),
            tags=Tags(phase=phase, step=0, microbatch=microbatch, stage=step.stage),
        )
    return Workload("pipeline", build.build({"schedule": schedule.name}), _notes(section))


def _after(
    step: Step, ops: dict[tuple[int, int], int], delays: tuple[int, ...]
) -> list[tuple[int, int]]:
    """Return the dependency of an action on its producer, delayed between two devices."""
    if step.producer is None or step.producer[0] == step.device:
        return []
    boundary = step.stage - 1 if step.action.phase == Phase.FORWARD else step.stage
    return [(ops[step.producer], delays[boundary])]


def _action_times(
    section: PipelineSection, schedule: Schedule, where: str
) -> dict[Phase, tuple[int, ...]]:
    forward, backward, weight = (
        _per_stage(getattr(section, name), section.stages, f"{where}.{name}")
        for name in ("forward", "backward", "weight")
    )
    if schedule.fused:
        backward = tuple(b + w for b, w in zip(backward, weight, strict=True))
    return {Phase.FORWARD: forward, Phase.BACKWARD: backward, Phase.WEIGHT: weight}


def _boundary_delays(section: PipelineSection, where: str) -> tuple[int, ...]:
    boundaries = section.stages - 1
    if len(section.p2p) == 1:
        return tuple(section.p2p) * boundaries
    if len(section.p2p) not in (boundaries, section.stages):
        raise ScenarioError(
            f"{where}.p2p: {len(section.p2p)} times for the {boundaries} boundaries of"
            f" {section.stages} stages. Give one time, or {boundaries} of them."
        )
    return tuple(section.p2p)[:boundaries]


def _per_stage(times: Durations, stages: int, where: str) -> tuple[int, ...]:
    if len(times) == 1:
        return tuple(times) * stages
    if len(times) != stages:
        raise ScenarioError(
            f"{where}: {len(times)} times for {stages} stages. Give one time, or {stages} of them."
        )
    return tuple(times)


def _notes(section: PipelineSection) -> tuple[str, ...]:
    notes = ["pipeline: p2p is a delay; transfers share no link"]
    if any(section.weight):
        notes.append(f"pipeline: {section.schedule} runs the weight gradient inside backward")
    return tuple(notes)
