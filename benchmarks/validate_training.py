"""
Predict published training steps and compare: by suite, beside a constant-efficiency guess.

    python benchmarks/validate_training.py FILE.csv [--json FILE] [--closed-form] [--rows]
                                                    [--jobs N] [--largest N]

The constants are those that ship with commsim (per GPU generation and software stack). A row is
predicted by the engine (`engine_step.py`). By `closed_form.py` instead: with `--closed-form`, and
rows that are no whole step, that the engine refuses, or that have more than `--largest`
operations. The guess beside it: every row of a suite reaches the mean efficiency of the suite's
other rows, recomputed FLOPs included.
JSON: {"suites": {NAME: {n, skipped, mape, median, constant_mape, spearman}},
       "rows": [{case_id, suite, predicted_s, measured_s, error, why_skipped,
                 by, closed_form_s}]}
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from engine_step import engine_seconds
from fit_compute import predict
from fitted import Fitted, load_fitted
from training_rows import Row, read_rows

from commsim.cluster.gpus import gpu_spec
from commsim.errors import CommsimError
from commsim.models import hardware_flops

Predictor = Callable[[Row], tuple[float, str, float]]
"""Returns the seconds of a row's step, what they are from, and those of the closed form."""
ENGINE, CLOSED = "engine", "closed form"
LARGEST = 250_000
JOBS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row and what was predicted for it; `why` where it was not."""

    row: Row
    predicted: float | None
    why: str = ""
    by: str = ""
    closed: float | None = None

    @property
    def error(self) -> float | None:
        """The signed error as a share of what was measured."""
        if self.predicted is None:
            return None
        return self.predicted / self.row.measured - 1


def outcome(row: Row, predictor: Predictor) -> Outcome:
    """Return the prediction for a row, or why there is none."""
    if row.skipped:
        return Outcome(row, None, row.skipped)
    try:
        seconds, by, closed = predictor(row)
    except CommsimError as error:
        return Outcome(row, None, str(error))
    return Outcome(row, seconds, by=by, closed=closed)


def outcomes(rows: Sequence[Row], predictor: Predictor, *, jobs: int = 1) -> list[Outcome]:
    """Return the prediction for every row, in their order; progress goes to a terminal."""
    one = partial(outcome, predictor=predictor)
    if jobs == 1:
        return list(_told(map(one, rows), len(rows)))
    with ProcessPoolExecutor(jobs) as pool:
        return list(_told(pool.map(one, rows), len(rows)))


def _told(results: Iterable[Outcome], count: int) -> Iterator[Outcome]:
    for number, result in enumerate(results, 1):
        if sys.stderr.isatty():
            print(f"\r{number} of {count} rows", end="", file=sys.stderr, flush=True)
        yield result


def summary(results: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """Return the figures of every suite, in the order of the file."""
    suites: dict[str, list[Outcome]] = {}
    for result in results:
        suites.setdefault(result.row.suite, []).append(result)
    return {name: _suite(own) for name, own in suites.items()}


def _suite(results: Sequence[Outcome]) -> dict[str, Any]:
    done = [r for r in results if r.predicted is not None]
    figures: dict[str, Any] = {"n": len(done), "skipped": len(results) - len(done)}
    if not done:
        return figures | dict.fromkeys(("mape", "median", "constant_mape", "spearman"))
    sizes = np.abs([r.error for r in done])
    guess = constant_errors([r.row for r in done])
    return figures | {
        "mape": float(np.mean(sizes)),
        "median": float(np.median(sizes)),
        "constant_mape": float(np.mean(np.abs(guess))) if guess else None,
        "spearman": model_spearman(done),
    }


def row_flops(row: Row) -> float:
    """Return the FLOPs of a row's step on one GPU, recomputed ones included."""
    assert row.shape is not None
    recompute = row.recompute if row.recompute in ("none", "selective", "full") else "none"
    whole = hardware_flops(row.shape, batch=row.batch, seq=row.seq, recompute=recompute)
    return whole / row.gpus


def constant_errors(rows: Sequence[Row]) -> list[float]:
    """Return the errors of the guess that each row is as efficient as the others' mean."""
    if len(rows) < 2:
        return []
    reached = [
        row_flops(row) / row.measured / (gpu_spec(row.gpu).tflops[row.precision] * 1e12)
        for row in rows
    ]
    total = sum(reached)
    others = [(total - own) / (len(rows) - 1) for own in reached]
    return [own / mean - 1 for own, mean in zip(reached, others, strict=True)]


def model_spearman(results: Sequence[Outcome]) -> float | None:
    """Return the mean rank correlation over the models of a suite that have four rows or more.

    Where no model has as many, that of all rows of the suite; None below three rows.
    """
    models: dict[Any, list[Outcome]] = {}
    for result in results:
        models.setdefault((result.row.shape, result.row.seq, result.row.batch), []).append(result)
    large = [own for own in models.values() if len(own) >= 4]
    groups = large or [list(results)]
    values = [
        spearman([r.predicted or 0.0 for r in own], [r.row.measured for r in own])
        for own in groups
        if len(own) >= 3
    ]
    known = [value for value in values if value is not None]
    sizes = [len(own) for own, value in zip(groups, values, strict=False) if value is not None]
    return float(np.average(known, weights=sizes)) if known else None


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the rank correlation; ties share their mean rank. None where all are equal."""
    ranks = [_ranks(np.asarray(values)) for values in (first, second)]
    if any(np.ptp(own) == 0 for own in ranks):
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    order = np.sort(values)
    left = np.searchsorted(order, values, side="left")
    right = np.searchsorted(order, values, side="right")
    return np.asarray((left + right - 1) / 2, dtype=np.float64)


def as_json(results: Sequence[Outcome]) -> dict[str, Any]:
    """Return the figures as the JSON holds them."""
    rows = [
        {
            "case_id": r.row.case_id,
            "suite": r.row.suite,
            "predicted_s": r.predicted,
            "measured_s": r.row.measured or None,
            "error": r.error,
            "why_skipped": r.why or None,
            "by": r.by or None,
            "closed_form_s": r.closed,
        }
        for r in results
    ]
    return {"suites": summary(results), "rows": rows}


def by_closed_form(row: Row, *, fitted: Fitted) -> tuple[float, str, float]:
    """Predict a row by formulas."""
    seconds = predict(row, fitted)
    return seconds, CLOSED, seconds


def operations(row: Row) -> int:
    """Estimate the compute and tensor-parallel operations of a step, of all stages together."""
    layers = row.shape.layers if row.shape and row.tp > 1 else 0
    return row.microbatches * (2 * row.pp * row.vpp + 8 * layers)


def by_engine(row: Row, *, fitted: Fitted, largest: int = LARGEST) -> tuple[float, str, float]:
    """Predict a row by commsim itself; by formulas what that has not, or what is too large."""
    if operations(row) > largest:
        return by_closed_form(row, fitted=fitted)
    try:
        return engine_seconds(row, fitted), ENGINE, predict(row, fitted)
    except CommsimError:
        return by_closed_form(row, fitted=fitted)


def _print(results: Sequence[Outcome], *, rows: bool) -> None:
    if rows:
        for r in results:
            shown = f"{r.predicted:9.3f} s {100 * (r.error or 0):+6.1f} %" if r.predicted else r.why
            print(f"{r.row.case_id:42s} {r.row.measured:9.3f} s  {shown}")
    print(
        f"{'suite':24s} {'n':>4s} {'skip':>4s} {'error':>7s} {'median':>7s} {'const':>7s}  spearman"
    )
    for name, own in summary(results).items():
        cells = [_percent(own[key]) for key in ("mape", "median", "constant_mape")]
        rank = "" if own["spearman"] is None else f"{own['spearman']:.2f}"
        print(f"{name:24s} {own['n']:4d} {own['skipped']:4d} {' '.join(cells)}  {rank}")


def _percent(value: float | None) -> str:
    return " " * 7 if value is None else f"{100 * value:5.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[1])
    parser.add_argument("file")
    parser.add_argument("--json", metavar="FILE", help="write the figures; - for standard output")
    parser.add_argument("--closed-form", action="store_true", help="leave the engine out")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--jobs", type=int, default=JOBS, help="processes to use")
    parser.add_argument(
        "--largest", type=int, default=LARGEST, help="operations that the engine takes"
    )
    options = parser.parse_args()
    fitted = load_fitted()
    predictor: Predictor = partial(by_engine, fitted=fitted, largest=options.largest)
    if options.closed_form:
        predictor = partial(by_closed_form, fitted=fitted)
    results = outcomes(read_rows(options.file), predictor, jobs=options.jobs)
    if options.json == "-":
        json.dump(as_json(results), sys.stdout, indent=1)
        return
    _print(results, rows=options.rows)
    if options.json:
        Path(options.json).write_text(json.dumps(as_json(results), indent=1) + "\n")


if __name__ == "__main__":
    main()
