"""
A timeline on disk: one .npz file with its graph, its columns and a JSON header.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import msgspec
import numpy as np

from commsim.graph import (
    Arrays,
    Graph,
    column,
    columns_of,
    foreign,
    indices,
    pack_graph,
    read_arrays,
    unpack_graph,
    write_arrays,
)
from commsim.timeline.table import Cause, LinkUse, Memory, Timeline
from commsim.units import MOST_BYTES

__all__ = ["load_timeline", "save_timeline"]

_FORMAT = "commsim-timeline-1"
_MOST_BYTES = 1e24  # of a link, and per second: far beyond any, and finite in every sum
_LATEST = 2**62  # ps: sums of two times still fit
_GRAPH, _LINKS, _MEMORY, _SPANS = "graph_", "links_", "memory_", "span_"


class _TimelineHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is not an array, as JSON."""

    format: str
    source: str
    notes: tuple[str, ...]
    choices: dict[int, str]
    link_names: tuple[str, ...]
    link_kinds: tuple[str, ...]


def save_timeline(timeline: Timeline, path: str | Path) -> None:
    """Write `timeline` and its graph aside, then rename them to `path`."""
    header = _TimelineHeader(
        format=_FORMAT,
        source=timeline.source,
        notes=timeline.notes,
        choices=dict(timeline.choices),
        link_names=timeline.links.names,
        link_kinds=timeline.links.kinds,
    )
    arrays = {
        **{_GRAPH + name: values for name, values in pack_graph(timeline.graph).items()},
        **columns_of(timeline, _SPANS),
        **columns_of(timeline.links, _LINKS),
        **columns_of(timeline.memory, _MEMORY),
        "header": np.frombuffer(msgspec.json.encode(header), dtype=np.uint8),
    }
    write_arrays(path, arrays)


def load_timeline(path: str | Path) -> Timeline:
    """Read what `save_timeline` wrote. Raises TraceError if the file is no such timeline."""
    with foreign(path, "a timeline"):
        return _unpack(read_arrays(path, _GRAPH))


def _unpack(arrays: Arrays) -> Timeline:
    header = msgspec.json.decode(column(arrays, "header", np.uint8).tobytes(), type=_TimelineHeader)
    if header.format != _FORMAT:
        raise ValueError(f"its format is {header.format!r}, not {_FORMAT!r}")
    graph = unpack_graph(_part(arrays, _GRAPH))
    spans = _part(arrays, _SPANS)
    count = len(indices(spans, "op", len(graph)))
    timeline = Timeline(
        graph=graph,
        op=spans["op"],
        arrive=column(spans, "arrive", np.int64, count),
        start=column(spans, "start", np.int64, count),
        end=column(spans, "end", np.int64, count),
        cause=indices(spans, "cause", count, least=-1, length=count),
        cause_kind=column(spans, "cause_kind", np.uint8, count),
        links=_links(_part(arrays, _LINKS), header, graph),
        memory=_memory(_part(arrays, _MEMORY), graph),
        source=header.source,
        notes=header.notes,
        choices=MappingProxyType(header.choices),
    )
    _check_spans(timeline)
    return timeline


def _part(arrays: Arrays, prefix: str) -> Arrays:
    return {n.removeprefix(prefix): v for n, v in arrays.items() if n.startswith(prefix)}


def _links(arrays: Arrays, header: _TimelineHeader, graph: Graph) -> LinkUse:
    names, kinds = header.link_names, header.link_kinds
    ptr = column(arrays, "load_ptr", np.int64)
    link = indices(arrays, "load_link", len(names))
    if not len(ptr) or ptr[0] != 0 or ptr[-1] != len(link) or np.any(np.diff(ptr) < 0):
        raise ValueError("'load_ptr' does not divide 'load_link'")
    flow = indices(arrays, "flow", len(ptr) - 1)
    op = indices(arrays, "op", len(graph), least=-1)
    # Files from before links could stand for each other have no such column.
    like = indices(arrays, "like", len(names)) if "like" in arrays else np.zeros(0, np.int64)
    if (
        len(kinds) != len(names)
        or len(op) not in (0, len(flow))
        or len(like) not in (0, len(names))
    ):
        raise ValueError("the links' columns differ in length")
    bandwidth = column(arrays, "bandwidth", np.float64, len(names))
    load_bytes = column(arrays, "load_bytes", np.float64, len(link))
    rate = column(arrays, "rate", np.float64, len(flow))
    start, end = (column(arrays, name, np.int64, len(flow)) for name in ("start", "end"))
    if np.any(start > end):
        raise ValueError("a flow ends before it starts")
    if np.any((bandwidth != 0) & ~((bandwidth >= 1) & (bandwidth <= _MOST_BYTES))):
        raise ValueError("a link's bandwidth is no number of bytes per second")
    if not np.all((load_bytes >= 0) & (load_bytes <= _MOST_BYTES)):
        raise ValueError("a link carries no number of bytes")
    if np.any((load_bytes > 0) & (bandwidth[link] == 0)):
        raise ValueError("a link without bandwidth carries bytes")
    if not np.all((rate >= 0) & (rate <= 1)):
        raise ValueError("a flow's rate is no share per picosecond")
    return LinkUse(
        names=names,
        kinds=kinds,
        bandwidth=bandwidth,
        load_ptr=ptr,
        load_link=link,
        load_bytes=load_bytes,
        flow=flow,
        start=start,
        end=end,
        rate=rate,
        op=op,
        like=like,
    )


def _memory(arrays: Arrays, graph: Graph) -> Memory:
    lane = indices(arrays, "lane", len(graph.lane_rank))
    return Memory(
        lane=lane,
        time=column(arrays, "time", np.int64, len(lane)),
        held=column(arrays, "held", np.int64, len(lane)),
    )


def _check_spans(timeline: Timeline) -> None:
    links, memory = timeline.links, timeline.memory
    for values in (timeline.arrive, timeline.end, links.start, links.end, memory.time):
        if values.size and (values.min() < -1 or values.max() > _LATEST):
            raise ValueError("a time is not from 0 to 53 days")
    if len(timeline) and (np.bincount(timeline.op).max() > 1 or timeline.start.min() < 0):
        raise ValueError("a span is the second of its op, or starts before there is a time")
    if any(not 0 <= row < len(timeline.graph.collectives) for row in timeline.choices):
        raise ValueError("'choices' names a collective that is not there")
    if memory.held.size and np.abs(memory.held.astype(np.float64)).max() > MOST_BYTES:
        raise ValueError("a rank holds more than 4 EiB")
    if np.any(timeline.arrive > timeline.start) or np.any(timeline.start > timeline.end):
        raise ValueError("a span ends before it starts, or starts before it arrives")
    if len(timeline) and timeline.cause_kind.max() >= len(Cause):
        raise ValueError("a span has a cause of unknown kind")
