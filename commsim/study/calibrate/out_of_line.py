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

_FAR_SHARE, _FAR_TIME = 1.25, 3.0
"""Widths of a factor's prior: 0.78 of a share, 2.9 times a latency, 4.5 times a launch.

Ten measured sites, by all ops and by each alone, came to 1.17 widths of a share at most; a link
at 0.7 of its rate, as far as a fit follows it, to 1.35 to 1.6.
"""
_SLOWER = 1.3
"""Times the other ops, both against the fitted machine: of the ten sites, 1.18 at most; an op at
0.7 of its speed is 1.43."""


def slow_figures(factors: Sequence[Factor], x: Floats) -> Iterator[str]:
    """Yield a sentence for each figure that had to become far worse to say the tables' times."""
    for factor, value in zip(factors, np.asarray(x).tolist(), strict=True):
        worse = value if factor.is_time else -value
        if worse > (_FAR_TIME if factor.is_time else _FAR_SHARE) * factor.sigma:
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
