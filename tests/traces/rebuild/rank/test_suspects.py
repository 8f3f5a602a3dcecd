"""Kernels of no known library that end together on several ranks."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.traces.rebuild.rank.suspects import Suspect, _scatter, _together

US = 10**6  # ps
OFFSET = 5000 * US  # of the second rank's clock


def test_how_far_differences_are_from_their_middle() -> None:
    one, two = np.array([10, 20, 30]), np.array([9, 17, 10])
    assert _scatter(one, two).tolist() == [2, 0, 17]  # of differences 1, 3 and 20


@pytest.mark.parametrize(("apart", "together"), [(61, True), (60, False), (59, False)])
def test_a_kernel_that_ends_together_and_began_apart_waits(apart: int, together: bool) -> None:
    """Ends are 10 us from their middle, on average: starts must be over 20 + 4 x 10 us from it."""
    ends = np.arange(1, 5) * 1000 * US
    late = np.array([-10, 10, -10, 10]) * US
    early = np.array([-1, 1, -1, 1]) * apart * US
    one = Suspect("k", ends - 500 * US, ends)
    two = Suspect("k", ends - 500 * US + OFFSET + early, ends + OFFSET + late)
    other = Suspect("k", one.starts[:3], one.ends[:3])  # called less often: not of them
    found = _together({0: one, 3: two, 7: other})
    assert found == (([0, 3], apart * US) if together else ([], 0))


def test_ends_that_are_apart_are_of_no_collective() -> None:
    ends = np.arange(1, 5) * 1000 * US
    one = Suspect("k", ends - 500 * US, ends)
    two = Suspect(
        "k", ends - 500 * US + np.array([-1, 1, -1, 1]) * 900 * US,
        ends + np.array([-1, 1, -1, 1]) * 11 * US,
    )  # fmt: skip
    assert _together({0: one, 1: two}) == ([], 0)
