"""Waiting told from transfer in collectives of Gloo in which not everybody waits for everybody."""

from __future__ import annotations

import pytest

from commsim.traces.rebuild.deskew import Transfer, transfer_of
from commsim.traces.rebuild.matching import MatchedCollective
from commsim.traces.rebuild.rank import CollectiveCall

RANKS = (4, 5, 6, 7)


def broadcast(
    times: dict[int, tuple[int, int]], *, lost: tuple[int, ...] = (), library: str = "gloo"
) -> Transfer:
    """Return the transfer of a broadcast from rank 4, with (start, end) per rank."""
    calls = {
        rank: CollectiveCall(rank, "broadcast", 0, start, end, start, root=0, library=library)
        for rank, (start, end) in times.items()
    }
    found = MatchedCollective("0", RANKS, calls, dict.fromkeys(calls, 0), lost=lost)
    return transfer_of(found, dict.fromkeys(RANKS, 0))


def test_a_leaf_waits_for_its_parent_and_not_for_the_other_branch() -> None:
    """Rank 5 is late and passes on to 7; rank 6 has it from the root, which waits for 5."""
    found = broadcast({4: (0, 101), 5: (100, 103), 6: (10, 12), 7: (20, 105)})
    assert [found.waited_for(rank) for rank in RANKS] == [5, 5, 6, 5]
    assert [found.wait(rank) for rank in RANKS] == [100, 0, 0, 80]
    assert [found.late(rank) for rank in RANKS] == [1, 3, 2, 5]
    assert (found.eager, found.duration) == (2, 5)


def test_who_left_before_its_parent_came_waited_for_the_root_alone() -> None:
    found = broadcast({4: (0, 1), 5: (100, 103), 6: (10, 12), 7: (20, 25)})
    assert found.eager == 1
    assert [found.waited_for(rank) for rank in RANKS] == [4, 5, 6, 7]


def test_a_root_that_came_late_was_waited_for_and_waited_for_nobody() -> None:
    found = broadcast({4: (15, 40), 5: (100, 103), 6: (10, 18), 7: (12, 25)})
    assert found.eager == 1
    assert [found.waited_for(rank) for rank in RANKS] == [4, 5, 4, 4]
    assert [found.wait(rank) for rank in RANKS] == [0, 0, 5, 3]
    assert [found.late(rank) for rank in RANKS] == [25, 3, 3, 10]


def test_two_wait_for_each_other() -> None:
    found = broadcast({4: (0, 60), 5: (50, 61)}, lost=(6, 7))
    assert found.eager == 0
    assert [found.wait(rank) for rank in (4, 5)] == [50, 0]


def test_a_rank_that_is_not_recorded_is_not_waited_for() -> None:
    found = broadcast({4: (0, 9), 6: (5, 9), 7: (20, 105)})
    assert [found.waited_for(rank) for rank in (4, 6, 7)] == [6, 6, 7]


@pytest.mark.parametrize("library", ["nccl", "rccl"])
def test_kernels_of_nccl_leave_as_one(library: str) -> None:
    found = broadcast({rank: (rank, 50) for rank in RANKS}, library=library)
    assert (found.eager, found.duration, found.last) == (0, 43, 7)
