"""How far a fit is followed: as far as that predicts what it did not see."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from commsim.study.calibrate import shrink
from commsim.study.calibrate.fit import PARTS
from commsim.study.calibrate.predicted import MeasuredTable
from commsim.study.calibrate.shrink import _Line, fit_that_carries


def table(op: str, *sizes: int) -> MeasuredTable:
    return MeasuredTable(op, op, "float", 1, 8, sizes, np.ones(len(sizes)))


def line(op: str, given: list[float], slopes: list[float]) -> _Line:
    """A table whose errors a single factor moves, by a slope for each row."""
    sizes = tuple(range(len(given)))
    return _Line(table(op, *sizes), np.array(given), np.array(slopes)[:, None])


def test_the_error_is_the_mean_distance_on_either_side() -> None:
    one = line("a", [1.0, -1.0, 0.5], [-1.0, 1.0, -1.0])
    assert one.error(np.array([0.0])) == pytest.approx(2.5 / 3)
    assert one.error(np.array([0.5])) == pytest.approx(1.0 / 3)
    assert one.error(np.array([2.0])) == pytest.approx((1 + 1 + 1.5) / 3)


def test_halves_are_every_second_row() -> None:
    one = line("a", [1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    even, odd = one.half(0), one.half(1)
    assert (even.given.tolist(), odd.given.tolist()) == ([1.0, 3.0], [2.0])
    assert (even.table.sizes, odd.table.sizes) == ((0, 2), (1,))
    assert (even.slopes.tolist(), odd.slopes.tolist()) == ([[4.0], [6.0]], [[5.0]])


def names(folds: Any) -> list[tuple[list[str], list[str]]]:
    return [([x.table.op for x in seen], [x.table.op for x in hidden]) for seen, hidden in folds]


def test_each_op_is_left_out_once_and_of_one_op_each_half() -> None:
    a, b, c = (line(op, [1.0, 2.0], [1.0, 1.0]) for op in "abc")
    assert names(shrink._folds([b, a, c, a])) == [
        (["b", "c"], ["a", "a"]), (["a", "c", "a"], ["b"]), (["b", "a", "a"], ["c"]),
    ]  # fmt: skip
    (first, second) = shrink._folds([a, a])
    assert [x.table.sizes for x in first[0]] == [(0,), (0,)] == [x.table.sizes for x in second[1]]
    assert [x.table.sizes for x in first[1]] == [(1,), (1,)] == [x.table.sizes for x in second[0]]
    assert list(shrink._folds([a, line("a", [1.0], [1.0])])) == []  # a half would be empty


@pytest.mark.parametrize(
    ("slope", "share"),
    [
        (-1.0, 1.0),  # the errors are 1, 0.75, 0.5, 0.25, 0: the last gains most
        (-2.0, 0.5),  # 1, 0.5, 0, 0.5, 1
        (-4.0, 0.25),
        (-10 / 9, 0.75),  # the last gains 0.89, the one before it 0.83: over 0.9 of that
        (-1.03, 1.0),  # 0.97 and 0.77: less than that
        (1.0, 0.0),  # it leads away
        (-0.0299, 0.0), (-0.0301, 1.0),  # 3 % of the error are chance
    ],
)  # fmt: skip
def test_the_smallest_share_that_gains_nine_tenths_of_the_best(
    slope: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shrink, "fit", lambda tables, *_: np.ones(1))
    lines = [line("a", [1.0, 1.0], [slope] * 2), line("b", [-1.0], [-slope])]
    assert shrink._share(lines, [], PARTS) == share


def test_what_factors_do_is_their_slope_at_the_given_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ln(predicted / measured) is 1 + 2 x + 3 y^2 of one table, and 5 - y of another.

    y is tried below 0, as it may not rise by a step: there 3 y^2 has a slope of -0.15.
    """
    steps: list[list[float]] = []

    def ratios(x: Any) -> list[Any]:
        steps.append(x.tolist())
        return [np.array([1 + 2 * x[0] + 3 * x[1] ** 2]), np.array([5 - x[1]] * 2)]

    factors: Any = [SimpleNamespace(bound=0.05), SimpleNamespace(bound=0.049)]
    tables = [table("a", 1), table("b", 1, 2)]
    one, other = shrink._lines(tables, factors, ratios)
    assert steps == [[0.0, 0.0], [0.05, 0.0], [0.0, -0.05]]
    assert (one.given.tolist(), other.given.tolist()) == ([1.0], [5.0, 5.0])
    assert one.slopes == pytest.approx(np.array([[2.0, -0.15]]))
    assert other.slopes == pytest.approx(np.array([[0.0, -1.0], [0.0, -1.0]]))
    monkeypatch.setattr(shrink, "predicted_ratios", lambda *_: ratios)
    monkeypatch.setattr(shrink, "fit", lambda *_: np.array([0.5, 4.0]))
    for share in (0.0, 0.25):
        monkeypatch.setattr(shrink, "_share", lambda *_, share=share: share)
        found = fit_that_carries(None, tables, factors)  # type: ignore[arg-type]
        assert found.tolist() == [0.5 * share, 4.0 * share]
