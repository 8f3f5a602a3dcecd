"""Rewriting the expected figures keeps the keys that a person chose, and touches what moved."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from helpers.paths import ROOT

SCRIPT = ROOT / "benchmarks" / "expected.py"


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with a folder of its own that holds one scenario."""
    spec = importlib.util.spec_from_file_location("expected_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "gpipe.yaml").write_text("# the catalogue's\n")
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["expected.py"])
    return module


def test_a_new_scenario_gets_the_key_figures(expected: ModuleType) -> None:
    expected.main()
    found = json.loads((expected.FOLDER / "gpipe.expected.json").read_text())
    assert found["bubble_fraction"] == pytest.approx(3 / 7)
    assert {"step_time_s", "breakdown.idle_s", "bubble_ratio"} <= found.keys()


def test_keys_chosen_by_hand_stay(expected: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    file = expected.FOLDER / "gpipe.expected.json"
    file.write_text('{"bubble_fraction": 0.5, "scenario": "gone"}')
    expected.main()
    found = json.loads(file.read_text())
    assert found.keys() == {"bubble_fraction", "scenario"}
    assert found["bubble_fraction"] == pytest.approx(3 / 7)
    assert found["scenario"].startswith("GPipe")
    assert "  bubble_fraction: 0.5 -> 0.42857" in capsys.readouterr().out


def test_a_file_whose_figures_stand_is_not_touched(expected: ModuleType) -> None:
    file = expected.FOLDER / "gpipe.expected.json"
    file.write_text('{"bubble_fraction":   0.42857142857}')
    expected.main()
    assert file.read_text() == '{"bubble_fraction":   0.42857142857}'
