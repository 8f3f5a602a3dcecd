"""Published times of forward, input gradient and weight gradient (Qi et al. 2023, table 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from step_compute import row_model, stage_times
from table import read_table
from training_rows import Row

from commsim.models import ModelShape

if TYPE_CHECKING:
    from fitted import Fitted

SHAPES = {"1.5B": (22, 2304, 24, 6), "6.2B": (30, 4096, 32, 3), "14.6B": (46, 5120, 40, 1)}
"""Layers, hidden width, heads and microbatch of the paper's models (its table 3)."""
SEQ, VOCAB = 1024, 32128
NEEDED = ("model", "m", "p", "TF_ms", "TB_ms", "TW_ms")


@dataclass(frozen=True, slots=True)
class StageRow:
    """One model's published times on a stage in the middle, in seconds."""

    model: str
    row: Row
    times: tuple[float, float, float]


def read_stage_rows(path: str | Path) -> list[StageRow]:
    """Return one row per line of a known model, with the layout that it was measured on."""
    rows = read_table(path, NEEDED)
    return [_stage_row(record) for record in rows if record["model"] in SHAPES]


def _stage_row(record: dict[str, str]) -> StageRow:
    layers, hidden, heads, micro = SHAPES[record["model"]]
    shape = ModelShape(
        layers=layers, hidden=hidden, heads=heads, kv_heads=heads, head_dim=hidden // heads,
        ffn=4 * hidden, vocab=VOCAB, max_seq=SEQ, learned_position_rows=SEQ,
    )  # fmt: skip
    row = Row(
        f"{record['model']} m={record['m']}", "zero_bubble_table5", 0.0, shape=shape,
        gpu="A100-SXM4-80GB", stack="megatron-2023", attention="unfused", precision="fp16",
        pp=int(record["p"]), gpus=int(record["p"]),
        micro=micro, batch=micro * int(record["m"]), seq=SEQ,
    )  # fmt: skip
    times = tuple(float(record[name]) * 1e-3 for name in ("TF_ms", "TB_ms", "TW_ms"))
    return StageRow(record["model"], row, (times[0], times[1], times[2]))


def predicted_stage(stage: StageRow, fitted: Fitted) -> tuple[float, float, float]:
    """Return the model's F, B and W of a stage in the middle, in seconds."""
    row = stage.row
    middle = stage_times(row, row_model(row, fitted))[row.pp // 2]
    return middle.forward, middle.backward, middle.weight


def stage_ratios(stages: Sequence[StageRow], fitted: Fitted) -> list[float]:
    """Return predicted/published of every F, B and W, in order."""
    return [
        ours / published
        for stage in stages
        for ours, published in zip(predicted_stage(stage, fitted), stage.times, strict=True)
    ]
