"""Who waits for whom in a collective: for all, or for those that had come."""

from __future__ import annotations

from helpers.hand_made import timeline

from commsim.graph import GraphBuilder
from commsim.metrics.meetings import meetings
from commsim.metrics.window import arrivals
from commsim.timeline import Timeline


def of_three(*times: tuple[int, int, int]) -> Timeline:
    """Return an all-reduce of three ranks, the ops 0, 2 and 4, each behind work of its rank."""
    build = GraphBuilder()
    world, spans = build.group("world", [0, 1, 2]), []
    for rank, (arrive, start, end) in enumerate(times):
        lane = build.lane(rank)
        build.collective(lane, world, "all_reduce", 8, stream="comm")
        build.compute(lane, 5, name="work")
        spans += [(arrive, start, end), (0, 5)]
    return timeline(build, spans)


def waited_for(line: Timeline) -> list[list[int]]:
    """Return the spans that each waits for."""
    met = meetings(line, arrivals(line))
    assert met.latest(line.arrive).tolist() == [
        max(line.arrive[met.member[a:b]])
        for a, b in zip(met.first[:-1], met.first[1:], strict=True)
    ]
    return [met.member[met.first[m] : met.first[m + 1]].tolist() if m >= 0 else [] for m in met.of]


def test_members_that_start_together_wait_for_all() -> None:
    line = of_three((1, 9, 20), (9, 9, 20), (4, 9, 20))
    assert waited_for(line) == [[0, 2, 4], [], [0, 2, 4], [], [0, 2, 4], []]


def test_members_that_start_one_by_one_wait_for_those_that_had_come() -> None:
    line = of_three((1, 4, 20), (9, 9, 20), (4, 4, 20))
    assert waited_for(line) == [[0, 4], [], [0, 2, 4], [], [0, 4], []]


def test_a_member_that_waits_for_itself_alone_meets_nobody() -> None:
    assert waited_for(of_three((1, 1, 20), (9, 9, 20), (4, 9, 20)))[0] == []


def test_work_and_a_collective_of_one_meet_nobody() -> None:
    build = GraphBuilder()
    build.collective(build.lane(0), build.group("one", [0]), "all_reduce", 8, stream="comm")
    assert waited_for(timeline(build, [(0, 5, 9)])) == [[]]
