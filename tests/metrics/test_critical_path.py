"""The chain that sets the step time."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from helpers.hand_made import link_use, timeline
from hypothesis import given
from hypothesis import strategies as st

from commsim.graph import Device, GraphBuilder
from commsim.metrics import CriticalPath, critical_path, limits, measure, measured_window
from commsim.metrics.critical_path import _Walk
from commsim.timeline import Cause, LinkUse, Timeline


def shown(path: CriticalPath) -> list[tuple[str, int, int, int]]:
    columns = (path.span.tolist(), path.start.tolist(), path.end.tolist())
    return list(zip(path.kind, *columns, strict=True))


def late_rank(
    links: LinkUse | None = None, causes: Mapping[int, tuple[int, Cause]] | None = None
) -> Timeline:
    """Rank 0 works 0-10, rank 1 0-30; they all-reduce 30-50; rank 0 then works to 60."""
    build = GraphBuilder()
    world = build.group("world", [0, 1])
    first, second = build.lane(0), build.lane(1)
    build.compute(first, 10, name="short")
    build.collective(first, world, "all_reduce", 8, stream="comm")
    build.compute(first, 10, name="after")
    build.compute(second, 30, name="long")
    build.collective(second, world, "all_reduce", 8, stream="comm")
    if causes is None:
        causes = {
            1: (4, Cause.RENDEZVOUS),
            2: (1, Cause.DEPENDENCY),
            4: (3, Cause.DEPENDENCY),
        }
    times = [(0, 10), (10, 30, 50), (50, 60), (0, 30), (30, 30, 50)]
    return timeline(build, times, causes=causes, links=links)


def test_the_path_goes_through_the_rank_that_others_waited_for() -> None:
    path = critical_path(late_rank())
    assert shown(path) == [("compute", 3, 0, 30), ("all_reduce", 1, 30, 50), ("compute", 2, 50, 60)]
    assert path.by_kind() == {"compute": 40, "all_reduce": 20}


def test_a_delay_of_a_dependency_is_a_piece_of_its_own() -> None:
    build = GraphBuilder()
    lane = build.lane(0, offset=5)
    build.compute(lane, 1, name="launch", stream="cpu", device=Device.CPU)
    build.compute(lane, 1, name="kernel")
    build.copy(lane, 1, name="copy")
    causes = {1: (0, Cause.DEPENDENCY), 2: (1, Cause.DEPENDENCY)}
    build.compute(build.lane(1), 1, name="idle")
    path = critical_path(timeline(build, [(5, 7), (10, 20), (20, 25), (0, 1)], causes=causes))
    assert shown(path) == [
        ("delay", 0, 0, 5),
        ("cpu", 0, 5, 7),
        ("delay", 1, 7, 10),
        ("compute", 1, 10, 20),
        ("copy", 2, 20, 25),
    ]
    assert path.by_kind() == {"compute": 10, "delay": 8, "copy": 5, "cpu": 2}


def test_what_queued_behind_another_collective_follows_it() -> None:
    build = GraphBuilder()
    lane = build.lane(0)
    group = build.group("g", [0])
    build.collective(lane, group, "all_gather", 8, stream="a")
    build.collective(lane, group, "all_reduce", 8, stream="b")
    path = critical_path(timeline(build, [(0, 10), (2, 10, 18)], causes={1: (0, Cause.QUEUE)}))
    assert shown(path) == [("all_gather", 0, 0, 10), ("all_reduce", 1, 10, 18)]


def test_a_receive_that_waits_leads_to_the_sender() -> None:
    build = GraphBuilder()
    pair = build.group("pair", [0, 1])
    build.lane(0), build.lane(1)
    build.compute(0, 1, name="F")
    build.send(0, 1, 8, group=pair, stream="p2p")
    build.recv(1, 0, 8, group=pair, stream="p2p")
    causes = {1: (0, Cause.DEPENDENCY), 2: (1, Cause.RENDEZVOUS)}
    path = critical_path(timeline(build, [(0, 10), (10, 14), (0, 10, 15)], causes=causes))
    assert shown(path) == [("compute", 0, 0, 10), ("send_recv", 2, 10, 15)]


def broadcast(arrive: tuple[int, int, int], start: tuple[int, int, int]) -> Timeline:
    """Work, then a broadcast from rank 0 that ends at 100 on all ranks; then work of rank 2."""
    build = GraphBuilder()
    world = build.group("world", range(3))
    times: list[tuple[int, ...]] = []
    for rank in range(3):
        lane = build.lane(rank)
        build.compute(lane, 1, name=f"work{rank}")
        build.collective(lane, world, "broadcast", 8, stream="comm", root=0)
        times += [(0, arrive[rank]), (arrive[rank], start[rank], 100)]
    causes = {2 * rank + 1: (2 * rank, Cause.DEPENDENCY) for rank in range(3)}
    build.compute(2, 1, name="after")
    return timeline(build, [*times, (100, 110)], causes=causes | {6: (5, Cause.DEPENDENCY)})


def test_data_that_comes_late_leads_to_the_root() -> None:
    path = critical_path(broadcast(arrive=(60, 10, 10), start=(60, 65, 70)))
    assert shown(path) == [
        ("compute", 0, 0, 60),
        ("broadcast", 5, 60, 100),
        ("compute", 6, 100, 110),
    ]


def test_a_member_that_joins_late_holds_up_the_others() -> None:
    path = critical_path(broadcast(arrive=(20, 80, 20), start=(20, 80, 25)))
    assert shown(path)[:2] == [("compute", 2, 0, 80), ("broadcast", 5, 80, 100)]


def test_only_members_of_the_same_op_hold_a_transfer_up() -> None:
    """Of two broadcasts one after the other, rank 1 comes late to the second, rank 2 to the first.

    Ops in order: on each rank work, a broadcast, work, a broadcast; rank 2 works at the end.
    """
    build = GraphBuilder()
    world = build.group("world", range(3))
    times: list[tuple[int, ...]] = []
    causes: dict[int, tuple[int, Cause]] = {12: (11, Cause.DEPENDENCY)}
    for rank, (first, second) in enumerate([(10, 120), (10, 180), (50, 120)]):
        lane = build.lane(rank)
        for at, (begin, come, end) in enumerate([(0, first, 100), (100, second, 200)]):
            build.compute(lane, 1, name=f"work{at}")
            build.collective(lane, world, "broadcast", 8, stream="comm", root=0)
            op = 4 * rank + 2 * at
            times += [(begin, come), (come, come, end)]
            causes[op + 1] = (op, Cause.DEPENDENCY)
            if at:
                causes[op] = (op - 1, Cause.DEPENDENCY)
    build.compute(2, 1, name="after")
    path = critical_path(timeline(build, [*times, (200, 210)], causes=causes))
    assert shown(path) == [
        ("compute", 8, 0, 50),  # rank 2, which the first broadcast came to late
        ("broadcast", 5, 50, 100),
        ("compute", 6, 100, 180),  # rank 1
        ("broadcast", 11, 180, 200),
        ("compute", 12, 200, 210),
    ]


def test_a_member_that_comes_as_another_leaves_did_not_hold_it_up() -> None:
    build = GraphBuilder()
    world = build.group("world", range(3))
    times: list[tuple[int, ...]] = []
    for rank, (work, start, end) in enumerate([(20, 20, 80), (80, 80, 90), (5, 20, 80)]):
        lane = build.lane(rank)
        build.compute(lane, 1, name=f"work{rank}")
        build.collective(lane, world, "broadcast", 8, stream="comm", root=0)
        times += [(0, work), (work, start, end)]
    build.compute(2, 1, name="after")
    causes = {2 * rank + 1: (2 * rank, Cause.DEPENDENCY) for rank in range(3)}
    causes[6] = (5, Cause.DEPENDENCY)
    path = critical_path(timeline(build, [*times, (80, 100)], causes=causes))
    assert shown(path)[:2] == [("compute", 0, 0, 20), ("broadcast", 5, 20, 80)]


def test_of_two_that_come_at_once_the_path_stays_with_its_own_rank() -> None:
    build = GraphBuilder()
    world = build.group("world", range(2))
    for rank in range(2):
        lane = build.lane(rank)
        build.compute(lane, 30, name="work")
        build.collective(lane, world, "all_reduce", 8, stream="comm")
    build.compute(1, 10, name="after")
    causes = {1: (0, Cause.DEPENDENCY), 3: (2, Cause.DEPENDENCY), 4: (3, Cause.DEPENDENCY)}
    times = [(0, 30), (30, 50), (0, 30), (30, 50), (50, 60)]
    assert critical_path(timeline(build, times, causes=causes)).span.tolist() == [2, 3, 4]


def test_a_cause_that_leads_in_a_circle_ends_the_chain() -> None:
    causes = {1: (4, Cause.RENDEZVOUS), 2: (1, Cause.DEPENDENCY), 4: (1, Cause.RENDEZVOUS)}
    path = critical_path(late_rank(causes=causes))
    assert shown(path)[0] == ("delay", 4, 0, 30)


def test_a_recorded_step_is_walked_within_its_own_window() -> None:
    build = GraphBuilder()
    lane = build.lane(0)
    for name in ("before", "a", "b", "after"):
        build.compute(lane, 1, name=name)
    build.window(lane, 1, 2)
    causes = {op: (op - 1, Cause.STREAM) for op in (1, 2, 3)}
    path = critical_path(timeline(build, [(0, 9), (10, 20), (20, 30), (30, 99)], causes=causes))
    assert shown(path) == [("compute", 1, 10, 20), ("compute", 2, 20, 30)]


def test_the_busiest_link_of_the_transfer_is_named_with_everybodys_traffic() -> None:
    # The all-reduce puts 40 bytes on link 0 and 60 on link 1; another flow fills link 0.
    loads = [{0: 40.0, 1: 60.0}, {0: 100.0}, {2: 1e6}]
    segments = [(0, 32, 50, 1 / 18), (1, 40, 44, 0.25), (2, 30, 50, 0.05)]
    alone = link_use([1e12] * 3, loads, segments[:1], ops=[4])
    assert critical_path(late_rank(alone)).link.tolist() == [-1, 1, -1]
    shared = link_use([1e12] * 3, loads, segments, ops=[4, 0, 0])
    path = critical_path(late_rank(shared))
    assert path.link.tolist() == [-1, 0, -1]
    assert path.by_link() == {0: 20}


def test_a_link_is_busy_by_its_own_bandwidth() -> None:
    links = link_use([1e12, 3e12], [{0: 40.0, 1: 60.0}], [(0, 30, 50, 0.05)], ops=[4])
    assert critical_path(late_rank(links)).link.tolist() == [-1, 0, -1]


def test_a_transfer_is_judged_where_it_moved_longest() -> None:
    loads = [{0: 90.0}, {1: 10.0}, {2: 90.0}]
    segments = [(0, 30, 33, 1 / 3), (1, 34, 46, 1 / 12), (2, 46, 50, 0.25)]
    links = link_use([1e12] * 3, loads, segments, ops=[1, 4, 1])
    assert critical_path(late_rank(links)).link.tolist() == [-1, 1, -1]


def test_the_link_of_another_transfer_at_the_same_time_is_not_named() -> None:
    build = GraphBuilder()
    first, second = build.group("first", [0]), build.group("second", [0])
    lane = build.lane(0)
    build.collective(lane, second, "all_gather", 8, stream="a")
    build.collective(lane, first, "all_reduce", 8, stream="b")
    loads, segments = [{0: 5.0}, {1: 90.0}], [(0, 0, 20, 0.05), (1, 0, 15, 0.1)]
    links = link_use([1e12] * 2, loads, segments, ops=[1, 0])
    assert critical_path(timeline(build, [(0, 15), (0, 20)], links=links)).link.tolist() == [0]


def test_without_a_known_flow_no_link_is_named() -> None:
    unknown = link_use([1e12], [{0: 40.0}], [(0, 32, 50, 1 / 18)])
    assert critical_path(late_rank(unknown)).link.tolist() == [-1, -1, -1]
    other_op = link_use([1e12], [{0: 40.0}], [(0, 32, 50, 1 / 18)], ops=[-1])
    assert critical_path(late_rank(other_op)).link.tolist() == [-1, -1, -1]


@st.composite
def random_runs(draw: st.DrawFn) -> Timeline:
    """Spans with any causes at all, as a damaged or foreign measurement may have."""
    count = draw(st.integers(1, 12))
    build = GraphBuilder()
    for rank in range(3):
        build.lane(rank)
    world = build.group("world", range(3))
    times, causes = [], {}
    for op in range(count):
        lane = draw(st.integers(0, 2))
        if draw(st.booleans()):
            build.collective(lane, world, "all_reduce", 8, stream=f"s{op}")
        else:
            build.compute(lane, 1, name="w", stream=f"s{op}")
        times.append(tuple(sorted(draw(st.tuples(*[st.integers(0, 50)] * 3)))))
        causes[op] = (draw(st.integers(-1, count - 1)), draw(st.sampled_from(list(Cause))))
    return timeline(build, times, causes=causes)


@given(random_runs())
def test_pieces_tile_the_step_exactly(run: Timeline) -> None:
    path, window = critical_path(run), measured_window(run)
    assert int((path.end - path.start).sum()) == window.step_time
    assert path.start[1:].tolist() == path.end[:-1].tolist()
    if len(path):
        assert (path.start[0], path.end[-1]) == (window.first, window.last)
    assert sum(path.by_kind().values()) == window.step_time


def test_an_empty_timeline_has_no_path() -> None:
    build = GraphBuilder()
    build.lane(0)
    assert len(critical_path(timeline(build, []))) == 0
    assert critical_path(timeline(build, [])).by_kind() == pytest.approx({})


def test_a_timeline_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics, limits and the viewer ask for one path; a timeline of its own is walked anew."""
    walked = []
    back = _Walk.back

    def counted(walk: _Walk) -> list[tuple[int, int, int, bool]]:
        walked.append(walk)
        return back(walk)

    monkeypatch.setattr(_Walk, "back", counted)
    line = late_rank()
    measure(line)
    limits(line)
    assert critical_path(line) is critical_path(line)
    assert len(walked) == 1
    assert shown(critical_path(late_rank())) == shown(critical_path(line))
    assert len(walked) == 2
