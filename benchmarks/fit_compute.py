"""
Fit the constants of the compute model on published training steps, and say how well they carry.

    python benchmarks/fit_compute.py training.csv [--split zero_bubble_table5.csv]
        [--half SEED]... [--leave-out] [--engine VALIDATION.json] [--write [--keep-generations]]

Fits the constants of GPU generations and software stacks (`commsim/models/constants.yaml`) and
of the closed form's links (`closed_form.yaml`) to the logarithm of measured step times, every
suite weighing alike, with a pull of each constant towards its prior. `--half` fits on a random
half of each suite and scores the other; `--leave-out` scores each suite by constants fitted
without it; `--write` fits on everything and writes both files, with `--keep-generations` all but
the constants of GPUs. `--engine` takes what
`validate_training.py --json` wrote by the constants as the files have them: every prediction is
then the closed form's times the engine's ratio to it, so that constants are fitted for the engine.
The links of the closed form, which the engine does not read, are then fitted to the engine's
predictions instead of to measurements: they could only learn what the engine cannot follow. The
ratios move with the constants; fit and validate in turn until both stay.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
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
Score = tuple[int, float, float]
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


@dataclass(frozen=True, slots=True)
class Simulated:
    """The seconds that the engine predicts for rows by the constants `base`, and its ratio."""

    seconds: dict[str, float]
    base: Fitted
    ratios: dict[str, float]

    def predict(self, row: Row, fitted: Fitted) -> float:
        """Return the closed form's seconds times the engine's ratio to it, where that is known.

        What the engine does not read stays as in `base` for those rows.
        """
        ratio = self.ratios.get(row.case_id)
        if ratio is None:
            return predict(row, fitted)
        return ratio * predict(row, fitted.linked_as(self.base))


def read_simulated(file: str | None, rows: Sequence[Row], base: Fitted) -> Simulated:
    """Return what `validate_training.py` wrote for rows that the engine predicted by `base`."""
    if file is None:
        return Simulated({}, base, {})
    seconds = {
        entry["case_id"]: entry["predicted_s"]
        for entry in json.loads(Path(file).read_text())["rows"]
        if entry["by"] == "engine"
    }
    return with_ratios(seconds, rows, base)


def with_ratios(seconds: dict[str, float], rows: Sequence[Row], base: Fitted) -> Simulated:
    """Return the engine's predictions with their ratios to the closed form's by `base`."""
    known = {row.case_id: row for row in rows}
    ratios = {
        case: engine / predict(known[case], base)
        for case, engine in seconds.items()
        if case in known
    }
    return Simulated(seconds, base, ratios)


def fit(
    rows: Sequence[Row],
    stages: Sequence[StageRow],
    start: Fitted,
    parameters: Sequence[Parameter],
    *,
    simulated: Simulated | None = None,
) -> Fitted:
    """Return `start` with `parameters` moved to fit `rows` and `stages`."""
    simulated = simulated or Simulated({}, start, {})
    if simulated.ratios:
        parameters = [p for p in parameters if not of_links(p.place)]

    def residuals(fitted: Fitted) -> Array:
        steps = np.log([simulated.predict(row, fitted) / row.measured for row in rows])
        split = np.log(stage_ratios(stages, fitted)) if stages else np.zeros(0)
        return np.concatenate([steps, split])

    scale = np.concatenate([_suite_weights(rows), np.full(len(stages) * 3, SPLIT_WEIGHT)])
    return _descend(residuals, start, parameters, scale)


def fit_links(
    rows: Sequence[Row], start: Fitted, parameters: Sequence[Parameter], simulated: Simulated
) -> Simulated:
    """Return `simulated` with the links of the closed form moved towards the engine."""
    known = [row for row in rows if row.case_id in simulated.seconds]
    seconds = np.array([simulated.seconds[row.case_id] for row in known])

    def residuals(fitted: Fitted) -> Array:
        return np.log(np.array([predict(row, fitted) for row in known]) / seconds)

    links = [p for p in parameters if of_links(p.place)]
    base = _descend(residuals, start, links, _suite_weights(known))
    return with_ratios(simulated.seconds, rows, base)


def of_links(place: str) -> bool:
    """Return whether a constant is read by the closed form only."""
    return place.startswith("links.") or place.endswith(".pipeline_loss")


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
        values = {p.place: float(np.exp(v)) for p, v in zip(parameters, x, strict=True)}
        return start.replaced(values)

    def off(x: Array) -> Array:
        return residuals(at(x))

    x = np.clip(np.log([start.value(p.place) for p in parameters]), low, high)
    cost, damping = np.inf, 1e-3
    r = off(x)
    for _ in range(rounds):
        slope = _slope(off, x, r)
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


def score(rows: Iterable[Row], fitted: Fitted, simulated: Simulated) -> dict[str, Score]:
    """Return per suite: rows, mean absolute error, bias; as fractions."""
    errors: dict[str, list[float]] = {}
    for row in rows:
        gpu = row.gpu.split("-")[0]
        suite = f"{row.suite} {gpu}" if row.suite == "megatron_tp_2020" else row.suite
        errors.setdefault(suite, []).append(simulated.predict(row, fitted) / row.measured - 1)
    return {
        suite: (len(own), float(np.mean(np.abs(own))), float(np.mean(own)))
        for suite, own in errors.items()
    }


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
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[1])
    parser.add_argument("file")
    parser.add_argument("--split", help="published F, B and W times")
    parser.add_argument("--half", type=int, action="append", default=[], metavar="SEED")
    parser.add_argument("--leave-out", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--keep-generations", action="store_true", help="leave GPUs as they are")
    parser.add_argument("--engine", help="what validate_training.py wrote")
    options = parser.parse_args()
    rows = [row for row in read_rows(options.file) if not row.skipped]
    if not rows:
        sys.exit(f"{options.file}: no row that can be predicted; validate_training.py says why.")
    stages = read_stage_rows(options.split) if options.split else []
    start, parameters = load_fitted(), read_parameters()
    simulated = read_simulated(options.engine, rows, start)
    if simulated.seconds:
        simulated = fit_links(rows, start, parameters, simulated)
        start = simulated.base
    drawn: list[dict[str, Score]] = []
    for seed in options.half:
        mine, others = halves(rows, seed)
        fitted = fit(mine, stages, start, parameters, simulated=simulated)
        title = f"half {seed}: fitted on {len(mine)} rows, scored on the other {len(others)}"
        drawn.append(score(others, fitted, simulated))
        _print(title, drawn[-1])
    if len(drawn) > 1:
        _print_spread(drawn)
    if options.leave_out:
        _leave_out(rows, stages, start, parameters, simulated)
    if options.write:
        if options.keep_generations:
            parameters = [p for p in parameters if p.place.split(".")[0] not in start.generations]
        fitted = fit(rows, stages, start, parameters, simulated=simulated)
        _print("fitted on all rows", score(rows, fitted, simulated))
        for parameter in parameters:
            print(f"  {parameter.place:40s} {fitted.value(parameter.place):8.3f}")
        save_fitted(fitted, parameters=[p.place for p in parameters])


def _leave_out(
    rows: Sequence[Row],
    stages: Sequence[StageRow],
    start: Fitted,
    parameters: Sequence[Parameter],
    simulated: Simulated,
) -> None:
    """Print how each suite is predicted by constants fitted without it, from the priors."""
    own = [p for p in parameters if not (simulated.ratios and of_links(p.place))]
    for suite in dict.fromkeys(row.suite for row in rows):
        kept = [row for row in rows if row.suite != suite]
        used = [] if suite == "zero_bubble" else stages
        fitted = fit(kept, used, start.replaced(_priors(own)), parameters, simulated=simulated)
        left = [row for row in rows if row.suite == suite]
        _print(f"without {suite}", score(left, fitted, simulated))


def _priors(parameters: Sequence[Parameter]) -> dict[str, float]:
    return {parameter.place: parameter.prior for parameter in parameters}


if __name__ == "__main__":
    main()
