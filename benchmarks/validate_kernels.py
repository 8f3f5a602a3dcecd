"""
Hold the compute model against kernels that were timed one by one.

    python benchmarks/validate_kernels.py [--gpu H100-SXM5-80GB tests/data/kernels/h100.csv]
                                          [--by model phase tp]

Takes what `measure_kernels.py` wrote. A line per group of cases: how many, the mean error (of
predicted over measured, less one, without its sign), the bias, the error of the sum of all times,
and beside it a guess: the one share of the peak that is right for the group's sum. `layer` is what
one rank computes of a layer in eager torch, beside a layer of fully fused kernels (stack
`megatron`) without its host. `kernel_forms.py` reads forms off the same files.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

from commsim.cluster import gpu_spec
from commsim.models import ComputeModel, ComputeSection, Split, compute_model, model_preset
from commsim.models.attention import attention_backward, attention_forward
from commsim.models.matmul import Matmul
from commsim.models.operations import Core

DATA = Path(__file__).parents[1] / "tests/data/kernels"
COLUMNS = ("model", "name", "phase", "tp", "micro")
FILES = {"H200-SXM-141GB": DATA / "h200.csv", "H100-SXM5-80GB": DATA / "h100.csv"}


class Timed(NamedTuple):
    """A case, how long it took and takes by the model, in us, and its FLOPs (0: not counted)."""

    case: dict[str, str]
    measured: float
    predicted: float
    flops: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1


class Score(NamedTuple):
    """How near predictions come: cases, mean error, bias, error of the sum, and a guess's error."""

    count: int
    error: float
    bias: float
    total: float
    guess: float


def main(words: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--gpu", nargs=2, metavar=("NAME", "FILE"), help="another file's kernels")
    parser.add_argument("--by", nargs="*", default=[], choices=COLUMNS, help="groups by these too")
    options = parser.parse_args(words)
    files = {options.gpu[0]: Path(options.gpu[1])} if options.gpu else FILES
    for gpu, file in files.items():
        print(f"{gpu:38}    n   error    bias  of sum   guess")
        for group, score in scores(timed(gpu, file), ("kind", "variant", *options.by)).items():
            _, error, bias, total, guess = score
            print(
                f"{group:38} {score.count:4} {error:7.1%} {bias:+7.1%} {total:+7.1%} {guess:7.1%}"
            )


def scores(rows: Iterable[Timed], columns: Sequence[str]) -> dict[str, Score]:
    """Return the score of each group of cases that agree in `columns`."""
    groups = defaultdict(list)
    for row in rows:
        groups[" ".join(row.case[column] for column in columns)].append(row)
    return {group: _score(found) for group, found in groups.items()}


def _score(rows: list[Timed]) -> Score:
    measured = sum(row.measured for row in rows)
    rate = sum(row.flops for row in rows) / measured
    return Score(
        len(rows),
        fmean(abs(row.error) for row in rows),
        fmean(row.error for row in rows),
        sum(row.predicted for row in rows) / measured - 1,
        fmean(abs(row.flops / rate / row.measured - 1) for row in rows),
    )


def timed(gpu: str, file: Path) -> list[Timed]:
    """Return the products, attentions and layers of a file beside the model's times."""
    with open(file, newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["kind"] in PREDICTED and row["us"]]
    return [_timed(gpu, row) for row in rows]


def _timed(gpu: str, row: dict[str, str]) -> Timed:
    seconds, flops = PREDICTED[row["kind"]](gpu, row)
    return Timed(row, float(row["us"]), 1e6 * seconds, flops)


def _product(gpu: str, row: dict[str, str]) -> tuple[float, float]:
    kernels = _model(gpu, row["variant"]).kernels
    work = kernels.products([product_of(row)])
    return work.seconds + 1e-6 * kernels.constants.launch_us, work.flops


def _attention(gpu: str, row: dict[str, str]) -> tuple[float, float]:
    kernels = _model(gpu, "bf16", row["variant"]).kernels
    attention = attention_forward if row["phase"] == "forward" else attention_backward
    work = attention(kernels, core_of(row))
    return work.seconds + 1e-6 * kernels.constants.launch_us, work.flops


def product_of(row: dict[str, str]) -> Matmul:
    """Return the product of a row."""
    return Matmul(int(row["m"]), int(row["n"]), int(row["k"]))


def core_of(row: dict[str, str]) -> Core:
    """Return the attention of a row."""
    length, width = int(row["m"]), int(row["k"])
    return Core(int(row["batch"]), length, length, width, width, dropout=False, block=length)


def _layer(gpu: str, row: dict[str, str]) -> tuple[float, float]:
    split = Split(int(row["micro"]), int(row["n"]), int(row["tp"]))
    blocks = _model(gpu, "bf16", "cudnn").layer(model_preset(row["model"]).shape, split)
    phases = ("forward",) if row["phase"] == "forward" else ("backward", "weight")
    works = [getattr(block, phase) for block in blocks for phase in phases]
    return sum(work.seconds for work in works), sum(work.flops for work in works)


PREDICTED = {"product": _product, "attention": _attention, "layer": _layer}


@cache
def _model(gpu: str, precision: str, attention: str = "cudnn") -> ComputeModel:
    """Return the model of one GPU whose host keeps up."""
    section = ComputeSection(stack="megatron", spread=0.0)
    model = compute_model(gpu_spec(gpu), precision=precision, section=section)
    stack = replace(model.stack, attention=attention, cpu_us=0.0, tensor_parallel_loss=0.0)
    return replace(model, kernels=replace(model.kernels, stack=stack))


if __name__ == "__main__":
    main()
