"""
Standard output and error where they refuse what is printed: a full disk, a lost terminal.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from typing import Any

__all__ = ["closed_stream", "named_stdout", "never_failing"]


class _Stream(io.RawIOBase):
    """Writes to another stream; the first refusal goes to `refused`, and the rest is lost."""

    def __init__(self, stream: io.TextIOWrapper, refused: Callable[[OSError], None]) -> None:
        self._stream = stream  # it closes its file when it is forgotten
        self._raw: Any = getattr(stream.buffer, "raw", stream.buffer)
        self._refused = refused

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int | None:
        try:
            written: int | None = self._raw.write(data)
        except OSError as error:
            refused, self._refused = self._refused, _ignore
            refused(error)
            return len(data)
        return written

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def isatty(self) -> bool:
        return bool(self._raw.isatty())


def closed_stream() -> io.TextIOWrapper:
    """Return a stream that refuses what is printed, as one does that a shell has closed."""
    return open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")


def never_failing(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """Return a stream to the same place that loses what cannot be written there.

    Progress, warnings and notes change no outcome: who writes them to stderr, here or in a library,
    need not ask whether a disk is full or a reader has left.
    """
    return _wrapped(stream, _ignore, line_buffering=True)


def named_stdout(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """Return a stream to the same place whose first OSError has "standard output" as its file."""
    return _wrapped(stream, _named, line_buffering=stream.line_buffering)


def _wrapped(
    stream: io.TextIOWrapper, refused: Callable[[OSError], None], *, line_buffering: bool
) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(_Stream(stream, refused)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=line_buffering,
    )


def _ignore(_: OSError) -> None:
    """Let what is printed be lost."""


def _named(error: OSError) -> None:
    told = "is closed" if error.errno == errno.EBADF else error.strerror
    raise OSError(error.errno, told, "standard output") from None
