"""NCCL's log, line by line: which rank a process is, who its members are, bytes of calls."""

from __future__ import annotations

import pytest

from commsim.errors import TraceError
from commsim.traces.formats.files import Document
from commsim.traces.formats.nccl_log import is_nccl_log, join_nccl_logs, read_nccl_log
from commsim.traces.formats.records import Issued, RankRecord


def init(pid: int, comm: str, rank: int, nranks: int, number: str = "", device: int = 0) -> str:
    said = f" commId {number}" if number else ""
    return (
        f"h:{pid}:{pid} [{device}] NCCL INFO ncclCommInitRank comm {comm} rank {rank} nranks"
        f" {nranks} cudaDev 0 busId 1{said} - Init COMPLETE"
    )


def call(
    pid: int, op: str = "AllReduce", comm: str = "0x5", nranks: int = 2, *, type_: int = 7,
    root: int = 0, count: str = "a", elements: int = 10, device: int = 0,
) -> str:  # fmt: skip
    return (
        f"h:{pid}:9 [{device}] NCCL INFO {op}: opCount {count} sendbuff 0x1 recvbuff 0x2 count"
        f" {elements} datatype {type_} op 0 root {root} comm {comm} [nranks={nranks}] stream 0x7"
    )


def read(*lines: str) -> list[RankRecord]:
    return read_nccl_log(Document("run.log", "\n".join(lines).encode()))


def one(**settings: object) -> Issued:
    first, second = init(40, "0x5", 0, 2, "0xab"), init(41, "0x6", 1, 2, "0xab")
    (record,) = read(first, second, call(40, **settings))  # type: ignore[arg-type]
    return record.calls[0]


def test_lines_about_calls_make_a_log() -> None:
    assert is_nccl_log(b"h NCCL INFO x opCount 1")
    assert not is_nccl_log(b"NCCL INFO x")
    assert not is_nccl_log(b"opCount 1")


def test_a_call_is_read_whole() -> None:
    assert one(count="1f") == Issued(
        "all_reduce", sent=40, dtype="float32", group="0xab", ranks=(0, 1), root=-1, peer=0,
        sequence=31, name="AllReduce",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("op", "sent", "received", "root", "sequence"),
    [
        ("AllGather", 40, -1, -1, 10),
        ("ReduceScatter", -1, 40, -1, 10),  # the count is that of what comes out
        ("AlltoAll", 80, -1, -1, 10),  # and here that of one member's part
        ("Broadcast", 40, -1, 1, 10),
        ("Reduce", 40, -1, 1, 10),
        ("Send", 40, -1, -1, -1),
        ("Recv", 40, -1, -1, -1),
    ],
)
def test_bytes_and_roots_by_op(op: str, sent: int, received: int, root: int, sequence: int) -> None:
    found = one(op=op, root=1)
    assert (found.sent, found.received, found.root, found.peer, found.sequence) == (
        sent, received, root, 1, sequence,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("number", "dtype", "size"),
    [
        (0, "int8", 10), (1, "uint8", 10), (2, "int32", 40), (3, "uint32", 40), (4, "int64", 80),
        (5, "uint64", 80), (6, "float16", 20), (7, "float32", 40), (8, "float64", 80),
        (9, "bfloat16", 20), (99, "", -1),
    ],
)  # fmt: skip
def test_types_are_nccls_own(number: int, dtype: str, size: int) -> None:
    """ncclDataType_t of nccl.h."""
    found = one(type_=number)
    assert (found.dtype, found.sent) == (dtype, size)


def test_a_root_outside_of_its_group_is_none() -> None:
    assert [one(op="Broadcast", root=root).root for root in (-1, 0, 1, 2)] == [-1, 0, 1, -1]


def test_a_process_is_the_rank_of_its_largest_communicator() -> None:
    """Two of four are a group of their own; there global ranks 2 and 3 are 0 and 1."""
    lines = [init(40 + rank, "0xa", rank, 4, "0x1") for rank in range(4)]
    pair = [init(42 + member, "0xb", member, 2, "0x2") for member in range(2)]
    found = read(*pair, *lines, call(43, comm="0xb", op="Broadcast", root=0), call(40, comm="0xa",
                 nranks=4))  # fmt: skip
    assert [(record.rank, record.world_size) for record in found] == [(0, 4), (3, 4)]
    assert [record.calls[0].ranks for record in found] == [(0, 1, 2, 3), (2, 3)]
    assert [record.calls[0].root for record in found] == [-1, 2]
    assert [record.calls[0].group for record in found] == ["0x1", "0x2"]
    assert {record.library for record in found} == {"nccl"}


def test_a_group_of_which_a_member_is_missing_is_the_first_ranks() -> None:
    found = join_nccl_logs(
        read(init(40, "0x5", 0, 2, "0xab"), init(41, "0x5", 1, 2), call(40), call(41))
    )
    assert [record.calls[0].ranks for record in found] == [(0, 1), (0, 1)]
    assert [record.calls[0].group for record in found] == ["0xab", "2 ranks"]
    far = join_nccl_logs(read(init(40, "0x5", 5, 8, "0xab"), call(40, nranks=8)))
    assert (far[0].rank, far[0].world_size, far[0].calls[0].ranks) == (5, 6, tuple(range(8)))


def test_groups_without_a_number_are_not_taken_for_each_other() -> None:
    """Two pairs of four: nobody can say that the members of one are those of the other."""
    world = [init(40 + rank, "0xa", rank, 4, "0x1") for rank in range(4)]
    pairs = [init(40 + rank, "0xb", rank % 2, 2) for rank in range(4)]
    found = read(*world, *pairs, call(40, comm="0xb"), call(43, comm="0xb"))
    assert [(record.rank, record.calls[0].ranks) for record in found] == [(0, (0, 1)), (3, (0, 1))]


def test_processes_without_a_communicator_are_ranks_in_order() -> None:
    assert [record.rank for record in read(call(40))] == [0]
    assert [record.rank for record in read(call(41), call(40))] == [0, 1]
    one_process = read(call(40, device=1), call(40, device=0))
    assert [record.rank for record in one_process] == [0, 1]
    with pytest.raises(TraceError, match="which rank each process is"):
        read(call(40), call(41), call(42))
    with pytest.raises(TraceError, match="which rank each process is"):
        read(call(40, nranks=1_000_000), call(41, nranks=1_000_000))
    assert len(read(call(40, nranks=999_999), call(41, nranks=999_999))) == 2


def test_two_processes_of_one_rank_are_told_apart_by_their_order() -> None:
    found = read(init(40, "0x5", 1, 2), init(41, "0x5", 1, 2), call(41), call(40))
    assert [record.rank for record in found] == [0, 1]


def test_a_group_that_no_memory_holds_has_no_ranks() -> None:
    assert read(call(40, nranks=1_000_000))[0].calls[0].ranks == ()
    assert len(read(call(40, nranks=999_999))[0].calls[0].ranks) == 999_999


def test_a_log_without_calls_is_refused() -> None:
    with pytest.raises(TraceError, match="no line about a call. Log with NCCL_DEBUG=INFO"):
        read(init(40, "0x5", 0, 2))


def logs(*pairs: tuple[int, int]) -> list[RankRecord]:
    """One log per rank: of a world of 4, and of communicators of two ranks that lie so apart."""
    found = []
    for rank in range(4):
        lines = [init(40, "0x5", rank, 4, "0xab")]
        lines += [
            init(40, f"0x{6 + at}", pair.index(rank), 2, f"0xc{at}")
            for at, pair in enumerate(pairs)
            if rank in pair
        ]
        lines += [call(40, "Send", f"0x{6 + at}", root=1) for at in range(len(pairs))]
        lines += [call(40, "Broadcast", f"0x{6 + at}", root=0) for at in range(len(pairs))]
        kept = [line for line in lines if rank in pairs[0] or "0x6 " not in line]
        found += read(*(line for line in kept if rank in pairs[-1] or "0x7 " not in line),
                      call(40, nranks=4))  # fmt: skip
    return found


def test_logs_of_single_processes_say_the_members_together() -> None:
    apart = logs((0, 2), (1, 3))
    assert [record.rank for record in apart] == [0, 1, 2, 3]
    assert apart[2].calls[0].ranks == ()
    whole = join_nccl_logs(apart)
    sends = [record.calls[0] for record in whole]
    assert [(send.ranks, send.peer) for send in sends] == [
        ((0, 2), 2), ((1, 3), 3), ((0, 2), 2), ((1, 3), 3),
    ]  # fmt: skip
    assert [record.calls[1].root for record in whole] == [0, 1, 0, 1]
    assert [record.calls[2].ranks for record in whole] == [(0, 1, 2, 3)] * 4
    assert [len(record.notes) for record in whole] == [1] * 4


def test_logs_of_one_run_share_the_members_of_its_communicators() -> None:
    """Thousands of logs of thousands of ranks would not fit into memory otherwise."""
    for given in (logs((0, 2), (1, 3)), logs((0, 2), (1, 3))[:2]):
        worlds = [record.calls[2].ranks for record in join_nccl_logs(given)]
        assert {len(ranks) for ranks in worlds} == {4}
        assert len({id(ranks) for ranks in worlds}) == 1


def test_members_without_a_log_are_taken_to_be_neighbours() -> None:
    (record,) = join_nccl_logs(logs((2, 3), (0, 1))[3:])
    assert [call.ranks for call in record.calls] == [(2, 3), (2, 3), (0, 1, 2, 3)]
    assert [call.root for call in record.calls] == [-1, 2, -1]
    said = (
        "run.log: a communicator has members whose logs are not given: they are taken to be the"
        " ranks next to its own."
    )
    assert record.notes[1:] == (said,)
    (alone,) = join_nccl_logs(logs((0, 1), (2, 3))[:1])
    assert (alone.calls[0].ranks, alone.calls[0].peer, alone.notes[1:]) == ((0, 1), 1, (said,))
    lines = init(40, "0x5", 1, 2, "0xab"), init(40, "0x6", 0, 2, "0xcd"), call(40, comm="0x6")
    (as_large,) = join_nccl_logs(read(*lines))
    assert (as_large.calls[0].ranks, as_large.notes[1:]) == ((1, 2), (said,))
    (of_two,) = join_nccl_logs(logs((0, 1), (0, 2))[:1])
    assert of_two.notes[1:] == (said.replace("a communicator has", "2 communicators have"),)


@pytest.mark.parametrize("size", [10**17, 1])
def test_a_place_that_a_communicator_cannot_have_says_no_members(size: int) -> None:
    (record,) = join_nccl_logs(read(init(40, "0x5", 5, size, "0xab"), call(40, comm="0x5")))
    assert record.calls[0].ranks == (() if size > 1 else (0,))
