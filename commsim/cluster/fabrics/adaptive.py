"""
Adaptive routing: bytes that start together spread over shortest ways and detours, so that the
fullest link is as empty as it can be.

What each switch does by its queues is taken as its aim: the least largest load (a fractional
multicommodity flow over the candidates given, by Frank and Wolfe's method on a soft maximum).
Shortest ways are left only as far as that helps: no link need be emptier than the sources' own.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from commsim.arrays import Floats, Ints

__all__ = ["Candidates", "mixture"]

Busy = Callable[[Floats], Floats]

_ROUNDS = 400
_HARDNESS = 60.0  # of the soft maximum: links within 1/60 of the fullest count about alike
_ENOUGH = 1e-9


class Candidates(msgspec.Struct, frozen=True, eq=False):
    """The ways of pairs as rows: `way` (ascending from 0), `link`, `share`; `pair` of each way.

    The first way of each pair is its shortest.
    """

    pair: Ints
    way: Ints
    link: Ints
    share: Floats


def mixture(ways: Candidates, weight: Floats, capacity: Floats, floor: float) -> Floats:
    """Return for each way the part of its pair's bytes that takes it.

    `weight` are the bytes of each pair, `capacity` the bytes/s of each link. No link need take
    less time than `floor` (s), that of the sources' own links.
    """
    first = np.searchsorted(ways.pair, np.arange(len(weight)))
    shortest = np.zeros(len(ways.pair))
    shortest[first] = 1.0

    def busy(part: Floats) -> Floats:
        carried = (part * weight[ways.pair])[ways.way] * ways.share
        found: Floats = np.bincount(ways.link, carried, len(capacity)) / capacity
        return found

    alone = busy(shortest)
    if alone.max(initial=0.0) <= floor * (1 + _ENOUGH):
        return shortest
    best = _balanced(ways, shortest, first, busy, capacity)
    return _nearest(shortest, best, alone, busy(best), floor)


def _balanced(
    ways: Candidates,
    part: Floats,
    first: Ints,
    busy: Busy,
    capacity: Floats,
) -> Floats:
    """Return the parts at which the fullest link is the least full, to about a percent."""
    best, least = part, float(busy(part).max())
    for number in range(_ROUNDS):
        seconds = busy(part)
        price = np.exp(_HARDNESS * (seconds / seconds.max() - 1)) / capacity
        cost = np.bincount(ways.way, price[ways.link] * ways.share, len(part))
        cheapest = np.minimum.reduceat(cost, first)[ways.pair]
        goal = (cost <= cheapest * (1 + 1e-12)).astype(np.float64)
        goal /= np.add.reduceat(goal, first)[ways.pair]  # equal ways take equal parts
        part = part + (goal - part) * (2 / (number + 3))
        most = float(busy(part).max())
        if most < least:
            best, least = part, most
    return best


def _nearest(shortest: Floats, best: Floats, alone: Floats, spread: Floats, floor: float) -> Floats:
    """Return as much of the shortest ways as leaves no link fuller than `best` does, or `floor`."""
    aim = max(float(spread.max()), floor)
    rising = alone > aim
    keep = (aim - spread[rising]) / (alone[rising] - spread[rising])
    share = float(np.clip(keep.min(initial=1.0), 0.0, 1.0))
    found: Floats = share * shortest + (1 - share) * best
    return found
