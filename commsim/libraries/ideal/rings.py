"""
Long rings in closed form: what each edge costs, and what the ring loads, per byte.

Edges of one kind are routed once and shifted to the links of each (`routing.columns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np

from commsim.arrays import Floats, Ints
from commsim.libraries.expansion import ring_arrivals, whole
from commsim.libraries.plan import PlanPart, PlanPhase, RoutedProgram
from commsim.libraries.routing import Router
from commsim.limits import BYTES_PER_MESSAGE, FEWER_MESSAGES, check_size

__all__ = ["Ring", "ring_messages", "ring_of"]

PS = 1e12


class Ring(msgspec.Struct, frozen=True, eq=False):
    """A ring as columns over its edges: ps per byte and latency in ps; edge i leaves `member[i]`.

    `link`, `load` and `conns` are those of a flow that sends a byte over every edge. `exact`: no
    link serves two edges; if one does, each has an even share of it.
    """

    member: Ints
    cost: Floats
    latency: Floats
    link: Ints
    load: Floats
    conns: Floats
    exact: bool

    def part(self, size: float, rounds: int) -> PlanPart:
        """Return the part of `rounds` times round the ring with S = `size` bytes."""
        n = len(self.member)
        steps = rounds * (n - 1)
        last = _arrivals(self.latency.tobytes(), (size / n * self.cost).tobytes(), steps)
        idle = whole(float(last.max()))
        flow = PlanPhase(idle, self.link, self.load * (size / n * steps), self.conns)
        leaves = np.zeros(n)
        leaves[self.member] = np.maximum(np.roll(last, 1), last - self.latency)
        leaving = np.minimum(np.ceil(leaves - 1e-3).astype(np.int64), idle)
        return PlanPart((flow,), np.zeros(n, np.int64), leaving)


@lru_cache(maxsize=1)
def _arrivals(latency: bytes, service: bytes, steps: int) -> Floats:
    """Return the last arrivals of a ring; channels are mostly equal, so one is computed."""
    return ring_arrivals(np.frombuffer(latency), np.frombuffer(service), steps)


def ring_messages(
    order: Sequence[int], ranks: Sequence[int], size: float, rounds: int, router: Router
) -> RoutedProgram:
    """Return what the chunk program of a ring sends for S = `size`, without its chunks.

    In each step every member sends a chunk on, as soon as it has come.
    """
    n = len(order)
    steps = rounds * (n - 1)
    check_size(
        n * steps, BYTES_PER_MESSAGE, f"a ring of {n:,} ranks: {n * steps:,} messages",
        FEWER_MESSAGES,
    )  # fmt: skip
    member = np.asarray(order, dtype=np.int64)
    edge, after = np.arange(n), np.roll(np.arange(n), 1)
    routes = tuple(
        router.route(ranks[a], ranks[b]) for a, b in zip(order, [*order[1:], order[0]], strict=True)
    )
    ptr = np.concatenate((np.zeros(n, np.int64), np.arange(n * (steps - 1) + 1)))
    dep = (np.arange(steps - 1)[:, None] * n + after).reshape(-1)
    every = np.broadcast_to(size / n, n * steps)
    return RoutedProgram(
        np.tile(member, steps), np.tile(np.roll(member, -1), steps), every, np.tile(edge, steps),
        routes, ptr, dep,
    )  # fmt: skip


def ring_of(order: Sequence[int], ranks: Sequence[int], router: Router) -> Ring:
    """Return the ring through members in an order; member i is rank `ranks[i]`."""
    member = np.asarray(order)
    source = np.asarray(ranks)[member]
    routes = router.columns(source, np.roll(source, -1))
    capacity = router.cluster.links.capacity
    crowd = np.bincount(routes.link, minlength=len(capacity))
    spent = routes.share * crowd[routes.link] / capacity[routes.link] * PS
    used = np.flatnonzero(crowd)
    load = np.bincount(routes.link, routes.share, len(capacity))[used].astype(np.float64)
    return Ring(
        member,
        np.maximum.reduceat(spent, routes.first),
        routes.latency,
        used,
        load,
        load,
        int(crowd.max()) == 1,
    )
