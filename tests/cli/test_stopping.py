"""How a run ends when it is stopped."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commsim.cli import main
from commsim.cli.main import call


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


@pytest.mark.parametrize("code", [130, 143])
def test_a_stopped_program_frees_nothing_on_the_way_out(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of a million operations took a second for that."""
    before, heard = signal.getsignal(signal.SIGTERM), list[object]()

    def leave(code: int) -> None:
        heard.append(code)
        raise SystemExit

    monkeypatch.setattr(main, "call", lambda _: code)
    monkeypatch.setattr("atexit._run_exitfuncs", lambda: heard.append("functions at exit"))
    monkeypatch.setattr("os._exit", leave)
    try:
        with pytest.raises(SystemExit):
            main.entry()
        assert heard == ["functions at exit", code]
    finally:
        signal.signal(signal.SIGTERM, before)
