"""What a run shows while it works, and how it ends when it is stopped."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import commsim as cs
from commsim.cli import main
from commsim.cli.main import call
from commsim.cli.terminal.progress import counting
from commsim.cli.terminal.waiting_line import Waiting, _in_lines, waiting


def test_the_rest_is_told_from_two_seconds_on() -> None:
    told = Waiting("simulating", share=lambda: 0.25, since=100.0)
    assert told.text(101.9) == "simulating"
    assert told.text(110.0) == "simulating: 25% done, about 30 s left"
    told.say("measuring")
    assert told.text(200.0) == "measuring"


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_nothing_is_guessed_from_nothing(share: float) -> None:
    assert Waiting("x", share=lambda: share, since=0.0).text(50.0) == "x"


def test_a_line_a_minute_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commsim.cli.terminal.waiting_line._MINUTE", 0.001)
    for quiet, lines in ((False, True), (True, False)):
        with waiting("simulating ddp", quiet=quiet):
            while lines and "simulating ddp" not in capsys.readouterr().err:
                pass
        capsys.readouterr()


def test_a_run_says_how_far_it_is() -> None:
    seen: list[float] = []
    cs.run("1f1b", follow=lambda share: seen.append(share()))
    assert seen == [0.0]


@pytest.mark.parametrize(
    ("stopped", "code", "said"),
    [(KeyboardInterrupt, 130, "interrupted"), (main._Terminated, 143, "terminated")],
)
def test_a_stopped_run_says_so_and_leaves_nothing(
    stopped: type[BaseException],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def write(self: Path, data: bytes) -> int:
        self.touch()
        raise stopped

    monkeypatch.setattr(Path, "write_bytes", write)
    assert call(["run", "1f1b", "--json", str(tmp_path / "x.json")]) == code
    assert f"commsim: {said}." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_sweep_and_its_workers(number: int, code: int, tmp_path: Path) -> None:
    """The points take minutes; nothing but the signal stops them."""
    words = ["sweep", "1f1b", "--vary", "workload.pipeline.microbatches=15000,15001", "--set",
             "workload.pipeline.stages=64", "--csv", str(tmp_path / "x.csv")]  # fmt: skip
    script = (
        "import sys, commsim.study.sweep.executors as e\n"
        "from commsim.cli.main import entry\n"
        "if __name__ == '__main__':\n"
        "    pool = e.WorkerPool.__enter__\n"
        "    def ready(self):\n"
        "        print('ready', flush=True)\n"
        "        return pool(self)\n"
        "    e.WorkerPool.__enter__ = ready\n"
        "    entry()\n"
    )
    file = tmp_path / "sweep_it.py"
    file.write_text(script)
    with subprocess.Popen(
        [sys.executable, str(file), *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        _, error = process.communicate()  # ends only when every worker has let go of stderr
    assert process.returncode == code, error
    assert "leaked" not in error
    assert "Traceback" not in error, error[-2000:]
    assert not (tmp_path / "x.csv").exists()


def test_counted_work_tells_its_count_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """First that it works, then how many pieces of how many; with --quiet nothing."""
    monkeypatch.setattr("commsim.cli.terminal.progress.FIRST_LINE", 0.001)
    with counting("runs", quiet=False) as count:
        assert count is not None
        while "runs: none done yet" not in capsys.readouterr().err:
            pass
        count(12, 48)
        while "runs, 12 of 48" not in capsys.readouterr().err:
            pass
    with counting("runs", quiet=True) as count:
        assert count is None


def test_lines_come_at_twice_the_time_each(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    class Over(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            return len(pauses) == 7

    _in_lines(Waiting("runs"), Over(), first=2.0)
    assert pauses == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_a_second_sigterm_ends_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that closes processes and threads at exit is interrupted by an exception."""
    before = signal.getsignal(signal.SIGTERM)
    heard: list[object] = []

    def call(_: object) -> int:
        heard.append(signal.getsignal(signal.SIGTERM))
        return 0

    monkeypatch.setattr(main, "call", call)
    try:
        with pytest.raises(SystemExit):
            main.entry()
        assert heard == [main._terminate]
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
        gc.enable()
