"""
Chakra's protobuf messages, described at run time: no generated code, any protobuf version.

Field numbers and types are those of et_def.proto of mlcommons/chakra (commit 21585d8f,
Apache-2.0), which astra-sim reads as well.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from commsim.errors import TraceError
from commsim.protobuf_schema import (
    BOOL,
    BYTES,
    DOUBLE,
    FIXED32,
    FIXED64,
    FLOAT,
    INT32,
    INT64,
    SFIXED32,
    SFIXED64,
    SINT32,
    SINT64,
    STRING,
    UINT32,
    UINT64,
    Schema,
)

__all__ = ["ChakraMessages", "messages"]

_VALUES = (
    ("double", DOUBLE), ("float", FLOAT), ("int32", INT32), ("int64", INT64),
    ("uint32", UINT32), ("uint64", UINT64), ("sint32", SINT32), ("sint64", SINT64),
    ("fixed32", FIXED32), ("fixed64", FIXED64), ("sfixed32", SFIXED32),
    ("sfixed64", SFIXED64), ("bool", BOOL), ("string", STRING), ("bytes", BYTES),
)  # fmt: skip


class ChakraMessages(NamedTuple):
    """The message classes of a Chakra trace."""

    metadata: Any
    node: Any


@cache
def messages() -> ChakraMessages:
    """Return the message classes.

    Raises:
        TraceError: protobuf is not installed.
    """
    schema = Schema(
        "commsim.chakra",
        syntax="proto3",
        missing=TraceError('Chakra .et files need protobuf: pip install "commsim[trace]".'),
    )
    for name, kind in _VALUES:
        schema.message(_list_name(name), ("values", 1, kind, True))
    attribute = schema.message("AttributeProto", ("name", 1, STRING), ("doc_string", 2, STRING))
    attribute.oneof_decl.add(name="value")
    for place, (name, kind) in enumerate(_VALUES):
        schema.field(attribute, f"{name}_val", 3 + 2 * place, kind).oneof_index = 0
        schema.field(attribute, f"{name}_list", 4 + 2 * place, _list_name(name)).oneof_index = 0
    schema.message("GlobalMetadata", ("version", 1, STRING), ("attr", 2, "AttributeProto", True))
    schema.message("IOInfo", *((part, at, STRING) for at, part in enumerate(_IO, start=1)))
    schema.message(
        "Node",
        ("id", 1, UINT64),
        ("name", 2, STRING),
        ("type", 3, INT32),
        ("ctrl_deps", 4, UINT64, True),
        ("data_deps", 5, UINT64, True),
        ("start_time_micros", 6, UINT64),
        ("duration_micros", 7, UINT64),
        ("inputs", 8, "IOInfo"),
        ("outputs", 9, "IOInfo"),
        ("attr", 10, "AttributeProto", True),
    )
    return ChakraMessages(*schema.classes("GlobalMetadata", "Node"))


_IO = ("values", "shapes", "types")


def _list_name(name: str) -> str:
    return f"{name.capitalize()}List"
