"""
SQLite exports of Nsight Systems, written by hand: the tables that `nsys export` makes (2024 and
later), and NCCL's payloads as nvtx_payload_schemas.h lays them out.
"""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
    contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
    demangledName INTEGER, shortName INTEGER, gridX INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER,
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER,
    srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, end INTEGER, deviceId INTEGER,
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, syncType INTEGER, eventId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT,
    globalTid INTEGER, textId INTEGER, domainId INTEGER, binaryData BLOB);
CREATE TABLE NVTX_PAYLOAD_SCHEMAS (domainId INTEGER, schemaId INTEGER, name TEXT, type INTEGER,
    flags INTEGER, numEntries INTEGER, payloadSize INTEGER, alignTo INTEGER);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER, schemaId INTEGER, idx INTEGER,
    flags INTEGER, type INTEGER, name TEXT, description TEXT, arrayOrUnionDetail INTEGER,
    offset INTEGER);
"""
INIT, CALL, PEER = 1, 2, 3
FIELDS = {
    INIT: (("NCCL communicator ID", None), ("No. of ranks", 8), ("Rank", 12), ("CUDA device", 16)),
    CALL: (("NCCL communicator ID", None), ("Message size [bytes]", 8)),
    PEER: (("NCCL communicator ID", None), ("Message size [bytes]", 8), ("Peer rank", 16)),
}


class Export:
    """Collects what nsys would have exported; times in us from the session's start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.unlink(missing_ok=True)
        self.db = sqlite3.connect(path)
        self.db.executescript(SCHEMA)
        self._strings: dict[str, int] = {}
        self._correlation = 0
        self._add("TARGET_INFO_SESSION_START_TIME", 1_700_000_000 * 10**9, "", "")
        for schema, fields in FIELDS.items():
            self._add("NVTX_PAYLOAD_SCHEMAS", 1, schema, None, 1, None, len(fields), 24, None)
            for at, (name, offset) in enumerate(fields):
                entry = (1, schema, at, None, 18, name, None, None, offset)
                self._add("NVTX_PAYLOAD_SCHEMA_ENTRIES", *entry)

    def _add(self, table: str, *values: object) -> None:
        marks = ", ".join("?" * len(values))
        self.db.execute(f"INSERT INTO {table} VALUES ({marks})", values)

    def string(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self._add("StringIds", self._strings[text], text)
        return self._strings[text]

    def call(self, pid: int, name: str, at: float, length: float) -> int:
        """Add a call of the CUDA API; return its correlation."""
        self._correlation += 1
        thread = (pid << 24) + pid
        ends = _ns(at), _ns(at + length)
        name_id = self.string(f"{name}_v7000")
        self._add("CUPTI_ACTIVITY_KIND_RUNTIME", *ends, 0, thread, self._correlation, name_id, 0)
        return self._correlation

    def kernel(
        self, pid: int, name: str, launched: float, at: float, length: float, stream: int = 7
    ) -> None:
        number = self.call(pid, "cudaLaunchKernel", launched, 5)
        ends, text = (_ns(at), _ns(at + length)), self.string(name)
        where = (pid % 8, 1, stream, number, pid << 24, text, text, 1)
        self._add("CUPTI_ACTIVITY_KIND_KERNEL", *ends, *where)

    def sync(self, pid: int, name: str, at: float, length: float, kind: int, stream: int) -> None:
        number = self.call(pid, name, at, length)
        ends = _ns(at), _ns(at + length)
        where = (pid % 8, stream, number, pid << 24, kind, 0)
        self._add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", *ends, *where)

    def note(
        self, pid: int, name: str, at: float, length: float, blob: bytes | None = None
    ) -> None:
        thread = (pid << 24) + pid
        row = (_ns(at), _ns(at + length), 59, name, thread, None, 1, blob)
        self._add("NVTX_EVENTS", *row)

    def communicator(self, pid: int, number: int, rank: int, members: int) -> None:
        self.note(pid, "ncclCommInitRank", 0, 1, _blob(INIT, "<Qii", number, members, rank))

    def collective(self, pid: int, name: str, at: float, number: int, size: int) -> None:
        """Add NCCL's own range over a launch."""
        self.note(pid, name, at, 20, _blob(CALL, "<QQ", number, size))

    def message(self, pid: int, name: str, at: float, number: int, size: int, peer: int) -> None:
        self.note(pid, name, at, 2, _blob(PEER, "<QQi", number, size, peer))

    def save(self) -> Path:
        self.db.commit()
        self.db.close()
        return self.path


def _ns(us: float) -> int:
    return round(us * 1000)


def _blob(schema: int, layout: str, *values: int) -> bytes:
    body = struct.pack(layout, *values).ljust(24, b"\0")
    return struct.pack("<IIIIQQ", 1, 0, schema, 0, len(body), 32 + len(body)) + body
