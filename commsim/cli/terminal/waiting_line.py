"""
What a run shows while it works: a spinner on a terminal, lines without one, a minute apart at most.

From two seconds on it says how much is done and about how long the rest takes; people who wait
know what for.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import click
import msgspec

from commsim.units import PS_PER_SECOND, format_time

__all__ = ["FIRST_LINE", "Waiting", "waiting"]

FIRST_LINE = 2.0
"""Seconds until the first line of progress of long searches where there is no terminal."""

_FIRST = 2.0  # seconds until the rest is estimated
_TICK = 0.5  # seconds between looks on a terminal
_MINUTE = 60.0


class Waiting(msgspec.Struct, dict=True):
    """What is being done, since when, and which share of it: none until it is known."""

    what: str
    share: Callable[[], float] | None = None
    since: float = 0.0

    def say(self, what: str) -> None:
        """Go on with something else."""
        self.what, self.share = what, None

    def follow(self, share: Callable[[], float]) -> None:
        """Ask `share` from now on."""
        self.since = time.monotonic()
        self.share = share

    def text(self, now: float) -> str:
        """Return the line at a time, in seconds on the clock of `since`."""
        share, gone = self.share, now - self.since
        done = share() if share is not None else 0.0
        if not 0 < done < 1 or gone < _FIRST:
            return self.what
        left = format_time(round(gone * (1 - done) / done * PS_PER_SECOND))
        return f"{self.what}: {done:.0%} done, about {left} left"


@contextmanager
def waiting(what: str, *, quiet: bool, first: float = _MINUTE) -> Iterator[Waiting]:
    """Show `what` for as long as the block runs; the block tells it how far it has come.

    Without a terminal the first line comes after `first` seconds, each next one after twice the
    time, up to a minute.
    """
    told = Waiting(what, since=time.monotonic())
    if quiet:
        yield told
        return
    over = threading.Event()
    show = _on_terminal if sys.stderr.isatty() else partial(_in_lines, first=first)
    thread = threading.Thread(target=show, args=(told, over), daemon=True)
    thread.start()
    try:
        yield told
    finally:
        over.set()
        thread.join()


def _on_terminal(told: Waiting, over: threading.Event) -> None:
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(told.what)) as status:
        while not over.wait(_TICK):
            status.update(escape(told.text(time.monotonic())))


def _in_lines(told: Waiting, over: threading.Event, *, first: float) -> None:
    pause = min(first, _MINUTE)
    while not over.wait(pause):
        pause = min(2 * pause, _MINUTE)
        click.echo(f"commsim: {told.text(time.monotonic())}", err=True)
