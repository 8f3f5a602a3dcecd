"""What a capture says while it works."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from commsim.traces.capture.progress import progress_file, wait_and_tell, writing_progress


class Slow:
    """A process that takes `seconds` by its own clock."""

    def __init__(self, seconds: int) -> None:
        self.now, self.seconds = 0.0, seconds

    def wait(self, timeout: float) -> int:
        self.now += timeout
        if self.now < self.seconds:
            raise subprocess.TimeoutExpired("python", timeout)
        return 3


def told(process: Any, output: Path) -> list[str]:
    lines: list[str] = []
    code = wait_and_tell(process, 7, str(output), lines.append, clock=lambda: process.now)
    assert code == 3
    return lines


def test_a_short_capture_says_nothing(tmp_path: Path) -> None:
    assert told(Slow(5), tmp_path / "7.json") == []


def test_a_long_one_says_how_far_it_is_ever_more_rarely(tmp_path: Path) -> None:
    progress_file(str(tmp_path / "7.json")).write_text("step 1 of 2, 5 kernels\n")
    lines = told(Slow(300), tmp_path / "7.json")
    times = [int(line.split("after ")[1].split(" s")[0]) for line in lines]
    assert times == [5, 10, 20, 40, 80, 140, 200, 260]
    assert {line.split(": ")[1] for line in lines} == {"step 1 of 2, 5 kernels"}


def test_before_the_script_runs(tmp_path: Path) -> None:
    assert told(Slow(7), tmp_path / "7.json") == ["  rank 7, after 5 s: starting torch"]


def test_words_are_written_while_the_block_runs(tmp_path: Path) -> None:
    path = progress_file(str(tmp_path / "x"))
    with writing_progress(str(tmp_path / "x"), lambda: "step 2 of 2", every=0.001):
        while not path.exists() or not path.read_text():
            pass
    assert path.read_text() == "step 2 of 2"
