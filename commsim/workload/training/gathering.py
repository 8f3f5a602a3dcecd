"""
What the collectives of a unit's sharded parameters hold: all of the unit, or one tensor each.

FSDP gathers a unit at once, out of one flat buffer. DeepSpeed gathers tensor by tensor, and leaves
small ones whole (`stage3_param_persistence_threshold`). Where a layer runs again before its
backward, a tensor that the backward needs more than `stage3_max_reuse_distance` entries later is
given up in between and gathered once more: the distance is twice what of the unit lies behind it,
once in the pass that runs again and once in the backward.
"""

from __future__ import annotations

from commsim.models import Stack
from commsim.workload.training.stages import Unit

__all__ = ["gathered", "gathered_again", "reduced"]


def gathered(unit: Unit, stack: Stack, *, expert: bool) -> tuple[int, ...]:
    """Return the entries of each gather of a unit: those of experts, or all others."""
    sizes = _sharded(unit, stack, expert=expert)
    return _together(sizes) if stack.gather_by == "unit" else sizes


def gathered_again(unit: Unit, stack: Stack, *, expert: bool) -> tuple[int, ...]:
    """Return the entries of what the backward gathers anew after the unit has run again."""
    sizes = _sharded(unit, stack, expert=expert)
    return tuple(
        size
        for at, size in enumerate(sizes)
        if stack.gather_by == "tensor" and 2 * sum(sizes[at + 1 :]) > stack.kept_within
    )


def reduced(unit: Unit, stack: Stack, *, expert: bool) -> tuple[int, ...]:
    """Return the entries of each reduction of a unit's gradients: lists take one tensor each."""
    sizes = tuple(tensor.entries for tensor in unit.tensors if tensor.expert == expert)
    return sizes if stack.list_copy_us else _together(sizes)


def _sharded(unit: Unit, stack: Stack, *, expert: bool) -> tuple[int, ...]:
    return tuple(
        tensor.entries
        for tensor in unit.tensors
        if tensor.expert == expert and tensor.entries >= stack.whole_below
    )


def _together(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (sum(sizes),) if sum(sizes) else ()
