"""`commsim explore`: it says where the page is, serves it, and ends at Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest

from commsim.cli.main import call


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
def test_it_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "commsim", "explore", "1f1b", "--no-browser"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            told = run.stdout.readline()
            url = told.split()[-1]
            assert told.startswith("commsim explore: http://127.0.0.1:")
            with build_opener(ProxyHandler({})).open(url) as page:
                assert b"<title>commsim explore</title>" in page.read()
            run.send_signal(signal.SIGINT)
            assert run.wait(timeout=300) == 0
            assert run.stderr is not None
            assert "Traceback" not in run.stderr.read()
        finally:
            run.kill()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["no-such-thing"], "neither a file nor a scenario"),
        (["-"], "not standard input"),
        (["/dev/stdin"], "not standard input or a pipe"),
        (["llama3-8b", "--set", "cluster.nodez=3"], "unknown setting 'nodez'"),
        (["--port", "99999"], "--port"),
    ],
)
def test_a_wrong_call_ends_before_anything_is_served(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["explore", "--no-browser", *words]) == 2
    assert told in capsys.readouterr().err
