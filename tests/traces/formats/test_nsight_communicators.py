"""What NCCL's ranges say: members, ranks, and the bytes of each call."""

from __future__ import annotations

import pytest

from commsim.traces.formats.nsight.communicators import RecordedCommunicators

WORLD, PAIR = 0xA, 0xB


def heard(*ranges: tuple[int, str, dict[str, int]]) -> RecordedCommunicators:
    found = RecordedCommunicators()
    for pid, name, fields in ranges:
        found.hear(pid, 1, 10, 20, name, fields)
    return found


def of(number: int, ranks: int, rank: int) -> dict[str, int]:
    return {"communicator": number, "ranks": ranks, "rank": rank}


THREE = heard(
    *((70 + rank, "ncclCommInitRank", of(WORLD, 3, rank)) for rank in range(3)),
    (72, "ncclCommInitRank", of(PAIR, 2, 0)),
    (70, "ncclCommInitRank", of(PAIR, 2, 1)),
)


def test_a_rank_of_the_largest_communicator_is_a_global_rank() -> None:
    assert THREE.largest.members == 3
    told = THREE.ranks_of({72: 0, 70: 1, 71: 2}, "rank9.sqlite")
    assert told == ({70: 0, 71: 1, 72: 2}, "its rank in the largest communicator")
    assert THREE.groups(told[0]) == {"a": (0, 1, 2), "b": (2, 0)}
    assert heard().largest.members == -1


def test_processes_without_ranks_of_their_own_have_the_names_or_their_gpus() -> None:
    nothing = heard((70, "ncclAllReduce", {"communicator": WORLD}))
    assert nothing.ranks_of({70: 5}, "rank3.sqlite") == ({70: 3}, "as the file's name says")
    assert nothing.ranks_of({70: 5}, "rank0.sqlite") == ({70: 0}, "as the file's name says")
    by_gpu = "in order of their GPUs"
    assert nothing.ranks_of({70: 5}, "x.sqlite") == ({70: 0}, by_gpu)
    assert nothing.ranks_of({72: 1, 71: 0, 70: 1}, "x.sqlite") == ({71: 0, 70: 1, 72: 2}, by_gpu)
    assert nothing.ranks_of({72: 0, 71: 1}, "node2.rank2.sqlite") == ({72: 4, 71: 5}, by_gpu)
    twice = heard(*((pid, "x", of(WORLD, 2, 0)) for pid in (70, 71)))
    assert twice.ranks_of({70: 0, 71: 1}, "x")[1] == by_gpu
    some = heard((70, "x", of(WORLD, 2, 0)))
    assert some.ranks_of({70: 0, 71: 1}, "x")[1] == by_gpu


@pytest.mark.parametrize(
    ("ranks", "members"), [(-1, -1), (0, -1), (1, 1), (1_000_000, 1_000_000), (1_000_001, -1)]
)
def test_sizes_that_no_communicator_has_are_not_known(ranks: int, members: int) -> None:
    found = heard((70, "x", of(WORLD, ranks, 0)))
    assert found.known[WORLD].members == members
    assert found.known[WORLD].ranks == ({70: 0} if members > 0 else {})


def test_a_communicator_is_a_group_if_all_its_ranks_were_heard_or_it_is_the_world() -> None:
    found = heard(
        (70, "x", of(1, 4, 0)), (70, "x", of(2, 2, 1)), (71, "x", of(2, 2, 0)),
        (70, "x", of(3, 2, 0)),
        (70, "ncclAllReduce", {"communicator": 4}),
    )  # fmt: skip
    assert found.groups({70: 0, 71: 3}) == {"1": (0, 1, 2, 3), "2": (3, 0)}
    assert heard((70, "ncclAllReduce", {"communicator": 4})).groups({70: 0}) == {}


@pytest.mark.parametrize(
    ("op", "fields", "elements", "out"),
    [
        ("ncclAllReduce", {"size": 8}, 8, 8), ("ncclAllGather", {"size": 8}, 8, 24),
        ("ncclReduceScatter", {"size": 8}, 24, 8), ("ncclBroadcast", {}, -1, -1),
        ("ncclAllGather", {"size": 0}, 0, 0), ("ncclAllGather", {}, -1, -1),
    ],
)  # fmt: skip
def test_a_call_has_the_bytes_of_one_ranks_part(
    op: str, fields: dict[str, int], elements: int, out: int
) -> None:
    found = heard((70, "x", of(WORLD, 3, 0)), (70, op, {"communicator": WORLD} | fields))
    ((pid, thread, start, end, args),) = found.calls({"a": (0, 1, 2)})
    assert (pid, thread, start, end, args.group, args.ranks) == (70, 1, 10, 20, "a", (0, 1, 2))
    assert (args.elements, args.out_elements, args.dtype, args.itemsize) == (
        elements, out, "uint8", 1,
    )  # fmt: skip
    assert (args.source, args.target) == (-1, -1)


def test_of_a_group_of_unknown_size_only_even_buffers_are_known() -> None:
    found = heard(*((70, op, {"communicator": WORLD, "size": 8})
                    for op in ("ncclAllReduce", "ncclAllGather", "ncclOdd")))  # fmt: skip
    assert [(args.op, args.elements, args.ranks) for *_, args in found.calls({})] == [
        ("all_reduce", 8, ()), ("all_gather", -1, ()),
    ]  # fmt: skip


@pytest.mark.parametrize(("peer", "rank"), [(0, 4), (1, 6), (2, -1), (-1, -1)])
def test_a_peer_is_a_place_in_the_group(peer: int, rank: int) -> None:
    one = {"communicator": PAIR, "size": 8, "peer": peer}
    found = heard((70, "ncclSend", one), (70, "ncclRecv", one))
    send, recv = (args for *_, args in found.calls({"b": (4, 6)}))
    assert (send.source, send.target, recv.source, recv.target) == (-1, rank, rank, -1)


def test_a_range_without_a_communicator_says_nothing() -> None:
    found = heard((70, "ncclAllReduce", {"size": 8}))
    assert (found.known, found.heard) == ({}, [])
