"""
What one line of a profiler's table says, in the same words for every profiler.
"""

from __future__ import annotations

import msgspec

from commsim.traces.formats.events import EventKind

__all__ = ["ProfilerTable", "Row"]


class Row(msgspec.Struct, frozen=True, gc=False):
    """One event; `start`, `end` in ns, -1 for what is not said.

    Work of the GPU has a `device` as the table names it, and `launched`, in ns, where the table
    says when it was handed to the GPU. A range has `projected`: it is where its GPU work ran.
    """

    kind: EventKind
    name: str
    start: int
    end: int
    pid: int = -1
    thread: int = -1
    correlation: int = -1
    stream: int = -1
    device: str = ""
    size: int = -1
    launched: int = -1
    projected: bool = False


class ProfilerTable(msgspec.Struct, frozen=True):
    """A table of `document`, one of the `run` of which others may hold the rest."""

    document: str
    run: str
    rows: tuple[Row, ...]
    lost: int = 0
    cut: bool = False
