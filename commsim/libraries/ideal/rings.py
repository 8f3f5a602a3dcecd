"""
Long rings in closed form: what each edge costs, and what the ring loads, per byte.

Edges within nodes of one kind are computed once and shifted to every node's links; only those
between nodes are routed one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from commsim.arrays import Floats, Ints
from commsim.cluster import Route
from commsim.libraries.expansion import ring_arrivals, whole
from commsim.libraries.plan import PlanPart, PlanPhase
from commsim.libraries.routing import Router

__all__ = ["Ring", "ring_of"]

PS = 1e12
_SHORT = 64  # edges that are as quickly routed one by one


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
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


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Edges whose routes have equally many links: a row of links and shares for each."""

    edge: Ints
    link: Ints
    share: Floats
    latency: Floats


def ring_of(order: Sequence[int], ranks: Sequence[int], router: Router) -> Ring:
    """Return the ring through members in an order; member i is rank `ranks[i]`."""
    member = np.asarray(order)
    source = np.asarray(ranks)[member]
    target = np.roll(source, -1)
    blocks = _blocks(source, target, router)
    capacity, count = router.cluster.links.capacity, len(router.cluster.links.capacity)
    every = np.concatenate([block.link.reshape(-1) for block in blocks])
    crowd = np.bincount(every, minlength=count)
    cost, latency = np.zeros(len(member)), np.zeros(len(member))
    for block in blocks:
        spent = block.share * crowd[block.link] / capacity[block.link] * PS
        cost[block.edge], latency[block.edge] = spent.max(axis=1), block.latency
    shares = np.concatenate([block.share.reshape(-1) for block in blocks])
    used = np.flatnonzero(crowd)
    load = np.bincount(every, shares, minlength=count)[used].astype(np.float64)
    return Ring(member, cost, latency, used, load, load, int(crowd.max()) == 1)


def _blocks(source: Ints, target: Ints, router: Router) -> list[_Block]:
    cluster = router.cluster
    if len(source) <= _SHORT:
        return _one_by_one(np.arange(len(source)), source, target, router)
    node, spec = cluster.node_of[source], np.asarray(cluster.spec_of)
    within = node == cluster.node_of[target]
    within &= np.array([kind.domain_nodes == 1 for kind in cluster.specs])[spec[node]]
    kinds = np.stack((spec[node], cluster.local_of[source], cluster.local_of[target]))[:, within]
    _, first, which = np.unique(kinds, axis=1, return_index=True, return_inverse=True)
    inside = np.flatnonzero(within)
    starts = np.array([cluster.first_link(n) for n in node[inside].tolist()], dtype=np.int64)
    blocks = []
    for kind, at in enumerate(first.tolist()):
        chosen = np.flatnonzero(which.reshape(-1) == kind)
        edge = inside[at]
        route = router.route(int(source[edge]), int(target[edge]))
        link = starts[chosen][:, None] + (np.asarray(route.link) - starts[at])
        blocks.append(_block(inside[chosen], link, [route] * len(chosen)))
    return blocks + _one_by_one(np.flatnonzero(~within), source, target, router)


def _one_by_one(edges: Ints, source: Ints, target: Ints, router: Router) -> list[_Block]:
    routes: dict[int, list[tuple[int, Route]]] = {}
    for edge in edges.tolist():
        route = router.route(int(source[edge]), int(target[edge]))
        routes.setdefault(len(route.link), []).append((edge, route))
    return [
        _block(
            np.array([edge for edge, _ in some]),
            np.array([route.link for _, route in some], dtype=np.int64),
            [route for _, route in some],
        )
        for some in routes.values()
    ]


def _block(edge: Ints, link: Ints, routes: list[Route]) -> _Block:
    share = np.array([route.share for route in routes])
    return _Block(edge, link, share, np.array([route.latency for route in routes], np.float64))
