"""
Chakra execution traces: .et (protobuf) and the two JSON forms, one file per rank.

Nodes carry their dependencies and whole microseconds. Only GPU nodes are collectives: the
CPU launchers of real traces (`is_cpu_op`) are nodes of the same type without a size. A node
also waits for the node before it on its stream, which Chakra leaves to the simulator. The
rank is in the file's name, `base.3.et`. `duration_ps` and `stream_name` are our own attributes:
others pass over them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from commsim.errors import TraceError
from commsim.ops import ROOTED
from commsim.traces.formats.files import BAD_JSON, Data, Document
from commsim.traces.formats.ordering import in_order
from commsim.traces.formats.records import Issued, RankRecord
from commsim.traces.formats.values import integer
from commsim.units import PS_PER_US

__all__ = ["COLLECTIVES", "Node", "NodeType", "is_chakra", "read_chakra", "read_nodes"]

COLLECTIVES = ("all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast",
               "all_to_all", "reduce_scatter", "reduce_scatter", "barrier")  # fmt: skip
_RANK = re.compile(r"\.(\d+)\.(?:et|json)(?:\.gz)?$")
_TYPES = ("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE",
          "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE")  # fmt: skip
_VALUE = re.compile(r"(?:double|float|s?int|uint|s?fixed|bool|string)(?:32|64)?Val")
_MAX_NODES = 50_000_000


class NodeType:
    """The types of Chakra's nodes."""

    LOAD, STORE, COMPUTE, SEND, RECV, COLLECTIVE = 2, 3, 4, 5, 6, 7


class Node(msgspec.Struct, frozen=True):
    """A node: `deps` are ids of nodes, `duration` in microseconds, `attributes` by name."""

    id: int
    name: str
    type: int
    deps: tuple[int, ...]
    duration: int
    attributes: Mapping[str, Any]


def is_chakra(data: Data, name: str) -> bool:
    """Say whether a file is a Chakra trace: by its name or metadata, or the keys of its JSON."""
    if data.lstrip()[:1] == b"{":
        head = data[: 2**16]
        return b'"workload_graph"' in head or (b'"COMM_' in data or b'"COMP_NODE"' in data)
    if name.lower().endswith((".et", ".et.gz")):
        return True
    # A length below 128, then field 1 (the version) or 2 (attributes) of the metadata.
    return (
        len(data) > 2 and 2 <= data[0] < 128 and data[1] in (0x0A, 0x12) and b"schema" in data[:128]
    )


def read_chakra(document: Document) -> RankRecord:
    """Read one rank's trace. Raises TraceError if the file is broken."""
    nodes, version = read_nodes(document)
    found = _RANK.search(document.name)
    kept = [node for node in nodes if node.type >= NodeType.LOAD and not _launches(node)]
    order, turned = _in_order(kept, document.name)
    rank = integer(found[1]) if found else -1
    calls = tuple(_calls(nodes, order, rank))
    launchers = sum(node.type >= NodeType.LOAD for node in nodes) - len(kept)
    notes = [f"Chakra {version or 'trace'}: durations are whole microseconds."]
    if launchers:
        notes.append(f"Chakra: {launchers} CPU launchers of collectives are left out.")
    if turned:
        notes.append(
            f"Chakra: dependencies form cycles; {turned} of them, on nodes of larger id, are left"
            " out."
        )
    return RankRecord(
        name=document.name,
        format="Chakra",
        rank=rank,
        world_size=0,
        calls=calls,
        notes=tuple(notes),
    )


def read_nodes(document: Document) -> tuple[list[Node], str]:
    """Return the nodes of a file and its version."""
    if document.data.lstrip()[:1] == b"{":
        return _from_json(document)
    return _from_protobuf(document)


def _from_protobuf(document: Document) -> tuple[list[Node], str]:
    from commsim.traces.formats.chakra.schema import messages

    kinds, data = messages(), document.data
    nodes: list[Node] = []
    version = ""
    try:
        for number, (start, end) in enumerate(_frames(data)):
            if number:
                nodes.append(_node(kinds.node.FromString(data[start:end])))
            else:
                head = kinds.metadata.FromString(data[start:end])
                attributes = {attr.name: _value(attr) for attr in head.attr}
                version = head.version or str(attributes.get("schema", ""))
    except Exception as error:
        raise TraceError(
            f"{document.name}: not a readable Chakra trace ({str(error) or 'cut off'})."
        ) from None
    return nodes, version


def _frames(data: Data) -> Iterator[tuple[int, int]]:
    """Yield where each length-delimited message lies."""
    at = 0
    while at < len(data):
        size = shift = 0
        while True:
            byte = data[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 63:
                break
        if at + size > len(data):
            raise ValueError("it is cut off in the middle of a node")
        yield at, at + size
        at += size


def _node(message: Any) -> Node:
    return Node(
        message.id,
        message.name,
        message.type,
        (*message.ctrl_deps, *message.data_deps),
        message.duration_micros,
        {attr.name: _value(attr) for attr in message.attr},
    )


def _value(attribute: Any) -> Any:
    """Return an attribute's value, whatever of the many types its writer chose."""
    which = attribute.WhichOneof("value")
    if which is None:
        return 0  # proto3 leaves out what is zero
    value = getattr(attribute, which)
    return list(value.values) if which.endswith("_list") else value


def _from_json(document: Document) -> tuple[list[Node], str]:
    """Read astra-sim's {"workload_graph": [...]}, or what Chakra's jsonizer writes."""
    try:
        if b'"workload_graph"' in document.data[: 2**16]:
            rows = msgspec.json.decode(document.data, type=dict[str, Any])["workload_graph"]
            return [_astra_node(row) for row in rows], "JSON"
        objects = list(_objects(document.data))
        version = next((str(o["version"]) for o in objects if "version" in o), "JSON")
        return [_jsonized_node(row) for row in objects if "id" in row or "type" in row], version
    except (*BAD_JSON, KeyError, TypeError, AttributeError) as error:
        raise TraceError(f"{document.name}: not a readable Chakra JSON ({error}).") from None


def _objects(data: Data) -> Iterator[dict[str, Any]]:
    """Yield JSON objects that follow each other without a comma."""
    text = re.sub(rb"\}\s*\{", b"},{", data)
    if text.count(b"},{") > _MAX_NODES:
        raise TraceError("a Chakra JSON with too many nodes.")
    yield from msgspec.json.decode(b"[" + text + b"]", type=list[dict[str, Any]])


def _astra_node(row: Mapping[str, Any]) -> Node:
    deps = [*(row.get("ctrl_deps") or ()), *(row.get("data_deps") or ())]
    return Node(
        integer(row["Id"]),
        str(row.get("Name", "")),
        integer(row["NodeType"]),
        tuple(integer(d) for d in deps),
        max(0, integer(row.get("runtime", 0))),
        row,
    )


def _jsonized_node(row: Mapping[str, Any]) -> Node:
    kind = row.get("type", 0)
    deps = [*row.get("ctrlDeps", ()), *row.get("dataDeps", ())]
    return Node(
        integer(row.get("id", 0)),
        str(row.get("name", "")),
        _TYPES.index(kind) if kind in _TYPES else integer(kind, 0),
        tuple(integer(d) for d in deps),
        max(0, integer(row.get("durationMicros", 0))),
        {str(attr.get("name")): _json_value(attr) for attr in row.get("attr", ())},
    )


def _json_value(attribute: Mapping[str, Any]) -> Any:
    for key, value in attribute.items():
        if key.endswith("List") and isinstance(value, dict):
            return value.get("values", [])
        if _VALUE.fullmatch(key):
            return value
    return 0


def _launches(node: Node) -> bool:
    """Say whether a communication node is only the CPU's call of one."""
    communicates = node.type >= NodeType.SEND
    return communicates and bool(_integer(node, "is_cpu_op")) and "comm_size" not in node.attributes


def _integer(node: Node, name: str, missing: int = 0) -> int:
    value = node.attributes.get(name, missing)
    return int(value) if isinstance(value, bool) else integer(value, missing)


def _in_order(nodes: Sequence[Node], name: str) -> tuple[list[Node], int]:
    """Return the nodes so that each follows what it depends on, and how many ties had to go.

    Older converters tie an op and its kernel both ways; there the order of the ids decides.

    Raises:
        TraceError: two nodes have one id.
    """
    place = {node.id: at for at, node in enumerate(nodes)}
    if len(place) < len(nodes):
        raise TraceError(f"{name}: two nodes have the same id.")
    order = in_order([[place[dep] for dep in node.deps if dep in place] for node in nodes])
    if len(order) == len(nodes):
        return [nodes[at] for at in order], 0
    by_id = sorted(nodes, key=lambda node: node.id)
    return by_id, sum(dep >= node.id and dep in place for node in nodes for dep in node.deps)


def _calls(nodes: Sequence[Node], order: Sequence[Node], rank: int) -> Iterator[Issued]:
    """Yield a call per node; what it depends on through left-out nodes, it depends on."""
    place = {node.id: at for at, node in enumerate(order)}
    through = {node.id: node.deps for node in nodes if node.id not in place}
    for at, node in enumerate(order):
        after = sorted(
            {place[dep] for dep in _reached(node.deps, through) if place.get(dep, at) < at}
        )
        yield _issued(node, tuple(after), rank)


def _reached(deps: Sequence[int], through: Mapping[int, Sequence[int]]) -> Iterator[int]:
    """Yield the nodes that are kept on the way back from `deps`."""
    seen: dict[int, None] = {}
    stack = list(deps)
    while stack:
        dep = stack.pop()
        if dep in seen:
            continue
        seen[dep] = None
        if dep in through:
            stack += through[dep]
        else:
            yield dep


def _issued(node: Node, after: tuple[int, ...], rank: int) -> Issued:
    on_cpu = bool(_integer(node, "is_cpu_op"))
    if node.type == NodeType.COLLECTIVE:
        return _collective(node, after)
    if node.type in (NodeType.SEND, NodeType.RECV):
        op = "send" if node.type == NodeType.SEND else "recv"
        peer = _integer(node, "comm_dst" if op == "send" else "comm_src", -1)
        return Issued(
            op,
            sent=_integer(node, "comm_size", -1),
            peer=peer if peer >= 0 else rank,
            tag=_integer(node, "comm_tag"),
            name=node.name,
            after=after,
            duration=_duration(node) or -1,
        )
    return Issued(
        "compute",
        duration=_duration(node),
        name=node.name,
        on_cpu=on_cpu,
        stream=_stream(node, "cpu" if on_cpu else "stream"),
        after=after,
    )


def _duration(node: Node) -> int:
    exact = _integer(node, "duration_ps", -1)
    return exact if exact >= 0 else node.duration * PS_PER_US


def _stream(node: Node, kind: str) -> str:
    """Name the stream of a node; converters of torch traces write it as `tid`."""
    if name := node.attributes.get("stream_name"):
        return str(name)
    number = _integer(node, "stream", _integer(node, "tid", -1))
    return f"{kind} {number}" if number >= 0 else kind


def _collective(node: Node, after: tuple[int, ...]) -> Issued:
    kind = _integer(node, "comm_type")
    op = COLLECTIVES[kind] if 0 <= kind < len(COLLECTIVES) else ""
    recorded = _duration(node)
    return Issued(
        op,
        sent=_integer(node, "comm_size", -1),
        group=str(node.attributes.get("pg_name") or ""),
        root=_integer(node, "comm_src", -1) if op in ROOTED else -1,
        name=node.name,
        after=after,
        duration=recorded if recorded else -1,
        stream=_stream(node, "comm"),
    )
