"""
Fitting factors to measured tables: Gauss-Newton on the logarithms of times.

    minimise  sum over tables of Huber(C^-1/2 ln(predicted / measured)) + sum over factors T(x / s)

C is how a prediction errs if all figures are known: rows of near sizes err together in a table, so
that a long table is not as many witnesses as it has rows. T is Student's t: small moves are held
back, one that all tables ask for is let through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from commsim.arrays import Floats
from commsim.study.calibrate.factors import Factor, overrides_of
from commsim.study.calibrate.predicted import BenchedMachine, MeasuredTable

__all__ = [
    "NEAR",
    "PARTS",
    "ErrorParts",
    "Ratios",
    "errors_of",
    "fit",
    "log_ratios",
    "predicted_ratios",
]

Ratios = Callable[[Floats], list[Floats]]
"""ln(predicted / measured) of each table's rows, by the x of the factors."""

NEAR = 3.0
"""Doublings of the size over which rows err together."""


class ErrorParts(msgspec.Struct, frozen=True):
    """Standard deviations in ln that C is made of: of a table (smooth over sizes), of a row.

    As estimated over ten measured machines by `benchmarks/validate_calibrate.py`, with what all
    tables of a machine have in common as a third part. A part of each op came out as nothing.
    """

    table: float = 0.176
    row: float = 0.064


PARTS = ErrorParts()
_OUTLIER = 2.0  # beyond, a whitened row counts by its distance and not by the square of it (Huber)
_FREEDOM = 3.0  # degrees of T
_STEP = 0.05
_MOST_STEP = 0.7
_ITERATIONS = 6
_ENOUGH = 1e-3  # of the objective


def log_ratios(machine: BenchedMachine, tables: Sequence[MeasuredTable]) -> list[Floats]:
    """Return ln(predicted / measured) of each table's rows."""
    return [np.log(machine.seconds(table) / table.seconds) for table in tables]


def errors_of(machine: BenchedMachine, tables: Sequence[MeasuredTable]) -> Floats:
    """Return |predicted / measured - 1| of all rows."""
    return np.abs(np.expm1(np.concatenate(log_ratios(machine, tables))))


def predicted_ratios(
    machine: BenchedMachine, tables: Sequence[MeasuredTable], factors: Sequence[Factor]
) -> Ratios:
    """Return the ratios as the machine with these factors predicts them."""
    return lambda x: log_ratios(machine.having(overrides_of(factors, x)), tables)


def fit(
    tables: Sequence[MeasuredTable],
    factors: Sequence[Factor],
    ratios: Ratios,
    parts: ErrorParts = PARTS,
) -> Floats:
    """Return the x of each factor."""
    x = np.zeros(len(factors))
    bounds = np.array([factor.bound for factor in factors])
    residuals = _residuals(tables, factors, ratios, parts)
    here = residuals(x)
    for _ in range(_ITERATIONS):
        columns = []
        for place in range(len(x)):
            step = -_STEP if x[place] + _STEP > bounds[place] else _STEP
            moved = x.copy()
            moved[place] += step
            columns.append((residuals(moved) - here) / step)
        slopes = np.stack(columns, axis=1)
        change = np.linalg.lstsq(slopes, -here, rcond=None)[0].clip(-_MOST_STEP, _MOST_STEP)
        before = float(here @ here)
        for _ in range(4):
            tried = np.minimum(x + change, bounds)
            there = residuals(tried)
            if float(there @ there) < before:
                x, here = tried, there
                break
            change = change / 2
        if before - float(here @ here) < _ENOUGH * before:
            break
    return x


def _residuals(
    tables: Sequence[MeasuredTable], factors: Sequence[Factor], ratios: Ratios, parts: ErrorParts
) -> Callable[[Floats], Floats]:
    """Return the function whose square is minimised, of the x of the factors."""
    widths = np.array([factor.sigma for factor in factors])
    white = [_whitening(table, parts) for table in tables]

    def residuals(at: Floats) -> Floats:
        rows = [_calmed(one @ found) for one, found in zip(white, ratios(at), strict=True)]
        return np.concatenate([*rows, _held(at / widths)])

    return residuals


def _whitening(table: MeasuredTable, parts: ErrorParts) -> Floats:
    """Return C^-1/2 of the rows of a table."""
    sizes = np.log2(np.array(table.sizes, np.float64))
    near = np.exp(-0.5 * ((sizes[:, None] - sizes) / NEAR) ** 2)
    spread = parts.table**2 * near + parts.row**2 * np.eye(len(sizes))
    inverse: Floats = np.linalg.inv(np.linalg.cholesky(spread))
    return inverse


def _calmed(residuals: Floats) -> Floats:
    """Return residuals whose squares are Huber's loss: a few odd rows do not pull all others."""
    size = np.abs(residuals)
    far = np.sqrt(np.maximum(2 * _OUTLIER * size - _OUTLIER**2, 0.0))
    calmed: Floats = np.sign(residuals) * np.where(size > _OUTLIER, far, size)
    return calmed


def _held(moves: Floats) -> Floats:
    """Return residuals whose squares are the loss of Student's t."""
    held: Floats = np.sign(moves) * np.sqrt((_FREEDOM + 1) * np.log1p(moves**2 / _FREEDOM))
    return held
