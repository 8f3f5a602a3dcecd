"""
When programs end on links that no two connections share, and how much slower they must be to end
when the timing model says.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from commsim.arrays import Floats, Ints
from commsim.libraries.plan import RoutedProgram

__all__ = ["ProgramClock", "TreeClock", "factor_at"]

_ROUNDS = 40  # of the search for a factor: it takes five to ten
_CLOSE = 1e-7  # relative


class ProgramClock:
    """When a program ends on links that no two connections share."""

    def __init__(self, messages: RoutedProgram) -> None:
        ptr, dep = messages.dep_ptr.tolist(), messages.dep.tolist()
        self._needs = [dep[a:b] for a, b in zip(ptr, ptr[1:], strict=False)]
        last: dict[tuple[int, int], int] = {}
        self._before = []
        ends = zip(messages.source.tolist(), messages.target.tolist(), strict=True)
        for message, pair in enumerate(ends):
            self._before.append(last.get(pair, -1))
            last[pair] = message

    def ends(self, latency: Floats, pace: Floats) -> float:
        """Return when the last message has arrived."""
        arrived: list[float] = []
        left: list[float] = []  # when the sender is through with each
        rows = zip(self._needs, self._before, latency.tolist(), pace.tolist(), strict=True)
        for needs, before, wait, takes in rows:
            begin = left[before] if before >= 0 else 0.0
            for need in needs:
                begin = max(begin, arrived[need])
            left.append(begin + takes)
            arrived.append(begin + takes + wait)
        return max(arrived)


class TreeClock:
    """When a tree's pieces are up at its root and down again, each edge one after another.

    `up[rank]` is the parent, -1 at the root. Times are columns over the edges from all other ranks
    to their parents, ranks ascending, and then over those back.
    """

    def __init__(self, up: Ints) -> None:
        self._up, self._child = up, np.flatnonzero(up >= 0)

    def ends(self, fixed: Floats, scaled: Floats, rest: float) -> Callable[[float], float]:
        """Return the end as a function of x: the longest way up, that down, and `rest` more.

        The first piece takes fixed + x * scaled over an edge.
        """
        half = len(self._child)
        up, down = (
            (self._from_root(fixed[way]), self._from_root(scaled[way]))
            for way in (slice(half), slice(half, None))
        )

        def end(x: float) -> float:
            return float((up[0] + x * up[1]).max() + (down[0] + x * down[1]).max()) + rest

        return end

    def _from_root(self, takes: Floats) -> Floats:
        """Return what the edges between each rank and the root take."""
        own = np.zeros(len(self._up))
        own[self._child] = takes
        total, at = own.copy(), self._up.copy()
        while (below := np.flatnonzero(at >= 0)).size:
            total[below] += own[at[below]]
            at[below] = self._up[at[below]]
        return total


def factor_at(time: Callable[[float], float], wanted: float) -> float:
    """Return the factor at which a rising, piecewise linear function is `wanted`; 0 at least."""
    low, high = 0.0, 1.0
    at_low, at_high = time(low), time(high)
    if at_low >= wanted or at_high <= at_low:
        return 0.0
    while at_high < wanted:
        low, at_low, high = high, at_high, 2 * high
        at_high = time(high)
    for _ in range(_ROUNDS):
        middle = low + (high - low) * (wanted - at_low) / (at_high - at_low)
        found = time(middle)
        if abs(found - wanted) <= _CLOSE * wanted:
            return middle
        if found < wanted:
            low, at_low = middle, found
        else:
            high, at_high = middle, found
    return low
