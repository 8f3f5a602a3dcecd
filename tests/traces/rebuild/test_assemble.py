"""Graphs of formats that state an order of calls: who waits for whom, groups, what is left out."""

from __future__ import annotations

from typing import Any

import pytest

from commsim.errors import TraceError
from commsim.graph import Device, Graph, OpKind
from commsim.traces.formats import Issued, RankRecord
from commsim.traces.rebuild.assemble import assemble

PAIR = (0, 1)


def record(rank: int, *calls: Issued, world: int = 2, **more: Any) -> RankRecord:
    return RankRecord(f"rank{rank}", "x", rank, world, calls, **more)


def made(*records: RankRecord) -> tuple[Graph, tuple[str, ...]]:
    return assemble(records, format="x")


def reduce(size: int = 8, **more: Any) -> Issued:
    return Issued("all_reduce", size, size, **({"ranks": PAIR, "group": "dp"} | more))


def needs(graph: Graph, rank: int = 0) -> list[list[int]]:
    """Return what each op of a rank waits for, by their places on it."""
    own = [op for op in range(len(graph)) if graph.lane_rank[graph.lane[op]] == rank]
    return [
        [own.index(on) for on in graph.dep_op[graph.dep_ptr[op] : graph.dep_ptr[op + 1]].tolist()]
        for op in own
    ]


def alone(*calls: Issued) -> Graph:
    """Return the graph of a rank whose partners are not recorded."""
    return made(record(0, *calls))[0]


WORK = Issued("compute", duration=1000, name="w")
ASYNC = reduce(blocking=False)


def test_a_call_waits_for_what_was_issued_before_it_and_blocks() -> None:
    graph = alone(WORK, reduce(), ASYNC, reduce(), WORK)
    assert needs(graph) == [[], [0], [1], [1], [3]]


def test_what_follows_a_wait_waits_for_the_call_as_well() -> None:
    graph = alone(WORK, ASYNC, ASYNC, Issued("wait", after=(1, 2)), WORK, WORK)
    assert needs(graph) == [[], [0], [0], [0, 1, 2], [3]]
    graph = alone(WORK, ASYNC, Issued("wait"), WORK)
    assert needs(graph) == [[], [0], [0]]


def test_a_call_after_others_by_name_waits_for_these_alone() -> None:
    graph = alone(WORK, WORK, Issued("compute", duration=5, after=(0,)), reduce(after=(0, 2, 0)))
    assert needs(graph) == [[], [0], [0], [0, 2]]
    graph = alone(WORK, Issued("compute", after=()), WORK)
    assert needs(graph) == [[], [], [0]]


def test_messages_wait_for_no_messages_and_hold_what_follows() -> None:
    ends = [Issued(op, 4, 4, peer=1 - rank, tag=3) for rank in PAIR for op in ("send", "recv")]
    graph, notes = made(
        record(0, WORK, ends[0], ends[1], WORK, WORK), record(1, WORK, ends[3], ends[2], WORK)
    )
    assert needs(graph) == [[], [0], [0], [0, 1, 2], [3]]
    assert needs(graph, 1) == [[], [0], [0], [0, 1, 2]]
    assert graph.messages.size.tolist() == [4, 4]
    assert {"send to 1 tag 3", "recv from 1 tag 3"} <= set(graph.streams)
    assert [group.name for group in graph.groups] == ["tag 3"]
    assert notes == ()


def test_work_has_its_time_its_side_and_its_stream() -> None:
    graph = alone(
        WORK, Issued("compute", stream="s", on_cpu=True), Issued("compute", name="x" * 201)
    )
    assert graph.duration.tolist() == [1000, 0, 0]
    assert graph.device.tolist() == [Device.CUDA, Device.CPU, Device.CUDA]
    assert [graph.op_name(op) for op in range(3)] == ["w", "compute", "x" * 200]
    assert [graph.streams[stream] for stream in graph.stream] == ["compute", "s", "compute"]


@pytest.mark.parametrize(
    ("call", "kind", "size", "root"),
    [
        (reduce(8), "all_reduce", 8, -1), (reduce(0), "all_reduce", 0, -1),
        (Issued("all_gather", 8, ranks=PAIR), "all_gather", 16, -1),
        (Issued("broadcast", 8, ranks=PAIR, root=1), "broadcast", 8, 1),
        (Issued("broadcast", 8, ranks=PAIR), "broadcast", 8, 0),
        (Issued("broadcast", 8, ranks=(1, 0), root=7), "broadcast", 8, 1),
        (Issued("broadcast", 8, root=0), "broadcast", 8, 0),
        (reduce(8, root=1), "all_reduce", 8, -1),
        (Issued("all_to_all_v", 8, ranks=PAIR, splits=(3, 5)), "all_to_all_v", 8, -1),
        (Issued("all_to_all_v", 9, ranks=PAIR, splits=(0, 8)), "all_to_all_v", 8, -1),
        (Issued("all_to_all_v", 8, ranks=PAIR, splits=(8,)), "all_to_all", 8, -1),
        (Issued("barrier", ranks=PAIR), "barrier", 0, -1),
    ],
)  # fmt: skip
def test_a_collective(call: Issued, kind: str, size: int, root: int) -> None:
    table = alone(call).collectives
    assert (table.kind, table.size.tolist(), table.root.tolist()) == ((kind,), [size], [root])


def test_what_is_not_known_is_counted() -> None:
    _, notes = made(record(0, reduce(-1), reduce(-1), Issued("barrier", ranks=PAIR),
                           Issued("send", peer=5, sent=1), Issued("recv", peer=0),
                           Issued("odd", name="odd"), Issued("odd"),
                           Issued("all_to_all_v", 8, ranks=PAIR), world=8))  # fmt: skip
    assert notes == (
        "'odd' on rank 0 is no known op; left out.",
        "'a call' on rank 0 is no known op; left out.",
        "the splits of an all_to_all_v are not recorded: taken as even.",
        "1 of 8 ranks are recorded; the others are taken to be never late.",
        "2 sends and receives with ranks that are not recorded are left out.",
        "2 calls have no known size; they are taken as 0 bytes.",
    )


def test_a_message_of_unknown_size_is_counted_too() -> None:
    graph, notes = made(record(0, Issued("send", peer=1)), record(1, Issued("recv", peer=0)))
    assert graph.messages.size.tolist() == [0]
    assert notes == ("2 calls have no known size; they are taken as 0 bytes.",)
    assert [group.name for group in graph.groups] == ["messages"]


@pytest.mark.parametrize(("size", "fits"), [(2**53, True), (2**53 + 1, False)])
def test_sizes_that_no_call_has_are_refused(size: int, fits: bool) -> None:
    calls = (reduce(size), Issued("send", size, peer=1))
    ends = record(1, reduce(size), Issued("recv", received=size, peer=0))
    if fits:
        made(record(0, *calls), ends)
        return
    for call in calls:
        with pytest.raises(TraceError, match="of 9,007,199,254,740,993 bytes is recorded"):
            made(record(0, call), ends)


def test_the_world_is_all_that_is_named() -> None:
    def ranks(*records: RankRecord) -> int:
        (group,) = made(*records)[0].groups
        return len(group.ranks)

    bare = Issued("all_reduce", 8)
    assert ranks(record(0, bare, world=3)) == 3
    assert ranks(record(4, bare, world=-1)) == 5
    assert ranks(record(0, bare, Issued("send", peer=6), world=-1)) == 7
    assert ranks(record(0, bare, world=1, groups={"x": (1, 7)})) == 8
    with pytest.raises(TraceError, match="rank0: names rank 1000000; not a rank"):
        made(record(0, bare, world=1_000_001))
    assert ranks(record(0, bare, world=1_000_000)) == 1_000_000


def test_a_group_is_listed_by_its_call_by_its_file_or_by_who_speaks_of_it() -> None:
    listed = made(record(0, Issued("all_reduce", 8, group="g"), world=4, groups={"g": (0, 3)}))
    assert [group.ranks for group in listed[0].groups] == [(0, 3)]
    call = {name: Issued("all_reduce", 8, group=name) for name in "ab"}
    graph, notes = made(*(
        record(rank, call["a" if rank < 2 else "b"], world=4) for rank in range(4)
    ))  # fmt: skip
    assert [(group.name, group.ranks) for group in graph.groups] == [("a", (0, 1)), ("b", (2, 3))]
    assert "those that speak of a group are taken to form it" in notes[0]
    graph, notes = made(*(record(rank, call["a"], world=4) for rank in range(2)))
    assert [group.ranks for group in graph.groups] == [(0, 1, 2, 3)]
    graph, _ = made(record(0, call["a"], call["b"], world=4))
    assert [group.ranks for group in graph.groups] == [(0, 1, 2, 3)] * 2
    with pytest.raises(TraceError, match=r"rank 0 calls all_reduce on group 'dp', whose ranks are"):
        made(record(0, reduce(ranks=(1, 2))))


def test_groups_of_one_name_have_their_ranks_behind_it() -> None:
    many = tuple(range(17))
    calls = (reduce(), reduce(ranks=(0, 2)), reduce(ranks=many), reduce(ranks=(0, *range(2, 17))))
    graph = made(record(0, *calls, world=17))[0]
    assert [group.name for group in graph.groups] == [
        "dp", "dp [0, 2]", "dp", f"dp {[0, *range(2, 17)]}",
    ]  # fmt: skip


def test_calls_that_only_some_ranks_recorded_are_left_out_by_their_numbers() -> None:
    def numbered(rank: int, *numbers: int, **more: Any) -> RankRecord:
        return record(rank, *(reduce(n, sequence=n, **more) for n in numbers))

    graph, notes = made(numbered(0, 1, 2, 3), numbered(1, 2, 3, 4))
    assert graph.collectives.size.tolist() == [2, 3]
    assert notes[0].startswith("2 calls are recorded on some ranks of their group only")
    graph, notes = made(numbered(0, -1, 2), numbered(1, -1, 2))
    assert (len(graph.collectives), notes) == (2, ("2 calls have no known size; they are taken as"
                                                   " 0 bytes.",))  # fmt: skip
    with pytest.raises(TraceError):
        made(numbered(0, 1, 2, after=()), numbered(1, 2, 3, after=()))


def test_ranks_whose_calls_differ_and_no_calls_at_all_are_refused() -> None:
    with pytest.raises(TraceError, match="the recorded calls do not make a graph"):
        made(record(0, reduce(8)), record(1, reduce(9)))
    with pytest.raises(TraceError, match="rank0, rank1: no call of any rank is recorded"):
        made(record(0), record(1))


def test_records_give_their_notes_and_library() -> None:
    graph, notes = made(record(1, reduce(), notes=("b", "a"), library="gloo"),
                        record(0, reduce(), notes=("a",), library="nccl"))  # fmt: skip
    assert (notes, graph.groups[0].library, graph.meta["source"]) == (("a", "b"), "nccl", "x")
    assert graph.lane_rank.tolist() == [0, 1]
    assert graph.kind.tolist() == [OpKind.COLLECTIVE] * 2


@pytest.mark.parametrize("first", [0, 1, 5])
def test_numbers_may_begin_at_0(first: int) -> None:
    """Rank 1's recording begins a call later."""
    early, late = (reduce(sequence=number) for number in (first, first + 1))
    graph, notes = made(record(0, early, late), record(1, late))
    assert len(graph.collectives) == 1
    assert notes[0].startswith("1 calls are recorded on some ranks of their group only")
