"""
How far to leave the given figures: as far as that predicts given tables that a fit did not see.

What fits one op need not carry over to another, and the tables themselves tell: each op is left
out once (each half of the sizes if there is one op), the others are fitted to, and the one left
out is predicted at shares of the way from the given figures to the fitted ones. These fits go by
the slopes at the given figures, so that they cost no prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from commsim.arrays import Floats
from commsim.study.calibrate.factors import Factor
from commsim.study.calibrate.fit import PARTS, ErrorParts, Ratios, fit, predicted_ratios
from commsim.study.calibrate.predicted import BenchedMachine, MeasuredTable

__all__ = ["fit_that_carries"]

_SHARES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
_OF_THE_GAIN = 0.9  # the smallest share that takes so much of what the best one gains
_WORTH = 0.03  # of the error: less is chance
_STEP = 0.05


class _Line(msgspec.Struct, frozen=True, eq=False):
    """A table, its rows' ln(predicted / measured) as given, and their slopes by each factor."""

    table: MeasuredTable
    given: Floats
    slopes: Floats

    def half(self, which: int) -> _Line:
        """Return every second row."""
        places = range(which, len(self.table.sizes), 2)
        chosen = list(places)
        return _Line(self.table.at(places), self.given[chosen], self.slopes[chosen])

    def error(self, x: Floats) -> float:
        """Return the mean of |ln(predicted / measured)|."""
        return float(np.abs(self.given + self.slopes @ x).mean())


def fit_that_carries(
    machine: BenchedMachine,
    tables: Sequence[MeasuredTable],
    factors: Sequence[Factor],
    parts: ErrorParts = PARTS,
) -> Floats:
    """Return the x of each factor: of the fit to all tables, the share that carries over."""
    ratios = predicted_ratios(machine, tables, factors)
    share = _share(_lines(tables, factors, ratios), factors, parts)
    found: Floats = share * fit(tables, factors, ratios, parts) if share else np.zeros(len(factors))
    return found


def _lines(
    tables: Sequence[MeasuredTable], factors: Sequence[Factor], ratios: Ratios
) -> list[_Line]:
    """Return the tables with what the factors do to them."""
    steps = [-_STEP if factor.bound < _STEP else _STEP for factor in factors]
    given = ratios(np.zeros(len(factors)))
    moved = [ratios(np.eye(len(factors))[place] * step) for place, step in enumerate(steps)]
    return [
        _Line(
            table,
            given[at],
            np.stack([(m[at] - given[at]) / step for m, step in zip(moved, steps, strict=True)], 1),
        )
        for at, table in enumerate(tables)
    ]


def _share(lines: Sequence[_Line], factors: Sequence[Factor], parts: ErrorParts) -> float:
    """Return the share of the way that predicts what was left out best."""
    errors = np.zeros(len(_SHARES))
    for seen, hidden in _folds(lines):
        x = fit([line.table for line in seen], factors, _straight(seen), parts)
        errors += [np.mean([line.error(share * x) for line in hidden]) for share in _SHARES]
    gained = errors[0] - errors
    if gained.max() <= _WORTH * errors[0]:
        return 0.0
    return float(_SHARES[np.argmax(gained >= _OF_THE_GAIN * gained.max())])


def _straight(lines: Sequence[_Line]) -> Ratios:
    return lambda x: [line.given + line.slopes @ x for line in lines]


def _folds(lines: Sequence[_Line]) -> Iterator[tuple[list[_Line], list[_Line]]]:
    """Yield what is fitted to, and what is left out."""
    ops = sorted({line.table.op for line in lines})
    if len(ops) > 1:
        for op in ops:
            seen = [line for line in lines if line.table.op != op]
            yield seen, [line for line in lines if line.table.op == op]
        return
    for which in (0, 1):
        seen, hidden = ([line.half(half) for line in lines] for half in (which, 1 - which))
        if all(len(line.table.sizes) for line in (*seen, *hidden)):
            yield seen, hidden
