"""
A program that is alone on its links, wave by wave: what `traffic` finds message by message.

Where no link serves two connections, nothing has to be queued by time: messages pass a link in the
order of their connection. So all that wait only for earlier messages go through their routes
together, as columns. What links serve is kept in so many pieces at most that memory does not grow
with the messages; consecutive services of a link then become one at their mean rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from commsim.arrays import Bools, Floats, Ints, distinct_columns
from commsim.libraries.expansion.alike_lanes import AlikeLanes
from commsim.libraries.expansion.traffic import Hop
from commsim.libraries.plan import RoutedProgram

__all__ = ["LinkServices", "Waves", "waves_of"]

_MOST_SERVICES = 2**19  # pieces of link use that are kept
_LEAST = 32  # messages in a wave, on average; with fewer one by one is as quick
_NOISE = 1e-9  # relative


class LinkServices(msgspec.Struct, frozen=True, eq=False):
    """What links serve, as columns: from, to (ps), and the share of the link that is taken."""

    link: Ints
    begin: Floats
    end: Floats
    share: Floats


class Waves(msgspec.Struct, frozen=True, eq=False):
    """When each message arrives (ps), and what links serve meanwhile."""

    arrive: Floats
    services: LinkServices


@np.errstate(divide="ignore", invalid="ignore")  # a message too short for its time: 1 / 0
def waves_of(messages: RoutedProgram, hops: Sequence[tuple[Hop, ...]], now: float) -> Waves | None:
    """Return what becomes of a program that starts at `now` with nothing else on its links.

    None if it has to be looked at message by message: connections share a link, a hop has
    parallel links, messages do not stand behind what they wait for, or one trickles in behind
    another.
    """
    lanes = _lanes(messages, hops)
    waves = None if lanes is None else _split(messages)
    if lanes is None or waves is None:
        return None
    every = -(-len(messages.size) * len(lanes.link) // _MOST_SERVICES)
    log = _Log(lanes.link, max(every, 1))
    delays, count = messages.delays, len(messages.size)
    zero = np.broadcast_to(0.0, count)
    hold, after = (zero, zero) if delays is None else (delays.hold, delays.after)
    pace = zero if delays is None or delays.pace is None else delays.pace
    wait = np.broadcast_to(0.0, len(messages.dep)) if delays is None else delays.dep
    arrive, left = np.zeros(count), np.full(lanes.link.shape[1], -np.inf)
    alike = lanes.as_one()
    for first, last in waves:
        rows = slice(first, last)
        lane = messages.route[rows]
        head = np.maximum(now + hold[rows], left[lane])
        needs = messages.dep_ptr[first : last + 1]
        some = np.flatnonzero(needs[1:] > needs[:-1])
        if len(some):
            on = slice(needs[0], needs[-1])
            come = arrive[messages.dep[on]] + wait[on]
            latest = np.maximum.reduceat(come, needs[:-1][some] - needs[0])
            head[some] = np.maximum(head[some], latest)
        tail = left[lane] = head + pace[rows]
        size = messages.size[rows]
        if alike is not None and not (len(lane) == len(left) and _alike(size, head, tail)):
            lanes.go_on_from(alike, log)
            alike = None
        done: Floats | float | None
        if alike is not None:
            done = alike.serve(float(size[0]), float(head[0]), float(tail[0]))
            log.next_wave(alike)
        else:
            done = lanes.serve(lane, size, head, tail, log)
        if done is None:
            return None
        arrive[rows] = done + after[rows]
    if alike is not None:
        log.take_from(alike)
    return Waves(arrive, log.services())


def _alike(*columns: Floats) -> bool:
    """Return whether all entries of each column are equal."""
    return all((column == column[0]).all() for column in columns)


def _split(messages: RoutedProgram) -> list[tuple[int, int]] | None:
    """Return the ranges of messages that wait only for those before the range."""
    count = len(messages.size)
    lane = messages.route.astype(np.min_scalar_type(len(messages.routes)))  # sorted by radix
    order = np.argsort(lane, kind="stable")
    latest = np.full(count, -1)
    same = lane[order[1:]] == lane[order[:-1]]
    latest[order[1:][same]] = order[:-1][same]
    del lane, order, same  # of millions of messages each is large
    some = messages.dep_ptr[1:] > messages.dep_ptr[:-1]
    if some.any():
        needs = np.maximum.reduceat(messages.dep, messages.dep_ptr[:-1][some])
        np.maximum(needs, latest[some], out=needs)
        latest[some] = needs
    if (latest >= np.arange(count)).any():
        return None
    found = list(_ranges(np.maximum.accumulate(latest)))
    return found if len(found) * _LEAST <= count else None


def _ranges(latest: Ints) -> Iterator[tuple[int, int]]:
    first = 0
    while first < len(latest):
        last = int(np.searchsorted(latest, first))
        yield first, last
        first = last


class _Lanes(msgspec.Struct, eq=False):
    """Routes as tables, a row per hop and a column each; shorter ones end in hops of no cost."""

    link: Ints
    cost: Floats
    latency: Floats
    real: Bools
    same: bool  # all routes are equally long
    free: Floats  # from when on each link is free
    full: Bools  # whether it is taken as a whole until then

    def as_one(self) -> AlikeLanes | None:
        """Return one lane for all if their routes are equal, None if not."""
        if not self.same or not self.cost.size:
            return None
        if (self.cost != self.cost[:, :1]).any() or (self.latency != self.latency[:, :1]).any():
            return None
        return AlikeLanes(self.cost[:, 0], self.latency[:, 0], _NOISE)

    def go_on_from(self, alike: AlikeLanes, log: _Log) -> None:
        """Go on from where one lane stood for all."""
        self.free[:] = np.array(alike.free)[:, None]
        self.full[:] = np.array(alike.full)[:, None]
        log.take_from(alike)

    def serve(
        self, lane: Ints, size: Floats, head: Floats, tail: Floats, log: _Log
    ) -> Floats | None:
        """Pass a message on each lane through its route; return when the last byte is there."""
        on = lane if len(lane) < self.link.shape[1] else _all_of(lane)
        for hop in range(len(self.link)):
            work, free = size * self.cost[hop][on], self.free[hop][on]
            begin = np.maximum(free, head)
            end = np.maximum(begin + work, tail)
            busy = free > head
            if busy.any():
                trickles = (tail > (begin + work) * (1 + _NOISE)) | ~self.full[hop][on]
                if (busy & trickles).any():
                    return None
            share = np.minimum(1 / (end - begin) * work, 1.0)
            if not self.same:
                real = self.real[hop][on]
                end, share = np.where(real, end, tail), np.where(real, share, 0.0)
            self.free[hop][on] = end if self.same else np.where(real, end, 0.0)
            self.full[hop][on] = share >= 1 - _NOISE
            log.add(on, hop, begin, end, share)
            late = self.latency[hop][on]
            head, tail = begin + late, end + late
        log.next_wave()
        return tail


def _all_of(lane: Ints) -> Ints | slice:
    """Return what chooses lanes; a slice, which is faster, if they are all, in order."""
    return slice(None) if np.array_equal(lane, np.arange(len(lane))) else lane


def _lanes(messages: RoutedProgram, hops: Sequence[tuple[Hop, ...]]) -> _Lanes | None:
    """Return the routes of a program whose connections share no link, None if some do."""
    links = [link for way in hops for parallel, _, _ in way for link in parallel]
    alone = all(len(parallel) == 1 for way in hops for parallel, _, _ in way)
    if not alone or len(set(links)) < len(links) or not (messages.size > 0).all():
        return None
    if not all(cost > 0 for way in hops for _, (cost,), _ in way) or not _one_each(messages):
        return None
    longest = max(map(len, hops), default=0)
    table = np.zeros((3, longest, len(hops)))
    for lane, way in enumerate(hops):
        for hop, (parallel, costs, latency) in enumerate(way):
            table[:, hop, lane] = parallel[0], costs[0], latency
    real = np.arange(longest)[:, None] < np.array([len(way) for way in hops])
    free, full = np.zeros(real.shape), np.ones(real.shape, np.bool_)
    return _Lanes(table[0].astype(np.int64), table[1], table[2], real, bool(real.all()), free, full)


def _one_each(messages: RoutedProgram) -> bool:
    """Return whether each connection has a route, and each route a connection."""
    ends = np.full((2, len(messages.routes)), -1)
    for row, column in zip(ends, (messages.source, messages.target), strict=True):
        row[messages.route] = column
        if not np.array_equal(row[messages.route], column):
            return False
    used = ends[:, np.bincount(messages.route, minlength=len(messages.routes)) > 0]
    return bool(len(distinct_columns(used)[0]) == used.shape[1])


class _Log:
    """What links have served: one piece per link and so many waves."""

    def __init__(self, link: Ints, every: int) -> None:
        self._link, self._every, self._waves = link, every, 0
        self._begin, self._end = np.full(link.shape, np.inf), np.zeros(link.shape)
        self._moved = np.zeros(link.shape)
        self._pieces: list[tuple[Ints, Floats, Floats, Floats]] = []

    def add(self, lane: Ints | slice, hop: int, begin: Floats, end: Floats, share: Floats) -> None:
        """Note what one link of each lane serves."""
        self._begin[hop][lane] = np.minimum(self._begin[hop][lane], begin)
        self._end[hop][lane] = end
        self._moved[hop][lane] += share * (end - begin)

    def take_from(self, alike: AlikeLanes) -> None:
        """Note what one lane has served in the name of all."""
        alike.write(self._begin, self._end, self._moved)

    def next_wave(self, alike: AlikeLanes | None = None) -> None:
        """Go on to the next wave; `alike` if one lane stands for all."""
        self._waves += 1
        if self._waves % self._every == 0:
            if alike is not None:
                self.take_from(alike)
            self._flush()

    def services(self) -> LinkServices:
        """Return all pieces."""
        self._flush()
        return LinkServices(*(np.concatenate(column) for column in zip(*self._pieces, strict=True)))

    def _flush(self) -> None:
        served = self._moved > 0
        begin, end = self._begin[served], self._end[served]
        self._pieces.append((self._link[served], begin, end, self._moved[served] / (end - begin)))
        self._begin[:], self._moved[:] = np.inf, 0.0
