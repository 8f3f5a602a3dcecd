"""Published steps that no constant was fitted on: larger models, and machines of a later year.

tests/data/training/not_in_fits.csv holds NVIDIA's tables of Megatron-Bridge beyond the models of
the fits, and SC'21's ZeRO-3 of 529.6B. Bars: those of natural scenarios and of ZeRO-3.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.paths import ROOT, STEPS
from helpers.scripts import run_script

FILE = STEPS.with_name("not_in_fits.csv")


def validated(folder: Path, file: Path) -> dict[str, Any]:
    out = folder / "out.json"
    script = ROOT / "benchmarks" / "validate_training.py"
    done = run_script(script, str(file), "--jobs", "1", "--json", str(out))
    assert done.status == 0, done.err
    data: dict[str, Any] = json.loads(out.read_text())
    return data


def test_no_row_is_one_of_the_fits(shared_data: Path) -> None:
    """By model, machine, layout and time; only what is in no fit says how far constants carry."""
    keys = ("model", "gpu", "n_gpus", "tp", "pp", "ep", "global_batch", "tokens_per_s_per_gpu")
    fitted = set()
    for name in ("training.csv", "training_2.csv"):
        with (shared_data / name).open(newline="") as file:
            fitted |= {tuple(row[key] for key in keys) for row in csv.DictReader(file)}
    with FILE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 50
    assert not [row["case_id"] for row in rows if tuple(row[key] for key in keys) in fitted]


def test_experts_on_eight_gpus_of_a_later_machine(tmp_path: Path) -> None:
    """Two of the quickest; the rest is for `-m long`."""
    few = tmp_path / "few.csv"
    lines = FILE.read_text().splitlines(keepends=True)
    few.write_text("".join([lines[0], *(line for line in lines if "_26.02_Qwen3-30B-A3B_" in line
                                        and "B300_8_" in line)]))  # fmt: skip
    rows = validated(tmp_path, few)["rows"]
    assert len(rows) == 2
    assert all(abs(row["error"]) < 0.12 and row["fits"] for row in rows)
    assert all("not fitted on" in row["not_fitted"][0] for row in rows)


@pytest.mark.long
def test_larger_models_are_predicted(tmp_path: Path) -> None:
    data = validated(tmp_path, FILE)
    suites = data["suites"]
    assert all(row["fits"] for row in data["rows"]), "published as run, and said not to fit"
    assert suites["larger_dense"]["mape"] < 0.12
    assert suites["larger_zero3"]["mape"] < 0.15
    for experts in ("larger_experts", "b300_experts"):
        assert suites[experts]["beats_constant"]
        assert suites[experts]["spearman"] > 0.85
