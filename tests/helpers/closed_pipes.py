"""Standard outputs that nobody reads, whatever other processes are started at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ["run_unread"]

# The pipe is made in the process that becomes the command: a process that a thread of the test's
# own starts between making a pipe and closing its end would hold that end open for an instant.
_UNREAD = """import os, sys
read, write = os.pipe()
os.close(read)
os.dup2(write, 1)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def run_unread(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python with some words; its standard output is a pipe that has no reader."""
    return subprocess.run(
        [sys.executable, "-c", _UNREAD, *words],
        stderr=subprocess.PIPE, text=True, check=False, cwd=cwd,
    )  # fmt: skip
