"""
Chrome JSON, which Perfetto opens: a process per rank, a track per stream, arrows, counters.

Times are microseconds with all digits of a picosecond. A message's arrow runs from its send to
its recv; a span's waiting is a slice of its own in front of it; the busiest links are counters
of their own process, memory one of each rank's.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.export.counters import Counter, link_counters, memory_counters
from commsim.export.rows import Rows, arrows, described, lay_out, process_name, track_name
from commsim.files import write_aside
from commsim.graph import Graph
from commsim.timeline import Timeline
from commsim.units import PS_PER_US

__all__ = ["write_chrome"]

_CHUNK = 20_000  # events per write
_SLICE = '{"ph":"X","pid":%d,"tid":%d,"ts":%d.%06d,"dur":%d.%06d,"args":{"op":%d%s'
_WAIT = '{"ph":"X","pid":%d,"tid":%d,"ts":%d.%06d,"dur":%d.%06d,"cat":"wait","name":"wait"}'

_json = msgspec.json.encode


def write_chrome(timeline: Timeline, path: str | Path) -> None:
    """Write `timeline` to a .json or .json.gz file; the same timeline gives the same bytes."""
    compressed = str(path).endswith(".gz")

    def write(aside: Path) -> None:
        with aside.open("wb") as file:
            if compressed:
                # No name and no date in the header: the same bytes every time.
                with gzip.GzipFile("", "wb", compresslevel=4, fileobj=file, mtime=0) as packed:
                    _write(timeline, packed)
            else:
                _write(timeline, file)

    write_aside(path, write)


def _write(timeline: Timeline, file: IO[bytes] | gzip.GzipFile) -> None:
    file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
    between = ""
    for events in _events(timeline):
        if events:
            file.write((between + ",\n".join(events)).encode())
            between = ",\n"
    file.write(b"\n]}\n")


def _events(timeline: Timeline) -> Iterator[list[str]]:
    """Yield events as JSON, many at a time."""
    rows = lay_out(timeline)
    yield [_json(event).decode() for event in _tracks(timeline.graph, rows)]
    yield from _slices(timeline, rows)
    yield from _together(_arrows(timeline, rows))
    yield from _together(_counters(timeline))


def _together(events: Iterator[dict[str, Any]]) -> Iterator[list[str]]:
    chunk: list[str] = []
    for event in events:
        chunk.append(_json(event).decode())
        if len(chunk) >= _CHUNK:
            yield chunk
            chunk = []
    yield chunk


def _tracks(graph: Graph, rows: Rows) -> Iterator[dict[str, Any]]:
    """Name and sort processes and threads."""
    for lane in np.argsort(graph.lane_rank, kind="stable").tolist():
        rank = int(graph.lane_rank[lane])
        name = process_name(graph, lane)
        yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}}
    columns = (rows.lane.tolist(), rows.stream.tolist(), rows.copy.tolist(), _tids(graph, rows))
    for lane, stream, copy, tid in zip(*columns, strict=True):
        where = {"pid": int(graph.lane_rank[lane]), "tid": tid}
        name = track_name(graph, stream, copy)
        yield {"ph": "M", "name": "thread_name", **where, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", **where, "args": {"sort_index": stream}}


def _tids(graph: Graph, rows: Rows) -> list[int]:
    """Return the thread of each track: its stream, further tracks of it after all streams."""
    tids: list[int] = (rows.stream + rows.copy * len(graph.streams)).tolist()
    return tids


def _slices(timeline: Timeline, rows: Rows) -> Iterator[list[str]]:
    graph, op = timeline.graph, timeline.op
    which, descriptions = described(timeline)
    ends = [_rest(*description) for description in descriptions]
    pid = graph.lane_rank[rows.lane][rows.track]
    tid = np.array(_tids(graph, rows), dtype=np.int64)[rows.track]
    for first in range(0, len(timeline), _CHUNK):
        part = slice(first, first + _CHUNK)
        start, one = timeline.start[part], op[part]
        columns = [pid[part], tid[part], *_us(start), *_us(timeline.end[part] - start), one]
        rest = [ends[number] for number in which[one].tolist()]
        yield _filled(_SLICE, [*columns, rest])
        waits = np.flatnonzero(rows.begin[part] < start) + first
        begin = rows.begin[waits]
        yield _filled(
            _WAIT, [pid[waits], tid[waits], *_us(begin), *_us(timeline.start[waits] - begin)]
        )


def _us(time: Ints) -> tuple[Ints, Ints]:
    """Return the whole microseconds of picoseconds, and the digits after the point."""
    whole, rest = np.divmod(time, PS_PER_US)
    return whole, rest


def _filled(line: str, columns: list[Any]) -> list[str]:
    """Return one event per row of the columns."""
    lists = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns]
    return [line % row for row in zip(*lists, strict=True)]


def _rest(name: str, category: str, known: dict[str, Any]) -> str:
    """Return what follows the op of a slice: its arguments, category and name."""
    arguments = _json(known).decode()[1:]  # closes the object of the arguments
    comma = "," if known else ""
    return f'{comma}{arguments},"cat":"{category}","name":{_json(name).decode()}}}'


def _arrows(timeline: Timeline, rows: Rows) -> Iterator[dict[str, Any]]:
    """Yield the two ends of an arrow per message."""
    graph, tids = timeline.graph, _tids(timeline.graph, rows)
    for message, send, recv in arrows(timeline):
        for phase, span in (("s", send), ("f", recv)):
            track = int(rows.track[span])
            bound = {"bp": "e"} if phase == "f" else {}
            yield {
                "ph": phase,
                "id": message,
                "cat": "message",
                "name": "message",
                "pid": int(graph.lane_rank[rows.lane[track]]),
                "tid": tids[track],
                "ts": int(timeline.start[span]) / PS_PER_US,
                **bound,
            }


def _counters(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Yield the busiest links in GB/s under a process of their own, memory under each rank."""
    graph = timeline.graph
    pid = int(graph.lane_rank.max(initial=-1)) + 1
    for at, counter in enumerate(link_counters(timeline)):
        if not at:
            yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": "links (GB/s)"}}
            yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
        yield from _values(counter, pid, "GB/s")
    for counter in memory_counters(timeline):
        yield from _values(counter, int(graph.lane_rank[counter.lane]), "bytes")


def _values(counter: Counter, pid: int, unit: str) -> Iterator[dict[str, Any]]:
    for when, value in zip(counter.time, counter.value, strict=True):
        yield {
            "ph": "C",
            "name": counter.name,
            "pid": pid,
            "ts": when / PS_PER_US,
            "args": {unit: value},
        }
