"""What a scenario leaves open, as the software stack has it.

The stack follows from how replicas keep their parameters equal, if none is named; buckets, the
width of gradients and what runs alongside what follow from the stack.
"""

from __future__ import annotations

import msgspec

from commsim.models import Stack, default_stack, recipe_of, stack_constants
from commsim.units import Size, format_size
from commsim.workload.schedules import PAIRABLE
from commsim.workload.training.section import (
    WIDTH,
    DataParallelSection,
    TrainingSection,
    is_sharded,
)

__all__ = ["StackDefaults", "gradient_precision", "with_defaults", "with_stack"]

_REDUCED = ("ddp", "zero", "fsdp", "hsdp")


class StackDefaults(msgspec.Struct, frozen=True):
    """What a section left open and its stack filled in."""

    chosen_by: str
    """The kind of data parallelism that the stack goes with, "" if the section names a stack."""
    settings: tuple[str, ...]
    """Each with its value, as notes show it."""


def with_defaults(section: TrainingSection, *, where: str) -> tuple[TrainingSection, StackDefaults]:
    """Return the section with its stack's defaults filled in, and what was taken.

    Raises:
        ScenarioError: an unknown stack.
    """
    data = section.data_parallel
    taken: list[str] = []
    chosen_by = "" if section.compute.stack else _kind(data)
    name = section.compute.stack or default_stack(chosen_by)
    stack = stack_constants(name, where=f"{where}.compute.stack")
    if data.kind in _REDUCED:
        data = _reductions(data, section, stack, taken)
    parallel = section.parallel
    if parallel.tp_overlap is None:
        overlap = stack.tp_overlap if parallel.tp > 1 and parallel.sequence_parallel else "none"
        parallel = msgspec.structs.replace(parallel, tp_overlap=overlap)
        if parallel.tp > 1:
            taken.append(f"tp_overlap {overlap}")
    if parallel.dispatcher is None and parallel.ep > 1:
        parallel = msgspec.structs.replace(parallel, dispatcher=stack.dispatcher)
        taken.append(f"dispatcher {stack.dispatcher}")
    if parallel.expert_overlap is None and parallel.ep > 1:
        pairs = parallel.schedule in PAIRABLE and not is_sharded(data)
        pairs = pairs and stack.expert_overlap
        parallel = msgspec.structs.replace(parallel, expert_overlap=pairs)
        if pairs:
            taken.append("expert_overlap true")
    compute = section.compute
    if compute.cuda_graph is None and stack.cuda_graph != "none":
        compute = msgspec.structs.replace(compute, cuda_graph=stack.cuda_graph)
        taken.append(f"cuda_graph {stack.cuda_graph}")
    filled = msgspec.structs.replace(
        section,
        data_parallel=data,
        parallel=parallel,
        compute=msgspec.structs.replace(compute, stack=name),
    )
    return filled, StackDefaults(chosen_by, tuple(taken))


def with_stack(section: TrainingSection) -> TrainingSection:
    """Return the section with its stack named: other ways to share then keep the same software."""
    stack = section.compute.stack or default_stack(_kind(section.data_parallel))
    compute = msgspec.structs.replace(section.compute, stack=stack)
    return msgspec.structs.replace(section, compute=compute)


def gradient_precision(precision: str, stack: Stack) -> str:
    """Return the precision in which gradients are reduced: bf16 training has fp32 ones or not."""
    if precision in ("fp16", "fp32", "tf32"):
        return "fp32" if WIDTH[precision] == 4 else "fp16"
    return "fp32" if stack.gradient_width == 4 else "bf16"


def _kind(data: DataParallelSection) -> str:
    """Return the key of `stack_of`: ZeRO by its stage."""
    return f"zero_{data.stage}" if data.kind == "zero" else data.kind


def _reductions(
    data: DataParallelSection, section: TrainingSection, stack: Stack, taken: list[str]
) -> DataParallelSection:
    """Return how gradients are reduced, with what is added to `taken`."""
    changes: dict[str, object] = {}
    if data.gradients is None:
        changes["gradients"] = gradient_precision(section.precision, stack)
        if recipe_of(section.precision).bits <= 16:
            taken.append(f"gradients {changes['gradients']}")
    if data.kind in ("fsdp", "hsdp"):
        changes |= _sharding(data, section, stack, taken)
    if data.kind in ("ddp", "zero") and data.stage != 3:
        if data.overlap is None:
            changes["overlap"] = stack.overlap
            taken.append(f"overlap {'true' if stack.overlap else 'false'}")
        width = WIDTH[str(changes.get("gradients") or data.gradients)]
        size, first = _buckets(stack, section, width)
        if data.bucket is None:
            changes["bucket"] = size
            taken.append(f"bucket {format_size(size)}")
        if data.first_bucket is None:
            changes["first_bucket"] = min(first, data.bucket or size)
    return msgspec.structs.replace(data, **changes)


def _sharding(
    data: DataParallelSection, section: TrainingSection, stack: Stack, taken: list[str]
) -> dict[str, object]:
    """Return when whole parameters are given up and gradients reduced, with what was taken.

    A pipeline of torch keeps a stage whole from its first forward to its last backward, and
    reduces then (github pytorch/pytorch torch/distributed/pipelining/stage.py,
    backward_maybe_with_nosync); torchtitan's fsdp_reshard_after_forward goes by that.
    """
    staged, changes = section.parallel.pp > 1, dict[str, object]()
    if data.no_sync is None:
        changes["no_sync"] = staged or stack.adds_up_whole
        if changes["no_sync"]:
            taken.append("no_sync true")
    if data.reshard is None and data.shard != "grad_op":
        changes["reshard"] = "step" if staged else "microbatch"
        if staged:
            taken.append("reshard step")
    return changes


def _buckets(stack: Stack, section: TrainingSection, width: int) -> tuple[Size, Size]:
    """Return the bytes of a bucket and of the first one.

    Megatron-Core: max(40e6, 1e6 x replicas) entries (distributed_data_parallel_config.py);
    DistributedDataParallel: 25 MiB, the first 1 MiB.
    """
    rule, replicas = stack.buckets, section.parallel.dp * section.parallel.cp
    if rule.bytes:
        return Size(round(rule.bytes)), Size(round(rule.first_bytes or rule.bytes))
    size = Size(round(max(rule.entries, rule.per_replica * replicas) * width))
    return size, size
