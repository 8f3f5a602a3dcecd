"""
The `training` section of a scenario, and what of it is not built yet.

Settings that the design knows but this version cannot simulate are read, and refused by name:
a layout that would come out wrong must not come out at all.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from commsim.errors import ScenarioError, did_you_mean
from commsim.models import ModelSection
from commsim.sections import Section
from commsim.units import Size
from commsim.workload.schedules import check_name

__all__ = [
    "WIDTH",
    "BatchSection",
    "ComputeSection",
    "DataParallelSection",
    "ParallelSection",
    "TrainingSection",
    "check_built",
]

Count = Annotated[int, msgspec.Meta(ge=1)]
MIB = 2**20
WIDTH = {"bf16": 2, "fp16": 2, "fp32": 4}
"""Bytes of an activation, a parameter or a gradient, by precision."""

_KINDS = ("ddp", "zero", "fsdp", "hsdp", "dataparallel", "parameter_server")
_PRECISIONS = (*WIDTH, "tf32", "fp8")
_RECOMPUTE = ("none", "selective", "full")


class ParallelSection(Section, frozen=True, kw_only=True):
    """Degrees of the parallel axes; `order` places ranks, fastest axis first.

    `layers_per_stage` lists the layers of each stage where they are not to be even.
    """

    dp: Count = 1
    tp: Count = 1
    pp: Count = 1
    cp: Count = 1
    ep: Count = 1
    sequence_parallel: bool = False
    schedule: str = "1f1b"
    virtual_stages: Count = 1
    order: tuple[str, ...] = ("tp", "cp", "dp", "pp")
    layers_per_stage: tuple[Count, ...] | None = None


class DataParallelSection(Section, frozen=True, kw_only=True):
    """DistributedDataParallel: bucket sizes, and whether reduction overlaps backward."""

    kind: str = "ddp"
    bucket: Size = Size(25 * MIB)
    first_bucket: Size = Size(MIB)
    overlap: bool = True
    stage: Any = None
    shard: Any = None
    offload: Any = None
    prefetch: Any = None
    sync: Any = None


class BatchSection(Section, frozen=True, kw_only=True):
    """Sequences per step over all ranks, and per microbatch and rank."""

    global_: Count = msgspec.field(name="global")
    micro: Count


class ComputeSection(Section, frozen=True, kw_only=True):
    """`efficiency` is the share of the GPU's dense peak that layers reach."""

    efficiency: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None


class TrainingSection(Section, frozen=True, kw_only=True):
    """What a user writes under `training`."""

    model: ModelSection
    batch: BatchSection
    parallel: ParallelSection = ParallelSection()
    data_parallel: DataParallelSection = DataParallelSection()
    precision: str = "bf16"
    recompute: str = "none"
    compute: ComputeSection = ComputeSection()
    steps: Annotated[int, msgspec.Meta(ge=2)] = 2


def check_built(section: TrainingSection, *, where: str) -> None:
    """Refuse, with the field's path, what this version does not simulate.

    Raises:
        ScenarioError: an unknown word, or a setting that is not built yet.
    """
    parallel, data = section.parallel, section.data_parallel
    for axis in ("tp", "cp", "ep"):
        degree = getattr(parallel, axis)
        if degree > 1:
            _not_built(f"{where}.parallel.{axis}", str(degree), "1")
    if parallel.sequence_parallel:
        _not_built(f"{where}.parallel.sequence_parallel", "true", "false")
    if parallel.virtual_stages > 1:
        _not_built(f"{where}.parallel.virtual_stages", str(parallel.virtual_stages), "1")
    if parallel.schedule not in ("naive", "gpipe", "1f1b"):
        check_name(parallel.schedule, where=f"{where}.parallel.schedule")
        _not_built(f"{where}.parallel.schedule", repr(parallel.schedule), "naive, gpipe, 1f1b")
    _word(data.kind, _KINDS, ("ddp",), f"{where}.data_parallel.kind")
    for name in ("stage", "shard", "offload", "prefetch", "sync"):
        if getattr(data, name) is not None:
            raise ScenarioError(f"{where}.data_parallel.{name}: not a setting of kind ddp.")
    _word(section.precision, _PRECISIONS, tuple(WIDTH), f"{where}.precision")
    _word(section.recompute, _RECOMPUTE, ("none",), f"{where}.recompute")
    if section.compute.efficiency is None:
        raise ScenarioError(
            f"{where}.compute.efficiency is missing: the roofline model that could do without it"
            " is not built yet. Give the share of the GPU's peak that layers reach, like"
            " compute: {efficiency: 0.5}."
        )


def _word(value: str, known: tuple[str, ...], built: tuple[str, ...], where: str) -> None:
    if value not in known:
        raise ScenarioError(
            f"{where}: no {value!r}.{did_you_mean(value, known)} Available: {', '.join(built)}."
        )
    if value not in built:
        _not_built(where, repr(value), ", ".join(built))


def _not_built(where: str, value: str, available: str) -> None:
    raise ScenarioError(f"{where}: {value} is not built yet; available: {available}.")
