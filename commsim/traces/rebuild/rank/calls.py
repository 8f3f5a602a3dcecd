"""
Records of a rank's calls: its CPU threads, places in them, and what a call communicates.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.traces.formats import Event, Events

__all__ = [
    "CollectiveCall",
    "KernelMessage",
    "RankCollectives",
    "StreamWait",
    "Thread",
    "ThreadCall",
]


class Thread(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A CPU thread: its events by start."""

    name: tuple[str, str]
    events: Events

    @cached_property
    def parent(self) -> Ints:
        """The index of the event that encloses each, -1 without one."""
        # The nearest before that ends no sooner. One that ends sooner is passed over together with
        # all that it passed over itself, so that steps double in length.
        ends = np.append(self.events.end, np.iinfo(np.int64).max)  # what index -1 looks at
        until = np.maximum(self.events.end, self.events.start + 1)
        found = np.arange(-1, len(self.events), dtype=np.int64)
        left = np.flatnonzero(ends[found[:-1]] < until)
        while left.size:
            found[left] = found[found[left]]
            left = left[ends[found[left]] < until[left]]
        return found[:-1]

    @cached_property
    def parents(self) -> list[int]:
        """`parent`, to be looked at one by one."""
        found: list[int] = self.parent.tolist()
        return found

    @cached_property
    def marks(self) -> Ints:
        """Every start and end of an event, once, in order."""
        return np.unique(np.concatenate((self.events.start, self.events.end)))

    def enclosing(self, index: int) -> Iterator[Event]:
        """Yield what encloses event `index`, innermost first."""
        while (index := self.parents[index]) >= 0:
            yield self.events[index]


class ThreadCall(msgspec.Struct, frozen=True):
    """Where a CPU event is: its thread, and its index there."""

    thread: tuple[str, str]
    index: int


class KernelMessage(msgspec.Struct, frozen=True):
    """A send or recv in a kernel: `peer` is a global rank, -1 if it is not known.

    `found_done` is how long the wait took that found it done, in ps: it ended before that, and
    nothing recorded when. -1: its recorded end is the end of it.
    """

    op: str
    peer: int
    size: int
    dtype: str = ""
    tag: int = 0
    group: str = ""
    found_done: int = -1


class CollectiveCall(msgspec.Struct, frozen=True):
    """One rank's part in a collective. `kernel` is its index in the rank's GPU work.

    `size` and `splits` in bytes as in commsim.graph; `root` as a group rank; `ranks` is empty
    and `group` "" if the trace does not say. A kernel that sends and receives has the op
    "messages", and what it moves as `messages`. `members` is the size of the group if the
    buffers say it, `stream` the one that it ran on. `alone`: no partner can be known, so the call
    keeps its recorded time, waits included.
    """

    rank: int
    op: str
    kernel: int
    start: int
    end: int
    launched: int
    size: int = -1
    dtype: str = ""
    splits: tuple[int, ...] = ()
    root: int = -1
    group: str = ""
    ranks: tuple[int, ...] = ()
    sequence: int = -1
    library: str = "nccl"
    messages: tuple[KernelMessage, ...] = ()
    members: int = -1
    stream: int = -1
    alone: bool = False


class StreamWait(msgspec.Struct, frozen=True):
    """Work.wait(): from here on, the current stream waits for `call` (-1: not known which)."""

    at: ThreadCall
    call: int


class RankCollectives(msgspec.Struct, frozen=True):
    """A rank's collectives in the order of issue, and where it waits for them.

    `cut`: the rank's file ended in the middle; calls may be missing anywhere.
    """

    calls: tuple[CollectiveCall, ...]
    waits: tuple[StreamWait, ...]
    notes: tuple[str, ...]
    cut: bool = False
