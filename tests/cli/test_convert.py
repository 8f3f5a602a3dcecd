"""`commsim convert` and `commsim replay` with what-ifs, as people type them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.paths import TESTS

from commsim.cli.main import call

GLOO = TESTS / "data" / "gloo_runs"


def test_convert_says_what_it_wrote_and_what_was_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ddp.goal"
    assert call(["convert", str(GLOO / "ddp-2"), str(out)]) == 0
    printed = capsys.readouterr()
    assert "from         Kineto" in printed.out
    assert f"wrote        {out}" in printed.out
    assert "all_reduce by ring" in printed.err
    assert out.read_text().startswith("num_ranks 2\n")


def test_convert_refuses_with_the_right_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "x.json"
    bad.write_text("{}")
    assert call(["convert", str(bad), str(tmp_path / "x.goal")]) == 3
    assert call(["convert", str(GLOO / "ddp-2"), str(tmp_path / "x.what")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_replay_prints_both_errors_and_writes_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r.json"
    words = [
        "replay", str(GLOO / "ddp-4"), "--cluster", "dgx-h100", "--comm", "modelled",
        "--set", "library.name=nccl", "--set", "library.version=2.21", "--json", str(out),
    ]  # fmt: skip
    assert call(words) == 0
    printed = capsys.readouterr()
    assert "communication modelled over 1 x dgx-h100: " in printed.out
    assert "GPUs and hosts compute as recorded" in printed.out
    assert "the recording itself: measured step" in printed.out
    assert "collectives, as recorded:" in printed.out
    assert call([*words[:-2], "--set", "compute.scale=0.5"]) == 0
    assert "compute as recorded" not in capsys.readouterr().out
    assert "self-check: with recorded transfers every step is met within" in printed.err
    said = json.loads(out.read_text())
    assert {"measured", "error", "self_check", "late", "busbw"} <= said.keys()
    assert max(abs(rank["step_time"]) for rank in said["self_check"]["ranks"]) <= 0.05
    assert len(said["late"]) == 4


def test_a_what_if_that_is_not_sound_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["replay", str(GLOO / "ddp-4"), "--cluster", "dgx-h100", "--comm", "modelled",
             "--set", "data_parallel.size=6"]  # fmt: skip
    assert call(words) == 2
    assert "not the recorded 4" in capsys.readouterr().err
