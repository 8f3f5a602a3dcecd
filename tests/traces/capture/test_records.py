"""What a captured rank's records say where nothing is said, and how they stand in a file."""

from __future__ import annotations

import msgspec

from commsim.traces.capture.records import (
    CapturedCall,
    CapturedMemory,
    CapturedMessage,
    CapturedWork,
    GroupMade,
    Mark,
    Product,
    Record,
    Sync,
    Waited,
    WaitsFor,
)

NOWHERE = {"phase": 0, "stage": -1, "microbatch": -1, "alloc": 0, "free": 0}


def test_work_outside_stages_takes_no_memory_and_is_done_once() -> None:
    assert msgspec.structs.asdict(CapturedWork("mm", 0, 2.0, 3)) == {
        "op": "mm", "stream": 0, "flops": 2.0, "traffic": 3, "product": None, "again": False,
        "launches": 1, **NOWHERE,
    }  # fmt: skip
    assert not Product("attention", 1, 2, 3, 4, "float16").causal


def test_a_call_has_no_root_and_even_parts() -> None:
    assert msgspec.structs.asdict(CapturedCall("all_gather", 1, 64, 0, 7, True)) == {
        "op": "all_gather", "group": 1, "size": 64, "stream": 0, "id": 7, "internal": True,
        "dtype": "", "redop": "", "root": -1, "splits": (), **NOWHERE,
    }  # fmt: skip


def test_a_message_is_issued_alone() -> None:
    assert msgspec.structs.asdict(CapturedMessage(True, 1, 2, 64, 0, 7)) == {
        "sends": True, "peer": 1, "group": 2, "size": 64, "stream": 0, "id": 7, "batch": -1,
        "tag": 0, **NOWHERE,
    }  # fmt: skip


def test_nothing_is_held_if_nothing_is_said() -> None:
    assert set(msgspec.structs.asdict(CapturedMemory()).values()) == {0}


def test_records_are_written_as_rows() -> None:
    """A step has millions: a row names no fields, and says first what it is."""
    rows: list[Record] = [
        Waited(7, 1), Mark(3, 1), WaitsFor(3, 2), Sync(-1), CapturedWork("mm", 0, 2.0, 3),
        CapturedCall("all_gather", 1, 64, 0, 7, False), CapturedMessage(False, 1, 2, 64, 0, 7),
    ]  # fmt: skip
    written = msgspec.json.decode(msgspec.json.encode(rows))
    assert [row[0] for row in written] == [
        "waited", "event", "waits", "sync", "work", "call", "message",
    ]  # fmt: skip
    assert written[:4] == [["waited", 7, 1], ["event", 3, 1], ["waits", 3, 2], ["sync", -1]]
    assert msgspec.json.decode(msgspec.json.encode(rows), type=list[Record]) == rows
    whole = Product("matmul", 1, 2, 3, 4, "float16", True)
    assert msgspec.json.encode(whole) == b'["matmul",1,2,3,4,"float16",true]'
    assert msgspec.json.encode(GroupMade((0, 1), "dp")) == b'[[0,1],"dp"]'
