"""PARAM's comms traces, call by call: bytes of elements, peers, roots, splits, waits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commsim.traces.formats.files import Document
from commsim.traces.formats.param.reader import is_param, read_param
from commsim.traces.formats.records import Issued, RankRecord

GROUP = {"comms": "init", "pg_id": 7, "req": -1, "global_ranks": [4, 6], "world_size": 8}


def read(*rows: dict[str, Any]) -> RankRecord:
    return read_param(Document("rank4.json", json.dumps([GROUP, *rows]).encode()))


def call(**settings: Any) -> Issued:
    """Return the one call of a trace, of 4 elements of 4 bytes in and 8 out if not said."""
    sizes = {"in_msg_size": 4, "out_msg_size": 8, "dtype": "Float", "pg_id": 7, "req": 1}
    (found,) = read(sizes | settings).calls
    return found


def test_a_list_of_calls_is_one() -> None:
    assert is_param(b' \n[{"comms": "init"}]')
    assert not is_param(b'{"comms": "init"}')
    assert not is_param(b"[1, 2]")


def test_what_the_file_says_of_its_rank() -> None:
    found = read({"compute": "gemm"}, {"comms": "", "compute": "emb"}, {"marker": "x"})
    assert (found.rank, found.world_size, found.groups, found.calls) == (4, 8, {"7": (4, 6)}, ())
    assert found.format == "PARAM comms"
    assert found.notes == (
        "PARAM trace: calls in order, no durations.",
        "PARAM trace: 2 compute entries have no duration; left out.",
    )
    assert len(read({"marker": "x"}).notes) == 1
    assert read({"marker": "x", "world_size": 10**9}).world_size == 1_000_000


def test_a_collective_has_bytes_and_the_ranks_of_its_group() -> None:
    found = call(comms="all_gather")
    assert (found.op, found.name, found.dtype) == ("all_gather", "all_gather", "float32")
    assert (found.sent, found.received) == (16, 32)
    assert (found.group, found.ranks, found.root, found.peer) == ("7", (4, 6), -1, -1)
    assert (found.splits, found.after, found.blocking) == ((), None, True)
    alone = call(comms="all_gather", pg_id=None)
    assert (alone.group, alone.ranks) == ("", ())


@pytest.mark.parametrize(
    ("sizes", "sent", "received"),
    [
        ({"in_msg_size": 0, "out_msg_size": 1}, 0, 4),
        ({"in_msg_size": -1, "out_msg_size": -5}, -1, -1),
        ({"dtype": "Byte"}, 4, 8),  # one byte per element
        ({"dtype": "nothing"}, -1, -1),
        ({"in_msg_size": "many", "out_msg_size": None}, -1, -1),
    ],
)
def test_sizes_are_elements_of_a_known_type(
    sizes: dict[str, Any], sent: int, received: int
) -> None:
    found = call(comms="all_reduce", **sizes)
    assert (found.sent, found.received) == (sent, received)


def test_a_root_belongs_to_the_ops_that_have_one() -> None:
    assert call(comms="broadcast", root=6).root == 6
    assert call(comms="broadcast").root == -1
    assert call(comms="all_reduce", root=6).root == -1


@pytest.mark.parametrize(
    ("name", "splits", "op", "parts"),
    [
        ("all_to_allv", [1, 3], "all_to_all_v", (4, 12)),
        ("all_to_allv", [2, 2], "all_to_all_v", (8, 8)),
        ("all_to_allv", [], "all_to_all", ()),
        ("all_to_all", [1, 3], "all_to_all_v", (4, 12)),
        ("all_to_all", [2, 2], "all_to_all", ()),
        ("all_to_all", [], "all_to_all", ()),
        ("all_reduce", [1, 3], "all_reduce", ()),
    ],
)
def test_an_exchange_is_uneven_by_its_splits(
    name: str, splits: list[int], op: str, parts: tuple[int, ...]
) -> None:
    found = call(comms=name, in_split=splits)
    assert (found.op, found.splits) == (op, parts)
    assert call(comms=name, in_split=splits, dtype="nothing").splits == ()
    bytewise = call(comms=name, in_split=splits, dtype="Byte")
    assert bytewise.splits == tuple(part // 4 for part in parts)


def test_messages_name_their_other_end() -> None:
    ends = {"src_rank": 4, "dst_rank": 6}
    assert (call(comms="send", **ends).op, call(comms="send", **ends).peer) == ("send", 6)
    assert (call(comms="recv", **ends).op, call(comms="recv", **ends).peer) == ("recv", 4)


def test_what_is_waited_for_does_not_block() -> None:
    reduce = {"comms": "all_reduce", "in_msg_size": 1, "out_msg_size": 1, "dtype": "Float"}
    wait = {"comms": "wait"}
    found = read(
        wait | {"req": 5},  # nothing was issued yet
        reduce | {"req": 1}, reduce | {"req": 2}, reduce | {"req": [0, 3, False]}, reduce,
        wait | {"req": 2}, wait | {"req": [0, 3, False]},
        wait | {"req": 9},  # of no call that is known: of the last
    ).calls  # fmt: skip
    assert [one.after for one in read(reduce | {"req": 4}, wait | {"req": 4}).calls] == [None, (0,)]
    assert [one.blocking for one in found[1:5]] == [True, False, False, True]
    assert [one.op for one in found] == ["wait", *["all_reduce"] * 4, *["wait"] * 3]
    assert [one.after for one in found] == [(), None, None, None, None, (2,), (3,), (6,)]
