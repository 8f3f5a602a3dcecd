"""
Kineto files, one per rank: what torch.profiler would have written, for tools that analyse those.

    rank0.json.gz     events of category kernel, gpu_memcpy, cpu_op, cuda_runtime, user_annotation

They hold the measured step. Every span on a GPU is a kernel on its stream, with the launch that it
hangs on by `correlation`: as early as the host gets to it, that is behind the launches before it
and the work of the host that kernels waited for. A kernel of communication begins when its rank
arrived, as NCCL's do, and is named like NCCL's, so that HolisticTraceAnalysis tells it from
compute. Times are microseconds with all nanoseconds.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.files import folder_to_fill, write_set
from commsim.graph import Device, Graph, OpKind
from commsim.metrics import arrivals, measured_window
from commsim.timeline import Timeline
from commsim.units import PS_PER_US

__all__ = ["write_kineto"]

_FIRST_STREAM = 7  # the default stream of a torch process has this number
_CPU_THREAD = 1000
_KERNELS = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
}
_OTHER_KERNEL = "SendRecv"  # NCCL runs all else as sends and receives


def write_kineto(timeline: Timeline, folder: str | Path) -> list[Path]:
    """Write a file per rank into `folder`; return their paths, in order of rank."""
    with folder_to_fill(folder) as place:
        return write_set(_packed(timeline, place))


def _packed(timeline: Timeline, place: Path) -> Iterator[tuple[Path, bytes]]:
    for lane in np.argsort(timeline.graph.lane_rank, kind="stable").tolist():
        head = json.dumps(_head(timeline, lane))[:-1]  # HTA looks for the rank as torch spaces it
        events = msgspec.json.encode(list(_events(timeline, lane)))
        data = head.encode() + b', "traceEvents": ' + events + b"}"
        name = f"rank{int(timeline.graph.lane_rank[lane])}.json.gz"
        yield place / name, gzip.compress(data, compresslevel=4, mtime=0)


def _head(timeline: Timeline, lane: int) -> dict[str, Any]:
    graph = timeline.graph
    rank = int(graph.lane_rank[lane])
    world = 1 + max([*graph.lane_rank.tolist(), *(r for g in graph.groups for r in g.ranks)])
    groups = [
        {
            "pg_name": group.name,
            "pg_desc": group.axis,
            "backend_config": f"cuda:{group.library}",
            "pg_size": len(group.ranks),
            "ranks": list(group.ranks),
        }
        for group in graph.groups
        if rank in group.ranks
    ]
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": rank, "name": "simulated"}],
        "distributedInfo": {
            "backend": "nccl",
            "rank": rank,
            "world_size": world,
            "pg_count": len(groups),
            "pg_config": groups,
        },
        "displayTimeUnit": "ms",
    }


def _events(timeline: Timeline, lane: int) -> Iterator[dict[str, Any]]:
    graph = timeline.graph
    rank = int(graph.lane_rank[lane])
    window = measured_window(timeline)
    begin, end = int(window.begin[lane]), int(window.end[lane])
    yield _complete("user_annotation", "ProfilerStep#0", rank, _CPU_THREAD, begin, end, {})
    spans = np.flatnonzero(timeline.lane == lane)
    kinds, device = graph.kind[timeline.op[spans]], graph.device[timeline.op[spans]]
    computes = kinds == OpKind.COMPUTE
    on_gpu = ~computes | (device == Device.CUDA)
    if not (computes & on_gpu).any():
        on_gpu[:] = True  # a rank without a GPU: its CPU is what computes
    arrive, issued = arrivals(timeline), _issued(timeline, spans, begin)
    for number, (span, gpu) in enumerate(zip(spans.tolist(), on_gpu.tolist(), strict=True)):
        op, start = int(timeline.op[span]), int(timeline.start[span])
        if timeline.communicates[span]:
            start = int(arrive[span])
        start, stop = max(start, begin), min(int(timeline.end[span]), end)
        if stop <= start:
            continue
        if not gpu:
            thread = _CPU_THREAD + int(graph.stream[op])
            yield _complete("cpu_op", graph.op_name(op), rank, thread, start, stop, {})
        else:
            launch = min(issued[number], start)
            yield from _launched(graph, op, rank, launch, start, stop, number + 1)
    # Behind its last launch the host waits for the GPU: a loop that reads its loss does.
    free = max((begin, *issued, *timeline.end[spans[~on_gpu]].tolist()))
    if free < end:
        own = {"correlation": len(spans) + 1}
        yield _complete("cuda_runtime", "cudaDeviceSynchronize", rank, _CPU_THREAD, free, end, own)


def _issued(timeline: Timeline, spans: Ints, begin: int) -> list[int]:
    """Return, for each span of a lane, when its host can have launched it (ps).

    A kernel that waited for its host was launched when it began; so what is issued behind it was
    launched no earlier. All else may have been queued since the step began.
    """
    cause = timeline.cause[spans]
    by_host = (cause >= 0) & ~timeline.on_gpu[np.maximum(cause, 0)] & timeline.on_gpu[spans]
    launched = np.where(by_host, timeline.start[spans], begin)
    order = np.argsort(timeline.op[spans], kind="stable")  # a lane's ops are issued in order of ids
    found = np.empty_like(launched)
    found[order] = np.maximum.accumulate(np.maximum(launched[order], begin))
    issued: list[int] = found.tolist()
    return issued


def _launched(
    graph: Graph, op: int, rank: int, launch: int, start: int, stop: int, correlation: int
) -> Iterator[dict[str, Any]]:
    """Yield the work of an op on a GPU, and its launch."""
    stream = _FIRST_STREAM + int(graph.stream[op])
    known = {"External id": correlation, "correlation": correlation}
    yield _complete("cuda_runtime", "cudaLaunchKernel", rank, _CPU_THREAD, launch, launch, known)
    category, name, more = _kernel(graph, op)
    where = {"device": rank, "context": 1, "stream": stream, **known, **more}
    yield _complete(category, name, rank, stream, start, stop, where)


def _kernel(graph: Graph, op: int) -> tuple[str, str, dict[str, Any]]:
    """Return the category, name and further arguments of an op on a GPU."""
    kind, row = int(graph.kind[op]), int(graph.item[op])
    if kind == OpKind.COMPUTE:
        return "kernel", graph.op_name(op), {}
    if kind == OpKind.COPY:
        size = max(0, int(graph.size[op]))
        return "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", {"bytes": size}
    table = graph.collectives if kind == OpKind.COLLECTIVE else graph.messages
    group = graph.groups[int(table.group[row])]
    ends: dict[str, Any] = {}
    if kind == OpKind.COLLECTIVE:
        called = graph.collectives.kind[row]
    else:
        called = "send" if kind == OpKind.SEND else "recv"
        source, target = graph.messages.source[row], graph.messages.target[row]
        ends = {"Src Rank": int(source), "Dst Rank": int(target)}
    elements = max(0, int(table.size[row]))
    return (
        "kernel",
        f"ncclDevKernel_{_KERNELS.get(called, _OTHER_KERNEL)}(commsim)",
        {
            "Collective name": called,
            "In msg nelems": elements,
            "Out msg nelems": elements,
            "dtype": "Byte",
            "In split size": "[]",
            "Out split size": "[]",
            "Group size": len(group.ranks),
            "Process Group Name": group.name,
            "Process Group Ranks": str(list(group.ranks)),
            **ends,
        },
    )


def _complete(
    category: str, name: str, pid: int, tid: int, start: int, stop: int, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": round(start / PS_PER_US, 3),
        "dur": round((stop - start) / PS_PER_US, 3),
        "args": args,
    }
