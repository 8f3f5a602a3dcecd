"""
Chakra's protobuf messages, described at run time: no generated code, any protobuf version.

Field numbers and types are those of et_def.proto of mlcommons/chakra (commit 21585d8f,
Apache-2.0), which astra-sim reads as well.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from commsim.errors import TraceError

__all__ = ["Messages", "messages"]

_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING = range(1, 10)
_MESSAGE, _BYTES, _UINT32 = 11, 12, 13
_SFIXED32, _SFIXED64, _SINT32, _SINT64 = 15, 16, 17, 18
_VALUES = (
    ("double", _DOUBLE), ("float", _FLOAT), ("int32", _INT32), ("int64", _INT64),
    ("uint32", _UINT32), ("uint64", _UINT64), ("sint32", _SINT32), ("sint64", _SINT64),
    ("fixed32", _FIXED32), ("fixed64", _FIXED64), ("sfixed32", _SFIXED32),
    ("sfixed64", _SFIXED64), ("bool", _BOOL), ("string", _STRING), ("bytes", _BYTES),
)  # fmt: skip
_PACKAGE = "commsim.chakra"


class Messages(NamedTuple):
    """The message classes of a Chakra trace."""

    metadata: Any
    node: Any


@cache
def messages() -> Messages:
    """Return the message classes.

    Raises:
        TraceError: protobuf is not installed.
    """
    try:
        descriptor = import_module("google.protobuf.descriptor_pb2")
        pool = import_module("google.protobuf.descriptor_pool")
        factory = import_module("google.protobuf.message_factory")
    except ImportError:
        raise TraceError('Chakra .et files need protobuf: pip install "commsim[trace]".') from None
    own = pool.DescriptorPool()
    own.Add(_file(descriptor))
    node, metadata = (
        factory.GetMessageClass(own.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in ("Node", "GlobalMetadata")
    )
    return Messages(metadata, node)


def _file(descriptor: Any) -> Any:
    file = descriptor.FileDescriptorProto(
        name="commsim_chakra.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, kind in _VALUES:
        _add(file, _list_name(name), ("values", 1, kind, True))
    attribute = _add(file, "AttributeProto", ("name", 1, _STRING), ("doc_string", 2, _STRING))
    attribute.oneof_decl.add(name="value")
    for place, (name, kind) in enumerate(_VALUES):
        _field(attribute, f"{name}_val", 3 + 2 * place, kind).oneof_index = 0
        _field(attribute, f"{name}_list", 4 + 2 * place, _list_name(name)).oneof_index = 0
    _add(file, "GlobalMetadata", ("version", 1, _STRING), ("attr", 2, "AttributeProto", True))
    _add(file, "IOInfo", *((part, at, _STRING) for at, part in enumerate(_IO, start=1)))
    _add(
        file, "Node", ("id", 1, _UINT64), ("name", 2, _STRING), ("type", 3, _INT32),
        ("ctrl_deps", 4, _UINT64, True), ("data_deps", 5, _UINT64, True),
        ("start_time_micros", 6, _UINT64), ("duration_micros", 7, _UINT64),
        ("inputs", 8, "IOInfo"), ("outputs", 9, "IOInfo"), ("attr", 10, "AttributeProto", True),
    )  # fmt: skip
    return file


_IO = ("values", "shapes", "types")


def _list_name(name: str) -> str:
    return f"{name.capitalize()}List"


def _add(file: Any, name: str, *fields: tuple[Any, ...]) -> Any:
    message = file.message_type.add(name=name)
    for field in fields:
        _field(message, *field)
    return message


def _field(message: Any, name: str, number: int, kind: int | str, repeated: bool = False) -> Any:
    field = message.field.add(name=name, number=number, label=3 if repeated else 1)
    if isinstance(kind, str):
        field.type, field.type_name = _MESSAGE, f".{_PACKAGE}.{kind}"
    else:
        field.type = kind
    return field
