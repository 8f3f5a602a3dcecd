"""Predictions by the public path against measured rows; each row's source stands in the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.paths import ROOT
from helpers.scripts import Ran, run_script

ROWS = ROOT / "tests" / "data" / "measured_nccl.csv"
VALIDATE = ROOT / "benchmarks" / "validate_collectives.py"
FIT = ROOT / "benchmarks" / "fit_nccl.py"


def run(script: Path, *arguments: object) -> Ran:
    """Run a script of benchmarks/ with arguments."""
    return run_script(script, *map(str, arguments))


@pytest.fixture(scope="module")
def figures(tmp_path_factory) -> dict[str, Any]:
    """The figures of the rows kept in tests/data."""
    out = tmp_path_factory.mktemp("figures") / "figures.json"
    done = run(VALIDATE, ROWS, "--json", out)
    assert done.status == 0, done.err
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_bands_of_the_rows_kept_here(figures):
    bands = figures["bands"]
    assert {name: band["n"] for name, band in bands.items()} == {"large": 38, "mid": 10, "small": 4}
    assert bands["large"]["median_abs_err"] < 0.06
    assert bands["mid"]["median_abs_err"] < 0.12
    assert bands["small"]["median_abs_err"] < 0.15


def test_peaks_of_the_rows_kept_here(figures):
    assert figures["peak_busbw_within_10pct"] > 0.9


def test_each_case_is_within_a_quarter(figures):
    for case in figures["cases"]:
        assert case["median_abs_err"] < 0.25, case
        assert case["peak_predicted"] == pytest.approx(case["peak_measured"], rel=0.12), case


def test_the_keys_of_the_json(figures):
    assert list(figures)[:4] == ["bands", "peak_busbw_within_10pct", "classes", "cases"]
    keys = ["case_id", "n", "median_abs_err", "peak_measured", "peak_predicted"]
    assert list(figures["cases"][0]) == keys
    assert figures["skipped"] == []
    assert "launch: a process per GPU" in figures["assumed"]


def test_a_map_of_ones_own_stands_before_the_repositorys(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text(
        "case_id,system,sysclass,gpus_per_node,nodes,library,op,size_bytes,time_us\n"
        "a,My box,Nowhere,4,1,nccl,all_reduce,1073741824,7000\n"
        "a,My box,Nowhere,4,1,nccl,all_reduce,,\n"
        "b,Their box,Nowhere,4,1,nccl,all_reduce,1048576,90\n"
        "c,My box,Nowhere,4,1,mpi,all_reduce,1048576,90\n"
        "d,My box,Nowhere,64,1,nccl,all_reduce,1048576,90\n"
    )
    systems = tmp_path / "systems.yaml"
    systems.write_text(
        'My box: {cluster: {preset: polaris}, library: {version: "2.23"}, launch: process}\n'
    )
    out = tmp_path / "figures.json"
    done = run(VALIDATE, rows, "--systems", systems, "--json", out)
    assert done.status == 0, done.err
    figures = json.loads(out.read_text())
    assert [case["case_id"] for case in figures["cases"]] == ["a"]
    assert 220 < figures["cases"][0]["peak_predicted"] < 250  # of 300 GB/s of NVLink
    assert figures["bands"]["large"]["n"] == 1  # a table that says nothing of trust counts
    assert figures["peak_busbw_within_10pct"] == 1.0
    reasons = {row["reason"]: row["rows"] for row in figures["skipped"]}
    assert reasons.pop("incomplete: no size, time or counts") == 1
    assert reasons.pop("no such system or class in the map") == 1
    assert list(reasons.values()) == [1]  # more GPUs than the node has, in bench's own words
    assert figures["assumed"] == {}


def test_a_map_that_says_nothing_is_refused(tmp_path):
    systems = tmp_path / "systems.yaml"
    systems.write_text("My box: {library: {name: nccl}}\n")
    done = run(VALIDATE, ROWS, "--systems", systems)
    assert done.status == 1
    assert "My box: give `cluster`" in done.err
    assert "Traceback" not in done.err


def test_the_fit_reproduces_itself_from_these_rows_alone(tmp_path):
    out, figures = tmp_path / "timing.yaml", tmp_path / "figures.json"
    done = run(FIT, ROWS, "-o", out, "--json", figures, "--leave-out", "Polaris")
    assert done.status == 0, done.err
    found = json.loads(figures.read_text())
    assert found["constants"] <= 56
    assert found["fitted_on_all"]["bands"]["large"]["median_abs_err"] < 0.06
    assert found["sites_left_out"]["bands"]["large"]["n"] == 1
    assert out.read_text().count("spread: ") == found["constants"]


def test_a_site_that_is_none_is_refused():
    done = run(FIT, ROWS, "--leave-out", "Atlantis")
    assert done.status == 1
    assert "no site 'Atlantis'" in done.err
