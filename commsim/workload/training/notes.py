"""What a training run assumed and left out, in words for its notes."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from commsim.models import FLOP_CONVENTIONS, peak_name
from commsim.units import format_size
from commsim.workload.schedules import Work, peak_activations, usual_schedule
from commsim.workload.training.bucketed import CPU_ADAM_PER_NODE
from commsim.workload.training.plan import TrainingPlan
from commsim.workload.training.section import DataParallelSection

__all__ = ["training_notes"]

_DEFAULTED = ("precision", "recompute", "steps")
_DEFAULTED_PARALLEL = ("schedule", "order")


def training_notes(plan: TrainingPlan, compute: tuple[str, ...]) -> tuple[str, ...]:
    """Return the defaults in use, the conventions, and what is not simulated."""
    section, parallel = plan.section, plan.section.parallel
    notes = [*plan.model.notes, *_defaults(plan), *compute]
    peak = peak_name(section.precision)
    notes.append(f"MFU: of the dense {peak} peak; its FLOPs count {FLOP_CONVENTIONS[False]}")
    if plan.sharers > 1 or section.data_parallel.kind == "dataparallel":
        notes.append(_replicas(plan))
    elif plan.given != DataParallelSection():
        notes.append(
            "data parallel: one replica, so there is nothing to shard or to reduce, and its"
            f" settings change nothing in that{_offload(plan)}"
        )
    if parallel.pp > 1:
        most = max(peak_activations(plan.schedule))
        notes.append(
            f"pipeline: {plan.schedule.name}, at most {float(most):g} microbatches live on a stage;"
            " sends do not hold compute, receives are posted one action ahead"
        )
        notes += _uneven(plan)
    if parallel.tp > 1:
        notes.append(_tensor(plan))
    if parallel.cp > 1:
        notes.append(
            f"context parallel: {parallel.context}; the causal load is balanced over the ranks"
            " (zig-zag)"
        )
    if parallel.ep > 1:
        skew = parallel.expert_skew
        share = "evenly" if skew == 1 else f"with {skew:g} times the mean on the busiest rank"
        notes.append(f"experts: tokens are spread {share}; no capacity limit, none dropped")
    if plan.tied_bytes:
        notes.append(
            "embeddings: tied, so the first and last stage both hold the token table and"
            f" all-reduce its gradient ({format_size(plan.tied_bytes)}) before the optimizer"
        )
    notes.append("left out: data loading, gradient clipping, the host beyond what issues kernels")
    return tuple(notes)


def _uneven(plan: TrainingPlan) -> list[str]:
    """Say how layers that do not divide over the parts of a pipeline were laid."""
    parts = {stage.part: stage.units for stage in plan.stages}
    counts = [sum(unit.layer >= 0 for unit in parts[part]) for part in sorted(parts)]
    if plan.section.parallel.layers_per_stage is not None or len(set(counts)) < 2:
        return []
    runs = [(count, len(list(same))) for count, same in groupby(counts)]
    told = " + ".join(f"{many} x {count}" if many > 1 else str(count) for count, many in runs)
    return [
        f"pipeline: {told} layers, as embedding and head count as one each; layers_per_stage lays"
        " them otherwise"
    ]


def _replicas(plan: TrainingPlan) -> str:
    data = plan.section.data_parallel
    if data.kind in ("fsdp", "hsdp") or data.stage == 3:
        where = "all replicas" if data.kind != "hsdp" else f"groups of {data.shard}"
        ahead = plan.gathers_ahead(forward=False)
        once = " once per step" if plan.reshards_once else ""
        when = "behind the last microbatch" if plan.adds_up_whole else "in every microbatch"
        return (
            f"data parallel: parameters sharded over {where}, gathered unit by unit {ahead}"
            f" ahead{once}; gradients scattered {when}"
        )
    if data.kind == "dataparallel":
        return "data parallel: torch DataParallel; Python's interpreter lock is not modelled"
    if data.kind == "parameter_server":
        how = "asynchronous" if data.sync is False else "synchronous"
        return (
            f"data parallel: parameter server, {how}; servers: {data.servers or 1}, the first"
            f" ranks; workers: {_workers(plan)}; pushed and pulled whole, after backward"
        )
    overlap = "overlapped with backward" if plan.overlaps_reductions else "after backward"
    what = "every microbatch" if plan.reduces_every_microbatch else "the last microbatch"
    if plan.agree_at_the_end:
        what += " (the two ends of dualpipe run their parts in different orders)"
    kind = "all-reduced" if data.kind == "ddp" else f"reduce-scattered (ZeRO-{data.stage})"
    return (
        f"data parallel: gradients of {plan.gradient_width} bytes in buckets of"
        f" {format_size(int(data.bucket or 0))} (the first"
        f" {format_size(int(data.first_bucket or 0))}) in reverse parameter order,"
        f" {kind} {overlap} of {what}; a unit's gradients are ready when all of it is"
        f" done{_offload(plan)}"
    )


def _offload(plan: TrainingPlan) -> str:
    if not plan.section.data_parallel.offload:
        return ""
    return (
        "; gradients go to the host, whose CPUs update"
        f" {CPU_ADAM_PER_NODE:.0e} parameters per second and node"
    )


def _workers(plan: TrainingPlan) -> int:
    """Return the workers of a parameter server."""
    return plan.layout.world - (plan.section.data_parallel.servers or 1)


def _tensor(plan: TrainingPlan) -> str:
    parallel = plan.section.parallel
    how = {
        "none": "its collectives hold compute",
        "weight": "its backward collectives run beside the weight gradients",
        "ring": "its collectives run next to a block's products, but for the last quarter of a"
        " forward's reduction",
        "full": "its collectives run beside a block's products, as if split finely",
    }[parallel.tp_overlap or "none"]
    apart = not any(at.work == Work.B for row in plan.schedule.actions for at in row)
    if parallel.tp_overlap == "weight" and apart:
        how = (
            f"its collectives hold compute: {plan.schedule.name} runs weight gradients apart, so"
            " that tp_overlap weight finds none to run beside"
        )
    pattern = "all-gather and reduce-scatter" if parallel.sequence_parallel else "all-reduce"
    return f"tensor parallel: {pattern} around attention and MLP; {how}"


def _defaults(plan: TrainingPlan) -> list[str]:
    """Name the settings that stand at their default."""
    section, taken = plan.section, plan.taken
    remarks = [*taken.settings, *(_setting("", section, name) for name in _DEFAULTED)]
    if section.parallel.pp > 1:
        remarks += [_setting("parallel.", section.parallel, name) for name in _DEFAULTED_PARALLEL]
    found = []
    if taken.chosen_by:
        stack = section.compute.stack
        remarks.insert(0, f"stack {stack}, which goes with {taken.chosen_by}")
        found.append(
            f"stack: {stack} goes with {taken.chosen_by}; another kind may bring another: fix it"
            " (compute.stack)"
        )
    used = [text for text in remarks if text]
    return [*found, *([f"defaults: {', '.join(used)}"] if used else [])]


def _setting(prefix: str, section: Any, name: str) -> str:
    value = getattr(section, name)
    if value != _default(section, name):
        return ""
    shown = f"[{', '.join(value)}]" if isinstance(value, tuple) else value
    return f"{prefix}{name} {shown}"


def _default(section: Any, name: str) -> Any:
    if name == "schedule":
        return usual_schedule(section.virtual_stages)
    fields = section.__struct_fields__
    return section.__struct_defaults__[fields.index(name) - len(fields)]
