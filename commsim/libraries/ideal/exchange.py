"""
All-to-all straight from each rank to each other: every pair at once, each on its own.

All pairs of one kind (within a node or NVLink domain, over the network) progress together at the
rate that the busiest link allows: the time that the cut of the network demands, which no order of
sending beats and a fair network reaches. Message by message (`network: steps`) the connections
of a rank take turns, a slice each, in an order that crosses near and far in turn.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from commsim.arrays import Bools, Floats, Ints
from commsim.cluster import Links
from commsim.libraries.expansion import whole
from commsim.libraries.plan import PlanPart, PlanPhase, RoutedProgram
from commsim.libraries.routing import RouteColumns, Router
from commsim.limits import BYTES_PER_PAIR, FEWER_MESSAGES, check_size

__all__ = ["Pairs", "check_pairs", "exchange_parts", "in_turns"]


_MOST_SLICES = 16
_MOST_MESSAGES = 32_768
_GOLDEN = (5**0.5 - 1) / 2
PS = 1e12


class Pairs(msgspec.Struct, frozen=True, eq=False):
    """Columns over the pairs of an all-to-all: members, bytes, and routes."""

    source: Ints
    target: Ints
    size: Floats
    routes: RouteColumns

    @staticmethod
    def of(order: Sequence[int], ranks: Sequence[int], size: Floats, router: Router) -> Pairs:
        """Return all pairs of members; `size[i, j]` bytes go from `order[i]` to `order[j]`.

        Member m is rank `ranks[m]`.
        """
        sender, receiver = np.nonzero(~np.eye(len(order), dtype=np.bool_))
        member, rank = np.asarray(order), np.asarray(ranks)
        source, target = member[sender], member[receiver]
        routes = router.columns(rank[source], rank[target])
        return Pairs(source, target, size[sender, receiver], routes)


def check_pairs(members: int) -> None:
    """Raise a ScenarioError if all pairs of so many members do not fit in memory."""
    count = members * (members - 1)
    check_size(
        count, BYTES_PER_PAIR,
        f"an all-to-all of {members:,} ranks: {count:,} pairs", FEWER_MESSAGES,
    )  # fmt: skip


def exchange_parts(pairs: Pairs, members: int, links: Links) -> tuple[PlanPart, ...]:
    """Return the parts of an all-to-all: one per kind of route.

    What crosses the network takes as long as its links need for all that they carry, and what
    stays within nodes has the rest of them; if that is the longer, they are one part.
    """
    routes = pairs.routes
    on_network = np.array([kind == "network" for kind in links.kinds])
    far = np.logical_or.reduceat(on_network[routes.link], routes.first)
    least = np.full(len(links), np.inf)
    np.minimum.at(least, routes.link, np.repeat(routes.latency, routes.count))
    load = _load(pairs, np.ones_like(far), links)
    far_time = _time(pairs, load, links.capacity, least)
    whole_part = _part(pairs, np.ones_like(far), far_time, members, links)
    if far.all() or not far.any():
        return (whole_part,)
    longest = float(far_time[far].max())
    left = links.capacity - _load(pairs, far, links) / max(longest, 1.0) * PS
    near_load = _load(pairs, ~far, links)
    with np.errstate(divide="ignore"):
        near_time = _time(pairs, near_load, np.maximum(left, 0.0), least)
    if near_time[~far].max() > longest:
        return (whole_part,)
    return (
        _part(pairs, ~far, near_time, members, links),
        _part(pairs, far, far_time, members, links),
    )


def _load(pairs: Pairs, chosen: Bools, links: Links) -> Floats:
    """Return the bytes that some pairs put on each link."""
    size = np.repeat(np.where(chosen, pairs.size, 0.0), pairs.routes.count)
    load = np.bincount(pairs.routes.link, pairs.routes.share * size, len(links))
    return load.astype(np.float64)


def _time(pairs: Pairs, load: Floats, capacity: Floats, least: Floats) -> Floats:
    """Return when what each pair sends has arrived, in ps; a latency if that is nothing.

    A link is done when it has served its load, and what it serves last can be what has the least
    latency (`least[link]`) of all that it serves.
    """
    routes = pairs.routes
    busy = np.divide(load, capacity, out=np.zeros(len(load)), where=load > 0) * PS
    last = np.maximum.reduceat((busy + least)[routes.link], routes.first)
    room = np.divide(1.0, capacity, out=np.zeros(len(load)), where=load > 0)
    slowest = np.maximum.reduceat(routes.share * room[routes.link], routes.first)
    alone = slowest * pairs.size * PS + routes.latency
    return np.where(pairs.size > 0, np.maximum(last, alone), routes.latency)


def _part(pairs: Pairs, chosen: Bools, time: Floats, members: int, links: Links) -> PlanPart:
    """Return the flow of some pairs, and when each member is done with the last of its own."""
    done = time[chosen]
    idle = whole(float(done.max()))
    moves = chosen & (pairs.size > 0)  # nothing to move: no connection
    conns = np.bincount(
        pairs.routes.link, pairs.routes.share * np.repeat(moves, pairs.routes.count), len(links)
    )
    used = np.flatnonzero(conns)
    load = _load(pairs, moves, links)[used]
    flow = PlanPhase(idle, used, load, conns[used].astype(np.float64))
    leaves = np.full(members, -1.0)
    for ends in (pairs.source, pairs.target):
        np.maximum.at(leaves, ends[chosen], done)
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
