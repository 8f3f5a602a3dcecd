"""
Write a graph as Chakra traces: `base.RANK.et` (protobuf) or `base.RANK.json`, and the groups.

The groups go next to them as astra-sim wants them: `base.comm_group.json`, {"0": [0, 1], ...}.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from commsim.errors import TraceError
from commsim.files import write_set
from commsim.graph import Device, Graph, OpKind
from commsim.traces.formats.chakra.reader import COLLECTIVES, NodeType
from commsim.units import PS_PER_US

__all__ = ["write_chakra"]

_TYPES = {
    OpKind.COMPUTE: NodeType.COMPUTE,
    OpKind.COPY: NodeType.COMPUTE,
    OpKind.COLLECTIVE: NodeType.COLLECTIVE,
    OpKind.SEND: NodeType.SEND,
    OpKind.RECV: NodeType.RECV,
}
_KINDS = frozenset((*COLLECTIVES, "all_to_all_v"))


def write_chakra(graph: Graph, base: Path, *, as_json: bool) -> tuple[list[Path], list[str]]:
    """Write a file per rank and one of the groups; return their paths, and what was lost.

    Raises:
        TraceError: work without a duration, or protobuf is not installed.
    """
    stem = base.with_suffix("") if base.suffix in (".et", ".json") else base
    return write_set(_files(graph, stem, as_json=as_json)), _notes(graph)


def _files(graph: Graph, stem: Path, *, as_json: bool) -> Iterator[tuple[Path, bytes]]:
    for lane, rank in enumerate(graph.lane_rank.tolist()):
        rows = list(_rows(graph, lane))
        path = stem.with_name(f"{stem.name}.{rank}.{'json' if as_json else 'et'}")
        yield path, msgspec.json.encode({"workload_graph": rows}) if as_json else _protobuf(rows)
    named = {str(number): list(group.ranks) for number, group in enumerate(graph.groups)}
    yield stem.with_name(f"{stem.name}.comm_group.json"), msgspec.json.encode(named)


def _notes(graph: Graph) -> list[str]:
    notes = [
        "Chakra: whole microseconds for other readers (attribute duration_ps has the rest); memory,"
        " element types, tags of phases and the latencies of launches are not carried."
    ]
    if "all_to_all_v" in graph.collectives.kind:
        notes.append("Chakra: an all_to_all_v is written as an even all_to_all of its largest.")
    if lone := sum(kind not in _KINDS for kind in graph.collectives.kind):
        notes.append(
            f"Chakra: {lone} sends and receives without their other end are written as work of"
            " their recorded time."
        )
    return notes


def _rows(graph: Graph, lane: int) -> Iterator[dict[str, Any]]:
    """Yield the nodes of one rank, with the names that astra-sim's JSON uses."""
    last: dict[int, int] = {}
    for op in np.flatnonzero(graph.lane == lane).tolist():
        deps = graph.dep_op[graph.dep_ptr[op] : graph.dep_ptr[op + 1]].tolist()
        stream = int(graph.stream[op])
        if stream in last:
            deps.append(last[stream])
        last[stream] = op
        duration = _duration(graph, op)
        yield {
            "Id": op,
            "Name": graph.op_name(op),
            "NodeType": _node_type(graph, op),
            "is_cpu_op": bool(graph.device[op] == Device.CPU),
            "runtime": (duration + PS_PER_US // 2) // PS_PER_US,
            "data_deps": [dep for dep in dict.fromkeys(deps) if graph.lane[dep] == lane],
            "stream": stream,
            "stream_name": graph.streams[stream],
            "duration_ps": duration,
            **_communication(graph, op),
        }


def _node_type(graph: Graph, op: int) -> int:
    """Return the type of an op's node: a message without its other end is work of recorded time."""
    return NodeType.COMPUTE if _is_lone(graph, op) else _TYPES[OpKind(graph.kind[op])]


def _is_lone(graph: Graph, op: int) -> bool:
    kind, row = int(graph.kind[op]), int(graph.item[op])
    return kind == OpKind.COLLECTIVE and graph.collectives.kind[row] not in _KINDS


def _duration(graph: Graph, op: int) -> int:
    kind, row = int(graph.kind[op]), int(graph.item[op])
    if kind == OpKind.COLLECTIVE:
        return max(0, int(graph.collectives.recorded[row]))
    if kind in (OpKind.SEND, OpKind.RECV):
        return max(0, int(graph.messages.recorded[row]))
    if graph.duration[op] < 0:
        raise TraceError(
            f"{graph.describe(op)}: has FLOPs and no duration, which Chakra traces need."
        )
    return int(graph.duration[op])


def _communication(graph: Graph, op: int) -> dict[str, Any]:
    kind, row = int(graph.kind[op]), int(graph.item[op])
    if _is_lone(graph, op):
        return {}
    if kind == OpKind.COLLECTIVE:
        table = graph.collectives
        group, name = int(table.group[row]), table.kind[row]
        plain = "all_to_all" if name == "all_to_all_v" else name
        rooted = {"comm_src": int(table.root[row])} if table.root[row] >= 0 else {}
        members = len(graph.groups[group].ranks)
        return {
            "comm_type": COLLECTIVES.index(plain),
            "comm_size": _input(plain, max(0, int(table.size[row])), members),
            "pg_name": str(group),
            **rooted,
        }
    if kind in (OpKind.SEND, OpKind.RECV):
        sent = graph.messages
        return {
            "comm_size": max(0, int(sent.size[row])),
            "comm_src": int(sent.source[row]),
            "comm_dst": int(sent.target[row]),
            "comm_tag": int(sent.tag[row]),
        }
    return {}


def _input(op: str, size: int, members: int) -> int:
    """Return the bytes that go in on one rank, which is what comm_size counts."""
    return size // members if op in ("all_gather", "gather") else size


def _protobuf(rows: list[dict[str, Any]]) -> bytes:
    from commsim.traces.formats.chakra.schema import messages

    kinds = messages()
    parts = [_framed(kinds.metadata(version="0.0.4").SerializeToString(deterministic=True))]
    for row in rows:
        node = kinds.node(
            id=row["Id"],
            name=row["Name"],
            type=row["NodeType"],
            data_deps=row["data_deps"],
            duration_micros=row["runtime"],
        )
        for name, value in row.items():
            if name not in _FIELDS:
                _set(node.attr.add(name=name), name, value)
        parts.append(_framed(node.SerializeToString(deterministic=True)))
    return b"".join(parts)


_FIELDS = ("Id", "Name", "NodeType", "runtime", "data_deps")
_WIDE = ("comm_size", "comm_type", "duration_ps", "stream")


def _set(attribute: Any, name: str, value: Any) -> None:
    """Set an attribute in the type that Chakra's own tools write."""
    if isinstance(value, bool):
        attribute.bool_val = value
    elif isinstance(value, str):
        attribute.string_val = value
    elif name in _WIDE:
        attribute.int64_val = value
    else:
        attribute.int32_val = value


def _framed(data: bytes) -> bytes:
    """Return a message with its length as a varint before it."""
    size, head = len(data), bytearray()
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head) + data
