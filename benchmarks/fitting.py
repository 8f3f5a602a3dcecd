"""Fit positive constants to measured times: damped Gauss-Newton on logarithms, with priors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from commsim.arrays import Floats

__all__ = ["Prior", "fit"]


_KNEE = 0.08  # errors beyond 8 % count linearly: a few odd machines must not drag the rest
_PULL = 0.012  # weight of a constant's prior against one case
_STEP = 1e-4  # of the numeric derivative, in log units
_LONGEST = 0.5  # step of a constant per iteration, in log units


@dataclass(frozen=True, slots=True)
class Prior:
    """What a constant is thought to be before any data: log-normal around `value`."""

    name: str
    value: float
    spread: float


def fit(
    predict: Callable[[dict[str, float]], Floats],
    measured: Floats,
    weights: Floats,
    priors: list[Prior],
    *,
    iterations: int = 25,
) -> dict[str, float]:
    """Return the constants that make `predict(constants)` match `measured` (seconds).

    Least soft-L1 of the error of log time, by Levenberg-Marquardt from the priors on.
    """
    names = [prior.name for prior in priors]
    start = np.log([prior.value for prior in priors])
    spread = np.array([prior.spread for prior in priors])
    target = np.log(measured)

    def error(x: Floats) -> Floats:
        found: Floats = np.log(predict(dict(zip(names, np.exp(x).tolist(), strict=True)))) - target
        return found

    def cost(x: Floats, e: Floats) -> float:
        soft = 2 * _KNEE**2 * (np.sqrt(1 + (e / _KNEE) ** 2) - 1)
        return float(np.sum(weights * soft) + _PULL * np.sum(((x - start) / spread) ** 2))

    x, damping = start.copy(), 1e-2
    e = error(x)
    best = cost(x, e)
    for _ in range(iterations):
        slope = _slope(error, x, e)
        weight = weights / np.sqrt(1 + (e / _KNEE) ** 2)
        pull = _PULL / spread**2
        curve = (slope * weight[:, None]).T @ slope + np.diag(pull)
        downhill = (slope * weight[:, None]).T @ e + pull * (x - start)
        before = best
        for _ in range(8):
            damped = curve + damping * np.diag(np.diag(curve))
            trial = x - np.clip(np.linalg.solve(damped, downhill), -_LONGEST, _LONGEST)
            trial_error = error(trial)
            trial_cost = cost(trial, trial_error)
            if trial_cost < best:
                x, e, best, damping = trial, trial_error, trial_cost, max(damping / 3, 1e-6)
                break
            damping *= 4
        if before - best <= 1e-4 * before:
            break
    return dict(zip(names, np.exp(x).tolist(), strict=True))


def _slope(error: Callable[[Floats], Floats], x: Floats, e: Floats) -> Floats:
    slope = np.empty((len(e), len(x)))
    for column in range(len(x)):
        moved = x.copy()
        moved[column] += _STEP
        slope[:, column] = (error(moved) - e) / _STEP
    return slope
