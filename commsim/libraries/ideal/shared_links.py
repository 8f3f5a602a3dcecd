"""
What channels that share links take: each is timed by itself, and together they take longer.

A link that several channels cross carries the bytes of all of them. A part of a plan is stretched
until it holds the way of the first byte to its busiest link, the time of that link with the bytes
of all, and the way of the last byte from there to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec
import numpy as np
from msgspec.structs import replace

from commsim.arrays import Floats, Ints
from commsim.cluster import Links
from commsim.libraries.expansion import arrivals, whole
from commsim.libraries.plan import PlanPart, RoutedProgram
from commsim.libraries.routing import RouteColumns

__all__ = ["Spans", "side_by_side"]

_PS = 1e12
_SAME = 1e-9  # times this close are the same


class Spans(msgspec.Struct, frozen=True, eq=False):
    """For each link of the cluster, ps from a program's start to its first byte there, and from
    its last byte there to the end, both without bytes; infinity for links that it does not use.
    """

    before: Floats
    after: Floats

    @staticmethod
    def of(program: RoutedProgram, links: Links) -> Spans:
        """Return those of a program whose messages carry nothing."""
        before, after = np.full(len(links), np.inf), np.full(len(links), np.inf)
        latency = np.array([route.latency for route in program.routes], dtype=np.float64)
        begin = arrivals(program, links) - latency[program.route]
        rest = _rest(program, begin, latency)
        first, last = (np.full(len(program.routes), np.inf) for _ in range(2))
        np.minimum.at(first, program.route, begin)
        np.minimum.at(last, program.route, rest)
        for at, route in enumerate(program.routes):
            way = _on_the_way(route.link, route.hop, links)
            for link, passed in way.items():
                before[link] = min(before[link], first[at] + passed)
                after[link] = min(after[link], last[at] + route.latency - passed)
        return Spans(before, after)

    @staticmethod
    def of_ring(edges: RouteColumns, count: int) -> Spans:
        """Return those of a ring on `count` links: each is busy from the first step to the last.

        After its last byte comes what an edge over it takes.
        """
        before, after = np.full(count, np.inf), np.full(count, np.inf)
        before[edges.link] = 0.0
        np.minimum.at(after, edges.link, np.repeat(edges.latency, edges.count))
        return Spans(before, after)


def side_by_side(
    parts: Sequence[PlanPart], capacity: Floats, spans: Callable[[int], Spans]
) -> list[PlanPart]:
    """Return parts that run at once, each as long as the links that they share need.

    `capacity` of the cluster's links in bytes per second; `spans(i)` are those of part i.
    """
    loads = [_seconds(part, capacity) for part in parts]
    together = np.sum(loads, axis=0)
    shared = [(together > own * (1 + _SAME)) & (own > 0) for own in loads]
    if not any(some.any() for some in shared):
        return list(parts)
    ways = [spans(number) for number in range(len(parts))]
    needed = together * _PS
    needed += np.min([way.before for way in ways], axis=0)
    needed += np.min([way.after for way in ways], axis=0)
    return [
        _stretched(part, float(needed[some].max())) if some.any() else part
        for part, some in zip(parts, shared, strict=True)
    ]


def _on_the_way(link: Sequence[int], hop: Sequence[int], links: Links) -> dict[int, float]:
    """Return the ps that a byte takes from the start of a route to each of its links."""
    late: dict[int, float] = {}
    for one, at in zip(link, hop, strict=True):
        late[at] = max(late.get(at, 0.0), float(links.latency[one]))
    passed = dict(zip(late, np.cumsum([0.0, *late.values()]).tolist(), strict=False))
    return {one: passed[at] for one, at in zip(link, hop, strict=True)}


def _rest(program: RoutedProgram, begin: Floats, latency: Floats) -> Floats:
    """Return how long an empty program goes on after each of its messages has arrived, in ps."""
    rest = [0.0] * len(begin)
    takes = latency[program.route].tolist()
    needs = [program.dep[a:b].tolist() for a, b in pairwise(program.dep_ptr.tolist())]
    for message in np.argsort(-begin, kind="stable").tolist():
        for earlier in needs[message]:
            rest[earlier] = max(rest[earlier], takes[message] + rest[message])
    return np.array(rest)


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
