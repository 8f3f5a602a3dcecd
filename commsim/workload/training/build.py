"""A training section becomes a workload: the graph of its steps, what they do, and notes."""

from __future__ import annotations

from functools import partial

import numpy as np
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.follow import Follow, unfollowed
from commsim.graph import Fold
from commsim.models import (
    FLOP_CONVENTIONS,
    MemoryUse,
    Recompute,
    compute_model,
    hardware_flops,
    parameter_count,
    peak_name,
    training_flops,
)
from commsim.timeline import Timeline
from commsim.workload.result import TrainingFacts, Workload
from commsim.workload.training.axes import Axes
from commsim.workload.training.dataparallel import (
    build_dataparallel,
    check_one_node,
    dataparallel_memory,
)
from commsim.workload.training.memory import resident_memory
from commsim.workload.training.notes import training_notes
from commsim.workload.training.parameter_server import (
    build_parameter_server,
    paces,
    server_memory,
    staleness,
)
from commsim.workload.training.plan import TrainingPlan, plan_training
from commsim.workload.training.section import TrainingSection
from commsim.workload.training.step import build_steps

__all__ = ["build_training"]


SINGLY = 64  # ranks up to which each is written down by itself, in the order of the schedule
_ALIKE = 1.01  # paces of workers that count as one
_NOTHING_TO_DROP = "recompute: selective drops nothing here, as fused attention keeps no scores."


def build_training(
    section: TrainingSection,
    cluster: Cluster,
    *,
    where: str = "training",
    folder: str = ".",
    fold: bool = False,
    shorten: bool = False,
    follow: Follow = unfollowed,
) -> Workload:
    """Return the graph of `section.steps` training steps on all GPUs of `cluster`.

    With `fold`, ranks that do the same have one lane; without, every rank has its own. With
    `shorten`, large steps before the last have fewer microbatches (`build_steps`).

    Raises:
        ScenarioError: see `plan_training`; every message carries the field's path.
    """
    plan = plan_training(section, cluster, where=where, folder=folder)
    section = plan.section
    axes = Axes(plan, cluster)
    model, *_ = [
        compute_model(
            cluster.gpu(rank),
            precision=section.precision,
            section=section.compute,
            where=where,
            gpus=int((axes.gpu == axes.gpu[rank]).sum()),
        )
        for rank in np.unique(axes.gpu, return_index=True)[1].tolist()  # a GPU of each kind
    ]
    idle = section.recompute == "selective" and model.flash
    notes = training_notes(plan, (*model.notes, *((_NOTHING_TO_DROP,) if idle else ())))
    facts = _facts(plan, axes, cluster, recompute="none" if idle else section.recompute)
    kind = section.data_parallel.kind
    if kind == "dataparallel":
        check_one_node(plan, cluster)
        facts = _two_kinds(facts, dataparallel_memory(plan), 1)
        return Workload("training", build_dataparallel(plan, cluster), notes, facts)
    if kind == "parameter_server":
        facts = _two_kinds(facts, server_memory(plan), section.data_parallel.servers or 1)
        remarks = partial(_stale, plan) if section.data_parallel.sync is False else None
        return Workload(
            "training", build_parameter_server(plan, cluster), notes, facts, afterwards=remarks
        )

    world = plan.layout.world
    laid_down_once = fold or world > SINGLY
    roles = axes.roles if laid_down_once else np.arange(world)
    graph = build_steps(
        plan,
        cluster,
        axes,
        Fold.of(roles, axes.groups, axes.pairs),
        shorten=shorten,
        unfolds=laid_down_once and not fold,
        follow=follow,
    )
    return Workload("training", graph, notes, facts)


def _two_kinds(
    facts: TrainingFacts, resident: tuple[MemoryUse, MemoryUse], first: int
) -> TrainingFacts:
    """Return the facts if the `first` ranks hold another share than the others."""
    device = tuple(int(rank >= first) for rank in range(len(facts.device_of_rank)))
    return replace(facts, resident=resident, device_of_rank=device)


def _stale(plan: TrainingPlan, timeline: Timeline) -> tuple[str, ...]:
    """Say how stale the parameters of an asynchronous run were, and how workers differ in pace."""
    remarks = f"parameter server: asynchronous, mean staleness {staleness(timeline):.2f} updates"
    found = paces(timeline)
    if max(found) > _ALIKE * min(found):
        each = plan.microbatches * plan.section.batch.micro * plan.model.seq_len
        remarks += (
            f"; over {plan.section.steps} steps one takes workers {min(found):.3g} to"
            f" {max(found):.3g} s, and the step time is"
            f" the slowest one's: free to run on, they do {each * sum(1 / p for p in found):,.0f}"
            " tokens per second together"
        )
    return (remarks,)


def _facts(
    plan: TrainingPlan, axes: Axes, cluster: Cluster, *, recompute: Recompute
) -> TrainingFacts:
    """Return what is known of a step; `recompute` is what really runs again."""
    shape, seq, section = plan.model.shape, plan.model.seq_len, plan.section
    sequences = plan.sequences
    devices = range(plan.schedule.devices)
    held = [sum(stage.parameters for stage in plan.held(device)) for device in devices]
    device_of = axes.places["pp"].tolist()
    kinds, ranks = np.unique(axes.gpu, return_index=True)
    counts = np.bincount(axes.gpu)
    peaks = [cluster.gpu(int(rank)).tflops[peak_name(section.precision)] * 1e12 for rank in ranks]
    once = training_flops(shape, batch=sequences, seq=seq)
    again = hardware_flops(shape, batch=sequences, seq=seq, recompute=recompute) - once
    return TrainingFacts(
        model_flops=float(once),
        hardware_flops=float(once + again * plan.recomputed),
        flop_convention=f"{FLOP_CONVENTIONS[False]}, no recompute",
        tokens=sequences * seq,
        parameters=parameter_count(shape),
        rank_parameters=tuple(held[device] for device in device_of),
        peak_flops=float(np.average(peaks, weights=counts[kinds])),
        resident=tuple(resident_memory(plan, device) for device in devices),
        device_of_rank=tuple(device_of),
        capacity_of_rank=tuple(
            cluster.gpu(int(ranks[kind])).memory_bytes for kind in axes.gpu.tolist()
        ),
        staged=plan.layout.degree("pp") > 1,
    )
