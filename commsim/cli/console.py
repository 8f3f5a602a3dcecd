"""
Who hears what: results go to stdout, narration and progress to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

__all__ = ["Console"]


class Console:
    """Narrates to stderr unless `quiet`; shows that it works only if stderr is a terminal.

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
            click.echo(text, err=True)

    def show(self, text: str) -> None:
        """Print a part of the result that people read."""
        if not self._json_only:
            click.echo(text)
        elif not self._quiet:
            click.echo(text, err=True)

    def write(self, text: str) -> None:
        """Print what programs read."""
        click.echo(text, nl=False)

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show `what` with a spinner for as long as the block runs."""
        if self._quiet or not sys.stderr.isatty():
            yield
            return
        from rich.console import Console as Terminal

        with Terminal(stderr=True).status(what):
            yield
