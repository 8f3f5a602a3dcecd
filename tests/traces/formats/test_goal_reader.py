"""GOAL as it is read: statements, ties, comments, and what is no GOAL."""

from __future__ import annotations

import pytest

from commsim.errors import TraceError
from commsim.traces.formats import Issued, RankRecord
from commsim.traces.formats.files import Document
from commsim.traces.formats.goal import is_goal, read_goal


def read(text: str) -> list[RankRecord]:
    return read_goal(Document("x.goal", text.encode()))


def calls(*lines: str) -> tuple[Issued, ...]:
    (record,) = read("\n".join(["num_ranks 1", "rank 0 {", *lines, "}"]))
    return record.calls


def test_statements_say_what_they_move_and_take() -> None:
    found = calls(
        "calc 5", "send 8b to 1", "l: recv 4 from 2 tag 7 cpu 3 nic 1", "a : calc 0 cpu 2"
    )
    assert found == (
        Issued("compute", duration=5000, name="calc", stream="cpu 0", on_cpu=True, after=()),
        Issued("send", sent=8, received=8, peer=1, after=()),
        Issued("recv", sent=4, received=4, peer=2, tag=7, after=()),
        Issued("compute", duration=0, name="calc", stream="cpu 2", on_cpu=True, after=()),
    )


def test_numbers_beyond_any_use_are_the_largest_that_are() -> None:
    many = "9" * 30
    work, send = calls(f"calc {many}", f"send {many}b to {many} tag {many}")
    assert work.duration == 2**50 * 1000
    assert (send.sent, send.received, send.peer, send.tag) == (2**60, 2**60, 2**40, 10**12 - 1)


def test_ties_are_places_in_the_order_in_which_they_hold() -> None:
    found = calls(
        "a: calc 1", "b: calc 2", "c: calc 3", "d: calc 4", "a requires c", "b requires a",
        "d requires a", "d requires b", "d requires a",
    )  # fmt: skip
    spent = {call.duration // 1000: call.after for call in found}
    place = {call.duration // 1000: at for at, call in enumerate(found)}
    assert spent[3] == ()
    assert spent[1] == (place[3],)
    assert spent[2] == (place[1],)
    assert spent[4] == tuple(sorted((place[1], place[2])))


@pytest.mark.parametrize(
    "ties", [("c irequires b", "b irequires a"), ("b irequires a", "c irequires b")]
)
def test_what_waits_for_a_beginning_waits_for_what_that_waits_for(ties: tuple[str, ...]) -> None:
    """In whatever order the file says so: c begins after b and b after a, which requires z."""
    found = calls("z: calc 9", "a: calc 1", "b: calc 2", "c: calc 3", *ties, "a requires z")
    after = {call.duration // 1000: call.after for call in found}
    assert (after[9], after[1], after[2], after[3]) == ((), (0,), (0,), (0,))


def test_two_that_begin_after_each_other_begin_at_once() -> None:
    found = calls("z: calc 9", "a: calc 1", "b: calc 2", "a irequires b", "b irequires a",
                  "a requires z")  # fmt: skip
    assert {call.duration // 1000: call.after for call in found} == {9: (), 1: (0,), 2: (0,)}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("num_ranks 1\nrank 0 {\ncalc\n}", "line 3: 'calc' is no GOAL"),
        ("num_ranks 1\nrank 0 {\na: calc 1\na requires b\n}", "line 4"),
        ("num_ranks 1\nrank 0 {\na: calc 1\nb requires a\n}", "line 4"),
        ("num_ranks 1\n/* x\n*/ calc 1\n", "line 3"),
        ("num_ranks 1\nrank 0 {\ncalc 1\n", "ends inside rank 0; it is cut off"),
        ("num_ranks 1\nrank 7 {\nb: calc 1\na: calc 1\na requires a\n}",
         "rank 7: what 'a' requires forms a cycle"),
        ("num_ranks x\n", "line 1: 'x' is no number of ranks"),
        ("num_ranks 1000001\n", "'1000001' is no number of ranks"),
        ("num_ranks 99999999\n", "no number of ranks"),
    ],
)  # fmt: skip
def test_what_is_no_goal_is_said_where_it_is(text: str, says: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(text)
    assert str(caught.value).startswith("x.goal: ")
    assert says in str(caught.value)


def test_ranks_of_a_file_are_records_of_one_run() -> None:
    one, other = read("num_ranks 1000000\nrank 3 {\ncalc 1;\n}\n\n# x\nrank 123456789999 {\n}\n")
    assert (one.rank, one.world_size, one.format, len(one.calls)) == (3, 1_000_000, "GOAL", 1)
    assert (other.rank, other.calls) == (123_456_789, ())
    assert one.notes == (
        "GOAL: sends, receives and calculations; which collectives they were is not in it.",
    )


def test_any_source_and_any_tag_take_the_first_send_that_is_left() -> None:
    """Rank 2 names rank 1's second send; then any source, and any tag, in the file's order."""
    records = read(
        "num_ranks 3\nrank 0 {\nsend 1b to 2 tag 5\nsend 2b to 2 tag 6\n}\n"
        "rank 1 {\nsend 3b to 2 tag 5\nsend 4b to 2 tag 7\n}\n"
        "rank 2 {\nrecv 1b from -1 tag 5\nrecv 4b from 1 tag 7\nrecv 2b from 0 tag -1\n"
        "recv 3b from -1 tag -1\nrecv 9b from -1 tag -1\n}\n"
    )
    taken = [(call.peer, call.tag) for call in records[2].calls]
    assert taken == [(0, 5), (1, 7), (0, 6), (1, 5), (-1, -1)]


def test_a_goal_begins_with_its_number_of_ranks() -> None:
    assert is_goal(b"num_ranks 2")
    assert is_goal(b" // x\n# y\n/* z\n*/\nnum_ranks  2\n")
    assert not is_goal(b"rank 0 {\nnum_ranks 2")
    assert not is_goal(b"")
    assert is_goal(b" " * (2**16 - 11) + b"num_ranks 2")
    assert not is_goal(b" " * 2**16 + b"num_ranks 2")
