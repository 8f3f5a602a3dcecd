"""
Fitting factors to measured tables: Gauss-Newton on the logarithms of times, with priors.

    minimise  sum over tables of k / s^2 (rows' mean square of ln(predicted / measured))
              + sum over factors of (x / sigma)^2

s is how well a time is predicted if all figures are known; the rows of a table err together, so
that a table counts as k independent ones, however many it has.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commsim.arrays import Floats
from commsim.study.calibrate.factors import Factor, overrides_of
from commsim.study.calibrate.predicted import BenchedMachine, MeasuredTable

__all__ = ["errors_of", "fit", "log_ratios"]

_KNOWN_TO = 0.1  # s
_COUNTS_AS = 3.0  # k
_OUTLIER = 2.0  # times s: beyond, a row counts by its distance and not by the square of it (Huber)
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


def _calmed(residuals: Floats) -> Floats:
    """Return residuals whose squares are Huber's loss: a few odd rows do not pull all others."""
    size = np.abs(residuals)
    far = np.sqrt(np.maximum(2 * _OUTLIER * size - _OUTLIER**2, 0.0))
    calmed: Floats = np.sign(residuals) * np.where(size > _OUTLIER, far, size)
    return calmed


def fit(
    machine: BenchedMachine, tables: Sequence[MeasuredTable], factors: Sequence[Factor]
) -> Floats:
    """Return the x of each factor."""
    x = np.zeros(len(factors))
    bounds = np.array([factor.bound for factor in factors])
    prior = np.array([1 / factor.sigma for factor in factors])

    def residuals(at: Floats) -> Floats:
        made = machine.having(overrides_of(factors, at))
        rows = [
            _calmed(ratio / _KNOWN_TO) * np.sqrt(_COUNTS_AS / len(ratio))
            for ratio in log_ratios(made, tables)
        ]
        return np.concatenate([*rows, at * prior])

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
