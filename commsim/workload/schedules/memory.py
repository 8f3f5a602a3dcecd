"""
Live activations of a schedule: how many microbatches a device keeps, action by action.

A forward takes one unit per stage; a whole backward gives it back, an input gradient all but
the share that its weight gradient still needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from commsim.workload.schedules.actions import Action, Schedule, Work

__all__ = ["live_activations", "peak_activations"]


def live_activations(
    actions: tuple[Action, ...], *, kept: Fraction = Fraction(1)
) -> list[Fraction]:
    """Return the live microbatches of a device during each of its actions, in stages' units.

    `kept` is the share of an activation that lives on from input to weight gradient.
    """
    parts = kept.denominator
    return [Fraction(live, parts) for live in _live_parts(actions, kept)]


def _live_parts(actions: tuple[Action, ...], kept: Fraction) -> Iterator[int]:
    """Yield the live microbatches of a device during each action, in parts that divide `kept`."""
    live, whole, later = 0, kept.denominator, kept.numerator
    forward, backward, weight = Work.F, Work.B, Work.W
    for work, _, _ in actions:
        if work == forward:
            live += whole
            yield live
        else:
            yield live
            live -= whole if work == backward else later if work == weight else whole - later


def peak_activations(schedule: Schedule, *, kept: Fraction = Fraction(1)) -> tuple[Fraction, ...]:
    """Return the most live microbatches of each device, a part of the model being one p-th.

    A unit is one microbatch on the model's share of one device: of v virtual stages each counts
    1/v, and a second copy (DualPipe) a whole one.
    """
    pieces = Fraction(schedule.devices, schedule.parts)
    return tuple(
        Fraction(max(_live_parts(actions, kept), default=0), kept.denominator) * pieces
        for actions in schedule.actions
    )
