"""
What NCCL tells Nsight Systems of its calls: communicator, bytes, peer, as NVTX payloads.

A call is a range of the domain NCCL ("ncclAllReduce") with a blob: 32 bytes of header, the number
of its schema at byte 8, and then the fields at the offsets that the schema's entries give. Names of
the fields are those of NCCL's nvtx_payload_schemas.h (2.17 and later).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import msgspec

from commsim.traces.formats.nsight.database import Database
from commsim.traces.formats.values import integer

__all__ = ["Schemas", "schemas_of"]

_HEADER, _SCHEMA_AT = 32, 8
_NAMES = {
    "NCCL communicator ID": "communicator",
    "Message size [bytes]": "size",
    "Peer rank": "peer",
    "Root": "root",
    "Rank": "rank",
    "No. of ranks": "ranks",
}
# NCCL's own C types: uint64_t, size_t and int
_BY_NAME = {"communicator": "Q", "size": "Q", "peer": "i", "root": "i", "rank": "i", "ranks": "i"}


class Schemas(msgspec.Struct, frozen=True):
    """Where each schema has the fields that are used: name to offset."""

    offsets: Mapping[int, Mapping[str, int]]

    def fields(self, blob: Any) -> dict[str, int]:
        """Return the fields of a payload by our names; empty if it is not one."""
        data = bytes(blob) if isinstance(blob, bytes) else b""
        if len(data) < _HEADER:
            return {}
        (number,) = struct.unpack_from("<I", data, _SCHEMA_AT)
        found = {}
        for name, offset in self.offsets.get(number, {}).items():
            kind = f"<{_BY_NAME[name]}"
            if offset >= 0 and _HEADER + offset + struct.calcsize(kind) <= len(data):
                (found[name],) = struct.unpack_from(kind, data, _HEADER + offset)
        return found


def schemas_of(database: Database) -> Schemas:
    """Return the schemas whose fields are known."""
    offsets: dict[int, dict[str, int]] = {}
    rows = database.rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", "schemaId", "name", "offset")
    for number, name, offset in rows:
        if str(name) in _NAMES:
            offsets.setdefault(integer(number), {})[_NAMES[str(name)]] = integer(offset, 0)
    return Schemas(offsets)
