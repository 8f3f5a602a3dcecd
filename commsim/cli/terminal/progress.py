"""
What a command shows on stderr while it works, from two seconds on: what is done, how far, how long.

On a terminal it is a line that changes; elsewhere a line after two seconds and one a minute. About
how long the rest takes is said where it is known which share is done; else for how long it has
worked.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

__all__ = ["ProgressLine", "working"]

FIRST, NEXT = 2.0, 60.0  # seconds until the first line, and from one line to the next
_LOOK = 0.5  # seconds between looks of the thread that shows it
clock: Callable[[], float] = time.monotonic
"""Seconds; tests set another."""


class ProgressLine:
    """What is being done, since when, and which share of it. Commands hand on its methods.

    A line that is due is given to `write`, by whoever reports or looks next. `now` is a clock, in
    seconds.
    """

    def __init__(
        self, what: str, *, now: Callable[[], float], write: Callable[[str], None] | None
    ) -> None:
        self._now, self._write = now, write
        self._writing = threading.Lock()
        self._begun = now()
        self._due = self._begun + FIRST
        self._what = what
        self._share: Callable[[], float] | None = None  # of the piece, if there are pieces
        self._since, self._from = self._begun, 0.0  # when the share was first told, and what it was
        self._done = 0
        self._of: int | None = None

    def say(self, what: str) -> None:
        """Go on with something else, of which no share is known yet."""
        self._what, self._share = what, None
        self._done, self._of = 0, None
        self.look()

    def follow(self, share: Callable[[], float]) -> None:
        """Ask `share` from now on which share is done: of the present piece, if pieces are counted.

        A piece may be followed more than once: how fast it goes is measured anew from there.
        """
        before, self._share = self._share_done(), share
        if self._of is None or self._share_done() < before:
            self._since, self._from = self._now(), self._share_done()
        self.look()

    def count(self, done: int, of: int) -> None:
        """So many of so many pieces are done."""
        if of != self._of or done < self._done:
            self._since, self._from = self._now(), done / max(of, 1)
        self._done, self._of, self._share = done, of, None
        self.look()

    def begin(self, what: str, total: int | None) -> None:
        """Go on with something else that has `total` pieces; None: nobody knows."""
        self.say(what)
        if total is not None:
            self.count(0, total)

    def tick(self) -> None:
        """One piece more is done."""
        if self._of is not None:
            self.count(self._done + 1, self._of)
        else:
            self._done += 1
            self.look()

    def look(self) -> None:
        """Write a line if one is due."""
        if self._write is None or self._now() < self._due:
            return
        with self._writing:
            if self._now() >= self._due:
                self._due = self._now() + NEXT
                self._write(f"commsim: {self.text()}")

    def text(self) -> str:
        """Return what is being done, how far it is, and how long the rest takes or it has taken."""
        now, done = self._now(), self._share_done()
        what = f"{self._what}{self._pieces()}"
        gone = now - self._since
        if not 0 <= self._from < done < 1 or gone < FIRST:
            return f"{what}, {_duration(now - self._begun)} so far"
        if self._of is None:
            what = f"{what}: {done:.0%} done"
        return f"{what}, about {_duration(gone * (1 - done) / (done - self._from))} left"

    def _pieces(self) -> str:
        done, of = self._done, self._of
        if of is None:
            return f", {done:,} done" if done else ""
        return f": {done:,} of {of:,} done"

    def _share_done(self) -> float:
        """Return which share is done of the whole, as far as is known."""
        share = 0.0 if self._share is None else self._share()
        return share if self._of is None else min((self._done + share) / max(self._of, 1), 1.0)


def _duration(seconds: float) -> str:
    """Write a time as people say it who wait: "40 s", "12 min", "3.5 h"."""
    for unit, name in ((1, "s"), (60, "min")):
        if seconds < 100 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 3600:.1f} h"


@contextmanager
def working(what: str, *, quiet: bool) -> Iterator[ProgressLine]:
    """Show `what` for as long as the block runs, which reports how far it has come.

    The block prints nothing: a terminal has a line there that changes.
    """
    terminal = sys.stderr.isatty()
    silent = quiet or terminal
    told = ProgressLine(what, now=clock, write=None if silent else _write)
    if quiet:
        yield told
        return
    over = threading.Event()
    show = _change_line if terminal else _write_lines
    thread = threading.Thread(target=show, args=(told, over), daemon=True)
    thread.start()
    try:
        yield told
    finally:
        over.set()
        thread.join()


def _write(line: str) -> None:
    click.echo(line, err=True)


def _write_lines(told: ProgressLine, over: threading.Event) -> None:
    while not over.wait(_LOOK):
        told.look()


def _change_line(told: ProgressLine, over: threading.Event) -> None:
    if over.wait(FIRST):
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(told.text())) as status:
        while not over.wait(_LOOK):
            status.update(escape(told.text()))
