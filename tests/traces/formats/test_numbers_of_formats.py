"""Numbers that formats define: CUPTI's and Chakra's enumerations, units, limits of what is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.nsight_writer import Export

from commsim.traces.formats.chakra import reader as chakra
from commsim.traces.formats.events import EventKind
from commsim.traces.formats.files import Document, FileLimits
from commsim.traces.formats.nsight.reader import read_nsight
from commsim.traces.formats.profiler_tables.values import Cells

PID, VM = 4000, 7 << 48  # a global id: 8 bits of hardware and 8 of machine above the process


def test_copies_and_waits_are_called_by_cuptis_numbers(tmp_path: Path) -> None:
    """CUpti_ActivityMemcpyKind, MemoryKind and SynchronizationType of the CUPTI reference."""
    export = Export(tmp_path / "x.sqlite")
    export.kernel(PID, "k", 1, 2, 3)
    for at, (kind, source, target) in enumerate(
        [(1, 0, 2), (2, 2, 1), (8, 2, 2), (10, 2, 3), (3, 4, 2)]
    ):
        row = (10 + at, 11 + at, 0, 7, 50 + at, VM + (PID << 24), 64, kind, source, target)
        export._add("CUPTI_ACTIVITY_KIND_MEMCPY", *row)
    for kind in range(6):
        export._add(
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", 20 + kind, 30, 0, 7, 60, PID << 24, kind, 0
        )
    for kind, name in ((34, "mark"), (59, "pushed"), (60, "started"), (61, "other")):
        thread = VM + (PID << 24) + 9
        export._add("NVTX_EVENTS", 40 + kind, 200, kind, name, thread, None, 1, None)
    path = export.save()
    (file,) = read_nsight(Document(str(path), path.read_bytes()))
    of = {kind: [e.name for e in file.events if e.kind == kind] for kind in EventKind}
    assert of[EventKind.MEMCPY] == [
        "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pinned)",
        "Memcpy DtoD (Device -> Device)", "Memcpy PtoP (Device -> Array)",
        "Memcpy copy (? -> Device)",
    ]  # fmt: skip
    assert of[EventKind.CUDA_SYNC] == [
        "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync",
    ]  # fmt: skip
    assert of[EventKind.ANNOTATION] == ["pushed", "started"]
    assert {e.thread for e in file.events if e.kind == EventKind.ANNOTATION} == {(str(PID), "9")}
    assert file.pid == str(PID)


def test_what_a_node_does_not_say_is_0() -> None:
    """As proto3 leaves out what is 0."""
    node = chakra._jsonized_node({"attr": [{"name": "on", "boolVal": True}, {"name": "nothing"}]})
    assert (node.id, node.name, node.type, node.deps, node.duration) == (0, "", 0, (), 0)
    assert node.attributes == {"on": True, "nothing": 0}
    assert (chakra._integer(node, "none"), chakra._integer(node, "none", -1)) == (0, -1)
    assert chakra._integer(node, "on") == 1


def test_messages_of_a_protobuf_file_have_their_lengths_before_them() -> None:
    """A varint: seven bits a byte, the lowest first; 300 is AC 02."""
    data = b"\x02ab" + b"\x00" + b"\xac\x02" + bytes(300) + b"\x7f" + bytes(127)
    assert list(chakra._frames(data)) == [(1, 3), (4, 4), (6, 306), (307, 434)]
    assert list(chakra._frames(b"\x80\x01" + bytes(128))) == [(2, 130)]
    padded = b"\x81" + b"\x80" * 8  # ten bytes are the longest; what follows begins the message
    assert list(chakra._frames(padded + b"\x00a")) == [(10, 11)]
    assert list(chakra._frames(padded + b"\x80a")) == [(10, 11)]
    with pytest.raises(ValueError, match="cut off"):
        list(chakra._frames(b"\x03ab"))
    with pytest.raises(IndexError):
        list(chakra._frames(b"\x80"))


def test_units_of_tables_are_in_ns_and_bytes() -> None:
    assert {unit: Cells.UNITS[unit] for unit in ("ns", "us", "ms", "s")} == {
        "ns": 1, "us": 1000, "ms": 1000**2, "s": 1000**3,
    }  # fmt: skip
    for unit, same in (("nsec", "ns"), ("usec", "us"), ("μs", "us"), ("msec", "ms"), ("sec", "s")):
        assert Cells.UNITS[unit] == Cells.UNITS[same]
    assert Cells.UNITS["b"] == Cells.UNITS["byte"] == Cells.UNITS["bytes"] == 1
    assert [Cells.UNITS[unit] for unit in ("kb", "mb", "gb")] == [1000, 1000**2, 1000**3]
    assert [Cells.UNITS[unit] for unit in ("kib", "mib", "gib")] == [1024, 1024**2, 1024**3]


def test_kinds_of_events_are_places_of_a_table() -> None:
    assert [kind.value for kind in EventKind] == list(range(9))


def test_a_packed_trace_may_hold_8_gib_and_200_times_its_bytes_beyond_64_mib() -> None:
    limits = FileLimits()
    assert (limits.unpacked, limits.free) == (8 << 30, 64 << 20)
    assert (limits.ratio, limits.members) == (200, 100_000)
    assert not Document("x", b"").cut
