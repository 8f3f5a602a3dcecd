"""The way in and the way out: signals while the program is imported, and a stderr that fails."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from helpers.paths import ROOT

from commsim.cli.terminal import never_failing

_STOPPED_AT_AN_IMPORT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{signal})

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
sys.argv = ["commsim", "run", "1f1b"]
from commsim.__main__ import entry
entry()
"""


@pytest.mark.parametrize("module", ["commsim.cli", "click", "commsim.study.run"])
@pytest.mark.parametrize(
    ("signal", "code", "said"),
    [("SIGINT", 130, "commsim: interrupted."), ("SIGTERM", 143, "commsim: terminated.")],
)
def test_a_signal_while_it_is_imported(module: str, signal: str, code: int, said: str) -> None:
    script = _STOPPED_AT_AN_IMPORT.format(module=module, signal=signal)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.strip() == said


def test_the_way_in_imports_next_to_nothing() -> None:
    """What is imported before signals are heard cannot be stopped without a traceback."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"]["commsim"] == "commsim.__main__:entry"
    script = (
        "import sys, commsim.__main__; print(*(m for m in sys.modules if m.startswith('commsim')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert sorted(done.stdout.split()) == ["commsim", "commsim.__main__", "commsim._version"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("run", "1f1b"), 0),
        (("topo", "dgx-a100", "--set", "overrides.gpu.count=4"), 0),
        (("run", "no-such-scenario"), 2),
    ],
)
def test_a_full_stderr_changes_no_outcome(words: tuple[str, ...], code: int) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "commsim", *words],
            stdout=subprocess.PIPE, stderr=full, text=True,
        )  # fmt: skip
    plain = subprocess.run(
        [sys.executable, "-m", "commsim", *words], capture_output=True, text=True
    )
    assert plain.stderr
    assert (done.returncode, done.stdout) == (code, plain.stdout)


def test_a_stderr_without_a_reader_loses_what_is_written() -> None:
    near, far = socket.socketpair()
    with far, io.TextIOWrapper(io.FileIO(near.detach(), "w"), "utf-8") as given:
        stream = never_failing(given)
        assert not stream.isatty()
        assert stream.fileno() == given.fileno()
        stream.write("it works\n")
        assert far.recv(99) == b"it works\n"
        far.shutdown(socket.SHUT_RD)  # for every process that may hold a copy of it
        stream.write("nobody hears\n")
        stream.flush()
