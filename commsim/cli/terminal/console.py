"""
Who hears what: results go to stdout, narration and progress to stderr.
"""

from __future__ import annotations

import os
import sys

import click

__all__ = ["Console", "output_refused", "reader_left"]


class _Left:
    """Whether whoever read our output has left, and what else refused it."""

    stdout = False
    refused: OSError | None = None


def reader_left() -> bool:
    """Say, once, whether what was printed on stdout since the last time had no reader."""
    left, _Left.stdout = _Left.stdout, False
    return left


def output_refused() -> OSError | None:
    """Return, once, what refused what was printed on stdout since the last time: a full disk."""
    refused, _Left.refused = _Left.refused, None
    return refused


def _print(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print; if that fails, go on in silence: files that were asked for are still written."""
    try:
        click.echo(text, err=err, nl=nl)
    except BrokenPipeError:
        stream = sys.stderr if err else sys.stdout
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())  # what is still buffered goes there too
        _Left.stdout |= not err
    except OSError as error:
        if err:
            raise
        _Left.refused = error


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
