"""
Protobuf messages described at run time: no generated code, any version of protobuf.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from commsim.errors import CommsimError

__all__ = [
    "BOOL",
    "BYTES",
    "DOUBLE",
    "FIXED32",
    "FIXED64",
    "FLOAT",
    "INT32",
    "INT64",
    "SFIXED32",
    "SFIXED64",
    "SINT32",
    "SINT64",
    "STRING",
    "UINT32",
    "UINT64",
    "Schema",
]  # fmt: skip

# FieldDescriptorProto.Type of google/protobuf/descriptor.proto
DOUBLE, FLOAT, INT64, UINT64, INT32, FIXED64, FIXED32, BOOL, STRING = range(1, 10)
_MESSAGE, BYTES, UINT32 = 11, 12, 13
SFIXED32, SFIXED64, SINT32, SINT64 = 15, 16, 17, 18
_OPTIONAL, _REPEATED = 1, 3  # FieldDescriptorProto.Label


class Schema:
    """The messages of one package; `classes` makes Python classes of them.

    `syntax` is proto2 (a field that is set to 0 is written) or proto3.

    Raises:
        CommsimError: `missing`, if protobuf is not installed.
    """

    def __init__(self, package: str, *, syntax: str, missing: CommsimError) -> None:
        try:
            descriptor = import_module("google.protobuf.descriptor_pb2")
            pool = import_module("google.protobuf.descriptor_pool")
            self._factory = import_module("google.protobuf.message_factory")
        except ImportError:
            raise missing from None
        self._package = package
        self._pool = pool.DescriptorPool()
        self._file = descriptor.FileDescriptorProto(
            name=f"{package.replace('.', '_')}.proto", package=package, syntax=syntax
        )

    def message(self, name: str, *fields: tuple[Any, ...]) -> Any:
        """Add a message of fields (see `field`); return its descriptor."""
        message = self._file.message_type.add(name=name)
        for one in fields:
            self.field(message, *one)
        return message

    def field(
        self, message: Any, name: str, number: int, kind: int | str, repeated: bool = False
    ) -> Any:
        """Add a field to a message: of a type above, or of a message by its name."""
        label = _REPEATED if repeated else _OPTIONAL
        field = message.field.add(name=name, number=number, label=label)
        if isinstance(kind, str):
            field.type, field.type_name = _MESSAGE, f".{self._package}.{kind}"
        else:
            field.type = kind
        return field

    def classes(self, *names: str) -> tuple[Any, ...]:
        """Return the classes of messages, once all of them are described."""
        self._pool.Add(self._file)
        return tuple(
            self._factory.GetMessageClass(
                self._pool.FindMessageTypeByName(f"{self._package}.{name}")
            )
            for name in names
        )
