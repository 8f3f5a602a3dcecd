"""Recorded steps by name over the ranks: means, the slowest rank, outliers, and their table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.study.replay.recorded_steps import recorded_steps, step_table

US = 10**6


def steps(*by_rank: tuple[int, ...]) -> list[dict[str, Any]]:
    """Steps a, b, c, ... of each rank, in us."""
    held = {
        rank: [(chr(ord("a") + at), US * time) for at, time in enumerate(times)]
        for rank, times in enumerate(by_rank)
    }
    trace: Any = SimpleNamespace(steps=held)
    return recorded_steps(trace)


def test_a_step_has_its_mean_and_its_slowest_rank() -> None:
    """Of equally slow ranks the first one is named; a rank may have recorded fewer steps."""
    found = steps((10, 30), (20, 30), (20,))
    assert [row["step"] for row in found] == ["a", "b"]
    assert [row["mean_s"] for row in found] == pytest.approx([50e-6 / 3, 30e-6])
    assert [row["longest_s"] for row in found] == pytest.approx([20e-6, 30e-6])
    assert [row["longest_rank"] for row in found] == [1, 0]
    assert steps() == []


@pytest.mark.parametrize(
    ("last", "outlier"),
    [(1000, False), (1200, False), (1201, True), (800, False), (799, True)],
)
def test_a_step_a_fifth_off_the_median_is_an_outlier(last: int, outlier: bool) -> None:
    assert [row["outlier"] for row in steps((1000, 1000, last))] == [False, False, outlier]


def test_of_two_steps_none_is_the_outlier() -> None:
    assert [row["outlier"] for row in steps((1000, 9000))] == [False, False]


def test_the_table_has_the_last_forty_steps_and_the_mean_of_all() -> None:
    assert step_table(steps((10,))) == step_table([]) == []
    head = ("step", "mean over ranks", "longest", "on rank", "")
    assert step_table(steps((10, 10, 30), (10, 12, 10))) == [
        head, ("a", "10 us", "10 us", "0", ""), ("b", "11 us", "12 us", "1", ""),
        ("c", "20 us", "30 us", "0", "outlier"), ("mean", "13.67 us", "", "", ""),
    ]  # fmt: skip
    forty = step_table(steps((10,) * 40))
    assert [row[0] for row in (forty[1], forty[-2], forty[-1])] == ["a", chr(ord("a") + 39), "mean"]
    more = step_table(steps((52, *[10] * 41)))
    assert len(more) == 1 + 40 + 2
    assert more[1][0] == "c"
    assert more[-2] == ("and 2 before", "", "", "", "")
    assert more[-1][1] == "11 us"  # (52 + 41 * 10) / 42
