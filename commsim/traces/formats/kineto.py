"""
Kineto: what torch.profiler writes, one Chrome trace per rank, torch 1.12 and later.

Only what a replay needs is read, typed. Times become integer picoseconds from the file's own
`zero`, the first event; `zero_ns` is where that is in unix nanoseconds. `ts` and `dur` are
microseconds, whatever `displayTimeUnit` says; if `baseTimeNanoseconds` is there, `ts`
counts from it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import PurePath
from typing import Any

import msgspec
import numpy as np

from commsim.arrays import Floats
from commsim.errors import TraceError
from commsim.traces.formats.event_args import (
    NO_ARGS,
    EventArgs,
    FileArgs,
    event_args,
    wait_args,
)
from commsim.traces.formats.files import BAD_JSON, Data, Document
from commsim.traces.formats.values import FAR, integer
from commsim.units import PS_PER_US

__all__ = ["Event", "EventKind", "KinetoFile", "is_kineto", "rank_in_name", "read_kineto"]

_MAX_US = 1e17  # past the year 5000: not a time
_MAX_RANK = 2**31
_RANK_IN_NAME = re.compile(r"(?:rank|worker)[-_]?(\d+)|_(\d+)(?:\.pt)?(?:\.trace)?\.json", re.I)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]')


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
_GPU = EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET  # tuples: enums hash slowly


_WORK_WAIT = "<built-in method wait of pybind11"  # torch's own classes: Work, and nothing else
_COMMUNICATES = ("record_param_comms", "c10d", "_c10d", "nccl", "gloo")
_WAITS = EventKind.CUDA_SYNC, EventKind.MEMCPY
_NOT_WRITTEN = FileArgs()
_CHUNK = 4096  # events that are decoded at once


class _Raw(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: int | float | str | None = None
    dur: int | float | str | None = None
    args: FileArgs | None = None


_DECODER = msgspec.json.Decoder(list[_Raw])


class _ProcessGroup(msgspec.Struct):
    pg_name: Any = None
    ranks: Any = None


class _Distributed(msgspec.Struct):
    backend: Any = None
    rank: Any = None
    world_size: Any = None
    pg_config: Any = None


class _KinetoJson(msgspec.Struct):
    events: list[msgspec.Raw] = msgspec.field(name="traceEvents")
    distributed: _Distributed | None = msgspec.field(name="distributedInfo", default=None)
    base: Any = msgspec.field(name="baseTimeNanoseconds", default=None)


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


@dataclass(frozen=True, slots=True)
class KinetoFile:
    """One rank's trace, events in order of start. `rank` is -1 if the file does not say.

    `cut`: the file ended in the middle, so that events of any time may be lost.
    """

    name: str
    rank: int
    world_size: int
    pid: str
    zero_ns: int
    events: tuple[Event, ...]
    groups: dict[str, tuple[int, ...]]
    notes: tuple[str, ...]
    cut: bool = False

    @property
    def is_gloo(self) -> bool:
        """Whether the ranks communicate by Gloo, and not by NCCL."""
        return any(event.name.startswith("gloo:") for event in self.events)


def is_kineto(data: Data) -> bool:
    """Say whether a JSON text looks like a Chrome trace."""
    return b'"traceEvents"' in data


def read_kineto(document: Document) -> KinetoFile:
    """Read one rank's trace; one that was cut keeps the events that are whole.

    Raises:
        TraceError: not JSON, cut before its first complete event, or no event of use.
    """
    file, notes = _decode(document)
    cut = bool(notes)
    distributed = file.distributed or _Distributed()
    columns = _Columns()
    for at in range(0, len(file.events), _CHUNK):
        _take(columns, file.events[at : at + _CHUNK], document.name)
    file.events.clear()
    if not columns.names:
        raise TraceError(f"{document.name}: holds no complete event; there is nothing to replay.")
    if columns.lost:
        notes.append(f"{columns.lost} events have no possible time and are left out.")
    begin, length = np.array(columns.begin), np.array(columns.length)
    zero = float(begin.min())
    events = _events(columns, begin, length, zero)
    base = integer(file.base, 0)
    beside = EventKind.CUDA_SYNC, EventKind.WAIT
    pids = (e.thread[0] for e in events if not e.on_gpu and e.kind not in beside)
    return KinetoFile(
        name=document.name,
        rank=_rank(distributed, document.name),
        world_size=integer(distributed.world_size),
        pid=next(pids, ""),
        zero_ns=base + int(zero) * 1000 + round((zero - int(zero)) * 1000),
        events=tuple(events),
        groups=_groups(distributed),
        notes=tuple(f"{document.name}: {note}" for note in notes),
        cut=cut,
    )


def rank_in_name(name: str) -> int:
    """Return the rank that a file's name gives ("rank-3", "worker3_", "_3.json"), else -1."""
    found = _RANK_IN_NAME.search(PurePath(name).name)
    return integer(found[1] or found[2]) if found else -1


def _decode(document: Document) -> tuple[_KinetoJson, list[str]]:
    try:
        return msgspec.json.decode(document.data, type=_KinetoJson), []
    except msgspec.ValidationError as error:
        raise TraceError(f"{document.name}: not a trace of torch.profiler ({error}).") from None
    except RecursionError:
        raise TraceError(f"{document.name}: nested too deeply; not a trace.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        ends = bytes(document.data[-64:]).rstrip().endswith(b"}")
        if not document.cut and "truncated" not in str(error) and ends:
            raise TraceError(f"{document.name}: not valid JSON ({error}).") from None
    return _salvage(document)


def _salvage(document: Document) -> tuple[_KinetoJson, list[str]]:
    """Read a trace that ends in the middle, up to its last complete event."""
    end = _last_whole_event(document.data)
    cut = f"{document.name}: cut off before its first complete event. Record or copy it again."
    if end < 0:
        raise TraceError(cut)
    try:
        file = msgspec.json.decode(document.data[:end] + b"]}", type=_KinetoJson)
    except BAD_JSON:
        raise TraceError(cut) from None
    lost = len(document.data) - end
    return file, [f"cut off: {len(file.events)} events are whole, the last {lost} bytes are lost."]


def _last_whole_event(data: Data) -> int:
    """Return where the last complete element of "traceEvents" ends, -1 without one."""
    start = data.find(b'"traceEvents"')
    depth, end = 0, -1
    for token in _TOKEN.finditer(data, start + len(b'"traceEvents"')) if start >= 0 else ():
        mark = token[0]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if depth == 1:
                end = token.end()
            elif depth < 1:
                break
    return end


@dataclass(slots=True)
class _Columns:
    """What is kept of the events, before their order is known; times in us."""

    begin: list[float] = field(default_factory=list)
    length: list[float] = field(default_factory=list)
    kinds: list[EventKind] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    threads: list[tuple[str, str]] = field(default_factory=list)
    correlations: list[int] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)
    args: list[EventArgs] = field(default_factory=list)
    lost: int = 0
    shared_names: dict[str, str] = field(default_factory=dict)
    communicates: dict[str, bool] = field(default_factory=dict)
    shared_threads: dict[tuple[Any, Any], tuple[str, str]] = field(default_factory=dict)


def _take(columns: _Columns, rows: list[msgspec.Raw], name: str) -> None:
    """Decode some events, and keep what is used of them."""
    text = b"[" + b",".join(rows) + b"]"
    try:
        try:
            decoded = _DECODER.decode(text)
        except UnicodeDecodeError:
            # A name that is no UTF-8 is a name all the same.
            decoded = _DECODER.decode(text.decode("utf-8", "replace"))
    except msgspec.ValidationError as error:
        raise TraceError(f"{name}: not a trace of torch.profiler (traceEvents: {error}).") from None
    except BAD_JSON:
        raise TraceError(f"{name}: nested too deeply; not a trace.") from None
    for raw in decoded:
        kind = _KINDS.get(raw.cat or "") if raw.ph == "X" else EventKind.OTHER
        if kind is None:
            kind = _KINDS.get((raw.cat or "").lower(), EventKind.OTHER)
        if kind == EventKind.WAIT and not (raw.name or "").startswith(_WORK_WAIT):
            continue
        if kind:
            _keep(columns, raw, kind)


def _keep(columns: _Columns, raw: _Raw, kind: EventKind) -> None:
    begin, length = raw.ts, raw.dur
    if type(begin) is not float or type(length) is not float:
        begin, length = _number(begin), _number(length)
    if not (-_MAX_US < begin < _MAX_US and 0 <= length < _MAX_US):
        columns.lost += 1
        return
    args, key, name = raw.args or _NOT_WRITTEN, (raw.pid, raw.tid), raw.name or ""
    thread = columns.shared_threads.get(key)
    if thread is None:
        thread = columns.shared_threads[key] = (str(raw.pid), str(raw.tid))
    correlation, stream = args.correlation, args.stream
    if correlation is None:
        correlation = -1
    elif type(correlation) is not int or abs(correlation) >= FAR:
        correlation = integer(correlation)
    if type(stream) is not int or abs(stream) >= FAR:
        stream = integer(stream, integer(raw.tid)) if kind in _GPU else -1
    columns.begin.append(begin)
    columns.length.append(length)
    columns.kinds.append(kind)
    communicates = columns.communicates.get(name)
    if communicates is None:
        communicates = columns.communicates[name] = name.startswith(_COMMUNICATES)
    columns.names.append(columns.shared_names.setdefault(name, name))
    columns.threads.append(thread)
    columns.correlations.append(correlation)
    columns.streams.append(stream)
    # Only the arguments of communication and of synchronisation are used later.
    if communicates or args.collective is not None:
        columns.args.append(event_args(args))
    else:
        columns.args.append(wait_args(args) if kind in _WAITS else NO_ARGS)


def _number(value: Any) -> float:
    try:
        return float(value or 0)
    except (ValueError, OverflowError):
        return math.nan


def _events(columns: _Columns, begin: Floats, length: Floats, zero: float) -> list[Event]:
    """Return the events in order of start; what encloses another comes first."""
    start = np.rint((begin - zero) * PS_PER_US).astype(np.int64)
    end = start + np.rint(length * PS_PER_US).astype(np.int64)
    order = np.lexsort((-end, start)).tolist()
    starts, ends = start.tolist(), end.tolist()
    kinds, names, threads = columns.kinds, columns.names, columns.threads
    correlations, streams, args = columns.correlations, columns.streams, columns.args
    return [
        Event(
            kinds[i], names[i], threads[i], starts[i], ends[i], correlations[i], streams[i], args[i]
        )
        for i in order
    ]


def _rank(distributed: _Distributed, name: str) -> int:
    if distributed.rank is None:
        return rank_in_name(name)
    rank = integer(distributed.rank)
    if not 0 <= rank < _MAX_RANK:
        raise TraceError(f"{name}: distributedInfo.rank is {distributed.rank!r}; not a rank.")
    return rank


def _groups(distributed: _Distributed) -> dict[str, tuple[int, ...]]:
    """Return the process groups that the file lists, by name."""
    groups: dict[str, tuple[int, ...]] = {}
    try:
        configs = msgspec.convert(distributed.pg_config or [], list[_ProcessGroup])
    except msgspec.ValidationError:
        return groups
    for config in configs:
        if isinstance(config.ranks, list) and config.ranks:
            groups[str(config.pg_name)] = tuple(integer(rank) for rank in config.ranks)
    return groups
