"""
Fit the constants of the compute model on published training steps, and say how well they carry.

    python benchmarks/fit_compute.py training.csv [--split zero_bubble_table5.csv]
        [--half SEED] [--leave-out] [--write] [--engine VALIDATION.json]

Fits the constants of GPU generations and software stacks (`commsim/models/constants.yaml`) and
of the closed form's links (`closed_form.yaml`) to the logarithm of measured step times, every
suite weighing alike, with a pull of each constant towards its prior. `--half` fits on a random
half of each suite and scores the other; `--leave-out` scores each suite by constants fitted
without it; `--write` fits on everything and writes both files. `--engine` takes what
`validate_training.py --json` wrote: every prediction is then the closed form's times the engine's
ratio to it, so that constants are fitted for the engine.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from closed_form import step_time
from fitted import Fitted, load_fitted, save_fitted
from published_split import StageRow, read_stage_rows, stage_ratios
from training_rows import Row, read_rows

Array = np.ndarray
HERE = Path(__file__).parent
ROUGH = 0.04
"""Residuals (of log time) beyond this weigh by their size, not its square: Huber's corner."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One constant that is fitted: its place, bounds, prior, and how far it may stray (log)."""

    place: str
    low: float
    high: float
    prior: float
    stray: float = 0.5


def read_parameters() -> list[Parameter]:
    """Return the constants that are fitted, from `fit_compute.yaml`."""
    data = yaml.safe_load((HERE / "fit_compute.yaml").read_text())
    return [Parameter(place, **entry) for place, entry in data.items()]


def fit(
    rows: Sequence[Row],
    stages: Sequence[StageRow],
    start: Fitted,
    parameters: Sequence[Parameter],
    *,
    ratios: dict[str, float],
    rounds: int = 25,
) -> Fitted:
    """Return `start` with `parameters` moved to fit `rows` and `stages` (Gauss-Newton, damped)."""
    weights = _suite_weights(rows)
    low = np.log([p.low for p in parameters])
    high = np.log([p.high for p in parameters])
    prior = np.log([p.prior for p in parameters])
    stray = np.array([p.stray for p in parameters])

    def at(x: Array) -> Fitted:
        values = {p.place: float(np.exp(v)) for p, v in zip(parameters, x, strict=True)}
        return start.replaced(values)

    def residuals(x: Array) -> Array:
        fitted = at(x)
        steps = np.log([corrected(row, fitted, ratios) / row.measured for row in rows])
        split = np.log(stage_ratios(stages, fitted)) if stages else np.zeros(0)
        return np.concatenate([steps, split])

    scale = np.concatenate([weights, np.full(len(stages) * 3, SPLIT_WEIGHT)])
    x = np.clip(np.log([start.value(p.place) for p in parameters]), low, high)
    cost, damping = np.inf, 1e-3
    r = residuals(x)
    for _ in range(rounds):
        slope = _slope(residuals, x, r)
        best = None
        for _ in range(6):
            step = _newton(r, slope, scale, (x - prior) / stray**2, 1 / stray**2, damping)
            trial = np.clip(x + step, low, high)
            trial_r = residuals(trial)
            trial_cost = _cost(trial_r, scale) + PULL * float(
                np.sum(((trial - prior) / stray) ** 2)
            )
            if trial_cost < cost - 1e-7:
                best = (trial, trial_r, trial_cost)
                break
            damping *= 5
        if best is None:
            break
        gained = cost - best[2]
        x, r, cost = best
        damping = max(damping / 3, 1e-6)
        if gained < 1e-5 * cost:
            break
    return at(x)


PULL = 0.001
"""Weight of the priors against the data."""
SPLIT_WEIGHT = 0.5
"""Weight of one published F, B or W time against a suite's whole weight of 1."""


def predict(row: Row, fitted: Fitted) -> float:
    """Return the closed form's seconds for a row."""
    return step_time(row, fitted.generation(row.gpu), fitted.stack(row.stack), fitted.links)


def corrected(row: Row, fitted: Fitted, ratios: dict[str, float]) -> float:
    """Return the closed form's seconds times the ratio of the engine's to it, where known."""
    return predict(row, fitted) * ratios.get(row.case_id, 1.0)


def engine_ratios(file: str) -> dict[str, float]:
    """Return the engine's prediction over the closed form's for the rows of a validation."""
    return {
        entry["case_id"]: entry["predicted_s"] / entry["closed_form_s"]
        for entry in json.loads(Path(file).read_text())["rows"]
        if entry["by"] == "engine"
    }


def _suite_weights(rows: Sequence[Row]) -> Array:
    """Return weights that give a suite the square root of its rows, in all one per suite or so."""
    count = {row.suite: 0 for row in rows}
    for row in rows:
        count[row.suite] += 1
    return np.array([count[row.suite] ** -0.25 for row in rows])


def _slope(residuals: Callable[[Array], Array], x: Array, r: Array) -> Array:
    columns = []
    for at in range(len(x)):
        moved = x.copy()
        moved[at] += 0.01
        columns.append((residuals(moved) - r) / 0.01)
    return np.stack(columns, axis=1)


def _newton(
    r: Array, slope: Array, scale: Array, pull: Array, stiffness: Array, damping: float
) -> Array:
    robust = np.minimum(1.0, ROUGH / np.maximum(np.abs(r), 1e-12))
    weight = scale**2 * robust
    normal = slope.T @ (slope * weight[:, None])
    gradient = slope.T @ (weight * r) + PULL * pull
    normal += np.diag(PULL * stiffness + damping * (np.diag(normal) + 1e-9))
    return -np.linalg.solve(normal, gradient)


def _cost(r: Array, scale: Array) -> float:
    size = np.abs(r)
    huber = np.where(size < ROUGH, r**2, ROUGH * (2 * size - ROUGH))
    return float(np.sum(scale**2 * huber))


def halves(rows: Sequence[Row], seed: int) -> tuple[list[Row], list[Row]]:
    """Return a random half of each suite, and the other halves."""
    draw = random.Random(seed)
    first: list[Row] = []
    for suite in dict.fromkeys(row.suite for row in rows):
        own = [row for row in rows if row.suite == suite]
        first += draw.sample(own, (len(own) + 1) // 2)
    kept = {row.case_id for row in first}
    return first, [row for row in rows if row.case_id not in kept]


def score(
    rows: Iterable[Row], fitted: Fitted, ratios: dict[str, float]
) -> dict[str, tuple[int, float, float]]:
    """Return per suite: rows, mean absolute error, bias; as fractions."""
    errors: dict[str, list[float]] = {}
    for row in rows:
        gpu = row.gpu.split("-")[0]
        suite = f"{row.suite} {gpu}" if row.suite == "megatron_tp_2020" else row.suite
        errors.setdefault(suite, []).append(corrected(row, fitted, ratios) / row.measured - 1)
    return {
        suite: (len(own), float(np.mean(np.abs(own))), float(np.mean(own)))
        for suite, own in errors.items()
    }


def _print(title: str, scores: dict[str, tuple[int, float, float]]) -> None:
    print(title)
    for suite, (n, error, bias) in scores.items():
        print(f"  {suite:26s} {n:4d}  error {100 * error:5.1f} %  bias {100 * bias:+5.1f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[1])
    parser.add_argument("file")
    parser.add_argument("--split", help="published F, B and W times")
    parser.add_argument("--half", type=int, action="append", default=[], metavar="SEED")
    parser.add_argument("--leave-out", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--engine", help="what validate_training.py wrote")
    options = parser.parse_args()
    rows = [row for row in read_rows(options.file) if not row.skipped]
    stages = read_stage_rows(options.split) if options.split else []
    start, parameters = load_fitted(), read_parameters()
    ratios = engine_ratios(options.engine) if options.engine else {}
    for seed in options.half:
        mine, others = halves(rows, seed)
        fitted = fit(mine, stages, start, parameters, ratios=ratios)
        title = f"half {seed}: fitted on {len(mine)} rows, scored on the other {len(others)}"
        _print(title, score(others, fitted, ratios))
    if options.leave_out:
        for suite in dict.fromkeys(row.suite for row in rows):
            kept = [row for row in rows if row.suite != suite]
            used = [] if suite == "zero_bubble" else stages
            fitted = fit(kept, used, start.replaced(_priors(parameters)), parameters, ratios=ratios)
            left = [row for row in rows if row.suite == suite]
            _print(f"without {suite}", score(left, fitted, ratios))
    if options.write:
        fitted = fit(rows, stages, start, parameters, ratios=ratios)
        _print("fitted on all rows", score(rows, fitted, ratios))
        for parameter in parameters:
            print(f"  {parameter.place:40s} {fitted.value(parameter.place):8.3f}")
        save_fitted(fitted, parameters=[p.place for p in parameters])


def _priors(parameters: Sequence[Parameter]) -> dict[str, float]:
    return {parameter.place: parameter.prior for parameter in parameters}


if __name__ == "__main__":
    main()
