"""
Parts of ops too large to be run message by message: rings by recurrence, pairs by their links.

Pairs that are posted at once fill the busiest link: announcing, its bytes over its capacity,
the longest way, waking up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from commsim.arrays import Floats
from commsim.cluster import Links, Route
from commsim.libraries.expansion import coupled, whole
from commsim.libraries.gloo import ring_time
from commsim.libraries.gloo.constants import GlooConstants
from commsim.libraries.gloo.hosts import Hosts, Wakes
from commsim.libraries.gloo.protocol import Discipline
from commsim.libraries.gloo.rings import RingSchedule
from commsim.libraries.plan import PlanPart, PlanPhase

__all__ = ["RankPairs", "pairs_of", "pairs_part", "reduce_part", "ring_part"]

Ranks = tuple[int, ...]


class RankPairs(NamedTuple):
    """All ordered pairs of some ranks with a byte each: their flow, and the slowest of them."""

    flow: PlanPhase
    latency: int
    wakes: Wakes


def ring_part(
    ring: RingSchedule, ranks: Ranks, discipline: Discipline, hosts: Hosts, costs: GlooConstants
) -> PlanPart:
    """Return the part of a ring."""
    times, routes, _ = _ring(ring, ranks, discipline, hosts, costs)
    idle = whole(float(times.received.max()))
    flow = coupled(routes, ring.sent_bytes().tolist(), idle, hosts.links)
    return _part(flow, np.maximum(times.received, times.sent))


def reduce_part(
    ring: RingSchedule,
    root: int,
    ranks: Ranks,
    discipline: Discipline,
    hosts: Hosts,
    costs: GlooConstants,
) -> PlanPart:
    """Return the part of a reduce: a ring, and then its chunks one after another to the root."""
    n = ring.n
    times, routes, links = _ring(ring, ranks, discipline, hosts, costs)
    chunk = ring.length.reshape(n, -1).sum(axis=1)
    senders = [member for member in range(n) if member != root and chunk[member] > 0]
    ways = [hosts.route(ranks[member], ranks[root]) for member in senders]
    leaves, done = times.received.copy(), float(times.received[root])
    ready = {
        member: max(
            float(times.received[member]),
            float(times.received[root]) + hosts.control(ranks[root], ranks[member]),
        )
        for member in senders
    }
    order = sorted(zip(senders, ways, strict=True), key=lambda one: ready[one[0]])
    for member, way in order:
        there = max(ready[member] + way.latency, done) + chunk[member] * _per_byte(way, links)
        leaves[member], done = max(leaves[member], there), there
    if senders:
        media = [hosts.medium(ranks[member], ranks[root]) for member in senders]
        done += float(Wakes.of(media).for_bytes(chunk[senders]).max())
    leaves[root] = done
    sizes = [*ring.sent_bytes().tolist(), *chunk[senders].tolist()]
    flow = coupled([*routes, *ways], sizes, whole(float(leaves.max())), hosts.links)
    return _part(flow, leaves)


def pairs_of(ranks: Ranks, hosts: Hosts) -> RankPairs:
    """Return all pairs of some ranks with a byte each."""
    load = np.zeros(len(hosts.links))
    latency, media = 0, {}
    for source in ranks:
        routes = [hosts.build(source, target) for target in ranks if target != source]
        link = np.array([i for route in routes for i in route.link], dtype=np.int64)
        share = np.array([s for route in routes for s in route.share])
        load += np.bincount(link, weights=share, minlength=len(load))
        latency = max(latency, *(route.latency for route in routes))
        for target in ranks:
            medium = hosts.medium(source, target)
            media[medium.latency, medium.again, medium.packet] = medium
    used = np.flatnonzero(load)
    flow = PlanPhase(0, used, load[used], load[used])
    return RankPairs(flow, latency, Wakes.of(list(media.values())))


def pairs_part(
    pairs: RankPairs, each: float, members: int, links: Links, costs: GlooConstants
) -> PlanPart:
    """Return the part of an all-to-all of `each` bytes per pair."""
    load = pairs.flow.load * each
    moving = float(np.max(load / links.capacity[pairs.flow.link], initial=0.0)) * 1e12
    told = pairs.latency + float(pairs.wakes.latency.max())
    woken = float(pairs.wakes.for_bytes(np.full(len(pairs.wakes.latency), each)).max())
    idle = whole(costs.op_overhead + told + moving + pairs.latency + woken)
    flow = PlanPhase(idle, pairs.flow.link, load, pairs.flow.conns)
    return _part(flow, np.full(members, float(idle)))


def _ring(
    ring: RingSchedule, ranks: Ranks, discipline: Discipline, hosts: Hosts, costs: GlooConstants
) -> tuple[ring_time.RingTimes, list[Route], Links]:
    n = ring.n
    ends = [(ranks[i], ranks[(i + ring.shift) % n]) for i in range(n)]
    routes = [hosts.route(a, b) for a, b in ends]
    edges = ring_time.RingEdges(
        latency=np.array([route.latency for route in routes], dtype=np.float64),
        cost=ring_time.costs(routes, hosts.links),
        wakes=Wakes.of([hosts.medium(a, b) for a, b in ends]),
        told=np.array([hosts.control(b, a) for a, b in ends], dtype=np.float64),
    )
    times = ring_time.run(
        ring,
        edges,
        adding=1e12 / float(costs.reduce_rate),
        hold=float(discipline.overhead(costs)),
        window=discipline.window,
        announced=discipline.announced,
    )
    return times, routes, hosts.links


def _part(flow: PlanPhase, leaves: Floats) -> PlanPart:
    exits = np.ceil(leaves - 1e-3).astype(np.int64)
    return PlanPart((flow,), np.zeros(len(leaves), np.int64), np.minimum(exits, flow.idle))


def _per_byte(route: Route, links: Links) -> float:
    return float(ring_time.costs([route], links)[0])
