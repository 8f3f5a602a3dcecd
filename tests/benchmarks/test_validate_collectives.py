"""The comparison with measured collectives runs on any table, and says what it leaves out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.paths import ROOT
from helpers.scripts import run_script

SCRIPT = ROOT / "benchmarks" / "validate_collectives.py"
HEAD = "case_id,system,sysclass,gpus_per_node,nodes,nranks,library,op,size_bytes,time_us"
ROW = "box,Box,No such class,4,2,8,nccl,all_reduce,1048576,100"
MAP = "Box: {cluster: {preset: snellius-a100}, library: {version: '2.20'}, launch: gpu}\n"


def run(folder: Path, table: str | bytes, systems: str = MAP) -> tuple[dict[str, Any], str]:
    """Return the JSON and what is printed; the script must not fail."""
    file, target = folder / "table.csv", folder / "figures.json"
    file.write_bytes(table if isinstance(table, bytes) else table.encode())
    (folder / "map.yaml").write_text(systems)
    words = [str(file), "--systems", str(folder / "map.yaml"), "--json", str(target)]
    done = run_script(SCRIPT, *words)
    assert done.status == 0, done.err
    return json.loads(target.read_text()), done.out


def table(*rows: str, head: str = HEAD) -> str:
    return "\n".join((head, *rows)) + "\n"


def test_a_system_of_the_map_is_predicted(tmp_path: Path) -> None:
    figures, _ = run(tmp_path, table(ROW))
    (case,) = figures["cases"]
    assert set(case) == {"case_id", "n", "median_abs_err", "peak_measured", "peak_predicted"}
    assert case["n"] == 1
    assert case["peak_measured"] == pytest.approx(1.048576e6 / 100e-6 * 1.75 / 1e9)
    assert {band: figures["bands"][band]["n"] for band in figures["bands"]} == {
        "large": 0, "mid": 1, "small": 0,
    }  # fmt: skip
    assert list(figures["classes"]) == ["No such class"]


def test_columns_that_follow_from_others_are_not_missed(tmp_path: Path) -> None:
    whole, _ = run(tmp_path, table(ROW))
    figures, said = run(
        tmp_path,
        table(
            "Box,8,2,AllReduce,1048576,10.48576",
            head="system,nranks,nodes,op,size_bytes,algbw_gbs",
        ),
    )
    assert figures["bands"] == {
        band: {"n": old["n"], "median_abs_err": pytest.approx(old["median_abs_err"])}
        if old["n"] else old
        for band, old in whole["bands"].items()
    }  # fmt: skip
    assert "has no column case_id, sysclass, gpus_per_node, library, time_us" in said


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (ROW.replace(",100", ",inf"), "incomplete: no size, time or counts"),
        (ROW.replace(",100", ",-1"), "incomplete: a zero"),
        (ROW.replace(",4,2,", ",4,inf,"), "incomplete: no size, time or counts"),
        ("box,Box,No such class", "incomplete: no size, time or counts"),
        (ROW.replace("Box", "Other"), "no such system or class in the map"),
        (ROW.replace("all_reduce", "hypercube"), "'hypercube' is not an op to bench."),
        (ROW.replace(",4,2,", ",8,2,"), "has 4 GPUs"),
    ],
)
def test_a_row_that_cannot_be_judged_is_skipped_with_its_reason(
    row: str, reason: str, tmp_path: Path
) -> None:
    figures, said = run(tmp_path, table(ROW, row))
    (skipped,) = figures["skipped"]
    assert reason in skipped["reason"]
    assert skipped["rows"] == 1
    assert f"skipped: 1 rows of {skipped['class']}: {skipped['reason']}" in said
    assert sum(case["n"] for case in figures["cases"]) == 1


@pytest.mark.parametrize("content", [b"", b"\n", HEAD.encode(), b"\xff\xfe\x00,\x80\n1,2\n"])
def test_a_table_without_rows_has_no_figures(content: bytes, tmp_path: Path) -> None:
    figures, _ = run(tmp_path, content)
    assert figures["cases"] == []
    assert figures["peak_busbw_within_10pct"] is None
    assert figures["bands"]["large"] == {"n": 0, "median_abs_err": None}


def test_other_bytes_than_utf_8_spoil_no_row(tmp_path: Path) -> None:
    head, row = (line.encode() for line in (HEAD + ",note", ROW + ",caf"))
    figures, _ = run(tmp_path, b"\xef\xbb\xbf" + head + b"\n" + row + b"\xe9\n")
    assert [case["n"] for case in figures["cases"]] == [1]


def test_a_row_of_another_library_takes_the_machine_alone(tmp_path: Path) -> None:
    figures, _ = run(tmp_path, table(ROW, ROW.replace("box,", "other,").replace("nccl", "gloo")))
    nccl, gloo = figures["cases"]
    assert gloo["peak_predicted"] < nccl["peak_predicted"] / 5


def test_a_map_says_which_of_its_settings_mean_nothing(tmp_path: Path) -> None:
    _, said = run(tmp_path, table(ROW), MAP.replace("launch", "colour: red, launch"))
    assert "map.yaml: Box: colour: means nothing here; left out." in said


@pytest.mark.parametrize(
    ("systems", "said"),
    [
        ("[1, 2]", "a map of systems is NAME"),
        ("Box: {cluster: dgx-h100}", "Box: give `cluster`"),
        ("Box: {cluster: {preset: dgx-h100}, launch: rocket}", "neither process nor gpu"),
        ("{", "cannot be read"),
    ],
)
def test_a_map_that_is_none_is_one_line(systems: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(table(ROW))
    (tmp_path / "m.yaml").write_text(systems)
    words = [str(tmp_path / "t.csv"), "--systems", str(tmp_path / "m.yaml")]
    done = run_script(SCRIPT, *words)
    assert done.status == 1
    assert said in done.err
    assert "Traceback" not in done.err
