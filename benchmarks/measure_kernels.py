"""
Time the kernels of transformer layers on this machine's GPU, by shape, in bf16 and fp8.

    python benchmarks/measure_kernels.py -o kernels.csv [--kinds product attention bytes layer]

Needs torch and an NVIDIA GPU. A row per case of `kernel_cases.py`: the median and the least of
several runs in microseconds (of a layer: of one of four in a row), timed by CUDA events around
some runs that the host has issued before, after others to warm up; `issued_us` is what issuing
takes. Inputs are random and go round tensors that together do not fit in the GPU's cache. `burst`
rows are one large product over and over for six seconds: what the clocks do under load. Cases that
do not run (memory, kernels that are not there) say why in `error`.
`validate_kernels.py` holds commsim's compute model against the table.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from kernel_cases import Case, attention_cases, bytes_cases, layer_cases, products
from kernel_runs import DEVICE, LAYERS, runs_of

KINDS = {
    "product": products, "attention": attention_cases, "bytes": bytes_cases, "layer": layer_cases,
}  # fmt: skip
COLUMNS = (*Case._fields, "us", "least_us", "issued_us", "error")
_LASTS = 0.02
"""Seconds that a case is run for, or five times."""
_MARKED = 1e-4
"""Seconds between two events at least."""
_CLOCK = 1.7e9
"""Cycles a second of a GPU under load, about."""


def main(words: Sequence[str] | None = None) -> None:
    """Time all cases, and write a row of each as it is done."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("kernels.csv"))
    parser.add_argument("--kinds", nargs="+", default=[*KINDS], choices=KINDS)
    options = parser.parse_args(words)
    cases = [case for kind in options.kinds for case in KINDS[kind]()]
    with open(options.output, "w", newline="") as out:
        table = csv.DictWriter(out, COLUMNS)
        table.writeheader()
        for count, row in enumerate(chain(_burst(), _rows(cases)), 1):
            table.writerow(row)
            out.flush()
            if count % 200 == 0:
                print(f"{count} rows", flush=True)
    print(f"{len(cases)} cases")


def _rows(cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    for case in cases:
        row: dict[str, Any] = case._asdict()
        try:
            row |= _timed(runs_of(case), LAYERS if case.kind == "layer" else 1)
        except Exception as error:  # out of memory, no such kernel: the others still run
            row["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:120]
        if DEVICE == "cuda" and torch.cuda.memory_reserved() > 20e9:
            torch.cuda.empty_cache()
        yield row


def _timed(runs: list[Callable[[], object]], parts: int) -> dict[str, Any]:
    """Run for a while; return the median and the least time of a part, and what issuing takes."""
    for run in [*runs, *runs[:1], *runs[:1]]:
        run()
    _synchronize()
    began = time.perf_counter()
    runs[0]()
    issued = time.perf_counter() - began
    _synchronize()
    once = time.perf_counter() - began
    count = max(5, min(100, round(_LASTS / max(once, 1e-6))))
    each = max(1, min(20, round(_MARKED / max(once, 1e-6))))
    if DEVICE == "cuda":
        _hold(1.5 * issued * count * each)
    times = (_by_events if DEVICE == "cuda" else _by_clock)(runs, count, each)
    return {
        "us": round(statistics.median(times) / parts, 2),
        "least_us": round(min(times) / parts, 2),
        "issued_us": round(1e6 * issued / parts, 2),
    }


def _hold(seconds: float) -> None:
    """Keep the GPU busy while the host issues what is timed, so that the GPU never waits for it."""
    torch.cuda._sleep(round(_CLOCK * min(0.2, seconds)))


def _by_events(runs: list[Callable[[], object]], count: int, each: int) -> list[float]:
    """Return microseconds of a run, by marks behind every `each` of them."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    marks[0].record()
    for at in range(count):
        for turn in range(each):
            runs[(at * each + turn) % len(runs)]()
        marks[at + 1].record()
    torch.cuda.synchronize()
    return [1e3 * marks[at].elapsed_time(marks[at + 1]) / each for at in range(count)]


def _by_clock(runs: list[Callable[[], object]], count: int, _: int) -> list[float]:
    times = []
    for at in range(count):
        began = time.perf_counter()
        runs[at % len(runs)]()
        times.append(1e6 * (time.perf_counter() - began))
    return times


def _synchronize() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def _burst() -> Iterator[dict[str, Any]]:
    """One product for six seconds: microseconds of a run every 0.3 s, when in `micro` (ms)."""
    case = Case("product", "", "burst", 8192, 8192, 8192, 1, "bf16")
    run = runs_of(case)[0]
    run()
    _synchronize()
    began = time.perf_counter()
    while DEVICE == "cuda" and (since := time.perf_counter() - began) < 6:
        times = _by_events([run], 200, 1)
        row: dict[str, Any] = case._asdict() | {"kind": "burst", "micro": round(1e3 * since)}
        yield row | {"us": round(statistics.median(times), 2), "least_us": round(min(times), 2)}


if __name__ == "__main__":
    main()
