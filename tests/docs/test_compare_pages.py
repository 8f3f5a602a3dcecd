"""What the pages on comparing show is what the commands print, up to what a new fit may change."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from helpers.paths import ROOT

from commsim.cli.main import call

SHOWN = re.compile(r"```sh\n(commsim compare .*?)```.*?```text\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?")
NEAR = 0.3  # constants are fitted anew now and then; a page further off than this needs a new look


def shown(page: str) -> tuple[list[str], list[str]]:
    """Return the words of the command and the lines below it."""
    match = SHOWN.search((ROOT / "docs/guides" / page).read_text())
    assert match
    return match[1].split(), [line for line in match[2].splitlines() if line]


def test_the_log_beside_its_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, lines = shown("compare.md")
    shutil.copy(ROOT / "tests/data/nccl_tests/a100_8_v2.19.4.log", tmp_path / "all_reduce.log")
    monkeypatch.chdir(tmp_path)
    assert call(words[1:]) == 0
    printed = [line for line in capsys.readouterr().out.splitlines() if line]
    names = [re.split(r"  |\d", line.strip())[0] for line in lines]
    found = [re.split(r"  |\d", line.strip())[0] for line in printed]
    assert [name for name in names if name not in found] == []
    assert "181.3 GB/s" in printed[0]


def test_the_worked_example_of_buying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, lines = shown("buying.md")
    monkeypatch.chdir(tmp_path)
    assert call(words[1:]) == 0
    printed = capsys.readouterr().out.splitlines()[: len(lines)]
    assert (tmp_path / "buy.html").stat().st_size > 50_000
    for told, line in zip(printed[1:4], lines[1:4], strict=True):
        assert re.sub(NUMBER, "#", told) == re.sub(NUMBER, "#", line)
    for told, line in zip(printed[1:3], lines[1:3], strict=True):
        now, then = ([float(n.replace(",", "")) for n in NUMBER.findall(t)] for t in (told, line))
        assert now == pytest.approx(then, rel=NEAR)
