"""What a training run assumed and left out, in words for its notes."""

from __future__ import annotations

from typing import Any

from commsim.units import format_size
from commsim.workload.training_plan import TrainingPlan
from commsim.workload.training_section import TrainingSection

__all__ = ["training_notes"]

_DEFAULTED = ("precision", "recompute", "steps")
_DEFAULTED_PARALLEL = ("schedule", "order")


def training_notes(section: TrainingSection, plan: TrainingPlan) -> tuple[str, ...]:
    """Return the defaults in use, the conventions, and what is not simulated."""
    notes = [*plan.model.notes, *_defaults(section)]
    notes.append(
        f"compute: every layer at {plan.efficiency:g} of the GPU's dense {plan.precision} peak;"
        " backward is twice forward; FLOPs count full attention (not causal)"
    )
    if plan.layout.degree("dp") > 1:
        notes.append(_reduction(section, plan))
    if plan.layout.degree("pp") > 1:
        notes.append(
            f"pipeline: {plan.schedule.name}; sends do not hold compute, receives are posted one"
            " action ahead"
        )
    if plan.tied_bytes:
        notes.append(
            "embeddings: tied, so the first and last stage both hold the token table and"
            f" all-reduce its gradient ({format_size(plan.tied_bytes)}) before the optimizer"
        )
    notes.append(
        "optimizer: Adam, 28 bytes of memory traffic per parameter at 0.85 of the memory bandwidth"
        " (assumed)"
    )
    notes.append(
        "left out: data loading, the embedding lookup, norms and other memory-bound work beyond"
        " the efficiency given, gradient clipping, kernel launches, memory limits"
    )
    return tuple(notes)


def _reduction(section: TrainingSection, plan: TrainingPlan) -> str:
    data = section.data_parallel
    overlap = "overlapped with backward" if data.overlap else "after backward"
    return (
        f"data parallel: gradients of {plan.width} bytes in buckets of {format_size(data.bucket)}"
        f" (the first {format_size(data.first_bucket)}) in reverse parameter order, all-reduced"
        f" {overlap} of the last microbatch; a layer's gradients are ready when all of it is done"
    )


def _defaults(section: TrainingSection) -> list[str]:
    """Name the settings that stand at their default."""
    used = [_setting("", section, name) for name in _DEFAULTED]
    if section.parallel.pp > 1:
        used += [_setting("parallel.", section.parallel, name) for name in _DEFAULTED_PARALLEL]
    said = [text for text in used if text]
    return [f"defaults: {', '.join(said)}"] if said else []


def _setting(prefix: str, section: Any, name: str) -> str:
    value = getattr(section, name)
    if value != _default(section, name):
        return ""
    shown = f"[{', '.join(value)}]" if isinstance(value, tuple) else value
    return f"{prefix}{name} {shown}"


def _default(section: Any, name: str) -> Any:
    fields = section.__struct_fields__
    return section.__struct_defaults__[fields.index(name) - len(fields)]
