"""What a command says on stderr while it works: what, how far, and how long still."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from helpers.paths import ROOT

import commsim as cs
from commsim.cli.main import call
from commsim.cli.terminal import ProgressLine, working
from commsim.cli.terminal.progress import _change_line, _write_lines


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Told:
    """A progress by such a clock, and the lines that it wrote."""

    def __init__(self, what: str = "simulating") -> None:
        self.clock, self.lines = Clock(), list[str]()
        self.progress = ProgressLine(what, now=self.clock, write=self.lines.append)

    def at(self, seconds: float) -> str:
        self.clock.now = 100.0 + seconds
        return self.progress.text()


def test_a_line_after_two_seconds_and_one_a_minute() -> None:
    told = Told()
    seen: list[int] = []
    for second in range(200):
        told.clock.now = 100.0 + second
        told.progress.look()
        if len(told.lines) > len(seen):
            seen.append(second)
    assert seen == [2, 62, 122, 182]
    assert told.lines[0] == "commsim: simulating, 2 s so far"
    assert told.lines[2] == "commsim: simulating, 2 min so far"


def test_who_reports_writes_the_line_that_is_due() -> None:
    told = Told()
    told.progress.say("building")
    told.progress.count(1, 8)
    assert told.lines == []
    told.clock.now += 2.0
    told.progress.count(2, 8)
    told.progress.count(3, 8)
    assert told.lines == ["commsim: building: 2 of 8 done, about 12 s left"]
    told.clock.now += 60.0
    told.progress.say("measuring")
    assert told.lines[1:] == ["commsim: measuring, 62 s so far"]


def test_the_rest_is_told_from_two_seconds_on() -> None:
    told = Told()
    shares = [0.0]
    told.progress.follow(lambda: shares[-1])
    shares.append(0.25)
    assert told.at(1.9) == "simulating, 2 s so far"
    assert told.at(10.0) == "simulating: 25% done, about 30 s left"
    told.progress.say("measuring")
    assert told.at(200.0) == "measuring, 3 min so far"


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_nothing_is_guessed_from_nothing(share: float) -> None:
    told = Told("x")
    told.progress.follow(lambda: share)
    assert told.at(50.0) == "x, 50 s so far"


def test_pieces_that_were_there_before_took_no_time() -> None:
    """40 of 100 points were kept; 10 more took ten seconds, so 50 take 50."""
    told = Told("points")
    told.at(5.0)
    told.progress.count(40, 100)
    told.at(15.0)
    told.progress.count(50, 100)
    assert told.at(15.0) == "points: 50 of 100 done, about 50 s left"


def test_pieces_of_which_nobody_knows_how_many() -> None:
    told = Told()
    told.progress.begin("simulating", None)
    for _ in range(1200):
        told.progress.tick()
    assert told.at(7200.0) == "simulating, 1,200 done, 2.0 h so far"
    told.progress.begin("bounding", 4)
    told.at(7210.0)
    told.progress.tick()
    assert told.at(7210.0) == "bounding: 1 of 4 done, about 30 s left"


def test_a_piece_is_followed() -> None:
    """Half of the first of four pieces took ten seconds, so the rest takes 70."""
    told, shares = Told("timing"), [0.0]
    told.progress.count(0, 4)
    told.progress.follow(lambda: shares[-1])
    shares.append(0.5)
    assert told.at(10.0) == "timing: 0 of 4 done, about 70 s left"
    told.progress.count(1, 4)
    assert told.at(20.0) == "timing: 1 of 4 done, about 60 s left"


def test_a_piece_that_is_followed_anew_takes_as_long_as_from_there() -> None:
    """Its work was built in no time; a tenth of its simulation took ten seconds."""
    told, shares = Told("comparing"), [0.0]
    told.progress.count(0, 2)
    told.progress.follow(lambda: 1.0)
    told.at(5.0)
    told.progress.follow(lambda: shares[-1])
    assert told.at(8.0) == "comparing: 0 of 2 done, 8 s so far"
    shares.append(0.1)
    assert told.at(15.0) == "comparing: 0 of 2 done, about 3 min left"
    told.progress.follow(lambda: 1.0)
    assert told.at(20.0) == "comparing: 0 of 2 done, about 15 s left"


class Over(threading.Event):
    """The end of the work, after so many looks."""

    def __init__(self, looks: int, then: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.looks, self.then = looks, then

    def wait(self, timeout: float | None = None) -> bool:
        self.looks -= 1
        self.then()
        return self.looks < 0


def test_lines_come_while_nobody_reports() -> None:
    told = Told()
    told.clock.now += 2.0
    _write_lines(told.progress, Over(3))
    assert told.lines == ["commsim: simulating, 2 s so far"]


def test_a_terminal_has_one_line_that_changes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    told = Told("simulating [ddp]")
    _change_line(told.progress, Over(0))
    assert capsys.readouterr().err == ""
    _change_line(told.progress, Over(2, lambda: told.progress.tick()))
    assert "simulating [ddp], 2 done, 0 s so far" in capsys.readouterr().err


def test_quiet_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    minutes = count(0.0, 61.0)
    monkeypatch.setattr("commsim.cli.terminal.progress.clock", lambda: next(minutes))
    with working("simulating ddp", quiet=True) as told:
        told.say("measuring")
    assert capsys.readouterr().err == ""


def test_a_run_says_how_far_it_is() -> None:
    seen: list[float] = []
    cs.run("1f1b", follow=lambda share: seen.append(share()))
    assert seen == [0.0]


@pytest.mark.parametrize("executor", ["simpy", "compiled"])
def test_a_simulation_is_asked_how_far_it_was_until_the_next_is_followed(executor: str) -> None:
    asked: list[Callable[[], float]] = [lambda: 0.0]
    seen: list[float] = []

    def follow(share: Callable[[], float]) -> None:
        seen.append(asked[-1]())
        asked.append(share)

    if executor == "compiled":
        pytest.importorskip("numba", reason="compiled code is of the extra fast")
    cs.run("all-gather", [f"engine.executor={executor}"], follow=follow)
    assert seen[-1] == 1.0


LOG = str(ROOT / "tests/data/nccl_tests/a100_8_v2.19.4.log")
TRACES = str(ROOT / "tests/data/gloo_runs/p2p-2")
TRAINING = {
    "cluster": {"preset": "dgx-a100", "overrides": {"gpu": {"count": 2}}},
    "workload": {
        "training": {
            "model": {"preset": "gpt2-124m"},
            "parallel": {"dp": 2},
            "batch": {"global": 2, "micro": 1},
        }
    },
}


def training(folder: Path) -> str:
    path = folder / "training.yaml"
    path.write_text(json.dumps(TRAINING))
    return str(path)


COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "building the work": lambda f: ["run", "1f1b"],
    "measuring": lambda f: ["run", "1f1b"],
    "r.html, ": lambda f: ["run", "1f1b", "--report", str(f / "r.html")],
    "runs: 1 of": lambda f: ["run", "1f1b", "--what-if", "workload.pipeline.microbatches=4,8"],
    "points: 1 of 2": lambda f: [
        "sweep", "1f1b", "--vary", "workload.pipeline.microbatches=4,8", "--executor", "serial",
    ],
    "runs: 2 of": lambda f: ["next", "ring-all-reduce", "--executor", "serial"],
    "reading traces: 1 of": lambda f: ["replay", TRACES],
    "replaying": lambda f: ["replay", TRACES],
    "bounding: 1 of": lambda f: ["advise", training(f), "--executor", "serial", "--top", "1"],
    "simulating, 1 done": lambda f: ["advise", training(f), "--executor", "serial", "--top", "1"],
    "bounding 1 dgx-a100": lambda f: [
        "plan", "--model", "gpt2-124m", "--seq-len", "1024", "--batch-tokens", "65536", "--tokens",
        "1e9", "--in", "30d", "--on", "dgx-a100", "--runs", "1", "--most-gpus", "8",
        "--executor", "serial",
    ],
    "looking for what is broken": lambda f: ["calibrate", LOG, "--cluster", "dgx-a100"],
    "checking tables: 0 of 1": lambda f: ["check", LOG, "--cluster", "dgx-a100"],
    "timing all_reduce: 1 of 2": lambda f: ["bench", "all_reduce", "-b", "1M", "-e", "2M"],
    "comparing 1f1b and gpipe: 1 of 2": lambda f: ["compare", "1f1b", "gpipe"],
    "finding the routes": lambda f: ["topo", "dgx-a100", "--chart", str(f / "t.html")],
    "finding the graphs that NCCL": lambda f: ["topo", "dgx-a100", "--nccl"],
    "reading " + TRACES: lambda f: ["convert", TRACES, str(f / "x.npz")],
    "converting " + TRACES: lambda f: ["convert", TRACES, str(f / "x.npz")],
    "step by step: 1 of 2": lambda f: ["explain", "ring", "tree", "-o", str(f / "x.html")],
}  # fmt: skip


FOLLOWED: dict[str, Callable[[Path], list[str]]] = {
    "run": lambda f: ["run", "ring-all-reduce"],
    "compare": lambda f: ["compare", "ring-all-reduce", "p2p-blocking"],
    "replay": lambda f: ["replay", TRACES],
    "bench": lambda f: ["bench", "all_reduce", "-b", "1M", "-e", "2M", "--network", "steps"],
    "explain": lambda f: ["explain", "ring", "-o", str(f / "x.html")],
    "advise": COMMANDS["simulating, 1 done"],
    "plan": COMMANDS["bounding 1 dgx-a100"],
}


@pytest.mark.parametrize("command", FOLLOWED)
def test_commands_follow_a_long_simulation(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Callable[[], float]] = []
    monkeypatch.setattr(ProgressLine, "follow", lambda _, share: asked.append(share))
    call(FOLLOWED[command](tmp_path))
    assert asked
    assert asked[-1]() == 1.0


@pytest.mark.parametrize("said", COMMANDS)
def test_every_command_says_what_it_does(
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a clock on which a minute passes at every look; what it prints is the same as at once."""
    words = COMMANDS[said](tmp_path)
    code = call(words)
    at_once = capsys.readouterr()
    assert "commsim: " not in at_once.err
    minutes = count(0.0, 61.0)
    monkeypatch.setattr("commsim.cli.terminal.progress.clock", lambda: next(minutes))
    assert call(words) == code
    slow = capsys.readouterr()
    assert any(said in line for line in slow.err.splitlines() if line.startswith("commsim: "))
    assert slow.out == at_once.out
    lines = [line for line in slow.err.splitlines() if not line.startswith("commsim: ")]
    assert lines == at_once.err.splitlines()
