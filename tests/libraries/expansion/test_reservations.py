"""What a link passes on is the (min,+) convolution of what comes with the room that is left."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commsim.libraries.expansion.reservations import (
    Curve,
    Usage,
    at_once,
    pass_through,
    spread_over,
)

Taken = list[tuple[float, float, float]]


def used(taken: Taken) -> Usage:
    usage = Usage()
    for begin, length, share in taken:
        usage.reserve(begin, begin + length, share)
    return usage


def share_used(usage: Usage, when: float) -> float:
    return usage.at(when)[0]


def convolution(usage: Usage, work: float, curve: Curve, grid: np.ndarray) -> np.ndarray:
    """Return the share passed by each moment of a grid, by the definition."""
    middles = (grid[1:] + grid[:-1]) / 2
    free = np.array([max(1 - share_used(usage, t), 0.0) for t in middles]) / work
    could = np.concatenate(([0.0], np.cumsum(free * np.diff(grid))))
    times, come = curve
    # What comes at one moment has not come just before it.
    before = np.where(grid > times[0], np.interp(grid, times, come), 0.0)
    return np.array([min(before[: i + 1] + could[i] - could[: i + 1]) for i in range(len(grid))])


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 15), st.sampled_from([0.25, 0.5, 1.0])),
        max_size=4,
    ),
    st.integers(1, 30),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_a_message_leaves_as_the_convolution_says(
    taken: list[tuple[int, int, float]], work: int, begin: int, time: int
) -> None:
    usage = Usage()
    for first, length, share in taken:
        most = max(share_used(usage, first + t) for t in range(length))
        usage.reserve(float(first), float(first + length), min(share, 1 - most))
    curve = spread_over(float(begin), float(time))
    grid = np.arange(begin, 200, 1.0)
    expected = convolution(usage, work, curve, grid)
    leaving, services = pass_through([usage], [float(work)], curve)
    assert np.interp(grid, *leaving) == pytest.approx(np.minimum(expected, 1.0), abs=1e-6)
    for (_, ended), (began, _) in pairwise([(b, e) for b, e, _ in services]):
        assert ended <= began
    assert sum((e - b) * rate for b, e, rate in services) == pytest.approx(1.0)


def test_parallel_links_move_at_the_pace_of_the_fullest() -> None:
    """One of two links has a half of its rate left: both take twice as long."""
    full, half = used([]), used([(0.0, 100.0, 0.5)])
    leaving, _ = pass_through([full, half], [10.0, 10.0], at_once(0.0))
    assert leaving[0][-1] == pytest.approx(20.0)


def test_a_link_that_has_nothing_to_do_holds_nothing_up() -> None:
    busy, free = Usage(), Usage()
    busy.reserve(0.0, 100.0, 1.0)
    leaving, services = pass_through([busy], [0.0], at_once(7.0))
    assert leaving == at_once(7.0)
    assert not services
    leaving, _ = pass_through([busy, free], [0.0, 10.0], at_once(7.0))
    assert leaving[0][-1] == pytest.approx(17.0)


def test_what_is_over_is_forgotten() -> None:
    usage = used([(0.0, 10.0, 1.0), (20.0, 10.0, 0.5)])
    usage.forget(25.0)
    assert usage.at(25.0) == (0.5, 30.0)
    assert len(usage.times) == 2
