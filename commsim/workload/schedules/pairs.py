"""
1F1B in which each backward runs as one with the forward after it, so that tokens on their way to
experts in one hide during the compute of the other.

    1F1B      F0 B0 F1 B1 ...        paired    F0 (F1;B0) (F2;B1) ...

A pair's results come when both have ended. So that neighbours need not wait for each other's
pairs in turn, device i of p is 2(p-1-i) + (v-1)p + 1 forwards ahead, one more than interleaved 1F1B
with v stages per device: Megatron-Core's combined 1F1B (overlap_moe_expert_parallel_comm;
core/pipeline_parallel/combined_1f1b.py of github NVIDIA/Megatron-LM).
"""

from __future__ import annotations

from itertools import chain

from msgspec.structs import replace

from commsim.workload.schedules.actions import Action, Schedule, Work
from commsim.workload.schedules.order import check_schedule

__all__ = ["PAIRABLE", "paired"]

PAIRABLE = ("1f1b", "interleaved_1f1b")
"""The schedules that can be paired."""


def paired(schedule: Schedule, *, where: str = "") -> Schedule:
    """Return one of the `PAIRABLE` schedules with its steady state in pairs.

    Raises:
        ScenarioError: the devices would wait for each other.
    """
    p, virtual = schedule.devices, len(schedule.home) // schedule.devices
    rows = [
        _paired(row, 2 * (p - 1 - device) + (virtual - 1) * p + 1)
        for device, row in enumerate(schedule.actions)
    ]
    made = replace(
        schedule,
        actions=tuple(actions for actions, _ in rows),
        paired=tuple(positions for _, positions in rows),
    )
    check_schedule(made, where=where)
    return made


def _paired(row: tuple[Action, ...], ahead: int) -> tuple[tuple[Action, ...], frozenset[int]]:
    """Return a device's actions with `ahead` forwards first, and where pairs begin."""
    forwards = [action for action in row if action.work == Work.F]
    backwards = [action for action in row if action.work != Work.F]
    ahead = min(ahead, len(forwards))
    pairs = list(zip(forwards[ahead:], backwards, strict=False))
    actions = (*forwards[:ahead], *chain.from_iterable(pairs), *backwards[len(pairs) :])
    return actions, frozenset(range(ahead, ahead + 2 * len(pairs), 2))
