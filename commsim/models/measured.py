"""Blocks with times that were measured, in place of the model's."""

from __future__ import annotations

from msgspec.structs import replace

from commsim.models.compute_section import MeasuredTimes
from commsim.models.work import Block
from commsim.units import PS_PER_SECOND

__all__ = ["measured"]


def measured(blocks: tuple[Block, ...], times: MeasuredTimes | None) -> tuple[Block, ...]:
    """Return the blocks with their times scaled to add up to what was measured."""
    if times is None:
        return blocks
    wanted = [t / PS_PER_SECOND for t in (times.forward, times.backward, times.weight)]
    if not times.weight:  # one figure for both: share it as the model would
        had = [sum(getattr(b, p).seconds for b in blocks) for p in ("backward", "weight")]
        wanted[1:] = [wanted[1] * part / sum(had) for part in had]
    for phase, seconds in zip(("forward", "backward", "weight"), wanted, strict=True):
        total = sum(getattr(block, phase).seconds for block in blocks)
        factor = seconds / total if total else 0.0
        blocks = tuple(_scaled(block, phase, factor) for block in blocks)
    return blocks


def _scaled(block: Block, phase: str, factor: float) -> Block:
    work = getattr(block, phase)
    changed = {phase: work.lasting(work.seconds * factor)}
    if phase == "forward":
        changed["recompute"] = block.recompute.lasting(block.recompute.seconds * factor)
    return replace(block, **changed)
