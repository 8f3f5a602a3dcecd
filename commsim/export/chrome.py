"""
Chrome JSON, which Perfetto opens: a process per rank, a track per stream, arrows, counters.

Times are microseconds. A message's arrow runs from its send to its recv; a span's waiting is a
slice of its own in front of it; the busiest links are counters of their own process.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from commsim.graph import Graph, OpKind, Phase
from commsim.metrics.links import busiest, use_over_time, utilization
from commsim.timeline import Timeline

__all__ = ["write_chrome"]

_US = 1e-6  # microseconds per picosecond
_CHUNK = 20_000  # events per write
_COUNTERS = 16  # links that get a counter
_POINTS = 2_000


def write_chrome(timeline: Timeline, path: str | Path) -> None:
    """Write `timeline` to a .json or .json.gz file; the same timeline gives the same bytes."""
    path = Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            if path.name.endswith(".gz"):
                # No name and no date in the header: the same bytes every time.
                with gzip.GzipFile("", "wb", compresslevel=4, fileobj=file, mtime=0) as packed:
                    _write(timeline, packed)
            else:
                _write(timeline, file)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def _write(timeline: Timeline, file: IO[bytes] | gzip.GzipFile) -> None:
    file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
    encoder, chunk, first = msgspec.json.Encoder(), [], True
    for event in _events(timeline):
        chunk.append(encoder.encode(event))
        if len(chunk) >= _CHUNK:
            file.write((b"" if first else b",\n") + b",\n".join(chunk))
            chunk, first = [], False
    if chunk:
        file.write((b"" if first else b",\n") + b",\n".join(chunk))
    file.write(b"\n]}\n")


def _events(timeline: Timeline) -> Iterator[dict[str, Any]]:
    yield from _tracks(timeline.graph)
    yield from _slices(timeline)
    yield from _arrows(timeline)
    yield from _counters(timeline)


def _tracks(graph: Graph) -> Iterator[dict[str, Any]]:
    """Name and sort processes and threads."""
    for lane in np.argsort(graph.lane_rank, kind="stable").tolist():
        rank, count = int(graph.lane_rank[lane]), int(graph.multiplicity[lane])
        name = f"rank {rank}" + (f" (stands for {count})" if count > 1 else "")
        yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}}
        for stream in np.unique(graph.stream[graph.lane == lane]).tolist():
            where = {"pid": rank, "tid": stream}
            yield {"ph": "M", "name": "thread_name", **where,
                   "args": {"name": graph.streams[stream]}}  # fmt: skip
            yield {"ph": "M", "name": "thread_sort_index", **where, "args": {"sort_index": stream}}


def _slices(timeline: Timeline) -> Iterator[dict[str, Any]]:
    graph = timeline.graph
    op = timeline.op
    columns = (
        op.tolist(), graph.lane_rank[graph.lane[op]].tolist(), graph.stream[op].tolist(),
        timeline.arrive.tolist(), timeline.start.tolist(), timeline.end.tolist(),
        timeline.communicates.tolist(),
    )  # fmt: skip
    for one, rank, stream, arrive, start, end, communicates in zip(*columns, strict=True):
        where = {"pid": rank, "tid": stream}
        if communicates and start > arrive:
            yield {"ph": "X", "cat": "wait", "name": "wait", **where,
                   "ts": arrive * _US, "dur": (start - arrive) * _US}  # fmt: skip
        yield {"ph": "X", "cat": OpKind(graph.kind[one]).name.lower(), "name": graph.op_name(one),
               **where, "ts": start * _US, "dur": (end - start) * _US,
               "args": _arguments(graph, one)}  # fmt: skip


def _arguments(graph: Graph, op: int) -> dict[str, Any]:
    """Return what is known of an op; what is not known is left out."""
    known: dict[str, Any] = {"op": op}
    if graph.phase[op]:
        known["phase"] = Phase(graph.phase[op]).name.lower()
    for tag in ("step", "microbatch", "stage", "layer"):
        value = int(getattr(graph, tag)[op])
        if value >= 0:
            known[tag] = value
    group = graph.group_of(op)
    if group >= 0:
        known["group"] = graph.groups[group].name
        known["bytes"] = int(graph.size[op])
    return known


def _arrows(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Yield the two ends of an arrow per message."""
    graph, messages = timeline.graph, timeline.graph.messages
    span = np.full(len(graph), -1, np.int64)
    span[timeline.op] = np.arange(len(timeline))
    for row in range(len(messages)):
        ends = (int(messages.send_op[row]), int(messages.recv_op[row]))
        if min(ends) < 0 or min(span[list(ends)]) < 0:
            continue
        for phase, op in zip("sf", ends, strict=True):
            at = int(timeline.start[span[op]])
            bound = {"bp": "e"} if phase == "f" else {}
            yield {"ph": phase, "id": row, "cat": "message", "name": "message",
                   "pid": int(graph.lane_rank[graph.lane[op]]), "tid": int(graph.stream[op]),
                   "ts": at * _US, **bound}  # fmt: skip


def _counters(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Yield the use of the busiest links in GB/s, as counters of a process of their own."""
    chosen = busiest(timeline, utilization(timeline))[:_COUNTERS]
    if not chosen.size:
        return
    pid = int(timeline.graph.lane_rank.max()) + 1
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": "links (GB/s)"}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    for link in chosen.tolist():
        use = use_over_time(timeline, np.array([link]), points=_POINTS)
        name, speed = timeline.links.names[link], float(timeline.links.bandwidth[link]) * 1e-9
        before = -1.0
        for when, share in zip(use.time.tolist(), [*use.share.tolist(), 0.0], strict=True):
            if share != before:
                yield {"ph": "C", "name": name, "pid": pid, "ts": when * _US,
                       "args": {"GB/s": share * speed}}  # fmt: skip
            before = share
