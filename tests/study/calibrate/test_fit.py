"""Fits of ratios that are straight lines in the logarithms: where they end and what holds them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from commsim.study.calibrate import fit as module
from commsim.study.calibrate.factors import Factor
from commsim.study.calibrate.fit import ErrorParts, errors_of, fit, log_ratios
from commsim.study.calibrate.predicted import MeasuredTable
from commsim.study.calibrate.shrink import _folds, _Line, _share

ROWS = ErrorParts(table=0.0, row=0.1)
"""Rows that err by themselves, by a tenth."""


def table(rows: int = 4, op: str = "x") -> MeasuredTable:
    sizes = tuple(1 << (10 + 4 * at) for at in range(rows))
    return MeasuredTable(op, op, "float", 1, 8, sizes, np.ones(rows))


def factor(sigma: float = 100.0, most: float = 1e9) -> Factor:
    return Factor("a.b", 1.0, sigma, most, is_time=False)


def fitted(ratios: Any, *factors: Factor, rows: int = 4, parts: ErrorParts = ROWS) -> list[float]:
    found: list[float] = fit([table(rows)], factors, lambda x: [ratios(x)], parts).tolist()
    return found


def test_a_machine_that_is_slower_everywhere_by_a_factor() -> None:
    assert fitted(lambda x: x[0] - np.full(4, 0.4), factor()) == pytest.approx([0.4], abs=1e-3)
    assert fitted(lambda x: x[0] + np.full(4, 0.4), factor()) == pytest.approx([-0.4], abs=1e-3)
    assert fitted(lambda x: 2 * x[0] - np.full(4, 0.4), factor()) == pytest.approx([0.2], abs=1e-3)


def test_far_off_is_reached_in_steps_of_seven_tenths() -> None:
    found = fitted(lambda x: x[0] - np.full(4, 3.0), factor())
    assert found == pytest.approx([3.0], abs=0.02)
    assert fitted(lambda x: x[0] - np.full(4, 9.0), factor()) == pytest.approx([6 * 0.7], abs=1e-6)


def test_two_factors_that_the_sizes_tell_apart() -> None:
    """One moves all rows, the other those beyond the second: by 0.2, and by 0.3 more."""
    late = np.array([0.0, 0.0, 1.0, 1.0])
    target = 0.2 + 0.3 * late
    found = fitted(lambda x: x[0] + x[1] * late - target, factor(), factor())
    assert found == pytest.approx([0.2, 0.3], abs=2e-3)


def test_a_share_stays_at_or_below_its_most() -> None:
    """Also where the slope at the bound is taken from below."""
    assert fitted(lambda x: x[0] - np.full(4, 0.4), factor(most=1.1)) == pytest.approx(
        [np.log(1.1)]
    )
    full = fitted(lambda x: np.minimum(x[0], 0.0) + np.full(4, 0.4), factor(most=1.0))
    assert full == pytest.approx([-0.4], abs=1e-3)


def test_a_narrow_prior_holds_a_move_back() -> None:
    """Of one row off by 0.1 at a width of 0.1, and a prior as wide: the half, or a little more."""
    (found,) = fitted(lambda x: x - 0.1, factor(sigma=0.1), rows=1)
    # Stationary where (0.1 - x) / 0.01 = 4 x / (0.03 + x^2): Student's t of three degrees.
    assert (0.1 - found) / 0.01 == pytest.approx(4 * found / (3 * 0.01 + found**2), rel=0.03)
    (wide,) = fitted(lambda x: x - 0.1, factor(sigma=10.0), rows=1)
    assert wide == pytest.approx(0.1, abs=1e-3)


def test_one_odd_row_does_not_pull_the_others() -> None:
    """Four rows at 0 and one at 2, twenty widths off: it counts by its distance."""
    off = np.array([0.0, 0.0, 0.0, 0.0, 2.0])
    (found,) = fitted(lambda x: x[0] - off, factor(), rows=5)
    # Four rows pull with 4 x / 0.1^2, the odd one with 2 / 0.1 (Huber): x = 0.05.
    assert found == pytest.approx(0.05, abs=0.005)


def test_rows_of_near_sizes_err_together() -> None:
    """Five rows of one size against one far away: as two witnesses, half way, not five to one."""
    sizes = (*[1 << 10] * 5, 1 << 60)
    one = MeasuredTable("x", "x", "float", 1, 8, sizes, np.ones(6))
    off = np.array([0.0] * 5 + [0.2])
    together = fit([one], [factor()], lambda x: [x[0] - off], ErrorParts(table=0.2, row=0.01))
    assert together[0] == pytest.approx(0.1, abs=0.005)
    alone = fit([one], [factor()], lambda x: [x[0] - off], ErrorParts(table=0.0, row=0.1))
    assert alone[0] == pytest.approx(0.2 / 6, abs=0.002)


def test_a_step_that_makes_it_worse_is_halved() -> None:
    """The slope at 0 promises twice what there is: a step of 0.4 would end at 0.8 from 0.4."""
    bent = fitted(
        lambda x: np.where(x[0] < 0.06, x[0], 4 * x[0] - 0.18) - np.full(4, 0.4), factor()
    )
    assert bent == pytest.approx([0.145], abs=2e-3)


def test_residuals_are_calmed_beyond_two_widths_and_moves_by_students_t() -> None:
    calmed = module._calmed(np.array([-1.0, 2.0, 3.0, -4.0]))
    assert (calmed**2).tolist() == pytest.approx([1.0, 4.0, 2 * 2 * 3 - 4, 2 * 2 * 4 - 4])
    assert np.sign(calmed).tolist() == [-1, 1, 1, -1]
    held = module._held(np.array([-3.0, 0.0, 1.0]))
    assert (held**2).tolist() == pytest.approx([4 * np.log(4), 0.0, 4 * np.log(4 / 3)])
    assert np.sign(held).tolist() == [-1, 0, 1]


def test_errors_are_relative_to_what_was_measured() -> None:
    machine: Any = SimpleNamespace(seconds=lambda one: np.array([2.0, 0.5]))
    one = MeasuredTable("x", "x", "float", 1, 8, (1, 2), np.ones(2))
    assert log_ratios(machine, [one])[0].tolist() == pytest.approx([np.log(2), -np.log(2)])
    assert errors_of(machine, [one, one]).tolist() == pytest.approx([1.0, 0.5, 1.0, 0.5])


def line(op: str, off: float, slope: float = 1.0, rows: int = 4) -> _Line:
    return _Line(table(rows, op), np.full(rows, off), np.full((rows, 1), slope))


@pytest.mark.parametrize(
    ("lines", "share"),
    [
        ([line("a", 0.4), line("b", 0.4)], 1.0),  # what fits one fits the other
        ([line("a", 0.4), line("b", -0.4)], 0.0),
        # Off by 0.8, 0.6, 0.4, 0.3, 0.4 in all, by quarters of the way (0.2 of a, 0.3 of b and c).
        ([line("a", 0.4), line("b", 0.2), line("c", 0.2)], 0.75),
        ([line("a", 0.4)], 1.0),  # of one op each half of its sizes
        ([line("a", 0.4, rows=1)], 0.0),  # of which one is empty
        ([line("a", 0.4), line("b", 0.4, slope=0.0)], 0.0),
    ],
)
def test_how_far_to_go_is_what_tables_say_that_a_fit_did_not_see(
    lines: list[_Line], share: float
) -> None:
    assert _share(lines, [factor()], ROWS) == share


def test_an_op_is_left_out_at_a_time_or_every_second_size() -> None:
    def told(*lines: _Line) -> list[tuple[list[Any], list[Any]]]:
        return [
            tuple([(one.table.op, one.table.sizes) for one in part] for part in fold)  # type: ignore[misc]
            for fold in _folds(lines)
        ]

    sizes = table().sizes
    assert told(line("a", 0.0), line("b", 0.0), line("a", 0.1)) == [
        ([("b", sizes)], [("a", sizes), ("a", sizes)]),
        ([("a", sizes), ("a", sizes)], [("b", sizes)]),
    ]
    assert told(line("a", 0.0)) == [
        ([("a", sizes[::2])], [("a", sizes[1::2])]), ([("a", sizes[1::2])], [("a", sizes[::2])]),
    ]  # fmt: skip
    assert told(line("a", 0.0), line("a", 0.0, rows=1)) == []
