"""Chakra's JSON, node by node: what each attribute says of a call, and what waits for what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commsim.errors import TraceError
from commsim.traces.formats.chakra.reader import Node, NodeType, is_chakra, read_chakra, read_nodes
from commsim.traces.formats.files import Document
from commsim.traces.formats.records import Issued, RankRecord

US = 1_000_000


def astra(number: int, kind: int, *deps: int, **attributes: Any) -> dict[str, Any]:
    """A node as astra-sim writes it: 5 us, if not said."""
    return {
        "Id": number, "Name": f"n{number}", "NodeType": kind, "runtime": 5,
        "data_deps": list(deps), **attributes,
    }  # fmt: skip


def read(*rows: dict[str, Any], name: str = "x.3.json") -> RankRecord:
    return read_chakra(Document(name, json.dumps({"workload_graph": rows}).encode()))


def one(kind: int, **attributes: Any) -> Issued:
    (found,) = read(astra(1, kind, **attributes)).calls
    return found


def test_which_files_are_chakras() -> None:
    assert is_chakra(b' {"workload_graph": []}', "x.json")
    assert is_chakra(b'{"type": "COMM_COLL_NODE"}', "x.json")
    assert is_chakra(b'{"type": "COMP_NODE"}', "x.json")
    assert not is_chakra(b'{"type": "node"}', "x.et")
    assert is_chakra(b"\x00", "X.ET")
    assert is_chakra(b"", "x.et.gz")
    assert not is_chakra(b"", "x")
    version, attribute = b"\x0a", b"\x12"  # fields 1 and 2 of the metadata, as bytes
    for length in (2, 127):
        assert is_chakra(bytes([length]) + version + b"schema", "x")
        assert is_chakra(bytes([length]) + attribute + b"schema", "x")
    for length in (1, 128):
        assert not is_chakra(bytes([length]) + version + b"schema", "x")
    assert not is_chakra(b"\x05\x0b" + b"schema", "x")
    assert not is_chakra(b"\x05\x0a" + b"nothing", "x")
    assert not is_chakra(b"\x05\x0a", "x")
    for before, known in ((120, True), (121, False)):  # it is looked for in 128 bytes
        assert is_chakra(b"\x7f\x0a" + bytes(before) + b"schema", "x") is known


def test_a_record_has_the_rank_of_its_name_and_no_world() -> None:
    found = read(astra(1, NodeType.COMPUTE))
    assert (found.rank, found.world_size, found.format) == (3, 0, "Chakra")
    assert found.notes == ("Chakra JSON: durations are whole microseconds.",)
    assert read(astra(1, NodeType.COMPUTE), name="x.json").rank == -1


def test_types_of_nodes_are_chakras_own() -> None:
    """et_def.proto: metadata is 1, loads and stores 2 and 3, work 4, messages 5, 6, a call 7."""
    rows = [astra(kind, kind, comm_size=1) for kind in range(8)]
    assert [call.name for call in read(*rows).calls] == [f"n{kind}" for kind in range(2, 8)]
    assert [call.op for call in read(*rows).calls] == [
        "compute", "compute", "compute", "send", "recv", "all_reduce",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "op", "root"),
    [
        (0, "all_reduce", -1), (1, "reduce", 6), (2, "all_gather", -1), (3, "gather", 6),
        (4, "scatter", 6), (5, "broadcast", 6), (6, "all_to_all", -1), (7, "reduce_scatter", -1),
        (8, "reduce_scatter", -1), (9, "barrier", -1), (10, "", -1), (-1, "", -1),
    ],
)  # fmt: skip
def test_kinds_of_collectives_are_chakras_own(number: int, op: str, root: int) -> None:
    """CollectiveCommType of et_def.proto; 8 is REDUCE_SCATTER_BLOCK."""
    found = one(NodeType.COLLECTIVE, comm_type=number, comm_size=64, comm_src=6, pg_name="2")
    assert (found.op, found.root, found.sent, found.group) == (op, root, 64, "2")
    assert (found.duration, found.after, found.stream) == (5 * US, (), "comm")


def test_what_a_collective_does_not_say() -> None:
    found = one(NodeType.COLLECTIVE, runtime=0)
    assert (found.op, found.sent, found.duration, found.group) == ("all_reduce", -1, -1, "")
    assert one(NodeType.COLLECTIVE, comm_type=1).root == -1


def test_messages_have_their_other_end_else_themselves() -> None:
    ends = {"comm_src": 4, "comm_dst": 6, "comm_tag": 9, "comm_size": 64}
    sent, received = one(NodeType.SEND, **ends), one(NodeType.RECV, **ends)
    assert (sent.op, sent.peer, sent.tag, sent.sent, sent.duration) == ("send", 6, 9, 64, 5 * US)
    assert (received.op, received.peer, received.tag) == ("recv", 4, 9)
    bare = one(NodeType.SEND, runtime=0)
    assert (bare.peer, bare.tag, bare.sent, bare.duration) == (3, 0, -1, -1)
    assert one(NodeType.SEND, comm_dst=0).peer == 0


def test_work_has_its_time_its_side_and_its_stream() -> None:
    found = one(NodeType.COMPUTE)
    assert (found.op, found.duration, found.on_cpu, found.stream) == (
        "compute", 5 * US, False, "stream",
    )  # fmt: skip
    assert one(NodeType.COMPUTE, is_cpu_op=True).on_cpu
    assert one(NodeType.COMPUTE, is_cpu_op=True).stream == "cpu"
    assert not one(NodeType.COMPUTE, is_cpu_op=False).on_cpu
    assert one(NodeType.COMPUTE, duration_ps=7).duration == 7
    assert one(NodeType.COMPUTE, duration_ps=0).duration == 0
    assert one(NodeType.COMPUTE, runtime=0).duration == 0
    assert one(NodeType.COMPUTE, runtime=-4).duration == 0


@pytest.mark.parametrize(
    ("written", "stream"),
    [
        ({"stream": 0}, "stream 0"), ({"tid": 20}, "stream 20"), ({"stream": 7, "tid": 20},
         "stream 7"), ({"stream_name": "side", "stream": 7}, "side"), ({"stream": -2}, "stream"),
    ],
)  # fmt: skip
def test_a_stream_is_named_or_numbered(written: dict[str, Any], stream: str) -> None:
    assert one(NodeType.COMPUTE, **written).stream == stream


def test_a_launcher_is_left_out_and_what_waits_for_it_waits_for_what_it_waits_for() -> None:
    found = read(
        astra(1, NodeType.COMPUTE),
        astra(2, NodeType.COMPUTE),
        astra(3, NodeType.COLLECTIVE, 1, is_cpu_op=True),  # no size: the CPU's call
        astra(4, NodeType.COLLECTIVE, 3, is_cpu_op=True, comm_size=8),
        astra(5, 1, 2, 4),  # metadata
        astra(6, NodeType.COMPUTE, 5, 99, is_cpu_op=True),
    )
    assert [call.name for call in found.calls] == ["n1", "n2", "n4", "n6"]
    assert [call.after for call in found.calls] == [(), (), (0,), (1, 2)]
    assert found.notes[1:] == ("Chakra: 1 CPU launchers of collectives are left out.",)


def test_loads_and_stores_are_kept_and_no_launchers() -> None:
    found = read(astra(1, NodeType.LOAD), astra(2, NodeType.STORE), astra(3, 1), astra(4, 0))
    assert [call.name for call in found.calls] == ["n1", "n2"]
    assert len(found.notes) == 1


def test_nodes_follow_what_they_need() -> None:
    found = read(astra(1, NodeType.COMPUTE, 3), astra(2, NodeType.COMPUTE), astra(3, 4, 2))
    assert [call.name for call in found.calls] == ["n2", "n3", "n1"]
    assert [call.after for call in found.calls] == [(), (0,), (1,)]


def test_a_cycle_is_cut_where_it_goes_to_a_larger_id() -> None:
    """Older converters tie an op and its kernel both ways; the third needs itself."""
    found = read(astra(2, 4, 1, 2), astra(1, 4, 2, 99), astra(3, 4, 1))
    assert [call.name for call in found.calls] == ["n1", "n2", "n3"]
    assert [call.after for call in found.calls] == [(), (0,), (0,)]
    assert found.notes[1:] == (
        "Chakra: dependencies form cycles; 2 of them, on nodes of larger id, are left out.",
    )


def test_two_nodes_of_one_id_are_refused() -> None:
    with pytest.raises(TraceError, match=r"^x.3.json: two nodes have the same id\.$"):
        read(astra(1, 4), astra(1, 4))


def test_the_jsonizers_nodes_say_their_values_in_many_types() -> None:
    written = [
        {"name": "comm_size", "int64Val": "64"}, {"name": "is_cpu_op", "boolVal": True},
        {"name": "pg_name", "stringVal": "2"}, {"name": "empty"},
        {"name": "dims", "uint64List": {"values": [2, 3]}},
        {"name": "none", "uint64List": {}}, {"name": "share", "doubleVal": 0.5},
    ]  # fmt: skip
    rows = [
        {"version": "0.0.4"},
        {"type": "COMM_COLL_NODE", "id": "5", "name": "c", "ctrlDeps": ["1"], "dataDeps": [2],
         "durationMicros": "7", "attr": written},
        {"id": 6, "type": 4}, {"type": "ODD_NODE"},
    ]  # fmt: skip
    text = "\n".join(json.dumps(row) for row in rows)
    nodes, version = read_nodes(Document("x.0.json", text.encode()))
    assert version == "0.0.4"
    assert nodes == [
        Node(5, "c", 7, (1, 2), 7, {
            "comm_size": "64", "is_cpu_op": True, "pg_name": "2", "empty": 0, "dims": [2, 3],
            "none": [], "share": 0.5,
        }),
        Node(6, "", 4, (), 0, {}),
        Node(0, "", 0, (), 0, {}),
    ]  # fmt: skip
