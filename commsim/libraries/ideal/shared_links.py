"""
What channels that share links take: each is timed by itself, and together they take longer.

A link that several channels cross carries the bytes of all of them. A part of a plan is stretched
until it holds its latencies and the time of its busiest link with the bytes of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from commsim.arrays import Floats, Ints
from commsim.libraries.expansion import whole
from commsim.libraries.plan import PlanPart

__all__ = ["side_by_side"]

_PS = 1e12
_SAME = 1e-9  # times this close are the same


def side_by_side(
    parts: Sequence[PlanPart], capacity: Floats, latency: Callable[[int], int]
) -> list[PlanPart]:
    """Return parts that run at once, each as long as the links that they share need.

    `capacity` of the cluster's links in bytes per second; `latency(i)` is how long part i takes
    without bytes, in ps.
    """
    loads = [_seconds(part, capacity) for part in parts]
    together = np.sum(loads, axis=0)
    found = []
    for number, (part, own) in enumerate(zip(parts, loads, strict=True)):
        alone, shared = (busy[own > 0].max(initial=0.0) * _PS for busy in (own, together))
        if shared > alone * (1 + _SAME):
            part = _stretched(part, latency(number) + shared)
        found.append(part)
    return found


def _seconds(part: PlanPart, capacity: Floats) -> Floats:
    """Return how long each link is busy with a part's bytes."""
    busy = np.zeros(len(capacity))
    for phase in part.phases:
        busy[phase.link] += phase.load / capacity[phase.link]
    return busy


def _stretched(part: PlanPart, needed: float) -> PlanPart:
    """Return a part that takes at least `needed` ps."""
    if needed <= part.idle:
        return part
    longer = needed / part.idle
    phases = tuple(replace(phase, idle=whole(phase.idle * longer)) for phase in part.phases)
    last = sum(phase.idle for phase in phases)

    def later(times: Ints) -> Ints:
        """Return times in the stretched part; -1 is a member that takes no part."""
        stretched = np.minimum(np.ceil(times * longer), last)
        return np.where(times > 0, stretched, times).astype(np.int64)

    return PlanPart(phases, later(part.joins), later(part.leaves))
