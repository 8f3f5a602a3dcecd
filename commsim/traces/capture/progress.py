"""
How far a capture is: each captured process writes it down, the one that waits for it says it.

A file beside the recording holds one line, rewritten every second while the script runs.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["progress_file", "wait_and_tell", "writing_progress"]

_REWRITTEN = 1.0  # seconds between two looks
_FIRST, _MOST = 5.0, 60.0  # seconds to the first line, and between two lines in the end


def progress_file(output: str) -> Path:
    """Return where the captured process of a recording says how far it is."""
    return Path(f"{output}.progress")


@contextmanager
def writing_progress(
    output: str, words: Callable[[], str], every: float = _REWRITTEN
) -> Iterator[None]:
    """Write what `words` returns, `every` so many seconds, for as long as the block runs."""
    over = threading.Event()
    path = progress_file(output)

    def keep_writing() -> None:
        while not over.wait(every):
            path.write_text(words(), encoding="utf-8")

    thread = threading.Thread(target=keep_writing, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def wait_and_tell(
    process: subprocess.Popen[bytes],
    rank: int,
    output: str,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Return the code with which a process ends; until then say how far it is, ever more rarely."""
    begun, told, path = clock(), _FIRST, progress_file(output)
    while True:
        try:
            return process.wait(timeout=_REWRITTEN)
        except subprocess.TimeoutExpired:
            pass
        taken = clock() - begun
        if taken >= told:
            told = taken + min(taken, _MOST)
            say(f"  rank {rank}, after {taken:.0f} s: {_read(path) or 'starting torch'}")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")[:200].strip()
    except (OSError, UnicodeDecodeError):
        return ""
