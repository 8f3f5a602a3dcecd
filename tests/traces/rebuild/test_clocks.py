"""Clocks of ranks that are found by hand: who is ahead, by how much, and what is left."""

from __future__ import annotations

from commsim.traces.rebuild.deskew import Clocks, Transfer, align, transfer_of
from commsim.traces.rebuild.matching import MatchedCollective
from commsim.traces.rebuild.rank import CollectiveCall

US = 1_000_000


def collective(
    ends: dict[int, int], op: str = "all_reduce", library: str = "nccl"
) -> MatchedCollective:
    calls = {
        rank: CollectiveCall(rank, op, 0, end - 5 * US, end, 0, library=library)
        for rank, end in ends.items()
    }
    return MatchedCollective("0", tuple(ends), calls, dict.fromkeys(calls, 0))


def test_a_clock_is_ahead_by_the_median_of_its_ends() -> None:
    """Rank 1 is 100 us ahead; rank 2 left one of three 7 us late, for reasons of its own."""
    found = align(
        [
            collective({0: 1000 * US, 1: 1100 * US, 2: 1007 * US}),
            collective({0: 2000 * US, 1: 2100 * US, 2: 2000 * US}),
            collective({0: 3000 * US, 1: 3100 * US, 2: 3000 * US}),
        ],
        {0: 0, 1: 0, 2: 0},
    )
    assert found.offsets == {0: 0, 1: 100 * US, 2: 0}
    assert (found.residual, found.worst) == (0, 7 * US)


def test_zeros_of_files_are_parts_of_their_clocks() -> None:
    found = align([collective({0: 0, 1: 0, 2: 0})], {0: 5 * US, 1: 9 * US, 2: 5 * US})
    assert found == Clocks({0: 0, 1: 4 * US, 2: 0}, 0, 0)


def test_pairs_are_tied_through_a_rank_that_is_in_both() -> None:
    """1 is 8 us ahead of 0, and 2 is 8 us ahead of 1: all tied within what ends scatter by."""
    found = align([collective({0: 0, 1: 8 * US}), collective({1: 8 * US, 2: 16 * US})],
                  dict.fromkeys(range(3), 0))  # fmt: skip
    steps = [found.offsets[rank] - found.offsets[rank - 1] for rank in (1, 2)]
    assert all(abs(step - 8 * US) <= 2 * US for step in steps)
    assert found.worst <= US


def test_what_does_not_end_as_one_says_nothing() -> None:
    ends = {0: 0, 1: 50 * US}
    for one in (
        collective(ends, "broadcast"),
        collective(ends, library="gloo"),
        collective({1: 0}),
    ):
        assert align([one], {0: 0, 1: 0}) == Clocks({0: 0, 1: 0}, -1, -1)


def test_a_transfer_begins_with_the_last_to_arrive() -> None:
    """On the common clock rank 1 is 3 us behind: both came at 5, and the lower is named."""
    one = collective({0: 10 * US, 1: 13 * US})
    found = transfer_of(one, {0: 0, 1: -3 * US})
    assert found == Transfer({0: 5 * US, 1: 5 * US}, {0: 10 * US, 1: 10 * US}, 0)
    assert (found.start, found.duration, found.wait(1), found.late(1)) == (5 * US, 5 * US, 0, 0)
    assert (found.apart, found.eager, found.awaited) == (False, 0, {})


def test_waits_end_with_the_last_to_arrive_or_with_the_own_end() -> None:
    found = Transfer({0: 0, 1: 8, 2: 2}, {0: 12, 1: 10, 2: 5}, 1)
    assert [found.wait(rank) for rank in range(3)] == [8, 0, 3]
    assert (found.duration, found.together) == (2, 0)
    assert [found.late(rank) for rank in range(3)] == [4, 2, 0]


def test_members_of_a_ring_leave_each_in_its_own_time() -> None:
    found = Transfer({0: 0, 1: 8, 2: 2}, {0: 12, 1: 11, 2: 10}, 1)
    assert (found.duration, found.together) == (3, 2)
    assert [found.late(rank) for rank in range(3)] == [2, 1, 0]


def test_threads_that_wake_apart_leave_each_in_its_own_time() -> None:
    found = Transfer({0: 0, 1: 8}, {0: 12, 1: 10}, 1, apart=True)
    assert (found.duration, found.late(0), found.late(1)) == (2, 2, 0)
    before = Transfer({0: 0, 1: 8}, {0: 5, 1: 10}, 1, apart=True)
    assert (before.duration, before.late(0), before.late(1)) == (0, 0, 2)


def test_who_waits_for_some_alone_stays_until_those_are_there() -> None:
    awaited = {0: (0, 1), 1: (1,), 2: (0, 2)}
    found = Transfer({0: 0, 1: 8, 2: 3}, {0: 12, 1: 9, 2: 4}, 1, apart=True, awaited=awaited)
    assert [found.waited_for(rank) for rank in range(3)] == [1, 1, 2]
    assert [found.wait(rank) for rank in range(3)] == [8, 0, 0]
    assert [found.late(rank) for rank in range(3)] == [4, 1, 1]
    assert found.duration == 4
    tie = Transfer({0: 5, 1: 5, 2: 5}, {0: 9, 1: 9, 2: 9}, 0, awaited={2: (0, 1, 2), 0: (1, 2)})
    assert (tie.waited_for(2), tie.waited_for(0)) == (2, 1)
