"""
PyTorch Execution Trace: what each communication call was given; it holds no times.

A `record_param_comms` node lists its inputs by position:
[tensors], sequence, group, rank (or peer, or root), "name", in splits, out splits, ...
A wait is [sequence, group, rank, "wait", ...]. A tensor is
[tensor id, storage id, offset, elements, bytes per element, device].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from commsim.errors import TraceError
from commsim.traces.files import Document
from commsim.traces.kineto import integer, rank_in_name

__all__ = ["CommNode", "ExecutionTrace", "is_execution_trace", "read_execution_trace"]

_NAME_AT, _WAIT_NAME_AT = 4, 3
_TENSOR_FIELDS = 6


class _Node(msgspec.Struct):
    name: str = ""
    rf_id: Any = None
    inputs: Any = None
    outputs: Any = None
    input_types: Any = None
    attrs: Any = None


class _File(msgspec.Struct):
    nodes: list[_Node]
    pid: Any = None
    schema: Any = None


@dataclass(frozen=True, slots=True)
class CommNode:
    """One communication call: elements that go in and come out, `splits` per member.

    -1 and "" are unknown.
    """

    name: str
    record_function: int
    sequence: int
    group: str
    elements: int
    out_elements: int
    itemsize: int
    dtype: str
    splits: tuple[int, ...]
    peer: int

    @property
    def is_wait(self) -> bool:
        """Whether this waits for an earlier call."""
        return self.name == "wait"


@dataclass(frozen=True, slots=True)
class ExecutionTrace:
    """The communication calls of one process, in order."""

    name: str
    pid: str
    rank: int
    comms: tuple[CommNode, ...]


def is_execution_trace(data: bytes) -> bool:
    """Say whether a JSON text looks like a PyTorch Execution Trace."""
    return b'"nodes"' in data and b'"schema"' in data


def read_execution_trace(document: Document) -> ExecutionTrace:
    """Read the communication calls. Raises TraceError where the file is not one."""
    try:
        file = msgspec.json.decode(document.data, type=_File)
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(
            f"{document.name}: not a readable PyTorch Execution Trace ({error})."
        ) from None
    nodes = sorted(
        (node for node in file.nodes if node.name == "record_param_comms"), key=_record_function
    )
    comms = tuple(comm for node in nodes if (comm := _comm(node)))
    return ExecutionTrace(document.name, str(file.pid), rank_in_name(document.name), comms)


def _record_function(node: _Node) -> int:
    return integer(node.rf_id if node.rf_id is not None else _attribute(node, "rf_id"))


def _attribute(node: _Node, name: str) -> Any:
    for attribute in node.attrs if isinstance(node.attrs, list) else ():
        if isinstance(attribute, dict) and attribute.get("name") == name:
            return attribute.get("value")
    return None


def _inputs(node: _Node) -> tuple[list[Any], list[Any]]:
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


def _comm(node: _Node) -> CommNode | None:
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


def _call(
    node: _Node,
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
    first = sequence[0] if isinstance(sequence, list) and sequence else sequence
    label = group[0] if isinstance(group, list) and group else group
    return CommNode(
        name=name,
        record_function=_record_function(node),
        sequence=integer(first),
        group=str(label),
        elements=elements,
        out_elements=out_elements,
        itemsize=itemsize,
        dtype=dtype,
        splits=splits,
        peer=integer(peer),
    )


def _tensors(value: Any) -> Iterator[list[Any]]:
    """Yield the tensors in a value, which may be one or a list of them."""
    if not isinstance(value, list):
        return
    if len(value) >= _TENSOR_FIELDS and not isinstance(value[0], list):
        yield value
        return
    for inner in value:
        if isinstance(inner, list) and len(inner) >= _TENSOR_FIELDS:
            yield inner


def _dtype(types: list[Any]) -> str:
    """Return "float" of "Tensor(float)" or "GenericList[Tensor(float)]"."""
    text = str(types[0]) if types else ""
    return text.split("Tensor(", 1)[1].split(")", 1)[0] if "Tensor(" in text else ""


def _split(value: Any) -> tuple[int, ...]:
    return tuple(integer(v) for v in value) if isinstance(value, list) else ()
