"""
Live activations of a schedule: how many microbatches a device keeps, action by action.

A forward takes one unit per stage; a whole backward gives it back, an input gradient all but
the share that its weight gradient still needs.
"""

from __future__ import annotations

from fractions import Fraction

from commsim.workload.schedules.actions import Action, Schedule, Work

__all__ = ["live_activations", "peak_activations"]


def live_activations(
    actions: tuple[Action, ...], *, kept: Fraction = Fraction(1)
) -> list[Fraction]:
    """Return the live microbatches of a device during each of its actions, in stages' units.

    `kept` is the share of an activation that lives on from input to weight gradient.
    """
    live, during = Fraction(0), []
    gives = {Work.F: Fraction(0), Work.B: Fraction(1), Work.I: 1 - kept, Work.W: kept}
    for action in actions:
        live += action.work == Work.F
        during.append(live)
        live -= gives[action.work]
    return during


def peak_activations(schedule: Schedule, *, kept: Fraction = Fraction(1)) -> tuple[Fraction, ...]:
    """Return the most live microbatches of each device, a part of the model being one p-th.

    A unit is one microbatch on the model's share of one device: of v virtual stages each counts
    1/v, and a second copy (DualPipe) a whole one.
    """
    pieces = Fraction(schedule.devices, schedule.parts)
    return tuple(
        max(live_activations(actions, kept=kept), default=Fraction(0)) * pieces
        for actions in schedule.actions
    )
