"""
What no known fault explains and is still no healthy machine: a figure far below what it was given
as, an op that is slower than all others of the same logs lead to expect.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from commsim.arrays import Floats
from commsim.study.calibrate.factors import Factor
from commsim.study.calibrate.fit import log_ratios
from commsim.study.calibrate.predicted import BenchedMachine, MeasuredTable

__all__ = ["slow_figures", "slow_ops"]

_FAR = 3.0
"""Widths of a factor's prior: 0.55 of a share, 2.9 times a latency, 4.5 times a launch."""
_SLOWER = 1.6
"""Times the other ops, both against the fitted machine."""


def slow_figures(factors: Sequence[Factor], x: Floats) -> Iterator[str]:
    """Yield a sentence for each figure that had to become far worse to say the tables' times."""
    for factor, value in zip(factors, np.asarray(x).tolist(), strict=True):
        worse = value if factor.is_time else -value
        if worse > _FAR * factor.sigma:
            yield (
                f"{factor.path} is {math.exp(value):.2g} times what was given, which is no scatter"
                " between machines. Look at clocks and power caps, link widths and errors, and at"
                " whether this is the cluster that was measured"
            )


def slow_ops(machine: BenchedMachine, tables: Sequence[MeasuredTable]) -> dict[str, float]:
    """Return the ops that are slower than the others lead to expect, each with how many times."""
    by_op: dict[str, list[Floats]] = {}
    for table, ratios in zip(tables, log_ratios(machine, tables), strict=True):
        by_op.setdefault(table.op, []).append(-ratios)  # ln(measured / predicted)
    middle = {op: float(np.median(np.concatenate(rows))) for op, rows in by_op.items()}
    found = {}
    for op, own in middle.items():
        others = [value for other, value in middle.items() if other != op]
        if others and own - max(float(np.median(others)), 0.0) > math.log(_SLOWER):
            found[op] = math.exp(own - float(np.median(others)))
    return found
