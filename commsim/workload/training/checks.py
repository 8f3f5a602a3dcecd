"""Which settings of the `training` section go together."""

from __future__ import annotations

from commsim.errors import ScenarioError
from commsim.models import RECOMPUTE_MODULES, Model, modules_of, recipe_of, stack_constants
from commsim.workload.schedules import PAIRABLE, check_name
from commsim.workload.training.section import (
    DataParallelSection,
    ParallelSection,
    TrainingSection,
    is_sharded,
    whole_experts,
)

__all__ = ["check_context", "check_experts", "check_settings"]

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
    _check_some(section, where)
    at = f"{where}.data_parallel"
    for name in _OPTIONAL:
        if getattr(data, name) is not None and name not in _SETTINGS[data.kind]:
            known = ", ".join(_SETTINGS[data.kind]) or "none of these"
            path = at.rpartition(": ")[2]
            raise ScenarioError(
                f"{at}.{name}: not a setting of kind {data.kind}; it has {known}. To change the"
                f' kind, replace all of it: --set "{path}={{kind: {data.kind}}}".'
            )
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
    "virtual_stages": ("pp",),
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


def _check_some(section: TrainingSection, where: str) -> None:
    """Refuse to say for which layers what is not done, or twice."""
    given = [
        name
        for name in ("recompute_every", "recompute_first")
        if getattr(section, name) is not None
    ]
    if given and section.recompute == "none":
        raise ScenarioError(
            f"{where}.{given[0]}: changes nothing, as recompute is none. Leave it out."
        )
    if len(given) == 2:
        raise ScenarioError(f"{where}.recompute_every: and recompute_first: give one of them.")


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


def check_context(section: TrainingSection, model: Model, *, where: str) -> None:
    """Refuse heads that context parallelism cannot divide, and boundaries divided twice.

    Raises:
        ScenarioError: naming the figures that do not go together.
    """
    parallel, shape = section.parallel, model.shape
    heads = shape.heads // parallel.tp
    if parallel.context == "ulysses" and heads % parallel.cp:
        raise ScenarioError(
            f"{where}.context: ulysses divides heads: {shape.heads} heads / tp={parallel.tp} ="
            f" {heads} do not divide by cp={parallel.cp}. Take ring, or a divisor of {heads}."
        )
    if parallel.scatter_gather and parallel.sequence_parallel:
        raise ScenarioError(
            f"{where}.scatter_gather: with sequence_parallel a boundary is divided already."
            " Leave one of them out."
        )


def check_experts(section: TrainingSection, model: Model, *, where: str) -> None:
    """Refuse what needs experts that the model lacks, and a graph of what only the GPU knows.

    Raises:
        ScenarioError: naming the setting.
    """
    capacity, experts = section.parallel.expert_capacity, model.shape.experts
    stashed = stack_constants(str(section.compute.stack)).experts_in_graphs
    if capacity is not None and experts is None:
        raise ScenarioError(
            f"{where}.parallel.expert_capacity: {capacity:g}, but the model has no experts. Leave"
            " it out."
        )
    if section.parallel.shared_overlap and (experts is None or not experts.shared_expert_ffn):
        raise ScenarioError(
            f"{where}.parallel.shared_overlap: the model has no shared experts. Leave it out."
        )
    unknown = experts is not None and capacity is None and not stashed
    if unknown and section.compute.cuda_graph == "full":
        raise ScenarioError(
            f"{where}.compute.cuda_graph: full: the host must learn how many tokens each expert"
            " gets, so a step is no one graph. Give parallel.expert_capacity, take experts, or"
            " compute.stack: nemo-26.06, which keeps them on the GPU."
        )
