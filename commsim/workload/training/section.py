"""The `training` section of a scenario, as a user writes it."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec

from commsim.models import (
    PRECISION_NAMES,
    RECOMPUTE,
    RECOMPUTE_MODULES,
    ComputeSection,
    ModelSection,
    Module,
)
from commsim.sections import Section
from commsim.units import Size
from commsim.workload.schedules import usual_schedule

__all__ = [
    "WIDTH",
    "BatchSection",
    "ComputeSection",
    "DataParallelSection",
    "ParallelSection",
    "TrainingSection",
    "is_sharded",
    "whole_experts",
]

Count = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
AtLeastOne = Annotated[float, msgspec.Meta(ge=1)]
WIDTH = {name: 4 if name in ("fp32", "tf32") else 2 for name in PRECISION_NAMES}
"""Bytes of an activation, a parameter or a gradient, by precision; fp8 is for products only."""
Precision = Literal[
    "bf16",
    "fp16",
    "fp32",
    "tf32",
    "fp8",
    "fp8-cs",
    "fp8-row",
    "fp8-block",
    "mxfp8",
    "nvfp4",
    "fp8-ds",
    "fp8_ds",
    "fp8_cs",
    "fp8row",
    "fp8_row",
    "fp8-sc",
    "fp8_sc",
    "fp8-mx",
    "fp8_mx",
    "fp4",
]


class ParallelSection(Section, frozen=True, kw_only=True):
    """Degrees of the parallel axes; `order` places ranks, fastest axis first.

    Without a `schedule` it is 1f1b, or interleaved_1f1b where there are virtual stages.
    `layers_per_stage` lists the layers of each stage (or virtual stage) if they are not to
    be even. `tp_overlap` says what tensor-parallel collectives run alongside: nothing, the weight
    gradients (Megatron's asynchronous all-reduce), all of a block but for the last quarter of a
    forward's reduction (ring: userbuffers, async TP), or all (full); without it, as the stack does.
    `etp` is the tensor parallelism of experts: that of the rest, or 1, where a rank sends its own
    tokens to whole experts and `ep` divides them over tp x dp x cp. `context` is how attention sees
    other ranks' tokens: `ring` or `ulysses`. `scatter_gather` sends 1/tp of a boundary and gathers
    it after. `dispatcher`: tokens go to their experts once
    per copy (alltoall) or once per rank and node (deepep; deepep-fp8 in a byte per entry). With
    `expert_capacity` an expert takes so many times the mean of its tokens, filled up, and the rest
    is dropped. `expert_skew`: the busiest expert rank gets
    so many times the mean. `expert_overlap`: each backward runs as one with the next forward, so
    that tokens of one travel while the other computes; without it, as the stack does.
    `shared_overlap`: shared experts run while tokens travel to and from the routed ones.
    """

    dp: Count = 1
    tp: Count = 1
    pp: Count = 1
    cp: Count = 1
    ep: Count = 1
    sequence_parallel: bool = False
    schedule: str = ""
    virtual_stages: Count = 1
    order: tuple[str, ...] = ("tp", "cp", "dp", "pp")
    layers_per_stage: tuple[Natural, ...] | None = None
    tp_overlap: Literal["none", "weight", "ring", "full"] | None = None
    etp: Count | None = None
    context: Literal["ring", "ulysses"] = "ring"
    scatter_gather: bool = False
    dispatcher: Literal["alltoall", "deepep", "deepep-fp8"] | None = None
    expert_capacity: Positive | None = None
    expert_skew: AtLeastOne = 1.0
    expert_overlap: bool | None = None
    shared_overlap: bool = False

    def __post_init__(self) -> None:
        """Take the schedule that the stages need, if none is named."""
        if not self.schedule:
            msgspec.structs.force_setattr(self, "schedule", usual_schedule(self.virtual_stages))


class DataParallelSection(Section, frozen=True, kw_only=True):
    """How replicas keep their parameters equal.

    ddp, zero: `bucket`, `first_bucket`, `overlap` (without them, as the stack does), `no_sync`
    (reduce in the last microbatch only). zero: `stage` 1 to 3, `prefetch` (gather parameters
    during the next forward), `offload: cpu`. fsdp: `shard: full` or `grad_op`; hsdp: `shard` is
    the ranks of a shard group; both: `prefetch` is the units gathered ahead, `reshard` when whole
    parameters are given up (after each pass of a microbatch, or once per step), `no_sync` as
    above, whole gradients being added up until then. parameter_server:
    `sync`, `servers`.
    `gradients` is the precision they are reduced in. zero, stages 1 and 2: `parameters: fp8`,
    weights of layers are gathered as quantised products take them, in a byte each.
    """

    kind: Literal["ddp", "zero", "fsdp", "hsdp", "dataparallel", "parameter_server"] = "ddp"
    bucket: Size | None = None
    first_bucket: Size | None = None
    overlap: bool | None = None
    no_sync: bool | None = None
    gradients: Literal["bf16", "fp16", "fp32"] | None = None
    parameters: Literal["fp8"] | None = None
    stage: Annotated[int, msgspec.Meta(ge=1, le=3)] | None = None
    shard: Literal["full", "grad_op"] | Count | None = None
    offload: Literal["cpu"] | None = None
    prefetch: bool | Natural | None = None
    reshard: Literal["microbatch", "step"] | None = None
    sync: bool | None = None
    servers: Count | None = None


class BatchSection(Section, frozen=True, kw_only=True):
    """Sequences per step over all ranks, and per microbatch and rank."""

    global_: Count = msgspec.field(name="global")
    micro: Count


class TrainingSection(Section, frozen=True, kw_only=True):
    """What a user writes under `training`.

    Recompute is for every layer, or with `recompute_every` for each so many-th (torchtitan's
    selective_ac_option), or with `recompute_first` for the first so many of each stage, or virtual
    stage (Megatron's recompute_method block).
    """

    model: ModelSection
    batch: BatchSection
    parallel: ParallelSection = ParallelSection()
    data_parallel: DataParallelSection = DataParallelSection()
    precision: Precision = "bf16"
    recompute: Literal["none", "selective", "selective_op", "full"] | tuple[Module, ...] = "none"
    recompute_every: Count | None = None
    recompute_first: Count | None = None
    compute: ComputeSection = ComputeSection()
    steps: Annotated[int, msgspec.Meta(ge=2)] = 2


assert set(PRECISION_NAMES) == set(get_args(Precision))
assert set(RECOMPUTE) == {"none", "selective", "selective_op", "full"}
assert set(RECOMPUTE_MODULES) == set(get_args(Module))


def whole_experts(parallel: ParallelSection) -> bool:
    """Return whether tensor parallelism leaves experts whole."""
    return parallel.etp == 1 and parallel.tp > 1


def is_sharded(data: DataParallelSection) -> bool:
    """Return whether parameters are sharded and gathered unit by unit."""
    return data.kind in ("fsdp", "hsdp") or data.stage == 3
