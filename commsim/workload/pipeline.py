"""
A pipeline of stages with stated times: no model, no cluster, one lane per device.

F, B, W are the times of one microbatch on one stage, c the time from one stage to the next.
An action starts when its device is free and c after its producer has ended: c is a pure delay
that occupies neither (conventions of Qi et al., "Zero Bubble Pipeline Parallelism", 2023). A
whole backward takes B + W, and the stage before waits for all of it.

A device with several virtual stages spends 1/v of its time on each, unless the times are given
per virtual stage. Forward and backward that run as one (DualPipe) take F + B + W, or
`overlapped` if that is given.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from commsim.errors import ScenarioError
from commsim.graph import GraphBuilder
from commsim.sections import Durations, Section
from commsim.workload.result import Workload
from commsim.workload.schedules import (
    PHASE,
    Action,
    OrderColumns,
    Schedule,
    StageTimes,
    Work,
    check_virtual,
    home_of,
    is_laid_out,
    is_schedule_file,
    load_schedule,
    make_schedule,
    peak_activations,
    usual_schedule,
)

__all__ = ["PipelineSection", "build_pipeline"]

Count = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_NOTHING = Durations((0,))
_WORKS = (Work.F, Work.B, Work.I, Work.W)
_NUMBER = {work: at for at, work in enumerate(_WORKS)}
_LETTERS = np.array([0, 1, 1, 2])  # of "FBW"
_PHASES = np.array([PHASE[work] for work in _WORKS])


class PipelineSection(Section, frozen=True, kw_only=True):
    """What a user writes under `pipeline`: times are one for all stages, or a list of them.

    `stages` are those of the cut over devices, `virtual_stages` the pieces that each device
    holds. `weight` 0 means that `backward` holds both gradients. Entry i of a `p2p` list is the
    delay between devices i and i + 1; that of the last one, back to the first, may be left out.
    `weight_memory` is the share of an activation that the weight gradient still needs.
    Without a `schedule` it is 1f1b, or interleaved_1f1b where there are virtual stages.
    """

    stages: Count
    microbatches: Count
    forward: Durations
    backward: Durations
    schedule: str = ""
    virtual_stages: Count = 1
    weight: Durations = _NOTHING
    p2p: Durations = _NOTHING
    overlapped: Durations | None = None
    weight_memory: Share = 1.0

    def __post_init__(self) -> None:
        """Take the schedule that the stages need, if none is named."""
        if not self.schedule:
            msgspec.structs.force_setattr(self, "schedule", usual_schedule(self.virtual_stages))


def build_pipeline(
    section: PipelineSection, *, where: str = "pipeline", folder: str = "."
) -> Workload:
    """Return the graph of one step of the pipeline, tagged by phase, microbatch and stage.

    Raises:
        ScenarioError: a schedule that is unknown, not for this pipeline, or in a file that is
            no schedule; a list of the wrong length.
    """
    schedule, times = _schedule(section, where, folder)
    pair = _pair_times(section, schedule, times, where)
    build = GraphBuilder()
    for device in range(schedule.devices):
        build.lane(device)
    _add_work(build, schedule, times, pair)
    meta = {"schedule": schedule.name, "paired": [sorted(row) for row in schedule.paired]}
    return Workload("pipeline", build.build(meta), _notes(section, schedule))


def _schedule(section: PipelineSection, where: str, folder: str) -> tuple[Schedule, StageTimes]:
    """Return the schedule, and the times of its stages."""
    name, at = section.schedule, f"{where}.schedule"
    if is_schedule_file(name):
        schedule = load_schedule(Path(folder) / name, where=at)
        _check_file(schedule, section, at)
        check_virtual(schedule, section.virtual_stages, where=at)
        return schedule, _stage_times(section, schedule.home, where)
    home = home_of(name, section.stages, section.virtual_stages, where=at)
    times = _stage_times(section, home, where)
    schedule = make_schedule(
        name,
        section.stages,
        section.microbatches,
        where=at,
        virtual=section.virtual_stages,
        times=times,
        kept=section.weight_memory,
    )
    return schedule, times


def _check_file(schedule: Schedule, section: PipelineSection, where: str) -> None:
    microbatches = 1 + max(action.microbatch for row in schedule.actions for action in row)
    found = (schedule.devices, microbatches)
    if found != (section.stages, section.microbatches):
        raise ScenarioError(
            f"{where}: {schedule.name} has {found[0]} ranks and {found[1]} microbatches, the"
            f" pipeline {section.stages} stages and {section.microbatches} microbatches."
        )


def _stage_times(section: PipelineSection, home: tuple[int, ...], where: str) -> StageTimes:
    forward, backward, weight = (
        _per_stage(getattr(section, name), section, home, f"{where}.{name}")
        for name in ("forward", "backward", "weight")
    )
    return StageTimes(forward, backward, weight, _hops(section, where))


def _per_stage(
    times: Durations, section: PipelineSection, home: tuple[int, ...], where: str
) -> tuple[int, ...]:
    """Return the time of each virtual stage: as listed, or its share of its device's time."""
    devices, stages = section.stages, len(home)
    if len(times) == stages > devices and section.schedule != "dualpipe":
        return tuple(times)
    if len(times) not in (1, devices):
        each = f", or {stages} for the virtual stages" if stages > devices else ""
        raise ScenarioError(
            f"{where}: {len(times)} times for {devices} stages. Give one time, or {devices} of"
            f" them{each if section.schedule != 'dualpipe' else ''}."
        )
    whole = tuple(times) * devices if len(times) == 1 else tuple(times)
    if section.schedule == "dualpipe":
        return whole * 2
    shares = Counter(home)
    return tuple(round(whole[device] / shares[device]) for device in home)


def _hops(section: PipelineSection, where: str) -> tuple[int, ...]:
    devices, given = section.stages, tuple(section.p2p)
    if len(given) == 1:
        return given * devices
    if len(given) not in (devices - 1, devices):
        raise ScenarioError(
            f"{where}.p2p: {len(given)} times for the {devices - 1} boundaries of"
            f" {devices} stages. Give one time, or {devices - 1} of them."
        )
    return given if len(given) == devices else (*given, max(given))


def _pair_times(
    section: PipelineSection, schedule: Schedule, times: StageTimes, where: str
) -> tuple[int, ...]:
    """Return how long a pair takes whose forward is on each stage; empty for as long as both."""
    if section.overlapped is None:
        return ()
    if not any(schedule.paired):
        raise ScenarioError(
            f"{where}.overlapped: {schedule.name} runs no forward and backward as one. Leave it"
            " out, or use dualpipe or dualpipev."
        )
    return _per_stage(section.overlapped, section, schedule.home, f"{where}.overlapped")


def _add_work(
    build: GraphBuilder, schedule: Schedule, times: StageTimes, pair: tuple[int, ...]
) -> None:
    """Add all actions in execution order, each after what it needs from other devices."""
    found = OrderColumns.of(schedule)
    rows = [action for row in schedule.actions for action in row]
    order = found.order
    ops = np.empty(len(order), dtype=np.int64)
    ops[order] = np.arange(len(order))
    by_op = np.argsort(ops[found.waits], kind="stable")
    waits, source = found.waits[by_op], found.source[by_op]
    ends = zip(found.device[source].tolist(), found.device[waits].tolist(), strict=True)
    hop = cache(times.hop)
    counts = np.bincount(ops[waits], minlength=len(order))
    work = np.array([_NUMBER[action[0]] for action in rows])[order]
    microbatch = np.array([action[2] for action in rows])[order]
    size = 1 + int(microbatch.max(initial=0))
    used, first, name = np.unique(
        _LETTERS[work] * size + microbatch, return_index=True, return_inverse=True
    )
    by_use = np.argsort(first)
    place = np.empty(len(used), dtype=np.int64)
    place[by_use] = np.arange(len(used))
    build.computes(
        [f"{'FBW'[one // size]}{one % size}" for one in used[by_use].tolist()],
        name=place[name],
        lane=found.device[order],
        duration=list(map(_durations(rows, schedule, times, pair).__getitem__, order.tolist())),
        phase=_PHASES[work],
        step=0,
        microbatch=microbatch,
        stage=found.stage[order],
        dep_ptr=np.concatenate(([0], np.cumsum(counts))),
        dep_op=ops[source],
        dep_delay=[hop(*one) for one in ends],
    )


def _durations(
    rows: list[Action], schedule: Schedule, times: StageTimes, pair: tuple[int, ...]
) -> list[int]:
    """Return how long each action takes; the two of a pair share the time of both."""
    whole = [sum(both) for both in zip(times.backward, times.weight, strict=True)]
    of = {Work.F: times.forward, Work.B: whole, Work.I: times.backward, Work.W: times.weight}
    lasting = [of[work][stage] for work, stage, _ in rows]
    first = 0
    for device, actions in enumerate(schedule.actions):
        for at in sorted(schedule.paired[device]) if pair else ():
            forward, backward = actions[at].stage, actions[at + 1].stage
            alone = times.forward[forward]
            share = alone / max(1, alone + whole[backward])
            begins = round(pair[forward] * share)
            lasting[first + at], lasting[first + at + 1] = begins, pair[forward] - begins
        first += len(actions)
    return lasting


def _notes(section: PipelineSection, schedule: Schedule) -> tuple[str, ...]:
    notes = ["pipeline: p2p is a delay; transfers share no link"]
    if any(section.weight) and not schedule.splits_backward:
        notes.append(f"pipeline: {section.schedule} runs the weight gradient inside backward")
    if section.weight_memory != 1 and not is_laid_out(section.schedule):
        notes.append(
            f"pipeline: {section.schedule} is not searched under a cap: weight_memory is not used"
        )
    if len(section.p2p) == section.stages > 1 and not _goes_round(schedule):
        notes.append(
            f"pipeline: {schedule.name} on {section.stages} devices has no way from the last back"
            " to the first: the last p2p time is not used"
        )
    peaks = peak_activations(schedule, kept=Fraction(str(section.weight_memory)))
    most, device = max((peak, -device) for device, peak in enumerate(peaks))
    notes.append(
        f"pipeline: at most {float(most):g} microbatches live on a device (device {-device})"
    )
    return tuple(notes)


def _goes_round(schedule: Schedule) -> bool:
    """Return whether messages pass between the last device and the first, by a way of its own."""
    last = schedule.devices - 1
    hops = {
        frozenset((schedule.home[a], schedule.home[b]))
        for pipe in schedule.pipes
        for a, b in zip(pipe, pipe[1:], strict=False)
    }
    return last > 1 and frozenset((0, last)) in hops
