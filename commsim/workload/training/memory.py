"""
Memory of a training step: what the parameters hold all the time, what activations take and
give back as ops run, and both together at the peak.

A unit's activations are taken by the first op of its forward and given back by the last one of
its backward (of its weight gradient, if that is apart); what exists only while a layer is
computed again lives as long as its backward.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import groupby, product
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from commsim.models import (
    ComputeModel,
    MemoryUse,
    Stack,
    embedding_activation_bytes,
    head_activation_bytes,
    head_working_bytes,
    layer_activation_bytes,
    layer_working_bytes,
    memory_text,
    recipe_of,
    stack_constants,
    state_bytes,
)
from commsim.timeline import Timeline
from commsim.workload.result import TrainingFacts
from commsim.workload.schedules import Work
from commsim.workload.training.gathering import gathered, gathered_again
from commsim.workload.training.plan import TrainingPlan
from commsim.workload.training.stage_compiler import StageOps
from commsim.workload.training.stages import EMBEDDING, HEAD, Unit, unit_kinds
from commsim.workload.training.work_items import COMPUTE, WorkItem

__all__ = ["Actions", "peak_memory", "resident_memory", "with_memory"]

T = TypeVar("T")

_BUCKETS_AT_ONCE = 2  # one that fills, one on its way to the host
CUDA_CONTEXT = 512 * 2**20
"""What a process takes on an A100 or H100 before its first tensor (nvidia-smi; estimate)."""
NCCL_COMMUNICATOR = 16 * 9_600_000
"""Receive buffers of a ring: 16 channels of 4 MiB (Simple), 4.9 MB (LL128) and 0.5 MiB (LL), the
defaults of NCCL's src/include/device.h."""


def with_memory(
    stage_ops: StageOps, plan: TrainingPlan, model: ComputeModel, units: tuple[Unit, ...]
) -> StageOps:
    """Return the ops of a stage with the bytes that their compute takes and gives back."""
    forward, backward = list(stage_ops.forward), list(stage_ops.backward)
    first, second = list(stage_ops.input_backward), list(stage_ops.weight)
    in_forward, in_backward, in_first, in_second = (
        _places(work_list) for work_list in (forward, backward, first, second)
    )
    for index, unit in enumerate(units):
        kept, working = _activations(plan, model, unit)
        if not all(index in places for places in (in_forward, in_backward, in_first)):
            continue
        apart = index in in_second
        _add(forward, in_forward[index], alloc=kept)
        _add(backward, in_backward[index], alloc=working, free=working + kept)
        _add(first, in_first[index], alloc=working, free=working if apart else working + kept)
        if apart:
            _add(second, in_second[index], free=kept)
    return StageOps(tuple(forward), tuple(backward), tuple(first), tuple(second))


def _places(work_list: list[WorkItem]) -> dict[int, tuple[int, int]]:
    """Return where each unit's first and last compute is in a work list."""
    found: dict[int, tuple[int, int]] = {}
    for at, item in enumerate(work_list):
        if item.kind == COMPUTE:
            found[item.unit] = (found.get(item.unit, (at, at))[0], at)
    return found


def _add(
    work_list: list[WorkItem], places: tuple[int, int], *, alloc: int = 0, free: int = 0
) -> None:
    begin, end = places
    work_list[begin] = work_list[begin]._replace(alloc=work_list[begin].alloc + alloc)
    work_list[end] = work_list[end]._replace(free=work_list[end].free + free)


def _activations(plan: TrainingPlan, model: ComputeModel, unit: Unit) -> tuple[int, int]:
    """Return the bytes that a unit keeps of a microbatch, and what exists while it runs again."""
    shape, split, width = plan.model.shape, plan.split, plan.width
    if unit.kind == EMBEDDING:
        return embedding_activation_bytes(shape, split), 0
    if unit.kind == HEAD:
        logit = model.stack.logit_bytes
        if plan.section.data_parallel.kind == "dataparallel":
            logit = 4.0  # the first GPU computes the loss of all, see dataparallel_memory
        return (
            head_activation_bytes(shape, split, width=width, logit_bytes=logit),
            head_working_bytes(shape, split, logit_bytes=logit),
        )
    recipe, cast = recipe_of(plan.section.precision), None
    if recipe.quantised and model.stack.saves_fp8:
        cast = recipe.bits / 8
    kept, working = (
        figure(
            shape,
            split,
            layer=unit.layer,
            recompute=plan.section.recompute if unit.again else "none",
            flash=model.flash,
            width=width,
            cast=cast,
        )
        for figure in (layer_activation_bytes, layer_working_bytes)
    )
    return kept, working


Figure = Callable[[tuple[WorkItem, ...], tuple[int, ...]], T]
"""What of_each works out: from a work list, and how often each of its units is repeated."""


class Actions:
    """What the actions of a schedule take and give back: the memory of a step without a run.

    For GPUs of one kind. Layers of a kind that follow each other are compiled twice at most: the
    first, and the second for all others. `known` keeps what is compiled for plans that differ in
    nothing but replicas, stages and schedule.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        model: ComputeModel,
        known: dict[Hashable, StageOps] | None = None,
    ) -> None:
        self._plan = plan
        self._known = {} if known is None else known
        section, parallel = plan.section, plan.section.parallel
        self._same = (
            plan.split,
            section.recompute,
            section.recompute_every,
            section.recompute_first,
            parallel.tp_overlap,
            parallel.context,
            parallel.expert_skew,
        )
        kinds: dict[Hashable, int] = {}
        self._kinds: list[tuple[StageOps, tuple[int, ...]]] = []
        self._units: list[tuple[Unit, ...]] = []
        self._kind_of: list[int] = []
        for stage in plan.stages:
            names = unit_kinds(plan.model.shape, stage.units)
            units, repeats = _counted(names, stage.units)
            if (names, repeats) not in kinds:
                kinds[names, repeats] = len(kinds)
                self._kinds.append((self._compiled(units, model), repeats))
                self._units.append(units)
            self._kind_of.append(kinds[names, repeats])

    def _compiled(self, units: tuple[Unit, ...], model: ComputeModel) -> StageOps:
        key = (self._same, unit_kinds(self._plan.model.shape, units))
        if key not in self._known:
            compiled = self._plan.compiler(model).compile(units)
            self._known[key] = with_memory(compiled, self._plan, model, units)
        return self._known[key]

    def units(self, stage: int) -> tuple[Unit, ...]:
        """Return the units of a stage that are compiled, by the numbers that its items have."""
        return self._units[self._kind_of[stage]]

    def peaks(self) -> tuple[int, ...]:
        """Return the most bytes of activations that each device holds at once."""
        swings = self.of_each(_swing)
        found = []
        for actions in self._plan.schedule.actions:
            held = most = 0
            for work, stage, _ in actions:
                above, change = swings[work][stage]
                if held + above > most:
                    most = held + above
                held += change
            found.append(most)
        return tuple(found)

    def of_each(self, figure: Figure[T]) -> dict[Work, list[T]]:
        """Return a figure of the work list of each kind of action, by stage."""
        by_kind = {
            Work.F: [figure(made.forward, repeats) for made, repeats in self._kinds],
            Work.B: [figure(made.backward, repeats) for made, repeats in self._kinds],
            Work.I: [figure(made.input_backward, repeats) for made, repeats in self._kinds],
            Work.W: [figure(made.weight, repeats) for made, repeats in self._kinds],
        }
        return {work: [row[kind] for kind in self._kind_of] for work, row in by_kind.items()}


def _counted(
    kinds: tuple[str | bool, ...], units: tuple[Unit, ...]
) -> tuple[tuple[Unit, ...], tuple[int, ...]]:
    """Return the first two units of each run of equal ones, and how many each stands for."""
    found: list[Unit] = []
    repeats: list[int] = []
    at = 0
    for _, run in groupby(kinds):
        length = len(list(run))
        found += units[at : at + min(length, 2)]
        repeats += [1, length - 1][: min(length, 2)]
        at += length
    return tuple(found), tuple(repeats)


def _swing(work_list: tuple[WorkItem, ...], repeats: tuple[int, ...]) -> tuple[int, int]:
    """Return by how much a work list's memory rises above where it began, and where it ends."""
    held = most = 0
    for unit, items in groupby(work_list, key=lambda item: item.unit):
        above = change = 0
        for item in items:
            change += item.alloc
            above = max(above, change)
            change -= item.free
        times = repeats[unit]
        most = max(most, held + above, held + above + (times - 1) * change)
        held += times * change
    return most, held


def resident_memory(plan: TrainingPlan, device: int) -> MemoryUse:
    """Return what a rank of a pipeline device holds all through a step, activations aside."""
    data = plan.section.data_parallel
    stack = stack_constants(str(plan.section.compute.stack))
    stage = _zero_stage(plan)
    parameters = gradients = optimizer = 0
    widest = _kept_gradient(plan, stack)
    for expert in (False, True):
        entries = sum(u.entries(expert=expert) for s in plan.held(device) for u in s.units)
        shards = plan.expert_sharers if expert else plan.sharers
        if data.kind == "hsdp":
            shards = int(data.shard or 1)
        state = state_bytes(
            entries,
            precision=plan.section.precision,
            zero_stage=stage,
            shards=shards,
            gradient_width=widest,
            **_widths(plan, stack),
        )
        parameters += state.parameters
        gradients += entries * widest if plan.adds_up_whole else state.gradients
        optimizer += 0 if data.offload else state.optimizer
    buffers = _whole_units(plan, device, stage)
    if data.offload and plan.reduces_every_microbatch:  # gradients leave bucket by bucket
        gradients, buffers = 0, min(gradients, _BUCKETS_AT_ONCE * int(data.bucket or 0))
    runtime = CUDA_CONTEXT + NCCL_COMMUNICATOR * plan.communicators
    return MemoryUse(parameters, gradients, optimizer, 0, buffers, runtime, stack.allocator_slack)


def _kept_gradient(plan: TrainingPlan, stack: Stack) -> int:
    """Return the bytes per gradient between steps: FSDP casts it to its parameter's type."""
    if plan.section.data_parallel.kind not in ("fsdp", "hsdp"):
        return plan.gradient_width
    return _widths(plan, stack).get("parameter_width", plan.width)


def _widths(plan: TrainingPlan, stack: Stack) -> dict[str, int]:
    """Return the stack's widths of parameters and optimizer state in training of 2 bytes."""
    if plan.width == 4:
        return {}
    return {"parameter_width": stack.parameter_width, "optimizer_width": stack.optimizer_width}


def _zero_stage(plan: TrainingPlan) -> int:
    data = plan.section.data_parallel
    if plan.sharers == plan.expert_sharers == 1:
        return 0
    if data.stage == 2 and not plan.reduces_every_microbatch:
        return 1  # gradients stay whole until the end
    return 3 if data.kind in ("fsdp", "hsdp") else data.stage or 0


def _whole_units(plan: TrainingPlan, device: int, stage: int) -> int:
    """Return the bytes of units that are whole at once, if parameters are in shards."""
    data = plan.section.data_parallel
    if stage < 3 or data.shard == 1:
        return 0
    units = [unit for held in plan.held(device) for unit in held.units]
    stack = stack_constants(str(plan.section.compute.stack))
    if stack.list_copy_us:
        whole, largest = _in_lists(units, stack)
    else:
        sizes = sorted(
            sum(unit.entries(expert=expert) for expert in (False, True)) for unit in units
        )
        keeps = data.shard == "grad_op" or plan.reshards_once
        whole = sum(sizes) if keeps else sum(sizes[-1 - plan.gathers_ahead(forward=False) :])
        largest = max(sizes, default=0)
    return whole * plan.width + largest * plan.gradient_width


def _in_lists(units: Iterable[Unit], stack: Stack) -> tuple[int, int]:
    """Return the entries of parameters and of gradients that are whole where lists are gathered.

    One tensor at a time with the flat buffer of its collective, and what of a unit is kept from
    its forward for its backward.
    """
    largest = kept = 0
    for unit, expert in product(units, (False, True)):
        sizes = gathered(unit, stack, expert=expert)
        largest = max(largest, *sizes, 0)
        kept = max(kept, sum(sizes) - sum(gathered_again(unit, stack, expert=expert)))
    return max(kept, largest) + largest, 2 * largest


def peak_memory(facts: TrainingFacts, timeline: Timeline) -> tuple[MemoryUse, int, str]:
    """Return the use of the lane that comes closest to its capacity, that, and a sentence.

    Its activations are the most that it held at once.
    """
    ranks = timeline.graph.lane_rank.tolist()
    held = np.zeros(len(ranks), dtype=np.int64)
    np.maximum.at(held, timeline.memory.lane, timeline.memory.held)
    found: list[tuple[float, int, MemoryUse]] = []
    for rank, activations in zip(ranks, held.tolist(), strict=True):
        use = replace(facts.resident[facts.device_of_rank[rank]], activations=activations)
        found.append((use.total / facts.capacity_of_rank[rank], rank, use))
    most, rank, use = max(found, key=lambda one: one[0])
    full = frozenset(rank for share, rank, _ in found if share == most)
    place, capacity = _place(facts, rank, full, ranks), facts.capacity_of_rank[rank]
    return use, capacity, memory_text(use, capacity, place=place)


def _place(facts: TrainingFacts, rank: int, full: frozenset[int], ranks: list[int]) -> str:
    """Name the GPUs that are fullest: all, a pipeline stage, or one (the first) of those `full`."""
    if len(full) == len(ranks):
        return "on every GPU" if len(facts.device_of_rank) > 1 else "on the GPU"
    if not facts.staged:
        return f"on GPU {rank}"
    stage = facts.device_of_rank[rank]
    whole = all(other in full for other in ranks if facts.device_of_rank[other] == stage)
    return f"on stage {stage}" if whole else f"on stage {stage} (GPU {rank})"
