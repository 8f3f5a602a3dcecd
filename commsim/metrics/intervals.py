"""
Exact sets of instants: unions, intersections and differences of intervals.

All lanes at once: each interval lies on a line (a lane), and lines never meet. Everything is
one sweep over the sorted ends of the intervals, in integers; an interval is half open, so that
touching ones merge and empty ones vanish.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

from commsim.arrays import Bools, Ints
from commsim.metrics.one_axis import OneAxis

__all__ = ["Intervals", "before", "intersect", "lengths", "subtract", "union"]


class Intervals(msgspec.Struct, frozen=True, eq=False):
    """Intervals [start, end) on lines, as columns.

    Any order and overlap will do as input; what the functions here return is sorted by line,
    then start, disjoint, not touching and not empty. Those with end <= start count as empty.
    """

    line: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.line)

    def take(self, chosen: Ints | Bools) -> Intervals:
        """Return the chosen intervals, in that order."""
        return Intervals(self.line[chosen], self.start[chosen], self.end[chosen])


def union(*sets: Intervals) -> Intervals:
    """Return the instants that lie in any of `sets`."""
    line, start, end = (
        np.concatenate(columns)
        for columns in zip(*((s.line, s.start, s.end) for s in sets), strict=True)
    )
    whole = end > start
    if not whole.all():
        line, start, end = line[whole], start[whole], end[whole]
    if not len(line):
        return Intervals(line, start, end)
    axis = OneAxis.of([line], [start, end])
    begins, ends = axis.at(line, start), axis.at(line, end)
    if not (begins[1:] >= begins[:-1]).all():
        order = np.argsort(begins, kind="stable")
        begins, ends = begins[order], ends[order]
    ends = np.maximum.accumulate(ends)  # of all so far: other lines end before this one begins
    first = np.concatenate(([0], np.flatnonzero(begins[1:] > ends[:-1]) + 1))
    begins, ends = begins[first], ends[np.concatenate((first[1:] - 1, [len(ends) - 1]))]
    return Intervals(*axis.pieces(begins, ends))


def intersect(first: Intervals, second: Intervals) -> Intervals:
    """Return the instants that lie in both sets."""
    return _sweep(lambda depth: (depth[0] > 0) & (depth[1] > 0), first, second)


def subtract(first: Intervals, second: Intervals) -> Intervals:
    """Return the instants that lie in `first` but not in `second`."""
    return _sweep(lambda depth: (depth[0] > 0) & (depth[1] == 0), first, second)


def lengths(intervals: Intervals, lines: int) -> Ints:
    """Return how long the intervals on each of `lines` lines are together, overlaps not merged."""
    total = np.zeros(lines, dtype=np.int64)
    np.add.at(total, intervals.line, np.maximum(intervals.end - intervals.start, 0))
    return total


def before(intervals: Intervals, line: Ints, time: Ints) -> Ints:
    """Return, per query, how much of the sorted, disjoint `intervals` lies before `time`."""
    if not len(intervals):
        return np.zeros(len(time), dtype=np.int64)
    last = _last_started(intervals, line, time)
    found = np.maximum(last, 0)
    found_here = (last >= 0) & (intervals.line[found] == line)
    total = np.concatenate(([0], np.cumsum(intervals.end - intervals.start))).astype(np.int64)
    through = np.minimum(time, intervals.end[found]) - intervals.start[found]
    first_of_line = np.searchsorted(intervals.line, line)
    counted = total[found] - total[np.minimum(first_of_line, found)] + through
    return np.where(found_here, counted, 0)


def _last_started(intervals: Intervals, line: Ints, time: Ints) -> Ints:
    """Return the index of the last interval at or before (line, time), -1 if there is none."""
    axis = OneAxis.of([intervals.line, line], [intervals.start, time])
    begins = axis.at(intervals.line, intervals.start)
    return np.searchsorted(begins, axis.at(line, time), side="right") - 1


def _sweep(holds: Callable[[list[Ints]], Bools], *sets: Intervals) -> Intervals:
    """Return the instants at which `holds`, given how many intervals of each set lie there."""
    sets = tuple(one.take(one.end > one.start) for one in sets)
    axis = OneAxis.of([one.line for one in sets], [t for one in sets for t in (one.start, one.end)])
    ends = [axis.at(one.line, time) for one in sets for time in (one.start, one.end)]
    numbers = np.concatenate(ends)
    order = np.argsort(numbers, kind="stable")  # of columns that are sorted each: one pass
    numbers = numbers[order]
    inside = holds([np.cumsum(change[order]) for change in _changes(sets)])[:-1]
    # No interval is open at the end of a line, so no piece reaches over to the next.
    piece = np.flatnonzero(inside & (numbers[1:] > numbers[:-1]))
    return _merge(Intervals(*axis.pieces(numbers[piece], numbers[piece + 1])))


def _changes(sets: tuple[Intervals, ...]) -> list[npt.NDArray[np.int8]]:
    """Return, per set, what each end of an interval of any set adds to the depth in that set."""
    owner = np.repeat(np.arange(len(sets)), [2 * len(one) for one in sets])
    ends = np.concatenate([np.repeat([1, -1], len(one)) for one in sets]).astype(np.int8)
    return [np.where(owner == index, ends, 0).astype(np.int8) for index in range(len(sets))]


def _merge(pieces: Intervals) -> Intervals:
    """Join sorted, disjoint pieces that touch."""
    if not len(pieces):
        return pieces
    same = (pieces.line[1:] == pieces.line[:-1]) & (pieces.start[1:] == pieces.end[:-1])
    first = np.flatnonzero(np.concatenate(([True], ~same)))
    last = np.concatenate((first[1:] - 1, [len(pieces) - 1]))
    return Intervals(pieces.line[first], pieces.start[first], pieces.end[last])
