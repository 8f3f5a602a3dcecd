"""Every option of every command refuses what is no value of it, by its name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from helpers.captured import DATA

from commsim.cli.commands import COMMANDS, load
from commsim.cli.main import call
from commsim.cli.terminal import Count, Percent

NUMBERS = (Count, Percent, click.types.IntParamType, click.types.FloatParamType)
WORDS = {  # options that read a number out of text
    "--tokens": "{}", "--in": "{}", "--limit": "{}", "--on": "{}x8", "--executor": "processes:{}",
    "--price": "nic={}", "-b": "{}", "-e": "{}", "--nccl-version": "{}", "--nccl": "{}",
}  # fmt: skip
LEFT = {"--price": "0", "--nccl": "-1"}  # a sound one; one that click takes for an option
BAD = ("0", "-1", "1e400", "nan", "inf", "9" * 400)
PLANNED = "--model llama3-8b --tokens 1T --in 30d --on dgx-h100 --executor serial"
LINES = {
    "run": "1f1b", "bench": "all_reduce -e 8", "topo": "dgx-h100", "explain": "ring",
    "replay": f"{DATA}/gloo_runs/1f1b-4 --cluster gloo-4 --comm modelled", "compare": "1f1b 1f1b",
    "advise": "ddp", "plan": PLANNED, "sweep": "1f1b --vary workload.pipeline.microbatches=4",
    "calibrate": "{log} --cluster dgx-h100", "check": "{log} --cluster dgx-h100",
    "next": "1f1b", "convert": "x.toml x.yaml", "explore": "ddp",
    "capture": "{script} --world-size 2",
}  # fmt: skip


def options(command: str) -> Iterator[click.Parameter]:
    for param in load(command).params:
        if not getattr(param, "is_flag", False):
            yield param


def numbers() -> Iterator[tuple[str, str, str]]:
    for command in COMMANDS:
        for param in options(command):
            name = max(param.opts, key=len)
            word = "{}" if isinstance(param.type, NUMBERS) else WORDS.get(name, "")
            if name.startswith("-") and word:
                yield command, name, word


@pytest.mark.parametrize(("command", "name", "word"), list(numbers()))
def test_a_number_that_cannot_be_is_refused_by_the_options_name(
    command: str, name: str, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.touch()
    line = LINES[command].format(script=script, log=script).split()
    for bad in BAD:
        if LEFT.get(name) == bad:
            continue
        value = word.format(bad)
        code = call(
            [command, *line, f"{name}={value}" if name.startswith("--") else f"{name}{value}", "-q"]
        )
        told = capsys.readouterr().err
        assert code in ((0, 2) if bad == "0" else (2,)), (bad, told)
        assert code == 0 or re.search(rf"(?<![\w-]){name}(?![\w-])", told), told
        assert len(told) < 700


def named() -> list[tuple[str, str]]:
    return [
        (command, param.opts[-1])
        for command in COMMANDS
        for param in options(command)
        if not isinstance(param.type, click.types.UnprocessedParamType)
    ]


@pytest.mark.parametrize(("command", "name"), named())
@pytest.mark.parametrize("empty", ["", " "])
def test_what_is_given_and_empty_is_refused(
    command: str, name: str, empty: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [name, empty] if name.startswith("-") else [empty]
    if name in ("target", "words"):  # behind another argument
        words = ["x", empty]
    if name == "--nccl":  # may stand without a value
        words = [f"--nccl={empty}"]
    assert call([command, *words]) == 2
    told = capsys.readouterr().err
    assert "is empty. Give a value" in told
    assert not name.startswith("-") or name in told
