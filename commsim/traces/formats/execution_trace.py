"""
PyTorch Execution Trace: what each communication call was given; it holds no times.

Schemas 1.0.1 to 1.1.1. A `record_param_comms` node lists its inputs by position:
[tensors], sequence, group, rank (or peer, or root), "name", in splits, out splits, ...
A wait is [sequence, group, rank, "wait", ...]. In 1.1.1 a group is [name, description] and a
sequence [number, of messages]: each group counts its collectives and its messages apart, and calls
that are coalesced are one. Before, they are numbers, and a wait does not say its group. A tensor is
[tensor id, storage id, offset, elements, bytes per element, device].
Gloo leaves no such nodes: there the c10d ops say what was called, and not by which group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from commsim.errors import TraceError
from commsim.ops import op_of
from commsim.traces.formats.files import BAD_JSON, Data, Document
from commsim.traces.formats.kineto import rank_in_name
from commsim.traces.formats.values import dtype_of, integer, numbers_of, uneven_op

__all__ = ["CommNode", "ExecutionTrace", "is_execution_trace", "read_execution_trace"]

_COMMS, _INIT = "record_param_comms", "## process_group:init ##"
_NAME_AT, _WAIT_NAME_AT = 4, 3
_MAX_RANKS = 1_000_000
_TENSOR_FIELDS = 6
_DEPTH = 3


class _TraceNode(msgspec.Struct):
    name: str = ""
    rf_id: Any = None
    inputs: Any = None
    outputs: Any = None
    input_types: Any = None
    attrs: Any = None


class _ExecutionTraceJson(msgspec.Struct):
    nodes: list[_TraceNode]
    pid: Any = None
    schema: Any = None


class CommNode(msgspec.Struct, frozen=True):
    """One communication call: elements that go in and come out, `splits` per member.

    `op` is commsim's name of the call `name`, `counter` tells what `sequence` counts. -1 and "" are
    unknown.
    """

    name: str
    op: str
    record_function: int
    sequence: int
    group: str
    elements: int
    out_elements: int
    itemsize: int
    dtype: str
    splits: tuple[int, ...]
    peer: int
    counter: str = ""

    @property
    def work(self) -> tuple[str, int]:
        """What a call and its wait share: who counted it, and its number there."""
        return self.counter, self.sequence

    @property
    def is_wait(self) -> bool:
        """Whether this waits for an earlier call."""
        return self.name == "wait"


class ExecutionTrace(msgspec.Struct, frozen=True):
    """The communication calls of one process, in order."""

    name: str
    pid: str
    rank: int
    comms: tuple[CommNode, ...]
    schema: str = ""
    groups: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    library: str = "nccl"


def is_execution_trace(data: Data) -> bool:
    """Say whether a JSON text looks like a PyTorch Execution Trace."""
    return b'"nodes"' in data and b'"schema"' in data


def read_execution_trace(document: Document) -> ExecutionTrace:
    """Read the communication calls. Raises TraceError if the file is not one."""
    try:
        file = msgspec.json.decode(document.data, type=_ExecutionTraceJson)
    except BAD_JSON as error:
        raise TraceError(
            f"{document.name}: not a readable PyTorch Execution Trace ({error})."
        ) from None
    comms, library = _comms(file.nodes, _COMMS, _comm), "nccl"
    if not comms:
        comms, library = _comms(file.nodes, "c10d::", _c10d), "gloo"
    return ExecutionTrace(
        document.name,
        str(file.pid),
        rank_in_name(document.name),
        comms,
        str(file.schema),
        _groups(file.nodes),
        library if comms else "",
    )


def _comms(
    nodes: list[_TraceNode], prefix: str, read: Callable[[_TraceNode], CommNode | None]
) -> tuple[CommNode, ...]:
    chosen = sorted((n for n in nodes if n.name.startswith(prefix)), key=_record_function)
    return tuple(comm for node in chosen if (comm := read(node)))


def _groups(nodes: list[_TraceNode]) -> dict[str, tuple[int, ...]]:
    """Return the process groups by name and by handle; an empty list stands for all ranks."""
    groups: dict[str, tuple[int, ...]] = {}
    for node in nodes:
        text = _first(_values(node.inputs)) if node.name == _INIT else None
        for group in _listed_groups(text):
            size = integer(group.get("group_size"))
            ranks = numbers_of(group.get("ranks"))
            if not ranks and 0 < size <= _MAX_RANKS:
                ranks = tuple(range(size))
            for label in ("pg_name", "backend_id", "uid"):
                if ranks and label in group:
                    groups[str(group[label])] = ranks
    return groups


def _listed_groups(text: Any) -> list[dict[str, Any]]:
    """Return the groups in a JSON text that may be cut off; then those that are whole."""
    if not isinstance(text, str):
        return []
    for end in (len(text), text.rfind("},") + 1):
        try:
            return msgspec.json.decode(
                text[:end] + ("" if end == len(text) else "]"), type=list[dict[str, Any]]
            )
        except BAD_JSON:
            continue
    return []


def _record_function(node: _TraceNode) -> int:
    return integer(node.rf_id if node.rf_id is not None else _attribute(node, "rf_id"))


def _attribute(node: _TraceNode, name: str) -> Any:
    for attribute in node.attrs if isinstance(node.attrs, list) else ():
        if isinstance(attribute, dict) and attribute.get("name") == name:
            return attribute.get("value")
    return None


def _inputs(node: _TraceNode) -> tuple[list[Any], list[Any]]:
    """Return (values, types), flat in schema 1.0.1 and nested later."""
    types = node.inputs.get("types") if isinstance(node.inputs, dict) else node.input_types
    return _values(node.inputs), types if isinstance(types, list) else []


def _values(of: Any) -> list[Any]:
    values = of.get("values") if isinstance(of, dict) else of
    return values if isinstance(values, list) else []


def _first(values: list[Any]) -> Any:
    return values[0] if values else None


def _count(tensors: list[list[Any]]) -> int:
    return sum(integer(tensor[3], 0) for tensor in tensors) if tensors else -1


def _comm(node: _TraceNode) -> CommNode | None:
    values, types = _inputs(node)
    if len(values) > _WAIT_NAME_AT and values[_WAIT_NAME_AT] == "wait":
        return _call(node, "wait", values[0], values[1], values[2])
    if len(values) <= _NAME_AT or not isinstance(values[_NAME_AT], str):
        return None
    tensors = list(_tensors(values[0]))
    itemsize = integer(tensors[0][4]) if tensors else -1
    return _call(
        node,
        values[_NAME_AT],
        values[1],
        values[2],
        values[3],
        elements=_count(tensors),
        out_elements=_count(list(_tensors(_first(_values(node.outputs))))),
        itemsize=itemsize,
        dtype=_dtype(types),
        splits=_split(values[_NAME_AT + 1]) if len(values) > _NAME_AT + 1 else (),
    )


def _c10d(node: _TraceNode) -> CommNode | None:
    """Return what a c10d op was given: a Gloo call. The output comes first in the `_base_` ops."""
    name = node.name.removeprefix("c10d::").strip("_")
    values, types = _inputs(node)
    op = op_of(name)
    if not op or not values:
        return None
    output_first = "base" in name or op in ("all_gather", "reduce_scatter", "scatter", "gather")
    sides = [list(_tensors(value)) for value in values[:2]]
    one_side = len(sides) < 2 or not sides[1]
    sent, received = (sides[0], sides[0]) if one_side else sides
    if output_first and not one_side:
        sent, received = received, sent
    message = op in ("send", "recv")
    scalars = [value for value in values if isinstance(value, int)]
    itemsize = integer(sent[0][4]) if sent else -1
    return _call(
        node,
        name,
        -1,
        "",
        scalars[0] if message and scalars else -1,
        elements=_count(sent),
        out_elements=_count(received),
        itemsize=itemsize,
        dtype=_dtype(types) or _dtype(types[1:]),
    )


def _call(
    node: _TraceNode,
    name: str,
    sequence: Any,
    group: Any,
    peer: Any,
    *,
    elements: int = -1,
    out_elements: int = -1,
    itemsize: int = -1,
    dtype: str = "",
    splits: tuple[int, ...] = (),
) -> CommNode:
    first, label, counter = sequence, group, ""
    if isinstance(group, list) and group:
        label = counter = str(group[0])
    if isinstance(sequence, list) and sequence:
        first, counter = sequence[0], f"{counter} messages" if sequence[-1] is True else counter
    known, size = dtype_of(dtype)
    return CommNode(
        name=name,
        op=uneven_op(name, listed=bool(splits)),
        record_function=_record_function(node),
        sequence=integer(first),
        group=str(label),
        elements=elements,
        out_elements=out_elements,
        itemsize=itemsize if itemsize > 0 else size,
        dtype=known,
        splits=splits,
        peer=integer(peer),
        counter=counter,
    )


def _tensors(value: Any) -> Iterator[list[Any]]:
    """Yield the tensors in a value, which may be one or lists of them, two deep."""
    if not isinstance(value, list):
        return
    stack: list[tuple[list[Any], int]] = [(value, 0)]
    while stack:
        one, depth = stack.pop()
        if len(one) >= _TENSOR_FIELDS and not isinstance(one[0], list):
            yield one
        elif depth < _DEPTH:
            stack += [(inner, depth + 1) for inner in reversed(one) if isinstance(inner, list)]


def _dtype(types: list[Any]) -> str:
    """Return "float" of "Tensor(float)" or "GenericList[Tensor(float)]"."""
    text = str(types[0]) if types else ""
    return text.partition("Tensor(")[2].partition(")")[0]


def _split(value: Any) -> tuple[int, ...]:
    return tuple(integer(v) for v in value) if isinstance(value, list) else ()
