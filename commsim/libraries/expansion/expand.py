"""
From a chunk program to a part of a plan: lay it onto routes, time it idle, add up its loads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commsim.arrays import Floats, Ints, distinct
from commsim.cluster import NOWHERE, Links, Route
from commsim.collectives import Program, dependencies
from commsim.libraries.expansion.traffic import arrivals
from commsim.libraries.plan import PlanPart, PlanPhase, RoutedProgram
from commsim.libraries.routing import Router, switch_routes
from commsim.limits import BYTES_PER_ROUTE, FEWER_MESSAGES, check_size
from commsim.units import MOST_PICOSECONDS

__all__ = ["busiest", "coupled", "lay", "part_of", "per_byte", "split_by_kind", "whole"]


_SLACK = 1 + 1e-12  # a phase any shorter than its bytes would run late


def lay(
    program: Program, size: float, order: Sequence[int], ranks: Sequence[int], router: Router
) -> RoutedProgram:
    """Lay a program of S = `size` bytes onto routes.

    Position p of the program is taken by member `order[p]`, which is rank `ranks[order[p]]`.
    Switch k is no member: it gets the number -1 - k.
    """
    switches = -1 - np.arange(len(program.switches))
    member = np.concatenate((np.asarray(order, dtype=np.int64), switches))
    source, target = member[program.source], member[program.target]
    pairs, route = np.unique(
        np.stack((program.source, program.target)), axis=1, return_inverse=True
    )
    check_size(
        pairs.shape[1], BYTES_PER_ROUTE,
        f"{program.op} by {program.algorithm} among {program.n:,} ranks: {pairs.shape[1]:,} routes",
        FEWER_MESSAGES,
    )  # fmt: skip
    seat = [ranks[m] for m in order]
    halves = switch_routes(program, seat, router) if program.switches else {}
    routes = tuple(
        halves[a, b] if (a, b) in halves else NOWHERE if a == b else router.route(seat[a], seat[b])
        for a, b in pairs.T.tolist()
    )
    ptr, dep = dependencies(program)
    return RoutedProgram(
        source, target, program.message_share * size, route.reshape(-1), routes, ptr, dep
    )


def part_of(
    messages: RoutedProgram, phase: Ints, members: int, links: Links, *, together: bool
) -> PlanPart:
    """Return the part that a laid-out program becomes; `phase` numbers the messages' phases.

    Phases follow one another if that is right: each must be long enough for its bytes.
    Otherwise the program becomes one coupled flow that takes as long as the whole.
    `together`: all members must be there from the start (joins = 0).
    """
    arrival = _arrivals(messages, links)
    phases = _in_sequence(messages, phase, arrival, links)
    if phases is None:
        phases = (_flow(messages, np.arange(len(arrival)), whole(arrival.max()), links),)
    joins, leaves = _joins_and_exits(messages, arrival, members, links)
    total = sum(p.idle for p in phases)
    joins = np.zeros_like(joins) if together else np.minimum(joins, total)
    return PlanPart(phases, joins, np.minimum(leaves, total))


_last: tuple[tuple[object, ...], Floats] = ((), np.zeros(0))


def _arrivals(messages: RoutedProgram, links: Links) -> Floats:
    """Return when messages arrive; channels are mostly equivalent, so one of them is timed.

    Two programs are equivalent if links of equal cost and latency are shared in the same way,
    whichever links those are.
    """
    global _last
    if messages.delays is not None:
        return arrivals(messages, links)
    number: dict[int, int] = {}
    hops = tuple(
        (
            number.setdefault(link, len(number)),
            share / float(links.capacity[link]),
            hop,
            int(links.latency[link]),
        )
        for route in messages.routes
        for link, share, hop in zip(route.link, route.share, route.hop, strict=True)
    )
    ends = tuple(len(route.link) for route in messages.routes)
    columns = (messages.size, messages.route, messages.dep_ptr, messages.dep)
    key = (hops, ends, *(column.tobytes() for column in columns))
    if key != _last[0]:
        _last = (key, arrivals(messages, links))
    return _last[1]


def coupled(routes: Sequence[Route], sizes: Sequence[float], idle: int, links: Links) -> PlanPhase:
    """Return one coupled flow of `idle` ps that sends `sizes[i]` bytes along `routes[i]`.

    A route that splits over parallel links splits its one connection with its bytes, so that
    bytes per connection are the same on all links (that makes the fair share unique).
    """
    counts = [len(route.link) for route in routes]
    link = np.array([i for route in routes for i in route.link], dtype=np.int64)
    share = np.array([s for route in routes for s in route.share])
    load = share * np.repeat(np.asarray(sizes, dtype=np.float64), counts)
    moves = load > 0  # a token of a barrier takes its time and no bandwidth
    link, share, load = link[moves], share[moves], load[moves]
    used, where = np.unique(link, return_inverse=True)
    return PlanPhase(
        idle,
        used,
        np.bincount(where, weights=load, minlength=len(used)).astype(np.float64),
        np.bincount(where, weights=share, minlength=len(used)).astype(np.float64),
    )


def busiest(messages: RoutedProgram, links: Links) -> float:
    """Return the ps for which the busiest link of a laid-out program is busy."""
    flow = _flow(messages, np.arange(len(messages.size)), 0, links)
    return float(np.max(flow.load / links.capacity[flow.link], initial=0.0)) * 1e12


def whole(picoseconds: float) -> int:
    """Round up to integer ps, forgiving the noise of floats.

    Raises:
        OverflowError: it is more than the clock can hold.
    """
    if not picoseconds < MOST_PICOSECONDS:
        raise OverflowError(f"{picoseconds} ps")
    return int(np.ceil(picoseconds * (1 - 1e-13) - 1e-3))


def _in_sequence(
    messages: RoutedProgram, phase: Ints, arrival: Floats, links: Links
) -> tuple[PlanPhase, ...] | None:
    """Return one flow per phase, or None if some phase would be shorter than its bytes."""
    numbers = distinct(phase)
    if len(numbers) < 2:
        return None
    flows, before = [], 0
    for number in numbers.tolist():
        chosen = np.flatnonzero(phase == number)
        done = whole(arrival[chosen].max())
        flow = _flow(messages, chosen, done - before, links)
        needs = np.max(flow.load / links.capacity[flow.link], initial=0.0) * 1e12
        if flow.idle <= 0 or needs > flow.idle * _SLACK:
            return None
        flows.append(flow)
        before = done
    return tuple(flows)


def _flow(messages: RoutedProgram, chosen: Ints, idle: int, links: Links) -> PlanPhase:
    """Return one coupled flow of the chosen messages: bytes add up, connections count once."""
    routes, where = np.unique(messages.route[chosen], return_inverse=True)
    sizes = np.bincount(where, weights=messages.size[chosen])
    return coupled([messages.routes[i] for i in routes.tolist()], sizes.tolist(), idle, links)


def _joins_and_exits(
    messages: RoutedProgram, arrival: Floats, members: int, links: Links
) -> tuple[Ints, Ints]:
    """Return when each member has to be there, and when it is done with its last message.

    It takes part from then on that its first message would be held up if it came later: what
    software adds before that message (`Delays.hold`) begins when the member has come.
    """
    alone = _idle_times(messages, links)
    if messages.delays is not None:
        alone += messages.delays.hold + messages.delays.after
    latency = np.array([r.latency for r in messages.routes], dtype=np.float64)[messages.route]
    joins, leaves = np.full(members, np.inf), np.full(members, -1.0)
    for ends, done in ((messages.source, arrival - latency), (messages.target, arrival)):
        member = ends >= 0  # switches neither join nor leave
        np.minimum.at(joins, ends[member], (arrival - alone)[member])
        np.maximum.at(leaves, ends[member], done[member])
    # The first message waits for none, though a link that it crosses twice makes it take longer.
    takes_part = np.isfinite(joins)
    first = max(joins[takes_part].min(initial=np.inf), 0.0)
    joins[takes_part] = np.maximum(joins[takes_part] - first, 0.0)
    joins[~takes_part] = 0.0
    whole(leaves.max(initial=0.0))
    return np.floor(joins).astype(np.int64), np.ceil(leaves - 1e-3).astype(np.int64)


def _idle_times(messages: RoutedProgram, links: Links) -> Floats:
    """Return the ps that each message would take with nothing else on the links."""
    latency = np.array([r.latency for r in messages.routes], dtype=np.float64)
    cost = np.array([per_byte(r, links) for r in messages.routes])
    alone: Floats = latency[messages.route] + messages.size * cost[messages.route]
    return alone


def per_byte(route: Route, links: Links) -> float:
    """Return the ps per byte of the narrowest hop of a route."""
    share, link = np.asarray(route.share), np.asarray(route.link, dtype=np.int64)
    return float(np.max(share / links.capacity[link], initial=0.0)) * 1e12


def split_by_kind(messages: RoutedProgram, members: int, links: Links) -> tuple[PlanPart, ...]:
    """Return one part per kind of route (local, network) of messages that need no other.

    Pairs are independent of each other, so those that stay on NVLink end long before those that
    cross the network. Where the kinds share a full link, they are one part after all.
    """
    remote = np.array([_crosses_network(r, links) for r in messages.routes])[messages.route]
    whole_part = part_of(messages, np.zeros_like(messages.source), members, links, together=True)
    if remote.all() or not remote.any():
        return (whole_part,)
    arrival = arrivals(messages, links)
    parts, use = [], np.zeros(len(links.capacity))
    for kind in (False, True):
        chosen = np.flatnonzero(remote == kind)
        flow = _flow(messages, chosen, whole(arrival[chosen].max()), links)
        np.add.at(use, flow.link, flow.load / flow.idle)
        joins, leaves = _joins_and_exits(_subset(messages, chosen), arrival[chosen], members, links)
        parts.append(PlanPart((flow,), np.zeros_like(joins), np.minimum(leaves, flow.idle)))
    fits = np.all(use * 1e12 <= links.capacity * _SLACK)
    return tuple(parts) if fits else (whole_part,)


def _crosses_network(route: Route, links: Links) -> bool:
    return any(links.kinds[link] == "network" for link in route.link)


def _subset(messages: RoutedProgram, chosen: Ints) -> RoutedProgram:
    """Return some messages of a program in which none depends on another."""
    none = np.zeros(0, np.int64)
    return RoutedProgram(
        messages.source[chosen],
        messages.target[chosen],
        messages.size[chosen],
        messages.route[chosen],
        messages.routes,
        np.zeros(len(chosen) + 1, np.int64),
        none,
    )
