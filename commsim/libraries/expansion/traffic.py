"""
Messages in flight over FIFO links: the clock of chunk programs.

The discipline, on an idle cluster and under contention alike: a message enters the first link
of its route when everything it depends on has arrived, both ends have joined, and its
connection has sent what came before. Links are FIFO in the order in which the heads of
messages reach them (ties: the order in which programs were added, then program order). A
message cuts through: a link of capacity C serves it for size/C, starting no earlier than its
head arrives and ending no earlier than its tail does. So alone it takes

    sum of latencies + size / smallest capacity.

What trickles into a fast link from a slower one needs it only just before the tail: until then
the link serves whom it can serve before that.

Where a program has `delays`, those of software come on top (see `Delays`).

A library asks `arrivals` for the idle time of a plan; `network: steps` keeps one `Traffic` for
the whole run. Times are float picoseconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from commsim.arrays import Floats
from commsim.cluster import Links, Route
from commsim.libraries.plan import Messages

__all__ = ["Hop", "Program", "Traffic", "arrivals", "hops_of"]

PS = 1e12

Hop = tuple[tuple[int, ...], tuple[float, ...], float]
"""Parallel links of one hop, ps per byte of the whole message on each, and the hop's latency."""


def hops_of(route: Route, links: Links) -> tuple[Hop, ...]:
    """Return the hops of a route in order."""
    entries: dict[int, list[tuple[int, float, float]]] = {}
    for link, share, hop in zip(route.link, route.share, route.hop, strict=True):
        cost = share / float(links.capacity[link]) * PS
        entries.setdefault(hop, []).append((link, cost, float(links.latency[link])))
    return tuple(
        (
            tuple(link for link, _, _ in parallel),
            tuple(cost for _, cost, _ in parallel),
            max(latency for _, _, latency in parallel),
        )
        for parallel in entries.values()
    )


class Program:
    """The messages of one running program: who waits for how many things, and who for whom."""

    __slots__ = (
        "after", "arrive", "follower", "hold", "hops", "left", "pace", "ready", "route", "size",
        "touching", "waits",
    )  # fmt: skip

    def __init__(
        self, messages: Messages, hops: Sequence[tuple[Hop, ...]], absent: Sequence[int]
    ) -> None:
        self.hops = hops
        self.size: list[float] = messages.size.tolist()
        self.route: list[int] = messages.route.tolist()
        self.left = len(self.size)
        self.ready = [0.0] * self.left
        delays = messages.delays
        self.hold = [0.0] * self.left if delays is None else delays.hold.tolist()
        self.arrive = [0.0] * self.left if delays is None else delays.after.tolist()
        pace = None if delays is None else delays.pace
        self.pace: list[float] = [0.0] * self.left if pace is None else pace.tolist()
        self.after = _reverse(messages)
        self.follower = _followers(messages)
        self.waits: list[int] = np.diff(messages.dep_ptr).tolist()
        for follower in self.follower:
            if follower >= 0:
                self.waits[follower] += 1
        self.touching: dict[int, list[int]] = {member: [] for member in absent}
        ends = zip(messages.source.tolist(), messages.target.tolist(), strict=True)
        for message, (source, target) in enumerate(ends):
            for member in (source, target):
                if member in self.touching:
                    self.touching[member].append(message)
                    self.waits[message] += 1


class Traffic:
    """All messages in flight. `log`, if given, collects (link, start, end, program) of services."""

    def __init__(self, log: list[tuple[int, float, float, int]] | None = None) -> None:
        self._queue: list[tuple[float, int, int, int, float]] = []
        self._programs: dict[int, Program] = {}
        self._busy: dict[int, _Busy] = {}
        self._log = log
        self._added = 0

    def add(self, program: Program, now: float) -> int:
        """Start a program at `now`; return its number."""
        number = self._added
        self._added += 1
        self._programs[number] = program
        for message, waits in enumerate(program.waits):
            ready = program.ready[message] = now + program.hold[message]
            if waits == 0:
                self._enter(number, message, ready)
        return number

    def join(self, number: int, member: int, now: float) -> None:
        """Let an absent member of program `number` take part from `now` on."""
        program = self._programs[number]
        for message in program.touching.pop(member):
            self._release(number, message, now + program.hold[message])

    def next_time(self) -> float:
        """Return when something happens next; infinity if nothing will."""
        return self._queue[0][0] if self._queue else float("inf")

    def advance(self, until: float) -> list[tuple[float, int, int]]:
        """Let everything up to `until` happen; return arrivals as (time, program, message)."""
        arrived = []
        while self._queue and self._queue[0][0] <= until:
            head, number, message, at, tail = heapq.heappop(self._queue)
            program = self._programs[number]
            hops = program.hops[program.route[message]]
            if at == 0 and program.follower[message] >= 0:
                self._release(number, program.follower[message], head + program.pace[message])
            if at < len(hops):
                reached = self._serve(hops[at], program.size[message], head, tail, number)
                at += 1
                when = reached[1] if at == len(hops) else reached[0]
                heapq.heappush(self._queue, (when, number, message, at, reached[1]))
                continue
            if at == len(hops) and program.arrive[message]:
                done = tail + program.arrive[message]
                heapq.heappush(self._queue, (done, number, message, at + 1, done))
                continue
            arrived.append((tail, number, message))
            for later, delay in program.after[message]:
                self._release(number, later, tail + delay)
            program.left -= 1
            if program.left == 0:
                del self._programs[number]
        return arrived

    def _release(self, number: int, message: int, when: float) -> None:
        program = self._programs[number]
        program.ready[message] = max(program.ready[message], when)
        program.waits[message] -= 1
        if program.waits[message] == 0:
            self._enter(number, message, program.ready[message])

    def _enter(self, number: int, message: int, head: float) -> None:
        """Let a message begin to leave its sender; its tail follows at the sender's pace."""
        tail = head + self._programs[number].pace[message]
        heapq.heappush(self._queue, (head, number, message, 0, tail))

    def _serve(
        self, hop: Hop, size: float, head: float, tail: float, number: int
    ) -> tuple[float, float]:
        """Pass a message through one hop; return when head and tail reach the next.

        A message that trickles in from a slower link, or from a sender with a pace of its own,
        goes on at once: this link gives it the time that it needs from its head on, and serves
        others meanwhile.
        """
        links, costs, latency = hop
        service = size * max(costs)
        start = self._room(links, costs, size, head, head)
        for link, cost in zip(links, costs, strict=True):
            _book(self._busy.setdefault(link, []), start, start + size * cost)
            if self._log is not None:
                self._log.append((link, start, start + size * cost, number))
        return start + latency, max(start + service, tail) + latency

    def _room(
        self,
        links: Sequence[int],
        costs: Sequence[float],
        size: float,
        wanted: float,
        now: float,
    ) -> float:
        """Return the first time from `wanted` on at which all parallel links have room."""
        start, before = wanted, -1.0
        while start != before:
            before = start
            for link, cost in zip(links, costs, strict=True):
                busy = self._busy.get(link)
                if busy and busy[-1][1] > start:
                    start = _fit(busy, start, size * cost, now)
        return start


_Busy = list[tuple[float, float]]
"""When a link is taken, ascending and apart from each other."""


def _fit(busy: _Busy, start: float, length: float, now: float) -> float:
    """Return the first time from `start` on that leaves `length` free; forget what is over."""
    while busy[0][1] <= now:
        del busy[0]
    for begin, end in busy:
        if end > start:
            if begin - start >= length:
                return start
            start = end
    return start


def _book(busy: _Busy, start: float, end: float) -> None:
    """Take the time from `start` to `end`, which is free."""
    if end <= start:
        return
    at = len(busy)
    while at and busy[at - 1][0] >= end:
        at -= 1
    if at < len(busy) and busy[at][0] == end:
        end = busy.pop(at)[1]
    if at and busy[at - 1][1] == start:
        at -= 1
        start = busy.pop(at)[0]
    busy.insert(at, (start, end))


def arrivals(messages: Messages, links: Links) -> Floats:
    """Return when each message has arrived on otherwise idle links, in ps from the start."""
    done = np.zeros(len(messages.size))
    if not len(done):
        return done
    traffic = Traffic()
    traffic.add(Program(messages, [hops_of(r, links) for r in messages.routes], ()), 0.0)
    for when, _, message in traffic.advance(float("inf")):
        done[message] = when
    return done


def _reverse(messages: Messages) -> list[list[tuple[int, float]]]:
    """Return for each message those that depend on it, and how long after it they may go."""
    after: list[list[tuple[int, float]]] = [[] for _ in range(len(messages.size))]
    targets = np.repeat(np.arange(len(messages.size)), np.diff(messages.dep_ptr)).tolist()
    delays = messages.delays
    delay = [0.0] * len(targets) if delays is None else delays.dep.tolist()
    for earlier, later, wait in zip(messages.dep.tolist(), targets, delay, strict=True):
        after[earlier].append((later, wait))
    return after


def _followers(messages: Messages) -> list[int]:
    """Return for each message the next one on its connection, -1 for the last."""
    last: dict[tuple[int, int], int] = {}
    follower = [-1] * len(messages.size)
    for m, pair in enumerate(zip(messages.source.tolist(), messages.target.tolist(), strict=True)):
        if pair in last:
            follower[last[pair]] = m
        last[pair] = m
    return follower
