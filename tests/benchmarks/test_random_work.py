"""The command that tries random work finds a fault that is planted in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import fuzz_inputs, rule_checks
from helpers.fuzz_inputs import INPUTS, SEEDS, Input


def test_sound_work_is_counted(scripts: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert scripts("random_work").main(["scenarios", "0", "3", "--jobs", "2"]) == 0
    told = capsys.readouterr().out
    assert "3 scenarios, seeds 0 to 2:" in told
    assert "0 failed" in told


def test_rare_work_is_counted(scripts: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert scripts("random_work").main(["rare", "0", "2"]) == 0
    assert "2 rare, seeds 0 to 1:" in capsys.readouterr().out


def test_a_fault_in_a_reader_is_found(
    scripts: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(path: Path) -> dict[str, int]:
        return {"x": 1}[path.read_bytes().decode("latin-1")[:1]]  # type: ignore[return-value]

    sound = next(kind for kind in INPUTS if kind.name == "x.goal")
    planted = Input("planted", lambda: b"x" * 40, ("bytes",), read)
    monkeypatch.setattr(fuzz_inputs, "INPUTS", (planted, sound))
    assert scripts("random_work").main(["inputs", "0", "60"]) == 1
    failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAIL")]
    assert failed
    assert all(line.startswith("FAIL planted ") and "KeyError" in line for line in failed)


def test_a_fault_in_a_run_is_found(
    scripts: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(result: Any) -> list[tuple[str, str]]:
        return [("planted", "one")] if len(result.timeline) else []

    monkeypatch.setattr(rule_checks, "broken", broken)
    monkeypatch.setattr(rule_checks, "shrunk", lambda data, fails: data)
    assert scripts("random_work").main(["scenarios", "5", "6"]) == 1
    told = capsys.readouterr().out
    assert "FAIL 5: BrokenRuleError: seed 5, most 16: planted: one" in told
    assert "1 failed" in told


def test_what_takes_longest_is_tried_less(scripts: Any) -> None:
    tried = [sum(fuzz_inputs.is_tried(kind, seed) for kind in INPUTS) for seed in (0, SEEDS - 1)]
    assert tried == [len(INPUTS), len(INPUTS) - 12]
    assert sum(fuzz_inputs.is_tried(k, s) for k in INPUTS for s in range(SEEDS)) > 10**6
