"""
Progress on stderr of work in countable pieces: a bar on a terminal, lines without one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from commsim.cli.terminal.waiting_line import FIRST_LINE, waiting

__all__ = ["counting"]


@contextmanager
def counting(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar, or lines without a terminal; the block tells it (done, of). None if quiet."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        with waiting(f"{what}: none done yet", quiet=False, first=FIRST_LINE) as told:

            def count(done: int, of: int) -> None:
                told.what = f"{what}, {done} of {of}"
                if told.share is None:
                    told.follow(lambda: 0.0)  # the clock starts here
                told.share = lambda: done / max(of, 1)

            yield count
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)
