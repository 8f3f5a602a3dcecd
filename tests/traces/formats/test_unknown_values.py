"""What a recording does not say: -1, "", () and nothing else, which is what readers ask for."""

from __future__ import annotations

import msgspec
import pytest

from commsim.traces.formats.event_args import NO_STREAM, EventArgs, TieArgs
from commsim.traces.formats.events import EventKind
from commsim.traces.formats.profiler_tables.rows import Row
from commsim.traces.formats.records import Issued, buffer_size
from commsim.traces.formats.values import (
    FAR,
    dtype_of,
    in_bytes,
    integer,
    numbers_of,
    splits_in_bytes,
)


def test_a_call_of_which_nothing_is_known() -> None:
    assert msgspec.structs.asdict(Issued("barrier")) == {
        "op": "barrier", "sent": -1, "received": -1, "dtype": "", "group": "", "ranks": (),
        "root": -1, "peer": -1, "tag": 0, "splits": (), "sequence": -1, "duration": -1,
        "name": "", "stream": "", "on_cpu": False, "blocking": True, "after": None, "time": -1,
    }  # fmt: skip


def test_an_event_that_says_nothing() -> None:
    assert msgspec.structs.asdict(EventArgs()) == {
        "call": "", "op": "", "dtype": "", "itemsize": -1, "elements": -1, "out_elements": -1,
        "inputs": (-1, -1), "numbers": (), "splits": (), "group": "", "ranks": (), "source": -1,
        "target": -1, "sequence": -1, "record_function": -1, "bytes": -1, "waits_for": -1,
        "waits_for_stream": -1,
    }  # fmt: skip
    assert (TieArgs().correlation, TieArgs().stream) == (-1, NO_STREAM)
    assert EventArgs().most_elements == -1


def test_a_line_that_says_only_when() -> None:
    row = Row(EventKind.KERNEL, "k", 1, 2)
    assert (row.pid, row.thread, row.correlation, row.stream) == (-1, -1, -1, -1)
    assert (row.size, row.launched, row.device, row.projected) == (-1, -1, "", False)


def test_numbers_too_large_to_add_up_are_none() -> None:
    """Two of them must fit in 64 bits with a sign: 2**62 does not."""
    assert FAR == 2**62
    assert [integer(FAR - 1), integer(FAR), integer(1 - FAR), integer(-FAR)] == [
        FAR - 1, -1, 1 - FAR, -1,
    ]  # fmt: skip
    assert (integer("12"), integer("x"), integer(None, 5), integer(1e400)) == (12, -1, 5, -1)
    assert numbers_of([0, FAR - 1]) == (0, FAR - 1)
    assert numbers_of([0, FAR]) == numbers_of([0, -1]) == numbers_of(["x"]) == ()
    assert numbers_of("[0, 1, ...]") == numbers_of(7) == ()
    assert numbers_of("(3, 4,)") == (3, 4)
    assert (dtype_of("Half"), dtype_of("nothing")) == (("float16", 2), ("", -1))


@pytest.mark.parametrize(
    ("op", "sent", "received", "members", "size"),
    [
        ("all_gather", 4, -1, 3, 12), ("all_gather", 4, 16, 3, 16), ("all_gather", 0, -1, 3, 0),
        ("all_gather", -1, 12, 3, 12), ("all_gather", 4, -1, 0, 4), ("all_gather", 4, -1, 1, 4),
        ("reduce_scatter", -1, 4, 3, 12), ("reduce_scatter", 16, 4, 3, 16),
        ("reduce_scatter", -1, 0, 3, 0), ("reduce_scatter", 12, -1, 3, 12),
        ("reduce_scatter", -1, 4, 0, 4), ("reduce_scatter", -1, 4, 1, 4),
        ("gather", 4, -1, 3, 12), ("gather", 4, 16, 3, 16), ("gather", -1, 12, 3, 12),
        ("gather", 0, -1, 3, 0), ("gather", 4, -1, 0, 4), ("gather", -1, -1, 3, -1),
        ("scatter", -1, 4, 3, 12), ("scatter", 12, -1, 3, 12), ("scatter", -1, 0, 3, 0),
        ("all_to_all_v", 4, 12, 3, 4), ("all_reduce", 4, 12, 3, 12), ("broadcast", -1, -1, 3, -1),
    ],
)  # fmt: skip
def test_the_size_of_an_op_is_the_largest_buffer_of_a_rank(
    op: str, sent: int, received: int, members: int, size: int
) -> None:
    assert buffer_size(op, sent, received, members) == size
    assert Issued(op, sent=sent, received=received).size(members) == size


def test_the_size_of_a_message_is_its_own() -> None:
    assert Issued("send", sent=4).size(3) == Issued("recv", received=4).size(3) == 4
    assert Issued("recv").size(3) == -1


def test_bytes_are_known_if_elements_and_their_type_are() -> None:
    assert [in_bytes(3, 4), in_bytes(0, 4), in_bytes(-1, 4), in_bytes(3, 0), in_bytes(3, -1)] == [
        12, 0, -1, -1, -1,
    ]  # fmt: skip
    assert [in_bytes(1, 1), in_bytes(FAR - 1, 1), in_bytes(FAR, 1)] == [1, FAR - 1, -1]
    assert in_bytes(FAR // 2, 2) == -1
    assert splits_in_bytes((1, 2, 0), 4) == (4, 8, 0)
    assert splits_in_bytes((0, 0), 4) == (0, 0)
    assert splits_in_bytes((1, 2), -1) == splits_in_bytes((FAR, 0), 1) == ()
