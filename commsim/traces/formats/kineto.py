"""
Kineto: what torch.profiler writes, one Chrome trace per rank, torch 1.12 and later.

Only what a replay needs is read, typed. Times become integer picoseconds from the file's own
`zero`, the first event; `zero_ns` is where that is in unix nanoseconds. `ts` and `dur` are
microseconds, whatever `displayTimeUnit` says; if `baseTimeNanoseconds` is there, `ts`
counts from it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePath
from typing import Any

import msgspec
import numpy as np

from commsim.errors import TraceError
from commsim.traces.formats.events import EventKind, Events
from commsim.traces.formats.files import BAD_JSON, Data, Document
from commsim.traces.formats.kineto_columns import KinetoColumns
from commsim.traces.formats.kineto_rows import (
    LEAVE_OUT,
    Distributed,
    KinetoFrame,
    OddPieceError,
    rows_in_pieces,
    rows_of_whole,
)
from commsim.traces.formats.values import integer

__all__ = ["KinetoFile", "is_kineto", "rank_in_name", "read_kineto"]

_MAX_RANK = 2**31
_RANK_IN_NAME = re.compile(r"(?:rank|worker)[-_]?(\d+)|_(\d+)(?:\.pt)?(?:\.trace)?\.json", re.I)
_BESIDE = EventKind.CUDA_SYNC, EventKind.WAIT


class _ProcessGroup(msgspec.Struct):
    pg_name: Any = None
    ranks: Any = None


class KinetoFile(msgspec.Struct, frozen=True):
    """One rank's trace, events in order of start. `rank` is -1 if the file does not say.

    `cut`: the file ended in the middle, so that events of any time may be lost.
    """

    name: str
    rank: int
    world_size: int
    pid: str
    zero_ns: int
    events: Events
    groups: dict[str, tuple[int, ...]]
    notes: tuple[str, ...]
    cut: bool = False

    @property
    def is_gloo(self) -> bool:
        """Whether the ranks communicate by Gloo, and not by NCCL."""
        return bool(self.events.named(lambda name: name.startswith("gloo:")).any())


def is_kineto(data: Data) -> bool:
    """Say whether a JSON text looks like a Chrome trace."""
    return b'"traceEvents"' in data


def read_kineto(document: Document) -> KinetoFile:
    """Read one rank's trace; one that was cut keeps the events that are whole.

    Raises:
        TraceError: not JSON, cut before its first complete event, or no event of use.
    """
    columns, frame, notes = _read(document)
    cut = bool(notes)
    if not columns:
        raise TraceError(
            f"{document.name}: holds no complete event; there is nothing to replay."
            f"{LEAVE_OUT if cut else ''}"
        )
    if columns.lost:
        notes.append(f"{columns.lost} events have no possible time and are left out.")
    zero, base = columns.zero(), integer(frame.base, 0)
    distributed = frame.distributed or Distributed()
    try:
        events = columns.events(zero)
    except ValueError as error:
        raise TraceError(f"{document.name}: {error}.") from None
    return KinetoFile(
        name=document.name,
        rank=_rank(distributed, document.name),
        world_size=integer(distributed.world_size),
        pid=_pid(events),
        zero_ns=base + int(zero) * 1000 + round((zero - int(zero)) * 1000),
        events=events,
        groups=_groups(distributed),
        notes=tuple(f"{document.name}: {note}" for note in notes),
        cut=cut,
    )


def _read(document: Document) -> tuple[KinetoColumns, KinetoFrame, list[str]]:
    """Return what is kept of the events, what stands around them, and a note if it was cut."""
    columns, frame, notes = KinetoColumns(), KinetoFrame(), list[str]()
    try:
        try:
            for rows in rows_in_pieces(document.data, frame):
                columns.add(rows)
        except OddPieceError:
            columns = KinetoColumns()
            for rows in rows_of_whole(document, frame, notes):
                columns.add(rows)
    except BAD_JSON as error:
        raise TraceError(
            f"{document.name}: not a trace of torch.profiler (args in traceEvents: {error})."
        ) from None
    return columns, frame, notes


def _pid(events: Events) -> str:
    """Return the process of the first event on a CPU, "" without one."""
    on_cpu = np.flatnonzero(~events.on_gpu & ~np.isin(events.kind, _BESIDE))
    return events.threads[events.thread[on_cpu[0]]][0] if on_cpu.size else ""


def rank_in_name(name: str) -> int:
    """Return the rank that a file's name gives ("rank-3", "worker3_", "_3.json"), else -1."""
    found = _RANK_IN_NAME.search(PurePath(name).name)
    return integer(found[1] or found[2]) if found else -1


def _rank(distributed: Distributed, name: str) -> int:
    if distributed.rank is None:
        return rank_in_name(name)
    rank = integer(distributed.rank)
    if not 0 <= rank < _MAX_RANK:
        raise TraceError(f"{name}: distributedInfo.rank is {distributed.rank!r}; not a rank.")
    return rank


def _groups(distributed: Distributed) -> dict[str, tuple[int, ...]]:
    """Return the process groups that the file lists, by name."""
    groups: dict[str, tuple[int, ...]] = {}
    try:
        configs = msgspec.convert(distributed.pg_config or [], list[_ProcessGroup])
    except msgspec.ValidationError:
        return groups
    for config in configs:
        if isinstance(config.ranks, list) and config.ranks:
            groups[str(config.pg_name)] = _ranks(config.ranks)
    return groups


def _ranks(listed: list[Any]) -> tuple[int, ...]:
    try:
        return _integers(tuple(listed))
    except TypeError:  # a list in the list, say, by which nothing can be looked up
        return tuple(integer(rank) for rank in listed)


@lru_cache(maxsize=64)
def _integers(values: tuple[Any, ...]) -> tuple[int, ...]:
    """Return values as integers: once for the files of a run, each of which lists all its ranks."""
    return tuple(integer(value) for value in values)
