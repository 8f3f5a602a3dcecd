"""
Who hears what: results go to stdout, narration and progress to stderr.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import click

__all__ = ["Console", "never_failing", "reader_left"]


class _Left:
    """Whether whoever read our output has left."""

    stdout = False


def reader_left() -> bool:
    """Say, once, whether what was printed on stdout since the last time had no reader."""
    left, _Left.stdout = _Left.stdout, False
    return left


def _print(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print; if nobody reads on, go on in silence: files that were asked for are still written."""
    try:
        click.echo(text, err=err, nl=nl)
    except BrokenPipeError:
        stream = sys.stderr if err else sys.stdout
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())  # what is still buffered goes there too
        _Left.stdout |= not err


class Console:
    """Narrates to stderr unless `quiet`.

    With `json_only` stdout belongs to JSON, and what people read goes to stderr.
    """

    def __init__(self, *, quiet: bool, json_only: bool = False) -> None:
        self._quiet = quiet
        self._json_only = json_only
        stream = sys.stderr if json_only else sys.stdout
        self._colour = stream.isatty() and not os.environ.get("NO_COLOR")

    def strong(self, text: str) -> str:
        """Return `text` bold if a terminal shows it; as it is in pipes and under NO_COLOR."""
        return click.style(text, bold=True) if self._colour else text

    def alarm(self, text: str) -> str:
        """Return `text` bold and red if a terminal shows it."""
        return click.style(text, bold=True, fg="red") if self._colour else text

    def say(self, text: str) -> None:
        """Narrate one line."""
        if not self._quiet:
            _print(text, err=True)

    def show(self, text: str) -> None:
        """Print a part of the result that people read."""
        if not self._json_only:
            _print(text)
        elif not self._quiet:
            _print(text, err=True)

    def write(self, text: str) -> None:
        """Print what programs read."""
        _print(text, nl=False)


class _NeverFailing(io.RawIOBase):
    """Writes to another stream as far as that takes it, and loses the rest."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        self._stream = stream  # it closes its file when it is forgotten
        self._raw: Any = getattr(stream.buffer, "raw", stream.buffer)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int | None:
        try:
            written: int | None = self._raw.write(data)
        except OSError:
            return len(data)
        return written

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def isatty(self) -> bool:
        return bool(self._raw.isatty())


def never_failing(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """Return a stream to the same place that loses what cannot be written there.

    Progress, warnings and notes change no outcome: who writes them to stderr, here or in a library,
    need not ask whether a disk is full or a reader has left.
    """
    return io.TextIOWrapper(
        io.BufferedWriter(_NeverFailing(stream)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=True,
    )
