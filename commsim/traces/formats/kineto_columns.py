"""
What is kept of a Kineto file's rows: columns, in the order of the file until all are read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from commsim.arrays import Bools, Floats, Ints
from commsim.traces.formats.event_args import NO_STREAM, EventArgs, event_args, tie_args, wait_args
from commsim.traces.formats.events import EventKind, Events
from commsim.traces.formats.kineto_rows import KinetoRow
from commsim.traces.formats.values import integer
from commsim.units import PS_PER_US

__all__ = ["KinetoColumns"]

_MOST_APART_US = 4e12  # 46 days, half of what 64 bits hold
_MAX_US = 1e17  # past the year 5000: not a time
_KINDS = {
    "cpu_op": EventKind.CPU_OP,
    "operator": EventKind.CPU_OP,
    "user_annotation": EventKind.ANNOTATION,
    "cuda_runtime": EventKind.RUNTIME,
    "runtime": EventKind.RUNTIME,
    "cuda_driver": EventKind.RUNTIME,
    "kernel": EventKind.KERNEL,
    "gpu_memcpy": EventKind.MEMCPY,
    "memcpy": EventKind.MEMCPY,
    "gpu_memset": EventKind.MEMSET,
    "memset": EventKind.MEMSET,
    "cuda_sync": EventKind.CUDA_SYNC,
    "python_function": EventKind.WAIT,
}
_GPU = EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET
_WAIT = int(EventKind.WAIT)
_IS_TIED, _IS_WAIT = (
    np.isin(list(EventKind), kinds)
    for kinds in (
        (EventKind.RUNTIME, EventKind.CUDA_SYNC, *_GPU),
        (EventKind.CUDA_SYNC, EventKind.MEMCPY),
    )
)
_WORK_WAIT = "<built-in method wait of pybind11"  # torch's own classes: Work, and nothing else
_COMMUNICATES = ("record_param_comms", "c10d", "_c10d", "nccl", "gloo")

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class _Memo(dict[_Key, _Value]):
    """The values of a function, each worked out when it is first asked for."""

    def __init__(self, function: Callable[[_Key], _Value]) -> None:
        self._function = function

    def __missing__(self, key: _Key) -> _Value:
        value = self[key] = self._function(key)
        return value


class _Numbers(dict[_Key, int]):
    """Numbers from 0 on, in the order in which they are first asked for."""

    def __missing__(self, key: _Key) -> int:
        number = self[key] = len(self)
        return number


class _Names(_Numbers[str]):
    """Names by number, and the numbers of those that communicate."""

    def __init__(self) -> None:
        self.communicate: list[int] = []

    def __missing__(self, key: str) -> int:
        number = super().__missing__(key)
        if key.startswith(_COMMUNICATES):
            self.communicate.append(number)
        return number


class _Threads(dict[tuple[Any, Any], int]):
    """Threads by number; `pairs` are (pid, tid) as text, `tids` as numbers."""

    def __init__(self) -> None:
        self.pairs: _Numbers[tuple[str, str]] = _Numbers()
        self.tids: list[int] = []

    def __missing__(self, key: tuple[Any, Any]) -> int:
        number = self[key] = self.pairs[str(key[0]), str(key[1])]
        if number == len(self.tids):
            self.tids.append(integer(key[1]))
        return number


class KinetoColumns:
    """The kept events of a file. `lost` counts those without a possible time."""

    def __init__(self) -> None:
        self.lost = 0
        self._kinds: _Memo[str | None, int] = _Memo(_kind)
        self._names, self._threads = _Names(), _Threads()
        self._args: dict[int, EventArgs] = {}
        self._times: list[Floats] = []
        self._columns: list[Ints] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, decoded: Sequence[KinetoRow]) -> None:
        """Keep what is used of some rows."""
        kind_of, name_of, thread_of = self._kinds, self._names, self._threads
        rows = [row for row in decoded if row.ph == "X" and kind_of[row.cat]]
        kinds = [kind_of[row.cat] for row in rows]
        if _WAIT in kinds:
            rows = [
                row
                for row, kind in zip(rows, kinds, strict=True)
                if kind != _WAIT or (row.name or "").startswith(_WORK_WAIT)
            ]
            kinds = [kind_of[row.cat] for row in rows]
        times = _times(rows)
        fits = _possible(times)
        if not fits.all():
            self.lost += int((~fits).sum())
            rows = [row for row, fit in zip(rows, fits, strict=True) if fit]
            kinds, times = [kind_of[row.cat] for row in rows], times[:, fits]
        names = [name_of[row.name or ""] for row in rows]
        columns = np.empty((5, len(rows)), np.int64)
        columns[0], columns[1] = kinds, names
        columns[2] = [thread_of[row.pid, row.tid] for row in rows]
        columns[3], columns[4] = -1, NO_STREAM
        self._times.append(times)
        self._columns.append(columns)
        self._take_args(rows, columns)
        self._count += len(rows)

    def _take_args(self, rows: list[KinetoRow], columns: Ints) -> None:
        """Take what ties work to its launch, and keep what communication and waits say."""
        kinds, names, _, correlations, streams = columns
        tied = np.flatnonzero(_IS_TIED[kinds])
        args = tie_args([rows[at].args for at in tied.tolist()])
        correlations[tied] = [written.correlation for written in args]
        streams[tied] = [written.stream for written in args]
        waits = _IS_WAIT[kinds[tied]].tolist()
        said = set(np.flatnonzero(np.isin(names, self._names.communicate)).tolist())
        for at, written, waited in zip(tied.tolist(), args, waits, strict=True):
            if written.collective is not None:
                said.add(at)
            elif waited and at not in said:
                self._args[self._count + at] = wait_args(written)
        for at in said:
            self._args[self._count + at] = event_args(rows[at].args)

    def zero(self) -> float:
        """Return when the first event begins, in us."""
        return min(float(times[0].min()) for times in self._times if times.size)

    def events(self, zero: float) -> Events:
        """Return the events in order of start; what encloses another comes first.

        Raises:
            ValueError: they lie further apart than 64 bits of picoseconds hold.
        """
        begin, length = np.concatenate(self._times, axis=1)
        if float((begin - zero + length).max()) > _MOST_APART_US:
            raise ValueError("events lie months apart: a time in it is wrong")
        start = np.rint((begin - zero) * PS_PER_US).astype(np.int64)
        end = start + np.rint(length * PS_PER_US).astype(np.int64)
        order = np.lexsort((-end, start))
        kind, name, thread, correlation, stream = np.concatenate(self._columns, axis=1)[:, order]
        on_gpu, absent = np.isin(kind, _GPU), stream == NO_STREAM
        # Old files say no stream: GPU work runs on that of its thread.
        stream = np.where(
            absent, np.where(on_gpu, np.array(self._threads.tids)[thread], -1), stream
        )
        return Events(
            kind=kind,
            name=name,
            thread=thread,
            start=start[order],
            end=end[order],
            correlation=correlation,
            stream=stream,
            row=order,
            names=tuple(self._names),
            threads=tuple(self._threads.pairs),
            args=MappingProxyType(self._args),
        )


def _kind(category: str | None) -> int:
    named = category or ""
    return int(_KINDS.get(named) or _KINDS.get(named.lower(), EventKind.OTHER))


def _possible(times: Floats) -> Bools:
    begin, length = times
    fits: Bools = (begin > -_MAX_US) & (begin < _MAX_US) & (length >= 0) & (length < _MAX_US)
    return fits


def _times(rows: list[KinetoRow]) -> Floats:
    times = np.empty((2, len(rows)))
    times[0] = [row.ts for row in rows]
    times[1] = [row.dur for row in rows]
    return times
