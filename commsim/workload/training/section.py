"""The `training` section of a scenario, and which of its settings go together."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec

from commsim.errors import ScenarioError
from commsim.models import (
    PRECISION_NAMES,
    RECOMPUTE,
    RECOMPUTE_MODULES,
    ComputeSection,
    ModelSection,
    Module,
    modules_of,
    recipe_of,
)
from commsim.sections import Section
from commsim.units import Size
from commsim.workload.schedules import PAIRABLE, check_name

__all__ = [
    "WIDTH",
    "BatchSection",
    "ComputeSection",
    "DataParallelSection",
    "ParallelSection",
    "TrainingSection",
    "check_settings",
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
    schedule: str = "1f1b"
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


class DataParallelSection(Section, frozen=True, kw_only=True):
    """How replicas keep their parameters equal.

    ddp, zero: `bucket`, `first_bucket`, `overlap` (without them, as the stack does), `no_sync`
    (reduce in the last microbatch only). zero: `stage` 1 to 3, `prefetch` (gather parameters
    during the next forward), `offload: cpu`. fsdp: `shard: full` or `grad_op`; hsdp: `shard` is
    the ranks of a shard group; both: `prefetch` is the units gathered ahead, `reshard` when whole
    parameters are given up (after each pass of a microbatch, or once per step), `no_sync` as
    above, whole gradients being added up until then. parameter_server:
    `sync`, `servers`.
    `gradients` is the precision they are reduced in. zero, stages 1 and 2: `parameters: fp8`, weights
    of layers are gathered as quantised products take them, in a byte each.
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
    """What a user writes under `training`."""

    model: ModelSection
    batch: BatchSection
    parallel: ParallelSection = ParallelSection()
    data_parallel: DataParallelSection = DataParallelSection()
    precision: Precision = "bf16"
    recompute: Literal["none", "selective", "selective_op", "full"] | tuple[Module, ...] = "none"
    compute: ComputeSection = ComputeSection()
    steps: Annotated[int, msgspec.Meta(ge=2)] = 2


assert set(PRECISION_NAMES) == set(get_args(Precision))
assert set(RECOMPUTE) == {"none", "selective", "selective_op", "full"}
assert set(RECOMPUTE_MODULES) == set(get_args(Module))

_SETTINGS = {
    "ddp": ("no_sync", "gradients"),
    "zero": ("no_sync", "gradients", "parameters", "stage", "offload", "prefetch"),
    "fsdp": ("no_sync", "gradients", "shard", "prefetch", "reshard"),
    "hsdp": ("no_sync", "gradients", "shard", "prefetch", "reshard"),
    "dataparallel": (),
    "parameter_server": ("gradients", "sync", "servers"),
}
_OPTIONAL = (
    "no_sync",
    "gradients",
    "parameters",
    "stage",
    "shard",
    "offload",
    "prefetch",
    "reshard",
    "sync",
    "servers",
)


def check_settings(section: TrainingSection, *, where: str) -> None:
    """Refuse, with the field's path, settings that do not go together.

    Raises:
        ScenarioError: a setting that the kind of data parallelism does not have or lacks, or
            axes that it does not go with.
    """
    parallel, data = section.parallel, section.data_parallel
    check_name(parallel.schedule, where=f"{where}.parallel.schedule")
    _check_modules(section, where)
    at = f"{where}.data_parallel"
    for name in _OPTIONAL:
        if getattr(data, name) is not None and name not in _SETTINGS[data.kind]:
            known = ", ".join(_SETTINGS[data.kind]) or "none of these"
            raise ScenarioError(f"{at}.{name}: not a setting of kind {data.kind}; it has {known}.")
    _check_kind(data, at)
    _check_parameters(section, at)
    _check_used(section, where)
    if data.kind in ("dataparallel", "parameter_server"):
        used = [axis for axis in ("tp", "pp", "cp", "ep") if getattr(parallel, axis) > 1]
        if used:
            raise ScenarioError(
                f"{where}.parallel.{used[0]}: {data.kind} copies the whole model to every GPU;"
                f" leave {used[0]} at 1."
            )
        if parallel.schedule != "1f1b":
            raise ScenarioError(
                f"{where}.parallel.schedule: {parallel.schedule} changes nothing, as {data.kind}"
                " has no pipeline. Leave it out."
            )
    if parallel.sequence_parallel and parallel.tp == 1:
        raise ScenarioError(
            f"{where}.parallel.sequence_parallel: divides what tensor parallelism leaves whole;"
            " give tp above 1, or leave it out."
        )
    _check_experts(parallel, f"{where}.parallel")
    if parallel.schedule == "dualpipe" and is_sharded(data):
        raise ScenarioError(
            f"{at}.kind: dualpipe runs the two copies of a part in different orders, which units"
            " gathered one by one cannot follow. Use ddp, or zero with stage 1; or dualpipev."
        )
    if parallel.schedule == "dualpipe" and data.no_sync is False:
        raise ScenarioError(
            f"{at}.no_sync: dualpipe runs the two copies of a part in different orders, which only"
            " agree behind the last backward. Leave no_sync out; or use dualpipev."
        )
    if data.kind == "hsdp" and parallel.ep > 1:
        raise ScenarioError(
            f"{at}.kind: hsdp with ep={parallel.ep}: experts have groups of their own. Use fsdp."
        )
    if data.kind == "hsdp" and isinstance(data.shard, int):
        _divides(data.shard, "", parallel, f"{at}.shard")


_NEEDS = {  # setting of `parallel`: the axes that give it a meaning
    "tp_overlap": ("tp",),
    "scatter_gather": ("tp", "pp"),
    "context": ("cp",),
    "dispatcher": ("ep",),
    "etp": ("tp", "ep"),
    "expert_skew": ("ep",),
    "expert_overlap": ("ep",),
    "shared_overlap": ("ep",),
}


def _check_used(section: TrainingSection, where: str) -> None:
    """Refuse what would change nothing."""
    parallel, data = section.parallel, section.data_parallel
    for name, axes in _NEEDS.items():
        unused = [axis for axis in axes if getattr(parallel, axis) == 1]
        if unused and getattr(parallel, name) != getattr(ParallelSection(), name):
            raise ScenarioError(
                f"{where}.parallel.{name}: changes nothing where {unused[0]} is 1. Leave it out."
            )
    if parallel.expert_overlap:
        _check_paired(section, f"{where}.parallel.expert_overlap")
    if parallel.expert_skew > parallel.ep > 1:
        raise ScenarioError(
            f"{where}.parallel.expert_skew: {parallel.expert_skew:g} times the mean, but with"
            f" ep={parallel.ep} a rank that gets every token has {parallel.ep} times the mean."
            f" Give at most {parallel.ep}."
        )
    if parallel.expert_skew > 1 and parallel.expert_capacity is not None:
        raise ScenarioError(
            f"{where}.parallel.expert_skew: with expert_capacity every expert takes the same."
            " Leave one of them out."
        )
    bucketed = data.kind == "ddp" or (data.kind == "zero" and data.stage != 3)
    for name in ("bucket", "first_bucket", "overlap"):
        if not bucketed and getattr(data, name) != getattr(DataParallelSection(), name):
            raise ScenarioError(
                f"{where}.data_parallel.{name}: only ddp and zero stages 1 and 2 have buckets."
                " Leave it out."
            )
    if bucketed and data.prefetch is not None and not isinstance(data.prefetch, bool):
        raise ScenarioError(
            f"{where}.data_parallel.prefetch: {data.prefetch}: stages 1 and 2 gather beside the"
            " next forward or not: true or false. Units to gather ahead are for stage 3 and fsdp."
        )


def _check_modules(section: TrainingSection, where: str) -> None:
    """Refuse modules that are listed twice, or not at all."""
    given = section.recompute
    if not isinstance(given, str) and len(modules_of(given)) != len(given):
        raise ScenarioError(f"{where}.recompute: {', '.join(given)}: lists a module twice.")
    if given == ():
        raise ScenarioError(
            f"{where}.recompute: no modules. Leave it out, or list some of"
            f" {', '.join(RECOMPUTE_MODULES)}."
        )


def _check_paired(section: TrainingSection, where: str) -> None:
    """Refuse to pair forwards and backwards of what they cannot be paired in."""
    schedule = section.parallel.schedule
    if schedule not in PAIRABLE:
        raise ScenarioError(
            f"{where}: pairs the forwards and backwards of {' and '.join(PAIRABLE)}, not of"
            f" {schedule} (dualpipe and dualpipev pair theirs by themselves). Leave one out."
        )
    if is_sharded(section.data_parallel):
        raise ScenarioError(
            f"{where}: runs a forward and a backward as one, which units gathered one by one"
            f" cannot follow. Use ddp, or zero with stage 1; or leave it out."
        )


def whole_experts(parallel: ParallelSection) -> bool:
    """Return whether tensor parallelism leaves experts whole."""
    return parallel.etp == 1 and parallel.tp > 1


def _check_experts(parallel: ParallelSection, where: str) -> None:
    """Refuse degrees of experts that do not divide the ranks that hold them."""
    if parallel.etp not in (None, 1, parallel.tp):
        raise ScenarioError(
            f"{where}.etp: {parallel.etp} divides experts by neither 1 nor tp={parallel.tp}. Give"
            " one of these."
        )
    if not whole_experts(parallel):
        return _divides(parallel.ep, "ep=", parallel, f"{where}.ep")
    if not parallel.sequence_parallel:
        raise ScenarioError(
            f"{where}.etp: 1 sends each rank's own tokens to experts, which needs them divided: add"
            " sequence_parallel: true, or leave etp out."
        )
    holders = parallel.tp * parallel.dp * parallel.cp
    if holders % parallel.ep:
        raise ScenarioError(
            f"{where}.ep: ep={parallel.ep} does not divide tp={parallel.tp} × dp={parallel.dp} ×"
            f" cp={parallel.cp} = {holders} ranks, over which whole experts (etp 1) are divided."
        )
    return None


def is_sharded(data: DataParallelSection) -> bool:
    """Return whether parameters are sharded and gathered unit by unit."""
    return data.kind in ("fsdp", "hsdp") or data.stage == 3


def _divides(size: int, name: str, parallel: ParallelSection, where: str) -> None:
    replicas = parallel.dp * parallel.cp
    if replicas % size:
        raise ScenarioError(
            f"{where}: {name}{size} does not divide dp={parallel.dp} × cp={parallel.cp} ="
            f" {replicas} replicas."
        )


def _check_parameters(section: TrainingSection, at: str) -> None:
    """Refuse weights of a byte where nothing takes them, or where units are gathered."""
    if section.data_parallel.parameters is None:
        return
    if not recipe_of(section.precision).quantised:
        raise ScenarioError(
            f"{at}.parameters: fp8, but precision is {section.precision}, whose products take none."
            " Give an fp8 recipe as precision, or leave it out."
        )
    if section.data_parallel.stage == 3 or section.data_parallel.offload:
        raise ScenarioError(
            f"{at}.parameters: built for stages 1 and 2 without offload. Leave one of them out."
        )


def _check_kind(data: DataParallelSection, at: str) -> None:
    if data.kind == "zero" and data.stage is None:
        raise ScenarioError(f"{at}.stage is missing: kind zero has stages 1, 2 and 3.")
    if data.kind == "hsdp" and not isinstance(data.shard, int):
        raise ScenarioError(
            f"{at}.shard: kind hsdp needs the number of ranks that share a copy, like shard: 8."
        )
    if data.kind == "fsdp" and isinstance(data.shard, int):
        raise ScenarioError(
            f"{at}.shard: kind fsdp shards over all replicas: full or grad_op. For groups of"
            f" {data.shard} use kind: hsdp."
        )
    if data.kind == "zero" and data.stage == 3 and data.no_sync is not None:
        raise ScenarioError(f"{at}.no_sync: ZeRO-3 reduces every microbatch. Leave it out.")
    if data.kind == "zero" and data.stage == 2 and data.no_sync:
        raise ScenarioError(
            f"{at}.no_sync: ZeRO-2 keeps no whole gradient to add microbatches up in, so it reduces"
            " every one. Leave it out, or take stage: 1."
        )
    if data.reshard and data.shard == "grad_op":
        raise ScenarioError(
            f"{at}.reshard: shard grad_op says already when whole parameters are given up (behind"
            " the backward). Leave one of them out."
        )
    if data.offload and data.stage == 3:
        raise ScenarioError(f"{at}.offload: built for stages 1 and 2. Take stage: 2.")
