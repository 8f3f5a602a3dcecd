"""
The reports of `nsys stats`: which columns each has, and what a line of it says.

    cuda_gpu_trace         kernels, copies and fills, with stream, device and correlation
    cuda_api_trace         calls of the CUDA API, with process, thread and correlation
    nvtx_pushpop_trace     ranges of a thread
    nvtx_startend_trace    ranges that may end on another thread
    nvtx_gpu_proj_trace    ranges, with the time in which their GPU work ran

Source: the statistical reports in the Analysis Guide of Nsight Systems' documentation. A range's
name begins with its domain and a colon: "NCCL:ncclAllReduce", ":step 3".
"""

from __future__ import annotations

from commsim.traces.formats.events import EventKind
from commsim.traces.formats.process_events import plain_call
from commsim.traces.formats.profiler_tables.rows import Row
from commsim.traces.formats.profiler_tables.values import Cells, TableKinds

__all__ = ["NSYS"]

_WAYS = {"host-to-device": "HtoD", "device-to-host": "DtoH", "device-to-device": "DtoD",
         "peer-to-peer": "PtoP", "p2p": "PtoP", "htod": "HtoD", "dtoh": "DtoH",
         "dtod": "DtoD", "ptop": "PtoP"}  # fmt: skip


def _gpu(cells: Cells) -> Row:
    start, name = cells.amount("start"), cells.text("name")
    kind = EventKind.KERNEL
    if name.startswith("[CUDA memcpy"):
        way = name.removeprefix("[CUDA memcpy").strip(" ]").lower()
        source, target = cells.text("srcmemkd") or "?", cells.text("dstmemkd") or "?"
        kind, name = EventKind.MEMCPY, f"Memcpy {_WAYS.get(way, way)} ({source} -> {target})"
    elif name.startswith("[CUDA memset"):
        kind, name = EventKind.MEMSET, "Memset (Device)"
    return Row(
        kind,
        name,
        start,
        start + cells.amount("duration"),
        correlation=cells.number("corrid"),
        stream=cells.number("strm"),
        device=cells.text("device"),
        size=cells.amount("bytes"),
    )


def _timed(cells: Cells, kind: EventKind, name: str, *, before: str = "") -> Row:
    """Return a row of a thread, with the times of the columns that begin with `before`."""
    start = cells.amount(f"{before}start")
    return Row(
        kind,
        name,
        start,
        start + cells.amount(f"{before}duration"),
        pid=cells.number("pid"),
        thread=cells.number("tid", "starttid"),
        correlation=cells.number("corrid"),
        projected=bool(before),
    )


def _call(cells: Cells) -> Row:
    return _timed(cells, EventKind.RUNTIME, plain_call(cells.text("name")))


def _range(cells: Cells) -> Row:
    return _timed(cells, EventKind.ANNOTATION, cells.text("name").removeprefix(":"))


def _projected(cells: Cells) -> Row:
    name = cells.text("name").removeprefix(":")
    return _timed(cells, EventKind.ANNOTATION, name, before="projected ")


NSYS: TableKinds = {
    (frozenset({"start", "duration", "corrid", "strm", "device", "name"}), frozenset()): _gpu,
    (frozenset({"start", "duration", "name", "result", "corrid", "pid", "tid"}),
     frozenset({"strm"})): _call,
    (frozenset({"start", "end", "duration", "name", "pid"}), frozenset({"corrid"})): _range,
    (frozenset({"projected start", "projected duration", "name", "pid"}), frozenset()): _projected,
}  # fmt: skip
