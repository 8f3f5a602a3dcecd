"""Odd arguments, odd files and odd streams end in one sentence, never in a traceback."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.captured import DATA
from helpers.paths import ROOT

from commsim.cli.main import call

SCENARIO = (ROOT / "scenarios" / "1f1b.yaml").read_text(encoding="utf-8")

ODD = {
    "bench all_reduce --algo ,": "',' names no algo",
    "bench , -e 8": "',' names no op",
    "bench all_reduce -b 1e400": "'1e400' is not a whole number of bytes",
    f"bench all_reduce -b {'9' * 400}": "999... is not a whole number of bytes",
    "explain ring -n 100000": "-n 100000: too many ranks to be looked at. Give at most 128.",
    "explain ring --pieces 99999": "--pieces 99999: too many to be looked at. Give 4 ranks at",
    "explain ring --per-node 2": "leave --per-node out",
    "convert x.csv y.npz --nodes 2": "--nodes: is of a recipe",
    "convert x.csv y.npz --set cluster.nodes=2": "--set: is of a recipe",
    f"run ddp --set workload.training.data_parallel.bucket={'9' * 400}MiB": "999...",
    "run 1f1b --limit 0": "'0': nothing runs in no memory. Give a size like '8GiB'.",
    "run 1f1b --limit 0MiB": "'0MiB': nothing runs in no memory. Give a size like '8GiB'.",
    "run 1f1b --limit -1": "'-1': a size cannot be negative or infinite.",
    "run ring-all-reduce --set library.channels=1e6": "too many. Give at most 1,024",
    "run 1f1b --set workload.pipeline.stages=1000000000": "1,000,000,000 x 1 stages are more than",
}


@pytest.mark.parametrize(("line", "told"), ODD.items(), ids=[line[:40] for line in ODD])
def test_odd_arguments(line: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(line.split()) == 2
    error = capsys.readouterr().err
    assert told in error
    assert len(error) < 400


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "no/new\nline.yaml"], r"commsim: no/new\nline.yaml: there is no such file."),
        (["run", "no//new\n\nline.yaml"], r"commsim: no/new\n\nline.yaml: there is no such file."),
        (
            ["run", "no/\x1b[31mred\r.yaml"],
            r"commsim: no/\x1b[31mred\r.yaml: there is no such file.",
        ),
    ],
)
def test_names_with_control_characters_stay_on_one_line(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(words) == 2
    error = capsys.readouterr().err
    assert error.startswith(told)
    assert error.count("\n") == 1


def shell(line: str) -> subprocess.CompletedProcess[str]:
    command = re.sub(r"(?<!\S)commsim(?=\s)", f"{sys.executable} -m commsim", line)
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT
    )


@pytest.mark.parametrize(
    "line",
    [
        "commsim run - < {file}", "commsim run /dev/stdin < {file}", "commsim run <(cat {file})",
    ],
)  # fmt: skip
def test_a_scenario_from_a_pipe(line: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(SCENARIO)
    done = shell(line.format(file=file))
    assert done.returncode == 0, done.stderr
    assert "step time" in done.stdout


def test_a_closed_output_is_said_and_files_are_written(tmp_path: Path) -> None:
    page, told = tmp_path / "page.html", "commsim: standard output: is closed.\n"
    done = shell(f"commsim run 1f1b -o {page} -q >&-")
    assert (done.returncode, done.stderr) == (2, told)
    assert page.is_file()
    done = shell("commsim --help >&-")
    assert (done.returncode, done.stderr) == (2, told)
    assert shell("commsim run no-such >&- 2>&-").returncode == 2


def test_a_reader_that_leaves_early_is_no_traceback() -> None:
    done = shell("commsim presets clusters | head -1")
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_report_is_written_though_the_reader_leaves_early(tmp_path: Path) -> None:
    """The tables of a replay are printed before its page is written."""
    page, run = tmp_path / "page.html", DATA / "gloo_runs" / "1f1b-4"
    done = shell(f"set -o pipefail; commsim replay {run} -o {page} | true")
    assert done.returncode == 141
    assert done.stderr.count("Broken pipe") == 0
    assert page.read_text().rstrip().endswith("</html>")
