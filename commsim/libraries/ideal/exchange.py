"""
All-to-all straight from each rank to each other: every pair at once, each on its own.

All pairs of one kind (within a node or NVLink domain, over the network) progress together at the
rate that the busiest link allows: the time that the cut of the network demands, which no order of
sending beats and a fair network reaches. Message by message (`network: steps`) the connections
of a rank take turns, a slice each, in an order that crosses near and far in turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from commsim.arrays import Floats, Ints
from commsim.cluster import Links
from commsim.libraries.expansion import coupled, whole
from commsim.libraries.plan import PlanPart, RoutedProgram

__all__ = ["exchange_parts", "in_turns"]


_MOST_SLICES = 16
_MOST_MESSAGES = 32_768
_GOLDEN = (5**0.5 - 1) / 2
PS = 1e12


def exchange_parts(messages: RoutedProgram, members: int, links: Links) -> tuple[PlanPart, ...]:
    """Return the parts of messages of distinct pairs: one per kind of route.

    What crosses the network takes as long as its links need for all that they carry, and what
    stays within nodes has the rest of them; if that is the longer, they are one part.
    """
    on_network = np.array([kind == "network" for kind in links.kinds])
    crosses = np.array([on_network[list(r.link)].any() for r in messages.routes])
    every = np.arange(len(messages.routes))
    table = _table(messages)
    load = _load(table, every, links)
    far_time = _time(table, load, links.capacity)
    whole_part = _part(messages, every, far_time, members, links)
    if crosses.all() or not crosses.any():
        return (whole_part,)
    far, near = every[crosses], every[~crosses]
    longest = float(far_time[far].max())
    left = links.capacity - _load(table, far, links) / max(longest, 1.0) * PS
    near_load = _load(table, near, links)
    with np.errstate(divide="ignore"):
        near_time = _time(table, near_load, np.maximum(left, 0.0))
    if near_time[near].max() > longest:
        return (whole_part,)
    return (
        _part(messages, near, near_time, members, links),
        _part(messages, far, far_time, members, links),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _RouteTable:
    """The routes of some messages as columns.

    Entries `first[i]` to `first[i] + count[i]` of `link` and `share` are those of route i, which
    has a latency in ps and carries `size[i]` bytes.
    """

    link: Ints
    share: Floats
    first: Ints
    count: Ints
    latency: Floats
    size: Floats


def _table(messages: RoutedProgram) -> _RouteTable:
    routes = messages.routes
    count = np.array([len(route.link) for route in routes])
    return _RouteTable(
        np.array([i for route in routes for i in route.link], dtype=np.int64),
        np.array([s for route in routes for s in route.share]),
        np.concatenate(([0], np.cumsum(count)[:-1])).astype(np.int64),
        count,
        np.array([route.latency for route in routes], dtype=np.float64),
        np.bincount(messages.route, messages.size, len(routes)).astype(np.float64),
    )


def _load(table: _RouteTable, chosen: Ints, links: Links) -> Floats:
    """Return the bytes that some routes put on each link."""
    size = np.zeros(len(table.size))
    size[chosen] = table.size[chosen]
    load = np.bincount(
        table.link, table.share * np.repeat(size, table.count), minlength=len(links.capacity)
    )
    return load.astype(np.float64)


def _time(table: _RouteTable, load: Floats, capacity: Floats) -> Floats:
    """Return when what each route carries has arrived, in ps; a latency if that is nothing.

    A link is done when it has served its load, and what it serves last can be what has the least
    latency of all that it serves.
    """
    busy = np.divide(load, capacity, out=np.zeros(len(load)), where=load > 0) * PS
    least = np.full(len(load), np.inf)
    np.minimum.at(least, table.link, np.repeat(table.latency, table.count))
    last = np.maximum.reduceat(busy[table.link] + least[table.link], table.first)
    room = np.divide(
        table.share,
        capacity[table.link],
        where=load[table.link] > 0,
        out=np.zeros(len(table.share)),
    )
    alone = np.maximum.reduceat(room, table.first) * table.size * PS + table.latency
    return np.where(table.size > 0, np.maximum(last, alone), table.latency)


def _part(
    messages: RoutedProgram, chosen: Ints, time: Floats, members: int, links: Links
) -> PlanPart:
    """Return the flow of some routes, and when each member is done with the last of its own."""
    mine = np.isin(messages.route, chosen)
    done = time[messages.route[mine]]
    idle = whole(float(done.max()))
    size = np.bincount(messages.route[mine], messages.size[mine], minlength=len(messages.routes))
    flow = coupled(
        [messages.routes[i] for i in chosen.tolist()], size[chosen].tolist(), idle, links
    )
    leaves = np.full(members, -1.0)
    for ends in (messages.source[mine], messages.target[mine]):
        np.maximum.at(leaves, ends, done)
    leaving = np.minimum(np.ceil(leaves - 1e-3).astype(np.int64), idle)
    return PlanPart((flow,), np.zeros(members, np.int64), leaving)


def in_turns(messages: RoutedProgram, members: int) -> RoutedProgram:
    """Return messages of distinct pairs in slices, of which every connection sends one in turn.

    The distances to the peer follow each other by the golden ratio, so that every stretch of
    them has its part of near and far ones (Knuth, volume 3, section 6.4, theorem S).
    """
    count = len(messages.size)
    slices = int(np.clip(_MOST_MESSAGES // max(count, 1), 1, _MOST_SLICES))
    distance = (messages.target - messages.source) % members
    turn = np.argsort(np.argsort(np.arange(members) * _GOLDEN % 1.0))
    order = np.lexsort((messages.source, turn[distance]))
    again = np.tile(order, slices)
    return replace(
        messages,
        source=messages.source[again],
        target=messages.target[again],
        size=messages.size[again] / slices,
        route=messages.route[again],
        dep_ptr=np.zeros(count * slices + 1, np.int64),
        dep=np.zeros(0, np.int64),
    )
