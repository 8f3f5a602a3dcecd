"""
The CSV files of AMD's profilers: which columns each has, and what a line of it says.

    rocprofv3   *_kernel_trace, *_memory_copy_trace, *_hip_api_trace, *_rccl_api_trace and
                *_marker_api_trace: one file each per process; times in ns
    rocprof     results.csv: kernels, with the time at which each was handed to the GPU

Source: "Using rocprofv3" of ROCprofiler-SDK's documentation, and the head that rocprof 5 and 6
write. Calls of HSA lie below those of HIP and are passed over; a call of RCCL has no sizes here.
"""

from __future__ import annotations

from commsim.traces.formats.events import EventKind
from commsim.traces.formats.profiler_tables.rows import Row
from commsim.traces.formats.profiler_tables.values import Cells, TableKinds

__all__ = ["ROCPROF"]

_WAYS = {"host_to_device": "HtoD (Host -> Device)", "device_to_host": "DtoH (Device -> Host)",
         "device_to_device": "DtoD (Device -> Device)"}  # fmt: skip
_PEER = "PtoP (Device -> Device)"
_FIXED = " [clone .kd]"


def _kernel(cells: Cells) -> Row:
    return Row(
        EventKind.KERNEL,
        cells.text("kernel_name").removesuffix(".kd"),
        cells.number("start_timestamp"),
        cells.number("end_timestamp"),
        thread=cells.number("thread_id"),
        correlation=cells.number("correlation_id"),
        stream=cells.number("stream_id", "queue_id"),
        device=cells.text("agent_id"),
    )


def _copy(cells: Cells) -> Row:
    source, target = cells.text("source_agent_id"), cells.text("destination_agent_id")
    way = cells.text("direction").removeprefix("MEMORY_COPY_").lower()
    peers = way == "device_to_device" and source != target
    return Row(
        EventKind.MEMCPY,
        f"Memcpy {_PEER if peers else _WAYS.get(way, way)}",
        cells.number("start_timestamp"),
        cells.number("end_timestamp"),
        correlation=cells.number("correlation_id"),
        stream=cells.number("stream_id"),
        device=source if way.startswith("device") else target,
    )


def _call(cells: Cells) -> Row | None:
    domain, name = cells.text("domain"), cells.text("function")
    if domain.startswith(("HSA", "MARKER_CONTROL", "MARKER_NAME")) or name.startswith("roctx"):
        return None
    return Row(
        EventKind.RUNTIME if domain.startswith("HIP") else EventKind.ANNOTATION,
        name,
        cells.number("start_timestamp"),
        cells.number("end_timestamp"),
        pid=cells.number("process_id"),
        thread=cells.number("thread_id"),
        correlation=cells.number("correlation_id"),
    )


def _dispatched(cells: Cells) -> Row:
    return Row(
        EventKind.KERNEL,
        cells.text("kernelname").removesuffix(_FIXED).removesuffix(".kd"),
        cells.number("beginns"),
        cells.number("endns"),
        pid=cells.number("pid"),
        thread=cells.number("tid"),
        correlation=cells.number("index"),
        stream=cells.number("queue-id"),
        device=cells.text("gpu-id"),
        launched=cells.number("dispatchns"),
    )


_TIMES = frozenset({"start_timestamp", "end_timestamp"})
ROCPROF: TableKinds = {
    (_TIMES | {"kernel_name", "agent_id", "queue_id"}, frozenset({"counter_name"})): _kernel,
    (_TIMES | {"direction", "source_agent_id"}, frozenset()): _copy,
    (_TIMES | {"domain", "function", "process_id", "thread_id"}, frozenset()): _call,
    (frozenset({"kernelname", "beginns", "endns", "gpu-id", "queue-id"}), frozenset()): _dispatched,
}
