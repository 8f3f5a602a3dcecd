"""Interval sets against a line of booleans, one per instant."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commsim.metrics.intervals import Intervals, before, intersect, lengths, subtract, union

LINES, LENGTH = 3, 24

Pieces = list[tuple[int, int, int]]
pieces = st.lists(
    st.tuples(st.integers(0, LINES - 1), st.integers(0, LENGTH), st.integers(0, LENGTH)),
    max_size=12,
)


def intervals(found: Pieces) -> Intervals:
    return Intervals(*np.array(found, dtype=np.int64).reshape(-1, 3).T)


def instants(found: Intervals) -> np.ndarray:
    filled = np.zeros((LINES, LENGTH), dtype=bool)
    for line, start, end in zip(found.line, found.start, found.end, strict=True):
        filled[line, start:end] = True
    return filled


def canonical(found: Intervals) -> bool:
    """Sorted, disjoint, not touching, not empty."""
    rows = list(zip(found.line.tolist(), found.start.tolist(), found.end.tolist(), strict=True))
    apart = all(a[0] < b[0] or a[2] < b[1] for a, b in zip(rows, rows[1:], strict=False))
    return apart and rows == sorted(rows) and all(end > start for _, start, end in rows)


@pytest.mark.parametrize(
    ("operation", "truth"),
    [
        (union, np.logical_or),
        (intersect, np.logical_and),
        (subtract, lambda a, b: a & ~b),
    ],
)
@given(first=pieces, second=pieces)
def test_set_operations_hold_at_every_instant(
    operation: Callable[..., Intervals],
    truth: Callable[..., np.ndarray],
    first: Pieces,
    second: Pieces,
) -> None:
    a, b = intervals(first), intervals(second)
    result = operation(a, b)
    assert np.array_equal(instants(result), truth(instants(a), instants(b)))
    assert canonical(result)


@given(pieces)
def test_length_of_a_union_counts_each_instant_once(found: Pieces) -> None:
    merged = union(intervals(found))
    assert lengths(merged, LINES).tolist() == instants(merged).sum(axis=1).tolist()
    assert np.array_equal(instants(merged), instants(intervals(found)))


@given(pieces, st.permutations(range(12)))
def test_order_of_the_input_does_not_matter(found: Pieces, order: list[int]) -> None:
    shuffled = [found[i] for i in order if i < len(found)]
    a, b = union(intervals(found)), union(intervals(shuffled))
    assert a.start.tolist() == b.start.tolist()
    assert a.end.tolist() == b.end.tolist()
    assert a.line.tolist() == b.line.tolist()


@given(pieces)
def test_before_counts_what_lies_left_of_a_time(found: Pieces) -> None:
    merged = union(intervals(found))
    line, time = (a.ravel() for a in np.meshgrid(range(LINES), range(LENGTH + 1), indexing="ij"))
    expected = [instants(merged)[k, :t].sum() for k, t in zip(line, time, strict=True)]
    assert before(merged, line, time).tolist() == expected


def test_lengths_are_exact_where_floats_would_round() -> None:
    long = 2**60 + 1
    one = Intervals(np.array([0, 1]), np.array([0, 5]), np.array([long, 6]))
    assert lengths(union(one), 2).tolist() == [long, 1]


def test_lengths_does_not_merge_but_skips_reversed_ones() -> None:
    raw = intervals([(0, 0, 5), (0, 3, 6), (0, 9, 7)])
    assert lengths(raw, 1).tolist() == [8]


@given(first=pieces, second=pieces)
def test_lines_and_times_that_leave_no_room_for_one_number(first: Pieces, second: Pieces) -> None:
    """Times of millions of years on a million lines: places stand for the times."""
    far, lines = 2**55, 10**6
    sets = [intervals(first), intervals(second)]
    apart = [Intervals(one.line * lines, one.start * far, one.end * far) for one in sets]
    for operation in (union, intersect, subtract):
        near, found = operation(*sets), operation(*apart)
        assert np.array_equal(near.line * lines, found.line)
        assert np.array_equal(near.start * far, found.start)
        assert np.array_equal(near.end * far, found.end)
    whole = union(*sets)
    wide = Intervals(whole.line * lines, whole.start * far, whole.end * far)
    line, time = np.repeat(np.arange(LINES), LENGTH), np.tile(np.arange(LENGTH), LINES)
    assert np.array_equal(before(whole, line, time) * far, before(wide, line * lines, time * far))
