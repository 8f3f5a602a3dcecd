"""
zb_1p, zb_2p: search for a schedule under a cap of p, or 2p, live microbatches per device.

The shape is ZB-H1's: some forwards ahead, then backward and forward in turn, then what is
left, with the weight gradients in the gaps (`fill`). Searched is how many forwards go ahead on
each device, from none to all that fit before the first gradient comes back, and how small a
gap a weight gradient may take: the two hyperparameters of the heuristic in Qi et al.,
ICLR 2024, section 3.1. ZB-H2 and ZB-H1 are candidates too if they keep the cap, and win ties, in
this order: deferring weight gradients longer releases sooner what other devices wait for. An
order found under p is a candidate under 2p too.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from commsim.workload.schedules.actions import Action, Work, loop
from commsim.workload.schedules.fill import UNIT, Cap, Filled, fill, walk
from commsim.workload.schedules.memory import live_activations
from commsim.workload.schedules.times import StageTimes
from commsim.workload.schedules.zero_bubble import zb_h1, zb_h2

__all__ = ["PATIENCE", "ahead_and_alternate", "search"]

PATIENCE = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)
"""The least gaps that weight gradients may take, as shares of one."""
SLACK = (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)
"""Forwards ahead beyond those that fit before the first gradient is back."""
WORTH = 1e-3
"""By how much an order must be shorter than one before it, where times are estimates."""
DROPS = (1, 2)
"""How many fewer forwards go ahead on the next device, at least."""


def search(microbatches: int, times: StageTimes, *, cap: Cap) -> Filled:
    """Return the order with the least span that keeps the cap, for one stage per device."""
    least = len(times.hops) * UNIT
    found = list(_made_by_hand(microbatches, times, cap))
    for limit in (least, cap.limit) if cap.limit > least else (cap.limit,):
        made = _alternating(microbatches, times, cap._replace(limit=limit))
        found.append(min(made, key=lambda one: one.span))
    if not times.repeats:
        return min(found, key=lambda one: one.span)
    return _first_that_pays(found, [_period(one, times) for one in found])


def _first_that_pays(found: list[Filled], periods: list[int]) -> Filled:
    """Return the shortest order; an earlier one unless a later one is shorter by a margin."""
    best = 0
    for at, period in enumerate(periods):
        if period < periods[best] * (1 - WORTH):
            best = at
    return found[best]


def _period(found: Filled, times: StageTimes) -> int:
    """Return the time from the end of a first step to that of a second."""
    home = loop(len(times.hops))
    ends = walk(found.actions, home, times).ends
    if times.tied:
        together = max(ends[0], ends[-1])
        ends = (together, *ends[1:-1], together)[: len(ends)]
    return max(walk(found.actions, home, times, free=ends).ends) - max(ends)


def _made_by_hand(microbatches: int, times: StageTimes, cap: Cap) -> Iterator[Filled]:
    """Yield ZB-H2 and ZB-H1 if they keep the cap, which counts what lives on until W."""
    devices = len(times.hops)
    kept = Fraction(cap.kept, UNIT)
    for order in (zb_h2, zb_h1):
        rows = tuple(tuple(order(device, devices, microbatches)) for device in range(devices))
        most = max(max(live_activations(row, kept=kept)) for row in rows)
        if most * UNIT <= cap.limit:
            yield Filled(rows, walk(rows, loop(devices), times).span)


def _alternating(microbatches: int, times: StageTimes, cap: Cap) -> Iterator[Filled]:
    """Yield what the heuristic makes of each choice of its parameters."""
    devices = len(times.hops)
    home = loop(devices)
    for ahead in _choices(times, cap):
        orders = [
            ahead_and_alternate(device, microbatches, ahead[device]) for device in range(devices)
        ]
        for patience in PATIENCE:
            found = fill(orders, home, times, cap=cap, patience=patience)
            if found is not None:
                yield found


def ahead_and_alternate(device: int, microbatches: int, ahead: int) -> list[Action]:
    """Return `ahead` forwards, then backward and forward in turn, then the backwards left."""
    order = [Action(Work.F, device, k) for k in range(min(ahead, microbatches))]
    for k in range(microbatches):
        order.append(Action(Work.I, device, k))
        if ahead + k < microbatches:
            order.append(Action(Work.F, device, ahead + k))
    return order


def _choices(times: StageTimes, cap: Cap) -> Iterator[tuple[int, ...]]:
    """Yield numbers of forwards ahead per device, each once.

    A device needs more of them than the next one: its own backward comes later.
    """
    devices = len(times.hops)
    wanted = [_forwards_before_first_gradient(i, times) for i in range(devices)]
    seen = set()
    for slack in SLACK:
        for drop in DROPS:
            ahead = [min(cap.limit // UNIT, int(wanted[0] + slack))]
            for want in wanted[1:]:
                ahead.append(min(ahead[-1] - drop, int(want + slack)))
            choice = tuple(max(1, count) for count in ahead)
            if choice not in seen:
                seen.add(choice)
                yield choice


def _forwards_before_first_gradient(device: int, times: StageTimes) -> float:
    later = range(device + 1, len(times.hops))
    wait = sum(times.forward[s] + times.backward[s] + 2 * times.hops[s - 1] for s in later)
    return 1 + wait / max(1, times.forward[device])
