"""Which send each receive from anyone takes: what others name by name is theirs first."""

from __future__ import annotations

import pytest

from commsim.traces.formats import Issued, RankRecord
from commsim.traces.formats.goal.any_source import ANY, with_sources


def record(rank: int, *calls: tuple[str, int, int]) -> RankRecord:
    made = tuple(Issued(op, 8, peer=peer, tag=tag) for op, peer, tag in calls)
    return RankRecord(f"rank {rank}", "GOAL", rank, 3, made)


def taken(*receives: tuple[int, int]) -> list[tuple[int, int]]:
    """Return what rank 1's receives (source, tag) take of sends 0, 2, 2 with tags 5, 6, 7."""
    records = [
        record(2, ("send", 1, 6), ("send", 1, 7)),
        record(0, ("send", 1, 5), ("send", 2, 9)),
        record(1, *(("recv", source, tag) for source, tag in receives)),
    ]
    found = with_sources(records)
    assert found[:2] == records[:2]
    return [(call.peer, call.tag) for call in found[2].calls]


@pytest.mark.parametrize(
    ("receives", "found"),
    [
        ([(ANY, ANY)], [(0, 5)]),  # of both ranks' first ones that of the lower rank
        ([(ANY, 7)], [(2, 7)]), ([(0, ANY)], [(0, 5)]), ([(ANY, 9)], [(ANY, 9)]),
        ([(ANY, ANY), (0, 5)], [(2, 6), (0, 5)]), ([(2, 6), (ANY, ANY)], [(2, 6), (0, 5)]),
        ([(ANY, ANY)] * 4, [(0, 5), (2, 6), (2, 7), (ANY, ANY)]),
        ([(0, 5), (2, 7)], [(0, 5), (2, 7)]),
    ],
)  # fmt: skip
def test_an_open_receive_takes_the_first_send_that_nobody_names(
    receives: list[tuple[int, int]], found: list[tuple[int, int]]
) -> None:
    assert taken(*receives) == found
