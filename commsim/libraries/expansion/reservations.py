"""
Reservations of link rates by messages: an earlier message keeps the rate at which it arrives.

A message comes to a link as a curve: by when which share of it has arrived. The link passes on
what has arrived as fast as those that came before leave room for, and so the message leaves as
another curve. With A(t) the share arrived by t and F(t) the share that the link could have passed
by t beside all that is reserved, the share passed is the (min,+) convolution

    D(t) = min over s <= t of A(s) + F(t) - F(s)

(Le Boudec and Thiran, "Network Calculus", theorem 1.3.3: a work-conserving link). A message that
is there as a whole takes all of an idle link; one that trickles in from a slower link takes its
own rate and leaves the rest to others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

__all__ = ["Curve", "Service", "Usage", "at_once", "pass_through", "shifted", "spread_over"]

Curve = tuple[tuple[float, ...], tuple[float, ...]]
"""Times in ps, ascending, and the share of the message that has come by each; linear between."""

Service = tuple[float, float, float]
"""From, to (ps), and the share of the message that passes per ps."""

_NEVER = float("inf")
_SAME = 1e-9  # rates closer than this are equal: else floats leave slivers of a link free
_ALL = 1 - 1e-12  # a message of which this share has passed has passed


class Usage:
    """The share of one link (or of equal parallel links) that is reserved, over time.

    From `times[i]` to `times[i + 1]` the share `used[i]` is taken, and nothing after the last.
    """

    __slots__ = ("times", "used")

    def __init__(self) -> None:
        self.times: list[float] = []
        self.used: list[float] = []

    def copy(self) -> Usage:
        """Return the same reservations for another link."""
        other = Usage()
        other.times, other.used = self.times.copy(), self.used.copy()
        return other

    def forget(self, now: float) -> None:
        """Drop what is over at `now`."""
        over = bisect_right(self.times, now) - 1
        if over > 0:
            del self.times[:over], self.used[:over]

    def at(self, when: float) -> tuple[float, float]:
        """Return the share that is taken at `when`, and until when it stays so."""
        place = bisect_right(self.times, when)
        if place == len(self.times):
            return 0.0, _NEVER
        return (self.used[place - 1] if place else 0.0), self.times[place]

    def reserve(self, begin: float, end: float, share: float) -> None:
        """Take a share more from `begin` to `end`."""
        times, used = self.times, self.used
        if not times or begin >= times[-1]:
            if times and begin == times[-1] and len(used) > 1 and used[-2] == share:
                times[-1] = end
                return
            if times and begin == times[-1]:
                used[-1] = share
            else:
                times.append(begin)
                used.append(share)
            times.append(end)
            used.append(0.0)
            return
        first, last = self._cut(begin), self._cut(end)
        for place in range(first, last):
            used[place] += share

    def _cut(self, when: float) -> int:
        """Return the place of the piece that begins at `when`, which becomes one."""
        place = bisect_right(self.times, when)
        if place and self.times[place - 1] == when:
            return place - 1
        self.times.insert(place, when)
        self.used.insert(place, self.used[place - 1] if place else 0.0)
        return place


def at_once(when: float) -> Curve:
    """Return the curve of a message that is there as a whole at `when`."""
    return (when,), (1.0,)


def spread_over(begin: float, time: float) -> Curve:
    """Return the curve of a message that comes evenly over `time` ps."""
    return ((begin, begin + time), (0.0, 1.0)) if time > 0 else at_once(begin)


def shifted(curve: Curve, delay: float) -> Curve:
    """Return a curve shifted by a delay."""
    return tuple(when + delay for when in curve[0]), curve[1]


def pass_through(
    usages: Sequence[Usage], works: Sequence[float], curve: Curve
) -> tuple[Curve, list[Service]]:
    """Pass a message through parallel links, all at one pace; reserve what it takes of each.

    `works[i]` is how long link i needs for its part of the message, in ps. Returns the curve by
    which the message leaves, and when which share of it passed.
    """
    if not any(works):
        return curve, []
    times, come = curve
    now, moved, at = times[0], 0.0, 0
    if len(times) <= 2 and all(not one.times or one.times[-1] <= now for one in usages):
        return _pass_idle(usages, works, curve)
    services: list[Service] = []
    while moved < _ALL:
        while at + 1 < len(times) and times[at + 1] <= now:
            at += 1
        free, until = _room(usages, works, now)
        coming, arrived = 0.0, come[at]
        if at + 1 < len(times):
            coming = (come[at + 1] - come[at]) / (times[at + 1] - times[at])
            arrived += coming * (now - times[at])
            until = min(until, times[at + 1])
        waiting = max(arrived - moved, 0.0)
        if waiting > 1 - _ALL:
            rate = free
            if rate > coming:
                until = min(until, now + waiting / (rate - coming))
        else:
            rate = coming if free >= coming * (1 - _SAME) else free
        if rate > 0:
            done = now + (1 - moved) / rate
            until = min(until, done)
            moved = 1.0 if until == done else moved + rate * (until - now)
            if until <= now:  # what waits is less than the clock can tell
                moved = arrived
            elif services and services[-1][1] == now and services[-1][2] == rate:
                services[-1] = (services[-1][0], until, rate)
            else:
                services.append((now, until, rate))
        now = until
    if not services:
        return curve, []
    for begin, end, rate in services:
        for usage, work in zip(usages, works, strict=True):
            usage.reserve(begin, end, min(rate * work, 1.0))
    return _curve_of(services), services


def _pass_idle(
    usages: Sequence[Usage], works: Sequence[float], curve: Curve
) -> tuple[Curve, list[Service]]:
    """Pass a message that comes at once or evenly through links without other reservations."""
    times, _ = curve
    begin, slowest = times[0], max(works)
    end = max(begin + slowest, times[-1])
    if end <= begin:
        return curve, []
    rate = 1 / (end - begin)
    for usage, work in zip(usages, works, strict=True):
        usage.reserve(begin, end, min(rate * work, 1.0))
    return ((begin, end), (0.0, 1.0)), [(begin, end, rate)]


def _room(usages: Sequence[Usage], works: Sequence[float], now: float) -> tuple[float, float]:
    """Return the share per ps that all links together have room for, and until when."""
    free, until = _NEVER, _NEVER
    for usage, work in zip(usages, works, strict=True):
        used, change = usage.at(now)
        left = 1 - used
        if work > 0:  # what needs nothing of a link does not wait for it
            room = left / work if left > _SAME else 0.0
            if room < free:
                free = room
            if change < until:
                until = change
    return free, until


def _curve_of(services: list[Service]) -> Curve:
    times, passed = [services[0][0]], [0.0]
    for begin, end, rate in services:
        if begin > times[-1]:
            times.append(begin)
            passed.append(passed[-1])
        times.append(end)
        passed.append(passed[-1] + rate * (end - begin))
    passed[-1] = 1.0
    return tuple(times), tuple(passed)
