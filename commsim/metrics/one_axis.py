"""
Many lines of time as one: a number per (line, time) that sorts as the pair does.

Sorting and searching one column of integers takes a fraction of what pairs take, and columns that
are sorted already are sorted again in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from commsim.arrays import Ints

__all__ = ["OneAxis"]

_ROOM = 2**62


class OneAxis(msgspec.Struct, frozen=True, eq=False):
    """Line l is the stretch from `l * span` on; `low` is the earliest time of all.

    `moments` are the different times if the times themselves leave no room: then their places
    stand for them.
    """

    low: int
    span: int
    moments: Ints | None

    @classmethod
    def of(cls, lines: Sequence[Ints], times: Sequence[Ints]) -> OneAxis:
        """Return an axis for some lines, from 0 on, and times."""
        count = 1 + max((int(line.max()) for line in lines if line.size), default=0)
        low = min((int(time.min()) for time in times if time.size), default=0)
        high = max((int(time.max()) for time in times if time.size), default=0)
        if count * (high - low + 1) < _ROOM:
            return cls(low, high - low + 1, None)
        moments = np.unique(np.concatenate(times))
        return cls(0, len(moments), moments)

    def at(self, line: Ints, time: Ints) -> Ints:
        """Return the numbers of some of these times on some of these lines."""
        place = time - self.low if self.moments is None else np.searchsorted(self.moments, time)
        found: Ints = line * self.span + place
        return found

    def pieces(self, begins: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the lines and times of numbers that begin and end pieces, each on one line."""
        line = begins // self.span
        start, end = begins - line * self.span, ends - line * self.span
        if self.moments is None:
            return line, start + self.low, end + self.low
        return line, self.moments[start], self.moments[end]
