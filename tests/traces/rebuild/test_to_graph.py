"""What a graph is told of collectives and messages that were matched: splits, roots, lone ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from commsim.errors import TraceError
from commsim.graph import Group, OpKind
from commsim.traces.rebuild import to_graph
from commsim.traces.rebuild.deskew import Transfer
from commsim.traces.rebuild.match_messages import Exchange
from commsim.traces.rebuild.matching import MatchedCollective
from commsim.traces.rebuild.rank import CollectiveCall
from commsim.traces.rebuild.to_graph import _CollectiveTables

THREE = (4, 5, 6)
HOUR = 3600 * 10**12  # ps


def collective(op: str, *, absent: tuple[int, ...] = (), **more: Any) -> MatchedCollective:
    """A collective of three ranks; `more` are what each rank's call says, by its place."""
    calls = {
        rank: CollectiveCall(
            rank, op, 0, 0, 10, 0, **{name: said[at] for name, said in more.items()}
        )
        for at, rank in enumerate(THREE)
        if rank not in absent
    }
    return MatchedCollective("ep", THREE, calls, dict.fromkeys(calls, 0))


def moved(start: int = 0, end: int = 10) -> Transfer:
    return Transfer(dict.fromkeys(THREE, start), dict.fromkeys(THREE, end), 4)


def told(tables: _CollectiveTables, *parts: str) -> None:
    """Hold notes to what they are about."""
    assert len(tables.notes) == len(parts)
    for note, part in zip(tables.notes, parts, strict=True):
        assert part in note


def test_splits_are_those_of_the_ranks_and_the_mean_of_those_that_are_not_recorded() -> None:
    rows = ((1, 2, 3), (3, 4, 6), (5, 6, 7))
    tables = _CollectiveTables()
    whole = collective("all_to_all_v", splits=rows)
    assert to_graph._splits(tables, whole) == rows
    one_less = collective("all_to_all_v", splits=rows, absent=(5,))
    assert to_graph._splits(tables, one_less) == ((1, 2, 3), (3, 4, 5), (5, 6, 7))
    assert to_graph._splits(tables, collective("all_to_all", splits=rows)) is None
    told(tables)


def test_splits_of_another_number_or_of_lost_calls_are_taken_as_even() -> None:
    rows = ((1, 2, 3), (3, 4, 5), (5, 6, 7))
    tables = _CollectiveTables()
    short = collective("all_to_all_v", splits=((1, 2, 3), (3, 4), (5, 6, 7)))
    assert to_graph._splits(tables, short) is None
    told(tables, "splits of an all_to_all_v are not in the trace")
    tables = _CollectiveTables()
    whole = collective("all_to_all_v", splits=rows)
    assert to_graph._splits(tables, replace(whole, lost=(6,))) is None
    told(tables, "lacks a rank's recording")
    tables = _CollectiveTables()
    assert to_graph._splits(tables, replace(whole, alone=True)) is None
    told(tables)


@pytest.mark.parametrize(
    ("op", "roots", "lost", "root"),
    [
        ("broadcast", (1, 1, 1), (), 5), ("reduce", (0, 0, 0), (), 4), ("gather", (2, 2, 2), (), 6),
        ("broadcast", (-1, 2, -1), (), 6), ("scatter", (0, 0, 0), (4,), -1),
        ("all_reduce", (1, 1, 1), (), -1),
    ],
)  # fmt: skip
def test_a_root_is_the_rank_at_its_place(
    op: str, roots: tuple[int, ...], lost: tuple[int, ...], root: int
) -> None:
    tables = _CollectiveTables()
    one = replace(collective(op, root=roots), lost=lost)
    assert to_graph._root(tables, one) == root
    assert to_graph._root(tables, replace(one, alone=True)) == -1
    told(tables)


@pytest.mark.parametrize(("place", "lost", "root"), [(-1, (), 4), (3, (), 4), (3, (4,), 5)])
def test_without_a_root_the_first_recorded_member_is_taken_and_it_is_said(
    place: int, lost: tuple[int, ...], root: int
) -> None:
    tables = _CollectiveTables()
    one = replace(collective("broadcast", root=(place,) * 3), lost=lost)
    assert to_graph._root(tables, one) == root
    told(tables, f"the root of a broadcast is not recorded; rank {root} is taken.")


def test_a_collective_has_its_group_size_time_and_type() -> None:
    tables = _CollectiveTables()
    known = collective("broadcast", size=(64, -1, 64), root=(1, 1, 1), dtype=("", "half", ""))
    unknown = replace(collective("all_reduce", size=(-7, -7, -7)), lost=(6,))
    single = replace(collective("all_reduce", size=(8, 8, 8)), lost=(4, 5))
    partner = replace(collective("all_to_all_v", size=(8, 8, 8)), alone=True)
    to_graph._add_collectives(
        tables, [known, unknown, single, partner], [moved(), moved(2), moved(0, 7), moved(3, 4)]
    )
    assert tables.rows == [(0, 64, 5, 10, 0), (1, -1, -1, 8, 0), (2, 8, -1, 7, 0), (3, 8, -1, 1, 0)]
    assert tables.kinds == ["broadcast", "all_reduce", "all_reduce", "all_to_all"]
    assert tables.dtypes == ["half", "", "", ""]
    assert list(tables.groups) == [
        Group("ep", THREE, "nccl"), Group("ep", (4, 5), "nccl"),
        Group("ep", (6,), to_graph.RECORDED), Group("ep", THREE, to_graph.RECORDED),
    ]  # fmt: skip


def joined(**columns: list[int]) -> Any:
    """Ops of all ranks with the columns that are asked for, others empty."""
    made = {name: np.array(values) for name, values in columns.items()}
    count = len(columns["start"])
    blank = {name: np.full(count, -1) for name in ("item", "size", "last", "batch", "duration")}
    return SimpleNamespace(**{**blank, **made})


SEND, RECV, COMPUTE = int(OpKind.SEND), int(OpKind.RECV), int(OpKind.COMPUTE)


def test_lone_messages_keep_their_time_once_for_each_kernel() -> None:
    """Ranks 0 and 1: a kernel of two lone messages, one beside a met one, and work."""
    ops = joined(
        kind=[SEND, RECV, SEND, RECV, COMPUTE, SEND], item=[-1, -1, 0, -1, -1, -1],
        rank=[0, 0, 0, 0, 0, 1], call=[3, 3, 4, 4, -1, 3], size=[8, 9, 10, 11, -1, 12],
        start=[100, 100, 200, 200, 0, 50], end=[130, 130, 260, 260, 90, 55],
    )  # fmt: skip
    tables = _CollectiveTables()
    to_graph._keep_lone_messages(ops, tables)
    assert [row[1:] for row in tables.rows] == [
        (8, -1, 30, 0), (9, -1, 0, 0), (11, -1, 0, 0), (12, -1, 5, 0),
    ]  # fmt: skip
    assert [row[0] for row in tables.rows] == [0, 0, 0, 1]
    assert list(tables.groups) == [
        Group("messages", (0,), to_graph.RECORDED), Group("messages", (1,), to_graph.RECORDED),
    ]  # fmt: skip
    assert tables.kinds == ["send_recv"] * 4
    kept = int(OpKind.COLLECTIVE)
    assert ops.kind.tolist() == [kept, kept, SEND, kept, COMPUTE, kept]
    assert ops.item.tolist() == [0, 1, 0, 2, -1, 3]
    assert ops.last.tolist() == [0, 1, -1, 3, -1, 5]
    told(tables, "4 sends and receives have no other end")


def test_without_lone_messages_nothing_is_said() -> None:
    tables = _CollectiveTables()
    to_graph._keep_lone_messages(
        joined(kind=[SEND], item=[0], rank=[0], call=[1], start=[0]), tables
    )
    assert (tables.rows, tables.notes) == ([], [])


@pytest.mark.parametrize(
    ("library", "spans", "found", "row", "last", "beyond", "ends"),
    [
        # Both wait for the later of them, the receive, and leave together 60 later.
        ("nccl", ((10, 100), (40, 100)), (-1, -1), (60, 0), (1, 1), (-1, -1), (100, 100)),
        # The send is the later one.
        ("nccl", ((40, 100), (10, 100)), (-1, -1), (60, 0), (0, 0), (-1, -1), (100, 100)),
        # Both come at once: the receive counts as the later one.
        ("nccl", ((10, 100), (10, 100)), (-1, -1), (90, 0), (1, 1), (-1, -1), (100, 100)),
        # Gloo's threads wake apart: the message has moved when the first is awake.
        ("gloo", ((10, 100), (40, 120)), (-1, -1), (60, 0), (1, 1), (-1, 20), (100, 120)),
        # A buffer of NCCL has taken the data sooner than it arrives.
        ("nccl", ((10, 100), (40, 120)), (-1, -1), (60, 0), (1, 1), (-1, 20), (100, 120)),
        ("nccl", ((10, 30), (40, 120)), (-1, -1), (20, 1), (0, 1), (20, 80), (30, 120)),
        # The send was over before the receive was there: it left eagerly.
        ("gloo", ((10, 30), (40, 120)), (-1, -1), (20, 1), (0, 1), (20, 80), (30, 120)),
    ],
)  # fmt: skip
def test_a_message_has_its_time_its_last_end_and_what_is_beyond_it(
    library: str,
    spans: tuple[tuple[int, int], tuple[int, int]],
    found: tuple[int, int],
    row: tuple[int, int],
    last: tuple[int, int],
    beyond: tuple[int, int],
    ends: tuple[int, int],
) -> None:
    ops = joined(start=[spans[0][0], spans[1][0]], end=[spans[0][1], spans[1][1]])
    ops.op_of = {(2, 0, 0): 0, (3, 0, 0): 1}
    exchange = Exchange((2, 0, 0), (3, 0, 0), 64, 5, "pp", (2, 3), library, found)
    tables = _CollectiveTables()
    messages = to_graph._join_messages(ops, tables, [exchange])
    assert (messages.recorded.tolist(), messages.eager.tolist()) == ([row[0]], [row[1]])
    assert (messages.size.tolist(), messages.tag.tolist()) == ([64], [5])
    assert (messages.send_op.tolist(), messages.recv_op.tolist()) == ([0], [1])
    assert ops.last.tolist() == list(last)
    assert ops.duration.tolist() == list(beyond)
    assert ops.end.tolist() == list(ends)
    assert (ops.item.tolist(), ops.size.tolist()) == ([0, 0], [64, 64])
    assert list(tables.groups) == [Group("pp", (2, 3), library)]


def test_a_member_that_leaves_late_has_its_own_time_more() -> None:
    one = collective("all_reduce", size=(8, -1, -7))
    apart = Transfer({4: 0, 5: 2, 6: 1}, {4: 20, 5: 12, 6: 12}, 5, apart=True)
    ops = joined(start=[0, 2, 1])
    ops.op_of = {(4, 0, -1): 0, (5, 0, -1): 1, (6, 0, -1): 2}
    to_graph._join_collectives(ops, [one], [apart])
    assert ops.item.tolist() == [0, 0, 0]
    assert ops.size.tolist() == [8, -1, -1]
    assert ops.last.tolist() == [1, 1, 1]
    assert ops.duration.tolist() == [8, -1, -1]


def part(rank: int, begin: int, shift: int = 0, **more: int) -> Any:
    said = {"held": 0, "held_ops": 0, "queued_ops": 0, "left_over": 0} | more
    return SimpleNamespace(rank=rank, fragment=SimpleNamespace(begin=begin, **said), shift=shift)


@pytest.mark.parametrize(("begin", "shift"), [(HOUR + 1, 0), (1, HOUR), (HOUR, 1)])
def test_recordings_more_than_an_hour_apart_are_of_no_one_run(
    monkeypatch: pytest.MonkeyPatch, begin: int, shift: int
) -> None:
    with pytest.raises(TraceError, match="more than an hour apart"):
        to_graph.build_graph([part(0, 0), part(1, begin, shift)], [], [], [])

    class ReachedError(Exception):
        pass

    def reached(ranks: Any, first: int) -> None:
        assert first == 1
        raise ReachedError

    monkeypatch.setattr(to_graph, "join_fragments", reached)
    with pytest.raises(ReachedError):  # an hour apart they may be
        to_graph.build_graph([part(0, 1), part(1, begin, shift)], [], [], [])


def test_notes_name_who_is_not_recorded_what_was_held_and_what_was_left_over() -> None:
    whole, less = collective("all_reduce"), collective("all_reduce", absent=(5,))
    notes = ["said", "said"]
    ranks = [part(4, 0, held=2_000_000, held_ops=3), part(6, 0, held=1_000_000, held_ops=4)]
    given = [whole, less, less, replace(less, group="x", alone=True)]
    to_graph._note(notes, ranks, given, SimpleNamespace())  # type: ignore[arg-type]
    assert notes[0] == "said"
    assert "group 'ep' has 3 ranks, of which [4, 6] are recorded" in notes[1]
    assert notes[2].startswith("7 ops started later than anything recorded explains (3 us in all)")
    assert len(notes) == 3
    notes = []
    to_graph._note(notes, [part(4, 0, left_over=2), part(5, 0, left_over=1)], [], SimpleNamespace())  # type: ignore[arg-type]
    assert [note.partition(" work")[0] for note in notes] == ["on 3 streams"]
