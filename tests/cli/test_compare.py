"""What `commsim compare` prints and writes, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.paths import TESTS

from commsim.cli.main import call

LOGS = TESTS / "data/nccl_tests"
A100 = str(LOGS / "a100_8_v2.19.4.log")


@pytest.mark.parametrize(
    ("tolerance", "code"),
    [("1%", 1), ("50%", 0), ("0.5", 0), ("0", 1), (None, 1)],
)
def test_with_check_the_exit_code_is_the_verdict(
    tolerance: str | None, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [] if tolerance is None else ["--tolerance", tolerance]
    assert call(["compare", A100, "dgx-a100", "--check", *flags]) == code
    closing = capsys.readouterr().out.splitlines()[-1]
    assert closing.startswith("within" if code == 0 else "outside")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["1f1b"], 2, "two or more"),
        (["1f1b", "gpipe", "--tolerance", "5"], 2, "did you mean 5%"),
        (["1f1b", "gpipe", "--tolerance", "1000%"], 2, "at most 100%"),
        (["1f1b", "gpipe", "--tolerance", "few"], 2, "a share such as 5%"),
        (["1f1b", "gpipee"], 2, "Did you mean 'gpipe'"),
        (["1f1b", "none.yaml"], 2, "there is no such file"),
        (["1f1b", "none.json"], 3, "there is no such file"),
        (["1f1b", "gpipe", "--report", "r.pdf"], 2, "must end in .html"),
    ],
)
def test_errors_say_what_to_do(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["compare", *arguments]) == code
    captured = capsys.readouterr()
    assert words in captured.err
    assert "Traceback" not in captured.err


def test_json_alone_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["compare", "1f1b", "1f1b", "--json", "-", "-q"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {"schema", "kind", "tolerance", "within", "sides", "verdict", "metrics", "settings",
            "command"} <= set(data)  # fmt: skip
    assert data["command"] == "commsim compare 1f1b 1f1b --tolerance 5%"


def test_the_table_has_both_sides_and_marks_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "r.html"
    assert call(["compare", "ring-all-reduce", "reduce-to-server", "--report", str(report)]) == 0
    lines = capsys.readouterr().out.splitlines()
    step = next(line for line in lines if line.startswith("step time"))
    assert step.endswith("*")
    assert "%" in step
    assert f"wrote  {report}" in lines
    assert report.stat().st_size > 20_000


def test_sizes_are_listed_with_their_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["compare", A100, "dgx-a100"]) == 0
    lines = capsys.readouterr().out.splitlines()
    last = next(line for line in lines if line.lstrip().startswith("134217728"))
    assert last.split()[1:3] == ["1295.41", "181.32"]
    assert last.endswith("%")
    assert any("16 MiB and above" in line for line in lines)


def test_same_sources_same_bytes(tmp_path: Path) -> None:
    texts = []
    for name in ("a.html", "b.html"):
        call(["compare", "-q", "1f1b", "gpipe", "--report", str(tmp_path / name)])
        texts.append((tmp_path / name).read_bytes())
    assert texts[0] == texts[1]
