"""
The time of one of Gloo's rings by recurrence: n numbers per step instead of n messages.

G_r(s)  when member r has all that it received up to step s     w  steps in flight
c_e     ps per byte of the edge e that r sends on      l_e  its latency      t_e  telling it back

    ready = max(G_r(s - w), G_{r+1}(s - w) + t_e)
    A_e(s) = max(ready + l_e + m c_e, A_e(s - 1) + m c_e)        m bytes arrive
    G_{r+1}(s) = max(G_{r+1}(s - 1), A_e(s) + waking up + m / adding)

This is what the messages of the chunk program do if no link serves two edges. Edges that
share a link have an even share of it each.
"""

from __future__ import annotations

from collections import deque

import msgspec
import numpy as np

from commsim.arrays import Floats
from commsim.cluster import Links, Route
from commsim.libraries.gloo.hosts import Wakes
from commsim.libraries.gloo.rings import RingSchedule

__all__ = ["RingEdges", "RingTimes", "costs", "run"]


class RingEdges(msgspec.Struct, frozen=True, eq=False):
    """The edges of a ring by sender: latency, ps per byte, waking up, and telling back in ps."""

    latency: Floats
    cost: Floats
    wakes: Wakes
    told: Floats


class RingTimes(msgspec.Struct, frozen=True, eq=False):
    """When each member has received all that it gets, and when all that it sends has left."""

    received: Floats
    sent: Floats


def run(
    ring: RingSchedule,
    edges: RingEdges,
    *,
    adding: float,
    hold: float,
    window: int,
    announced: bool,
) -> RingTimes:
    """Return when the members of a ring are done; `adding` in ps per byte, `hold` before all."""
    n = ring.n
    receiver = (np.arange(n) + ring.shift) % n
    first = hold + (edges.told if announced else np.zeros(n))
    nothing = np.full(n, -np.inf)
    arrived, have, left = nothing, nothing, np.zeros(n)
    past: deque[Floats] = deque(maxlen=window)  # what each had received, by step
    step = 0
    for phase in ring.phases:
        past.extend([have] * (phase.first - step))
        for i in range(phase.rounds):
            before = past[0] if len(past) == window else nothing
            theirs = before[receiver]
            told = np.where(np.isfinite(theirs), theirs + edges.told, first)
            ready = np.maximum(np.maximum(before, hold), told)
            chunk = phase.index(i)
            sends, length = ring.sent(chunk), ring.length[chunk]
            tail = np.maximum(ready + edges.latency, arrived) + length * edges.cost
            done = (
                tail + edges.wakes.for_bytes(length) + (length * adding if phase.reduces else 0.0)
            )
            arrived = np.where(sends, tail, arrived)
            left = np.where(sends, done - edges.latency, left)
            have = have.copy()
            have[receiver[sends]] = np.maximum(have[receiver[sends]], done[sends])
            past.append(have)
        step = phase.first + phase.rounds
    return RingTimes(np.maximum(have, 0.0), left)


def costs(routes: list[Route], links: Links) -> Floats:
    """Return the ps per byte of each route, if all are in use at once."""
    counts = [len(route.link) for route in routes]
    link = np.array([i for route in routes for i in route.link], dtype=np.int64)
    share = np.array([s for route in routes for s in route.share])
    crowd = np.bincount(link, weights=share, minlength=len(links))
    cost = crowd[link] / links.capacity[link] * 1e12
    first = np.concatenate(([0], np.cumsum(counts)[:-1]))
    worst: Floats = np.maximum.reduceat(cost, first)
    return worst
