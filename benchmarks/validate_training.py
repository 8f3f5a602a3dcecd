"""
Predict published training steps and compare: by suite, beside a constant-efficiency guess.

    python benchmarks/validate_training.py FILE.csv [--json FILE] [--rows] [--jobs N]
                                           [--largest N] [--suites NAME...]

The constants are those that ship with commsim (per GPU generation and software stack). Every row
is predicted by the engine (`engine_step.py`); one that it cannot run is skipped and counted, with
its reason. The guess beside it: every row of a suite reaches the mean efficiency of the suite's
other rows, recomputed FLOPs included. Where a row has its memory measured, the peak is compared.
JSON: {"suites": {NAME: {n, skipped, mape, bias, median, constant_mape, spearman, beats_constant,
                         memory_n, memory_mape, memory_worst}},
       "rows": [{case_id, suite, predicted_s, measured_s, error, why_skipped, assumed,
                 compute_s, memory_gib, measured_gib, memory_error, fits, not_fitted}]}
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from engine_step import Simulated, engine_step
from fitted import load_fitted
from step_compute import compute_seconds
from training_rows import Row, read_rows

from commsim.errors import CommsimError
from commsim.models import hardware_flops, peak_name

Predictor = Callable[[Row], Simulated]
GIB = 2**30
LARGEST = 1_000_000
"""Operations of a step, of all stages together, that the engine is given."""
JOBS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row and what was predicted for it; `why` where it was not."""

    row: Row
    simulated: Simulated | None = None
    why: str = ""
    compute: float | None = None

    @property
    def predicted(self) -> float | None:
        """The predicted seconds."""
        return self.simulated.seconds if self.simulated else None

    @property
    def error(self) -> float | None:
        """The signed error as a share of what was measured."""
        if self.predicted is None:
            return None
        return self.predicted / self.row.measured - 1

    @property
    def memory_error(self) -> float | None:
        """The signed error of the peak memory, where it was measured."""
        if self.simulated is None or not self.row.memory:
            return None
        return self.simulated.memory / self.row.memory - 1


def outcome(row: Row, predictor: Predictor) -> Outcome:
    """Return the prediction for a row, or why there is none."""
    if row.skipped:
        return Outcome(row, why=row.skipped)
    try:
        simulated = predictor(row)
    except CommsimError as error:
        return Outcome(row, why=str(error))
    return Outcome(row, simulated, compute=compute_seconds(row, load_fitted()))


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
    done = [r for r in results if r.error is not None]
    figures: dict[str, Any] = {"n": len(done), "skipped": len(results) - len(done)}
    known = [r.memory_error for r in done if r.memory_error is not None]
    figures |= {
        "memory_n": len(known),
        "memory_mape": float(np.mean(np.abs(known))) if known else None,
        "memory_worst": max(known, key=abs) if known else None,
        "false_misfits": sum(not r.simulated.fits for r in done if r.simulated),
    }
    if not done:
        names = ("mape", "bias", "median", "constant_mape", "beats_constant", "spearman")
        return figures | dict.fromkeys(names)
    errors = np.array([r.error for r in done])
    guess = constant_errors([r.row for r in done])
    error, constant = float(np.mean(np.abs(errors))), float(np.mean(np.abs(guess or [0.0])))
    return figures | {
        "mape": error,
        "bias": float(np.mean(errors)),
        "median": float(np.median(np.abs(errors))),
        "constant_mape": constant if guess else None,
        "beats_constant": error < constant if guess else None,
        "spearman": model_spearman(done),
    }


def row_flops(row: Row) -> float:
    """Return the FLOPs of a row's step on one GPU, recomputed ones included."""
    assert row.shape is not None
    whole = hardware_flops(row.shape, batch=row.batch, seq=row.seq, recompute=row.recompute)
    return whole / row.gpus


def constant_errors(rows: Sequence[Row]) -> list[float]:
    """Return the errors of the guess that each row is as efficient as the others' mean."""
    if len(rows) < 2:
        return []
    reached = [
        row_flops(row) / row.measured / (row.gpu_spec.tflops[peak_name(row.precision)] * 1e12)
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
    """Return the rank correlation; ties share their mean rank. None if all are equal."""
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
    return {"suites": summary(results), "rows": [_as_row(result) for result in results]}


def _as_row(r: Outcome) -> dict[str, Any]:
    simulated = r.simulated
    return {
        "case_id": r.row.case_id,
        "suite": r.row.suite,
        "predicted_s": r.predicted,
        "measured_s": r.row.measured or None,
        "error": r.error,
        "why_skipped": r.why or None,
        "assumed": r.row.assumed or None,
        "compute_s": r.compute,
        "memory_gib": simulated.memory / GIB if simulated else None,
        "measured_gib": r.row.memory / GIB or None,
        "memory_error": r.memory_error,
        "fits": simulated.fits if simulated else None,
        "not_fitted": [n for n in simulated.notes if "not fitted" in n] if simulated else [],
    }


def operations(row: Row) -> int:
    """Estimate the compute and tensor-parallel operations of a step, of all stages together."""
    layers = row.shape.layers if row.shape and row.tp > 1 else 0
    return row.microbatches * (2 * row.pp * row.vpp + 8 * layers)


def by_engine(row: Row, *, largest: int = LARGEST) -> Simulated:
    """Predict a row by commsim itself.

    Raises:
        CommsimError: what commsim does not have, or a step of too many operations.
    """
    if operations(row) > largest:
        raise CommsimError(f"{operations(row):,} operations are more than --largest {largest:,}")
    return engine_step(row)


def _print(results: Sequence[Outcome], *, rows: bool) -> None:
    if rows:
        for r in results:
            print(_row_text(r))
    print(
        f"{'suite':24s} {'n':>4s} {'skip':>4s} {'error':>7s} {'bias':>7s} {'median':>7s}"
        f" {'const':>7s}  spearman  memory"
    )
    for name, own in summary(results).items():
        cells = [_percent(own[key]) for key in ("mape", "bias", "median", "constant_mape")]
        rank = "    " if own["spearman"] is None else f"{own['spearman']:4.2f}"
        print(f"{name:24s} {own['n']:4d} {own['skipped']:4d} {' '.join(cells)}  {rank}  "
              f"    {_memory_text(own)}")  # fmt: skip
    _print_counts(results)


def _print_counts(results: Sequence[Outcome]) -> None:
    """Say how many rows the engine ran, and why the others were left out."""
    done = sum(r.simulated is not None for r in results)
    print(f"{done} of {len(results)} rows by the engine, {len(results) - done} skipped:")
    reasons = Counter(r.why for r in results if r.why)
    for why, count in reasons.most_common():
        print(f"  {count:4d}  {why}")
    for assumed, count in Counter(r.row.assumed for r in results if r.row.assumed).items():
        print(f"  {count:4d}  assumed: {assumed}")
    for name, own in summary(results).items():
        if own["beats_constant"] is False and own["n"] > 4:
            print(f"  {name}: a constant share of peak is nearer than the model")


def _row_text(r: Outcome) -> str:
    if r.simulated is None or r.error is None:
        return f"{r.row.case_id:42s} {r.row.measured:9.3f} s  {r.why}"
    text = f"{r.row.case_id:42s} {r.row.measured:9.3f} s {r.simulated.seconds:9.3f} s"
    text += f" {100 * r.error:+6.1f} %"
    if r.memory_error is not None:
        text += f"  {r.row.memory / GIB:6.1f} GiB {r.simulated.memory / GIB:6.1f} GiB"
        text += f" {100 * r.memory_error:+6.1f} %"
    if not r.simulated.fits:
        text += "  does not fit"
    return text


def _memory_text(own: dict[str, Any]) -> str:
    text = ""
    if own["memory_n"]:
        text = f"{own['memory_n']}: {100 * own['memory_mape']:.1f} %"
        text += f", worst {100 * own['memory_worst']:+.1f} %"
    if own["false_misfits"]:
        text += f" {own['false_misfits']} said not to fit"
    return text


def _percent(value: float | None) -> str:
    return " " * 7 if value is None else f"{100 * value:5.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[1])
    parser.add_argument("file")
    parser.add_argument("--json", metavar="FILE", help="write the figures; - for standard output")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--jobs", type=int, default=JOBS, help="processes to use")
    parser.add_argument("--suites", nargs="+", default=[], help="only these")
    parser.add_argument(
        "--largest", type=int, default=LARGEST, help="operations that the engine takes"
    )
    options = parser.parse_args()
    rows = [r for r in read_rows(options.file) if not options.suites or r.suite in options.suites]
    results = outcomes(rows, partial(by_engine, largest=options.largest), jobs=options.jobs)
    if options.json == "-":
        json.dump(as_json(results), sys.stdout, indent=1)
        return
    _print(results, rows=options.rows)
    if options.json:
        Path(options.json).write_text(json.dumps(as_json(results), indent=1) + "\n")


if __name__ == "__main__":
    main()
