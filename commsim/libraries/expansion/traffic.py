"""
Messages in flight over FIFO links: the clock of chunk programs.

The discipline, the same on an idle cluster and under contention: a message enters the first link
of its route when everything it depends on has arrived, both ends have joined, and its
connection has sent what came before. Links serve messages in the order in which their heads come
(ties: the order in which programs were added, then program order): a message keeps the rate at
which it comes in, as far as those before it left room, and later ones share what is left (see
`reservations`). A message cuts through, so alone it takes

    sum of latencies + size / smallest capacity,

and messages that trickle through a fat link share it without waiting for each other.

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
from commsim.libraries.expansion.reservations import (
    Curve,
    Usage,
    at_once,
    pass_through,
    shifted,
    spread_over,
)
from commsim.libraries.plan import RoutedProgram

__all__ = ["Hop", "LinkService", "RunningProgram", "Traffic", "arrivals", "hops_of"]

PS = 1e12
_EVENLY = (0.0, 1.0)

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


class RunningProgram:
    """The messages of one running program: who waits for how many things, and who for whom."""

    __slots__ = (
        "after", "arrive", "follower", "hold", "hops", "left", "pace", "ready", "route", "size",
        "touching", "waits",
    )  # fmt: skip

    def __init__(
        self, messages: RoutedProgram, hops: Sequence[tuple[Hop, ...]], absent: Sequence[int]
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


LinkService = tuple[int, float, float, float, int]
"""Link, from, to (ps), the share of the link that is taken, and the program whose message it is."""


class Traffic:
    """All messages in flight. `log`, if given, collects what links serve."""

    def __init__(self, log: list[LinkService] | None = None) -> None:
        self._queue: list[tuple[float, int, int, int, Curve]] = []
        self._programs: dict[int, RunningProgram] = {}
        self._usage: dict[int, Usage] = {}
        self._log = log
        self._added = 0

    def add(self, program: RunningProgram, now: float) -> int:
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
        """Advance to `until`; return arrivals as (time, program, message)."""
        arrived = []
        while self._queue and self._queue[0][0] <= until:
            head, number, message, at, curve = heapq.heappop(self._queue)
            program = self._programs[number]
            hops = program.hops[program.route[message]]
            if at < len(hops):
                curve = self._serve(hops[at], program.size[message], curve, number)
                if at == 0:
                    self._follow(number, message, head, curve[0][-1] - hops[0][2])
                at += 1
                when = curve[0][-1 if at == len(hops) else 0]
                heapq.heappush(self._queue, (when, number, message, at, curve))
                continue
            tail = curve[0][-1]
            if not hops:
                self._follow(number, message, head, tail)
            if at == len(hops) and program.arrive[message]:
                done = tail + program.arrive[message]
                heapq.heappush(self._queue, (done, number, message, at + 1, at_once(done)))
                continue
            arrived.append((tail, number, message))
            for following, delay in program.after[message]:
                self._release(number, following, tail + delay)
            program.left -= 1
            if program.left == 0:
                del self._programs[number]
        return arrived

    def _follow(self, number: int, message: int, head: float, left: float) -> None:
        """Let the next message of a connection go after this one, which has left at `left`.

        A sender with a pace hands it out by its own clock, though the link is behind.
        """
        program = self._programs[number]
        if program.follower[message] >= 0:
            pace = program.pace[message]
            self._release(number, program.follower[message], head + pace if pace else left)

    def _release(self, number: int, message: int, when: float) -> None:
        program = self._programs[number]
        ready, waits = program.ready, program.waits
        if when > ready[message]:
            ready[message] = when
        waits[message] = left = waits[message] - 1
        if not left:
            self._enter(number, message, ready[message])

    def _enter(self, number: int, message: int, head: float) -> None:
        """Let a message begin to leave its sender, at the sender's pace."""
        curve = spread_over(head, self._programs[number].pace[message])
        heapq.heappush(self._queue, (head, number, message, 0, curve))

    def _serve(self, hop: Hop, size: float, curve: Curve, number: int) -> Curve:
        """Pass a message through one hop; return the curve by which it reaches the next."""
        links, costs, latency = hop
        if not size:
            return shifted(curve, latency)
        if len(links) == 1 and len(curve[0]) <= 2:
            leaving = self._serve_alone(links[0], size * costs[0], curve, latency, number)
            if leaving is not None:
                return leaving
        usages = [self._usage_of(link) for link in links]
        head = curve[0][0]
        for usage in usages:
            usage.forget(head)
        works = [size * cost for cost in costs]
        leaving, services = pass_through(usages, works, curve)
        if self._log is not None:
            for begin, end, rate in services:
                for link, work in zip(links, works, strict=True):
                    self._log.append((link, begin, end, min(rate * work, 1.0), number))
        return shifted(leaving, latency)

    def _serve_alone(
        self, link: int, work: float, curve: Curve, latency: float, number: int
    ) -> Curve | None:
        """Pass a message through one link that is free from now on, as `pass_through` would.

        None if the link is not, or the message takes no time.
        """
        begin = curve[0][0]
        usage = self._usage_of(link)
        end = max(begin + work, curve[0][-1])
        if end <= begin or (usage.times and usage.times[-1] > begin):
            return None
        share = min(1 / (end - begin) * work, 1.0)
        usage.times, usage.used = [begin, end], [share, 0.0]  # what was before is over
        if self._log is not None:
            self._log.append((link, begin, end, share, number))
        return (begin + latency, end + latency), _EVENLY

    def _usage_of(self, link: int) -> Usage:
        usage = self._usage.get(link)
        if usage is None:
            usage = self._usage[link] = Usage()
        return usage


def arrivals(messages: RoutedProgram, links: Links) -> Floats:
    """Return when each message has arrived on otherwise idle links, in ps from the start."""
    done = np.zeros(len(messages.size))
    if not len(done):
        return done
    traffic = Traffic()
    traffic.add(RunningProgram(messages, [hops_of(r, links) for r in messages.routes], ()), 0.0)
    for when, _, message in traffic.advance(float("inf")):
        done[message] = when
    return done


def _reverse(messages: RoutedProgram) -> list[list[tuple[int, float]]]:
    """Return for each message those that depend on it, and how long after it they may go."""
    after: list[list[tuple[int, float]]] = [[] for _ in range(len(messages.size))]
    targets = np.repeat(np.arange(len(messages.size)), np.diff(messages.dep_ptr)).tolist()
    delays = messages.delays
    delay = [0.0] * len(targets) if delays is None else delays.dep.tolist()
    for earlier, later, wait in zip(messages.dep.tolist(), targets, delay, strict=True):
        after[earlier].append((later, wait))
    return after


def _followers(messages: RoutedProgram) -> list[int]:
    """Return for each message the next one on its connection, -1 for the last."""
    last: dict[tuple[int, int], int] = {}
    follower = [-1] * len(messages.size)
    for m, pair in enumerate(zip(messages.source.tolist(), messages.target.tolist(), strict=True)):
        if pair in last:
            follower[last[pair]] = m
        last[pair] = m
    return follower
