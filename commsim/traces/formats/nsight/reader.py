"""
Nsight Systems' SQLite export as recordings of ranks: a `KinetoFile` per process that used a GPU.

    CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY, _MEMSET    work of the GPU, with its stream and correlation
    CUPTI_ACTIVITY_KIND_RUNTIME                     calls of the CUDA API, names with a version
    CUPTI_ACTIVITY_KIND_SYNCHRONIZATION             what a stream or a thread waited for
    NVTX_EVENTS                                     ranges: of NCCL's calls, of torch, of the script

Times are nanoseconds from the session's start. A range of NCCL with a payload says communicator,
bytes and peer; the communicator's making says how many ranks it has and which one this is. The
rank of a process is its rank in the largest communicator, else what the file's name says, else
its GPU's number. A step is a range named like "step 7" or "iteration".
Source: the SQLite Export Schema Reference of Nsight Systems' documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commsim.errors import TraceError
from commsim.traces.formats.event_args import NO_ARGS, EventArgs
from commsim.traces.formats.events import EventKind
from commsim.traces.formats.files import Data, Document
from commsim.traces.formats.kineto import KinetoFile
from commsim.traces.formats.nsight.communicators import LIBRARY, RecordedCommunicators
from commsim.traces.formats.nsight.database import Database, is_sqlite
from commsim.traces.formats.nsight.payloads import schemas_of
from commsim.traces.formats.process_events import ProcessEvents, plain_call
from commsim.traces.formats.values import integer

__all__ = ["is_nsight", "read_nsight"]

_RANGE = 59, 60  # NvtxPushPopRange, NvtxStartEndRange of ENUM_NSYS_EVENT_TYPE
_COMMS = "record_param_comms"  # by this name the rebuild knows a call of communication
_COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}  # ENUM_CUDA_MEMCPY_OPER
_PLACES = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array"}  # ENUM_CUDA_MEM_KIND
_WAITS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_PID, _TID = 24, 0xFFFFFF  # a global id holds the process above its thread's 24 bits


def is_nsight(data: Data) -> bool:
    """Say whether a file is a SQLite database; other ones are refused when they are read."""
    return is_sqlite(data)


def read_nsight(document: Document) -> list[KinetoFile]:
    """Read every process of an export that used a GPU.

    Raises:
        TraceError: no export of Nsight Systems, cut off, or no kernel in it.
    """
    if document.cut:
        raise TraceError(f"{document.name}: cut off; a database cannot be read in part.")
    database = Database(document)
    if any(table.startswith("rocpd_") for table in database.tables):
        raise TraceError(
            f"{document.name}: a database of rocprofv3 (rocpd). Its CSV tables are read: rocpd"
            f" convert --output-format csv -i {document.name}"
        )
    if "CUPTI_ACTIVITY_KIND_KERNEL" not in database.tables:
        raise TraceError(
            f"{document.name}: a database without CUDA kernels. commsim reads exports of Nsight"
            " Systems (nsys profile --trace cuda,nvtx; nsys export --type sqlite REPORT.nsys-rep)."
        )
    strings = {integer(key): str(text) for key, text in database.rows("StringIds", "id", "value")}
    processes: dict[int, ProcessEvents] = {}
    _add_gpu_work(database, strings, processes)
    if not processes:
        raise TraceError(f"{document.name}: holds no kernel; there is nothing to replay.")
    _add_calls(database, strings, processes)
    made = _add_ranges(database, strings, processes)
    devices = {pid: min(process.devices) for pid, process in processes.items()}
    ranks, how = made.ranks_of(devices, document.name)
    groups = made.groups(ranks)
    for pid, thread, start, end, args in made.calls(groups):
        processes[pid].add(EventKind.CPU_OP, _COMMS, thread, start, end, args=args)
    zero = next(database.rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"), (0,))
    return [
        process.file(
            f"{document.name} (process {pid})",
            ranks[pid],
            (f"{document.name}: process {pid} is taken as rank {ranks[pid]} ({how}).",),
            world_size=made.largest.members,
            zero_ns=integer(zero[0], 0),
            groups=groups,
        )
        for pid, process in processes.items()
    ]


def _process_of(number: Any) -> int:
    return (integer(number, 0) >> _PID) & _TID


def _process(processes: dict[int, ProcessEvents], number: Any) -> ProcessEvents:
    pid = _process_of(number)
    return processes.setdefault(pid, ProcessEvents(pid))


def _add_gpu_work(
    database: Database, strings: Mapping[int, str], processes: dict[int, ProcessEvents]
) -> None:
    common = ("start", "end", "globalPid", "correlationId", "streamId", "deviceId")
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    for *row, long, short in database.rows(table, *common, "demangledName", "shortName"):
        name = strings.get(integer(long)) or strings.get(integer(short)) or "kernel"
        _add_work(processes, EventKind.KERNEL, name, row, NO_ARGS)
    table = "CUPTI_ACTIVITY_KIND_MEMCPY"
    for *row, kind, source, target, size in database.rows(
        table, *common, "copyKind", "srcKind", "dstKind", "bytes"
    ):
        way = _COPIES.get(integer(kind), "copy")
        places = f"{_PLACES.get(integer(source), '?')} -> {_PLACES.get(integer(target), '?')}"
        args = EventArgs(bytes=integer(size))
        _add_work(processes, EventKind.MEMCPY, f"Memcpy {way} ({places})", row, args)
    for row in map(list, database.rows("CUPTI_ACTIVITY_KIND_MEMSET", *common)):
        _add_work(processes, EventKind.MEMSET, "Memset (Device)", row, NO_ARGS)


def _add_work(
    processes: dict[int, ProcessEvents], kind: EventKind, name: str, row: list[Any], args: EventArgs
) -> None:
    start, end, owner, correlation, stream, device = row
    process = _process(processes, owner)
    process.devices[integer(device)] += 1
    process.add(kind, name, integer(stream), start, end, correlation, stream, args)


def _add_calls(
    database: Database, strings: Mapping[int, str], processes: dict[int, ProcessEvents]
) -> None:
    """Add calls of the CUDA API, and what streams and threads waited for."""
    for start, end, thread, correlation, name in database.rows(
        "CUPTI_ACTIVITY_KIND_RUNTIME", "start", "end", "globalTid", "correlationId", "nameId"
    ):
        if (process := processes.get(_process_of(thread))) is not None:
            called = plain_call(strings.get(integer(name), "cuda"))
            where = integer(thread, 0) & _TID
            process.add(EventKind.RUNTIME, called, where, start, end, correlation)
    records = _records(database)
    for start, end, owner, correlation, stream, kind, event in database.rows(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "start", "end", "globalPid", "correlationId", "streamId", "syncType", "eventId",
    ):  # fmt: skip
        process = processes.get(_process_of(owner))
        name = _WAITS.get(integer(kind))
        if process is None or name is None:
            continue
        record, recorded_on = _last_before(
            records.get((process.pid, integer(event)), ()), correlation
        )
        args = EventArgs(waits_for=record, waits_for_stream=recorded_on)
        process.add(EventKind.CUDA_SYNC, name, -1, start, end, correlation, stream, args)


def _records(database: Database) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Return (correlation, stream) of each record of each CUDA event, in order of calls."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for owner, event, correlation, stream in database.rows(
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "globalPid", "eventId", "correlationId", "streamId"
    ):
        key = (_process_of(owner), integer(event))
        found.setdefault(key, []).append((integer(correlation), integer(stream)))
    return {key: sorted(of) for key, of in found.items()}


def _last_before(records: Any, correlation: Any) -> tuple[int, int]:
    """Return the record of an event that a wait means: the last before it."""
    earlier = [record for record in records if record[0] < integer(correlation)]
    return earlier[-1] if earlier else (-1, -1)


def _add_ranges(
    database: Database, strings: Mapping[int, str], processes: dict[int, ProcessEvents]
) -> RecordedCommunicators:
    """Add NVTX ranges; return what NCCL's own ranges say."""
    schemas = schemas_of(database)
    made = RecordedCommunicators()
    for start, end, kind, owner, text, text_id, blob in database.rows(
        "NVTX_EVENTS", "start", "end", "eventType", "globalTid", "text", "textId", "binaryData"
    ):
        process = processes.get(_process_of(owner))
        if process is None or end is None or integer(kind) not in _RANGE:
            continue
        name = str(text or strings.get(integer(text_id), ""))
        thread = integer(owner, 0) & _TID
        if name.startswith(LIBRARY):
            made.hear(process.pid, thread, start, end, name, schemas.fields(blob))
        else:
            process.add_range(name, thread, start, end)
    return made
