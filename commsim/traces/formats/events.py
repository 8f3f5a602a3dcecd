"""
The complete events of a recording, as columns.

A trace has them by the hundred thousand, and a replay looks at few of them one by one: what is
asked of all is asked of columns, and what depends on a name of each name once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from types import MappingProxyType
from typing import overload

import msgspec
import numpy as np

from commsim.arrays import Bools, Ints
from commsim.traces.formats.event_args import NO_ARGS, EventArgs

__all__ = ["Event", "EventKind", "Events"]


class EventKind(IntEnum):
    """What an event is, whatever its category is called in this version."""

    OTHER = 0
    CPU_OP = 1
    ANNOTATION = 2
    RUNTIME = 3
    KERNEL = 4
    MEMCPY = 5
    MEMSET = 6
    CUDA_SYNC = 7
    WAIT = 8  # a Python frame of Work.wait()


_GPU = EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET  # tuples: enums hash slowly
_KINDS = tuple(EventKind)


class Event(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A complete event: `start`, `end` in ps from the file's zero, on `thread` (pid, tid)."""

    kind: EventKind
    name: str
    thread: tuple[str, str]
    start: int
    end: int
    correlation: int
    stream: int
    args: EventArgs

    @property
    def on_gpu(self) -> bool:
        """Whether this is a kernel, a copy or a fill."""
        return self.kind in _GPU


@dataclass(frozen=True, slots=True, eq=False)
class Events(Sequence[Event]):
    """Events by start; columns as in `Event`, `name` and `thread` as indices of the tables.

    `row` is where the `args` of an event are; most have none. An event that is asked for by its
    index is made then.
    """

    kind: Ints
    name: Ints
    thread: Ints
    start: Ints
    end: Ints
    correlation: Ints
    stream: Ints
    row: Ints
    names: tuple[str, ...]
    threads: tuple[tuple[str, str], ...]
    args: Mapping[int, EventArgs]

    @classmethod
    def of(cls, events: Iterable[Event]) -> Events:
        """Return events as columns, in the order given."""
        names: dict[str, int] = {}
        threads: dict[tuple[str, str], int] = {}
        rows: list[tuple[int, ...]] = []
        args: dict[int, EventArgs] = {}
        for at, event in enumerate(events):
            name = names.setdefault(event.name, len(names))
            thread = threads.setdefault(event.thread, len(threads))
            times = event.start, event.end, event.correlation, event.stream
            rows.append((event.kind, name, thread, *times, at))
            args[at] = event.args
        columns = np.array(rows, dtype=np.int64).reshape(-1, 8).T.copy()
        tables = tuple(names), tuple(threads), MappingProxyType(args)
        return cls(*(columns[at] for at in range(8)), *tables)  # type: ignore[call-arg]

    def __len__(self) -> int:
        return len(self.start)

    @overload
    def __getitem__(self, at: int) -> Event: ...
    @overload
    def __getitem__(self, at: slice) -> Events: ...
    def __getitem__(self, at: int | slice) -> Event | Events:
        if isinstance(at, slice):
            return self.take(np.arange(len(self))[at])
        return Event(
            _KINDS[self.kind[at]],
            self.names[self.name[at]],
            self.threads[self.thread[at]],
            int(self.start[at]),
            int(self.end[at]),
            int(self.correlation[at]),
            int(self.stream[at]),
            self.args.get(int(self.row[at]), NO_ARGS),
        )

    def __iter__(self) -> Iterator[Event]:
        names, threads, args = self.names, self.threads, self.args
        columns = (self.kind, self.name, self.thread, self.start, self.end)
        beside = (self.correlation, self.stream, self.row)
        rows = zip(*(column.tolist() for column in (*columns, *beside)), strict=True)
        for kind, name, thread, start, end, correlation, stream, row in rows:
            where, written = threads[thread], args.get(row, NO_ARGS)
            yield Event(_KINDS[kind], names[name], where, start, end, correlation, stream, written)

    def take(self, which: Ints | Bools) -> Events:
        """Return some of the events: by index, or those for which `which` is true."""
        columns = ("kind", "name", "thread", "start", "end", "correlation", "stream", "row")
        return replace(self, **{column: getattr(self, column)[which] for column in columns})

    def named(self, fits: Callable[[str], object]) -> Bools:
        """Return, for each event, whether its name fits; each name is asked about once."""
        known = np.fromiter((bool(fits(name)) for name in self.names), bool, len(self.names))
        return known[self.name]

    @property
    def on_gpu(self) -> Bools:
        """Whether each is a kernel, a copy or a fill."""
        return np.isin(self.kind, _GPU)
