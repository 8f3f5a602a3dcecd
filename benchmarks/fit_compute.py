"""
Fit the constants of the compute model on published training steps, and say how well they carry.

    python benchmarks/fit_compute.py TRAINING.csv... --engine VALIDATION.json...
        [--split zero_bubble_table5.csv] [--half SEED]... [--leave-out] [--write]
        [--only OWNER...] [--suites NAME...] [--tangent]

Fits the constants of GPU generations, recipes and software stacks (`commsim/models/constants.yaml`)
to the logarithm of measured step times, every suite weighing alike, with a pull of each constant
towards its prior. `--half` fits on a random half of each suite and scores the other; `--leave-out`
scores each suite by constants fitted without it; `--write` fits on everything and writes the file.
`--only` moves the constants of some owners (hopper, nemo, ...), or single ones
(llm-foundry.cpu_us), and leaves the others as they are.

`--tangent` takes predictions as straight lines around the file's constants: eight halves take
half a minute of CPU.

`--engine` takes what `validate_training.py --json` wrote by the constants as the file has them. A
prediction by other constants is the engine's, plus what the busiest rank computes by those
constants less what it computes by the file's (`step_compute.py`). The change is exact where
communication neither hides behind the changed compute nor comes out from behind it; fit and
validate in turn until both stay.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from fit_predictions import Parameter, Simulated, Tangent, read_parameters, read_simulated
from fitted import Fitted, load_fitted, save_fitted
from published_split import StageRow, read_stage_rows
from training_rows import Row, read_rows

Array = np.ndarray
Score = tuple[int, float, float]
ROUGH = 0.04
"""Residuals (of log time) beyond this weigh by their size, not its square: Huber's corner."""


def fit(
    rows: Sequence[Row],
    stages: Sequence[StageRow],
    start: Fitted,
    parameters: Sequence[Parameter],
    *,
    simulated: Simulated | Tangent,
) -> Fitted:
    """Return `start` with `parameters` moved to fit `rows` and `stages`."""

    def residuals(fitted: Fitted) -> Array:
        steps = np.log([simulated.predict(row, fitted) / row.measured for row in rows])
        return np.concatenate([steps, np.log(simulated.ratios(stages, fitted))])

    scale = np.concatenate([_suite_weights(rows), np.full(len(stages) * 3, SPLIT_WEIGHT)])
    return _descend(residuals, start, parameters, scale)


def _descend(
    residuals: Callable[[Fitted], Array],
    start: Fitted,
    parameters: Sequence[Parameter],
    scale: Array,
    rounds: int = 25,
) -> Fitted:
    """Return `start` with the weighted `residuals` made least (Gauss-Newton, damped)."""
    low = np.log([p.low for p in parameters])
    high = np.log([p.high for p in parameters])
    prior = np.log([p.prior for p in parameters])
    stray = np.array([p.stray for p in parameters])

    def at(x: Array) -> Fitted:
        values = {
            place: float(np.exp(v))
            for p, v in zip(parameters, x, strict=True)
            for place in p.places
        }
        return start.replaced(values)

    def off(x: Array) -> Array:
        return residuals(at(x))

    begin = np.log([max(start.value(p.place), p.low) for p in parameters])
    x = np.clip(begin, low, high)
    cost, damping = np.inf, 1e-3
    r = off(x)
    slope, steps = _slope(off, x, r), 0
    for _ in range(rounds):
        best = None
        for _ in range(6):
            step = _newton(r, slope, scale, (x - prior) / stray**2, 1 / stray**2, damping)
            trial = np.clip(x + step, low, high)
            trial_r = off(trial)
            trial_cost = _cost(trial_r, scale) + PULL * float(
                np.sum(((trial - prior) / stray) ** 2)
            )
            if trial_cost < cost - 1e-7:
                best = (trial, trial_r, trial_cost)
                break
            damping *= 5
        gained = 0.0
        if best is not None:
            gained = cost - best[2]
            x, r, cost = best
            damping, steps = max(damping / 3, 1e-6), steps + 1
        if gained > 1e-4 * cost and steps % SLOPE_EVERY:
            continue
        if gained <= 1e-4 * cost and steps <= 1:
            break  # not by a slope of this place either
        if gained <= 1e-4 * cost:
            damping = 1e-3
        slope, steps = _slope(off, x, r), 0
    return at(x)


SLOPE_EVERY = 3
"""Steps that are taken by one slope: it costs an evaluation per constant, and changes slowly."""
PULL = 0.001
"""Weight of the priors against the data."""
SPLIT_WEIGHT = 0.5
"""Weight of one published F, B or W time against a suite's whole weight of 1."""


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


def score(rows: Iterable[Row], fitted: Fitted, simulated: Simulated | Tangent) -> dict[str, Score]:
    """Return per suite: rows, mean absolute error, bias; as fractions."""
    errors: dict[str, list[float]] = {}
    for row in rows:
        suite = suite_part(row)
        errors.setdefault(suite, []).append(simulated.predict(row, fitted) / row.measured - 1)
    return {
        suite: (len(own), float(np.mean(np.abs(own))), float(np.mean(own)))
        for suite, own in errors.items()
    }


def suite_part(row: Row) -> str:
    """Return a row's suite, with the GPU or the kind of model where the bars tell these apart."""
    if row.suite in ("megatron_tp_2020", "llm_foundry"):
        return f"{row.suite} {row.gpu.split('-')[0]}"
    if row.suite == "megatron_bridge" and row.shape is not None:
        return f"{row.suite} {'dense' if row.shape.experts is None else 'MoE'}"
    return row.suite


def _print_spread(drawn: Sequence[dict[str, Score]]) -> None:
    """Print each suite's error over all draws of halves: mean, least and most."""
    print(f"{len(drawn)} draws: mean (least to most)")
    for suite in dict.fromkeys(suite for scores in drawn for suite in scores):
        errors = [100 * scores[suite][1] for scores in drawn if suite in scores]
        print(f"  {suite:26s} {np.mean(errors):5.1f} % ({min(errors):.1f} to {max(errors):.1f})")


def _print(title: str, scores: dict[str, Score]) -> None:
    print(title)
    for suite, (n, error, bias) in scores.items():
        print(f"  {suite:26s} {n:4d}  error {100 * error:5.1f} %  bias {100 * bias:+5.1f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[1])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--engine", nargs="+", required=True, help="validate_training.py's JSON")
    parser.add_argument("--split", help="published F, B and W times")
    parser.add_argument("--half", type=int, action="append", default=[], metavar="SEED")
    parser.add_argument("--leave-out", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", nargs="+", default=[], help="owners, or constants, that may move")
    parser.add_argument("--suites", nargs="+", default=[], help="fit on these alone")
    parser.add_argument("--tangent", action="store_true", help="halves by straight lines")
    options = parser.parse_args()
    rows = [row for file in options.files for row in read_rows(file) if not row.skipped]
    rows = [row for row in rows if not options.suites or row.suite in options.suites]
    stages = read_stage_rows(options.split) if options.split else []
    start = load_fitted()
    only = set(options.only)
    parameters = [
        p for p in read_parameters() if not only or {p.place, p.place.split(".")[0]} & only
    ]
    simulated = read_simulated(options.engine, rows, start)
    rows = [row for row in rows if row.case_id in simulated.seconds]
    if not rows:
        sys.exit("no row that the engine has predicted; validate_training.py says why.")
    drawn: Simulated | Tangent = simulated
    if options.tangent:
        drawn = Tangent(simulated, rows, stages, start, parameters)
    _print_halves(options.half, rows, stages, start, parameters, drawn)
    if options.leave_out:
        _leave_out(rows, stages, start, parameters, drawn)
    if options.write:
        _print("before", score(rows, start, simulated))
        fitted = fit(rows, stages, start, parameters, simulated=simulated)
        _print("fitted on all rows", score(rows, fitted, simulated))
        for parameter in parameters:
            before, after = start.value(parameter.place), fitted.value(parameter.place)
            print(f"  {parameter.place:40s} {before:9.4g} -> {after:9.4g}")
        save_fitted(fitted, parameters=[place for p in parameters for place in p.places])


def _print_halves(
    seeds: Sequence[int],
    rows: Sequence[Row],
    stages: Sequence[StageRow],
    start: Fitted,
    parameters: Sequence[Parameter],
    simulated: Simulated | Tangent,
) -> None:
    """Fit on half of each suite, from the priors, and score the others; once per seed."""
    drawn: list[dict[str, Score]] = []
    for seed in seeds:
        mine, others = halves(rows, seed)
        fitted = fit(
            mine, stages, start.replaced(_priors(parameters)), parameters, simulated=simulated
        )
        title = f"half {seed}: fitted on {len(mine)} rows, scored on the other {len(others)}"
        drawn.append(score(others, fitted, simulated))
        _print(title, drawn[-1])
    if len(drawn) > 1:
        _print_spread(drawn)


def _leave_out(
    rows: Sequence[Row],
    stages: Sequence[StageRow],
    start: Fitted,
    parameters: Sequence[Parameter],
    simulated: Simulated | Tangent,
) -> None:
    """Print how each suite is predicted by constants fitted without it, from the priors."""
    for suite in dict.fromkeys(row.suite for row in rows):
        kept = [row for row in rows if row.suite != suite]
        used = [] if suite == "zero_bubble" else stages
        fitted = fit(
            kept, used, start.replaced(_priors(parameters)), parameters, simulated=simulated
        )
        left = [row for row in rows if row.suite == suite]
        _print(f"without {suite}", score(left, fitted, simulated))


def _priors(parameters: Sequence[Parameter]) -> dict[str, float]:
    return {place: one.prior for one in parameters for place in one.places}


if __name__ == "__main__":
    main()
