"""Which part of a run is measured."""

from __future__ import annotations

from helpers.hand_made import timeline

from commsim.graph import GraphBuilder, Phase, Tags
from commsim.metrics import measured_window


def test_without_steps_the_whole_run_counts_on_every_lane() -> None:
    build = GraphBuilder()
    for rank in range(2):
        build.compute(build.lane(rank), 1, name="work")
    window = measured_window(timeline(build, [(5, 9, 20), (7, 30)]))
    assert window.begin.tolist() == [5, 5]
    assert window.end.tolist() == [30, 30]
    assert (window.step_time, window.step, window.last_span) == (25, -1, 1)


def test_training_counts_from_the_last_optimizer_end_to_the_next_over_all_lanes() -> None:
    build = GraphBuilder()
    for rank in range(2):
        lane = build.lane(rank)
        for step in range(3):
            build.compute(lane, 1, name="F", tags=Tags(Phase.FORWARD, step=step))
            build.compute(lane, 1, name="O", tags=Tags(Phase.OPTIMIZER, step=step))
    rank0 = [(0, 10), (10, 12), (12, 22), (22, 24), (24, 34), (34, 36)]
    rank1 = [(0, 10), (10, 13), (13, 22), (22, 27), (27, 34), (34, 39)]
    window = measured_window(timeline(build, rank0 + rank1))
    assert window.begin.tolist() == [27, 27]
    assert window.end.tolist() == [39, 39]
    assert (window.step_time, window.step, window.last_span) == (12, 2, 11)


def test_one_optimizer_alone_is_no_steady_state() -> None:
    build = GraphBuilder()
    lane = build.lane(0)
    build.compute(lane, 1, name="F", tags=Tags(Phase.FORWARD, step=0))
    build.compute(lane, 1, name="O", tags=Tags(Phase.OPTIMIZER, step=0))
    window = measured_window(timeline(build, [(0, 10), (10, 12)]))
    assert (window.step_time, window.step) == (12, -1)


def test_a_recorded_lane_has_its_own_window_and_the_longest_is_the_step() -> None:
    build = GraphBuilder()
    for rank in range(2):
        lane = build.lane(rank)
        ops = [build.compute(lane, 1, name=name) for name in ("before", "a", "b", "after")]
        build.window(lane, ops[1], ops[2])
    rank0 = [(0, 4), (5, 8), (9, 14), (20, 21)]
    rank1 = [(0, 2), (3, 8), (9, 18), (20, 21)]
    window = measured_window(timeline(build, rank0 + rank1))
    assert window.begin.tolist() == [5, 3]
    assert window.end.tolist() == [14, 18]
    assert (window.first, window.last, window.last_span) == (3, 18, 6)
    assert window.step_time == 15


def test_the_longest_is_no_later_one() -> None:
    build = GraphBuilder()
    for rank in range(2):
        lane = build.lane(rank)
        op = build.compute(lane, 1, name="a")
        build.window(lane, op, op)
    window = measured_window(timeline(build, [(3, 18), (100, 104)]))
    assert (window.first, window.last, window.last_span) == (3, 18, 0)


def test_a_lane_without_a_profiled_step_is_never_the_longest() -> None:
    build = GraphBuilder()
    marked, other = build.lane(0), build.lane(1)
    op = build.compute(marked, 1, name="a")
    build.window(marked, op, op)
    build.compute(other, 1, name="b")
    window = measured_window(timeline(build, [(5, 8), (0, 90)]))
    assert window.begin.tolist() == [5, 0]
    assert window.end.tolist() == [8, 90]
    assert window.step_time == 3


def test_a_window_whose_last_op_ended_before_its_first_began_is_none() -> None:
    """Ops are numbered as they are issued; on streams of their own they may run otherwise."""
    build = GraphBuilder()
    lane = build.lane(0)
    late = build.compute(lane, 1, name="late", stream="a")
    build.window(lane, late, build.compute(lane, 1, name="early", stream="b"))
    window = measured_window(timeline(build, [(10, 12), (0, 4)]))
    assert (window.first, window.last) == (0, 12)


def test_an_empty_timeline_takes_no_time() -> None:
    build = GraphBuilder()
    build.lane(0)
    window = measured_window(timeline(build, []))
    assert (window.step_time, window.last_span, window.end.tolist()) == (0, -1, [0])


def test_an_unknown_arrival_is_not_taken_for_a_time() -> None:
    build = GraphBuilder()
    build.compute(build.lane(0), 1, name="a")
    assert measured_window(timeline(build, [(-1, 7, 9)])).step_time == 2
