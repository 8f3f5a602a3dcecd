"""The script that holds pipelines to the zero-bubble paper, on its rows and on others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.paths import ROOT
from helpers.scripts import run_script

SCRIPT = ROOT / "benchmarks" / "validate_pipeline.py"
TABLE = ROOT / "tests" / "data" / "zero_bubble_table5.csv"


def judged(file: Path, folder: Path) -> tuple[list[dict[str, Any]], str]:
    out = folder / "found.json"
    done = run_script(SCRIPT, str(file), "--json", str(out))
    assert done.status == 0, done.err
    return json.loads(out.read_text())["rows"], done.err


def test_one_row_of_the_table(tmp_path: Path) -> None:
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    (tmp_path / "one.csv").write_text("\n".join(lines[:2]) + "\n")
    rows, _ = judged(tmp_path / "one.csv", tmp_path)
    assert [row["schedule"] for row in rows] == [
        "1f1b", "interleaved_1f1b", "zb_h1", "zb_h2", "zb_1p", "zb_2p",
    ]  # fmt: skip
    for row in rows:
        assert set(row) == {"model", "m", "schedule", "bubble", "published", "delta"}
        assert (row["model"], row["m"]) == ("1.5B", 24)
        assert row["delta"] == row["bubble"] - row["published"]
        assert abs(row["delta"]) < 0.004


def test_rows_of_a_model_that_it_does_not_know(tmp_path: Path) -> None:
    """Without its layers or a column v, only interleaved cannot be judged."""
    head = "model,p,m,TF_ms,TB_ms,TW_ms,Tcomm_ms,b_1f1b,b_1f1bi,b_zb2p"
    (tmp_path / "a.csv").write_text(f"{head}\nmine,4,8,1,1,1,0,0.2727,0.15,\n")
    rows, said = judged(tmp_path / "a.csv", tmp_path)
    assert [row["schedule"] for row in rows] == ["1f1b"]
    assert "mine m=8: interleaved_1f1b left out: layers unknown, and no column v" in said
    (tmp_path / "b.csv").write_text(f"{head},v\nmine,4,8,1,1,1,0,,0.1579,,2\n")
    rows, said = judged(tmp_path / "b.csv", tmp_path)
    assert [row["schedule"] for row in rows] == ["interleaved_1f1b"]
    assert abs(rows[0]["bubble"] - 3 / 19) < 1e-9
    assert said == ""
    (tmp_path / "c.csv").write_text(f"{head}\nmine,four,8,1,1,1,0,0.2727,,\n")
    rows, said = judged(tmp_path / "c.csv", tmp_path)
    assert rows == []
    assert "mine m=8: 1f1b left out: invalid literal" in said


def test_a_file_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_bytes(b"a,b\n\x00\xff,2\n")
    for name, expected in (
        ("other.csv", "has no column model, p"), ("none.csv", "cannot be read: No such file"),
    ):  # fmt: skip
        done = run_script(SCRIPT, str(tmp_path / name))
        assert done.status == 1
        assert expected in done.err
        assert "Traceback" not in done.err
