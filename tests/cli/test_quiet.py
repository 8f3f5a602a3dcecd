"""Where `-q` may stand, and what is said of options that stand before the command."""

from __future__ import annotations

import click
import pytest

from commsim.cli.main import call, commsim


@pytest.mark.parametrize("words", [["-q", "run", "ddp"], ["run", "-q", "ddp"]])
def test_quiet_before_and_behind_the_command(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["run", "ddp"]) == 0
    loud = capsys.readouterr()
    assert "note: " in loud.err
    assert call(words) == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    assert quiet.out == loud.out


def test_quiet_before_one_command_is_forgotten_by_the_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["-q", "run", "1f1b"]) == 0
    assert call(["run", "1f1b"]) == 0
    assert "note: " in capsys.readouterr().err


@pytest.mark.parametrize("before", [True, False])
def test_quiet_silences_the_notes_of_topo(before: bool, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["topo", "dgx-a100", "--set", "overrides.gpu.count=4"]
    assert call(words) == 0
    assert "note: " in capsys.readouterr().err
    assert call(["-q", *words] if before else [*words, "-q"]) == 0
    assert capsys.readouterr().err == ""


CONTEXT = click.Context(commsim)


@pytest.mark.parametrize("name", commsim.list_commands(CONTEXT))
def test_every_command_takes_quiet(name: str) -> None:
    command = commsim.get_command(CONTEXT, name)
    assert command is not None
    assert command.name == name
    assert any("-q" in parameter.opts for parameter in command.params)


def test_an_option_before_its_command_is_told_where_it_goes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["--json", "-", "run", "1f1b"]) == 2
    assert "like commsim run --json" in capsys.readouterr().err
