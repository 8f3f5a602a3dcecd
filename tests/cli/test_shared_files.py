"""An output that is an input or another output is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.paths import ROOT

from commsim.cli.main import call

SCENARIO = (ROOT / "scenarios" / "1f1b.yaml").read_text(encoding="utf-8")
BOTH = "both write"
READ = "the command reads this file"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder to stand in, with a scenario and links to it and to a page."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SCENARIO)
    (tmp_path / "link.yaml").symlink_to("s.yaml")
    (tmp_path / "link.html").symlink_to("r.html")
    (tmp_path / "sub").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("run s.yaml -o r.html --gantt r.html", f"--report and --gantt {BOTH} r.html"),
        ("run s.yaml -o r.html --gantt ./sub/../r.html", BOTH),
        ("run s.yaml -o r.html --links link.html", BOTH),
        ("run s.yaml --csv d --json d", f"--json and --csv {BOTH} d"),
        ("run s.yaml --json s.yaml", f"--json s.yaml: {READ}"),
        ("run link.yaml --json s.yaml", READ),
        ("sweep s.yaml --json s.yaml", READ),
        ("sweep s.yaml --csv r.csv --store r.csv", BOTH),
        ("advise s.yaml -o link.yaml", READ),
        ("next s.yaml --json s.yaml", READ),
        ("compare s.yaml 1f1b --json s.yaml", READ),
        ("check s.yaml --cluster dgx-a100 --json s.yaml", READ),
        ("calibrate s.yaml --cluster dgx-a100 -o s.yaml", READ),
        ("replay s.yaml --json s.yaml", READ),
        ("convert s.yaml s.yaml", READ),
        ("bench all_reduce --cluster s.yaml --json s.yaml", READ),
        ("plan --model llama3-8b --tokens 2T --on dgx-a100,s.yaml --json s.yaml", READ),
        ("topo dgx-a100 --chart r.html --matrix r.html", BOTH),
        ("capture s.yaml --world-size 2 -o s.yaml", READ),
    ],
)
def test_shared_files(line: str, told: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(each.name for each in here.iterdir())
    assert call(line.split()) == 2
    assert told in capsys.readouterr().err
    assert (here / "s.yaml").read_text() == SCENARIO
    assert sorted(each.name for each in here.iterdir()) == before


def test_a_folder_takes_the_files_of_several(here: Path) -> None:
    assert call(["run", "s.yaml", "--csv", "d", "--kineto", "d", "-q"]) == 0
    assert {each.suffix for each in (here / "d").iterdir()} == {".csv", ".gz"}


def test_every_option_for_a_file_is_checked() -> None:
    """A command line knows its outputs by their types."""
    import click

    from commsim.cli.commands import COMMANDS, load
    from commsim.cli.terminal import GroupedCommand

    for name in COMMANDS:
        command = load(name)
        assert isinstance(command, GroupedCommand), name
        assert not [p.name for p in command.params if isinstance(p.type, click.Path | click.File)]


@pytest.mark.parametrize("line", ["convert s.yaml -", "capture s.py --world-size 2 -o -"])
def test_a_dash_is_no_file(line: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(line.split()) == 2
    assert "'-': give a file's name, or /dev/stdout." in capsys.readouterr().err
    assert not (here / "-").exists()
