"""What the loop does with events, ends of flows and changes of the cluster, one at a time."""

from __future__ import annotations

import pytest
from helpers.run_tables import run_tables, with_phases

from commsim.engine.columns import events, flows, loop, meetings
from commsim.engine.columns.state import State


def set_events(s: State) -> list[tuple[int, int, int]]:
    """Return (when, kind, what) of the events that are set, in order of time."""
    rows = s.event[: s.run[0].event_count]
    return sorted((int(row.when), int(row.kind), int(row.what)) for row in rows)


def test_changes_of_one_instant_happen_together_and_set_the_next() -> None:
    """A series begins with nothing; then a link and a GPU together, 5 ps later; then a link."""
    s = with_phases([8.0, 8.0], [(0, 1.0)])
    s.run[0].sharing = 1
    for at, (after, share, what, target, following, same) in enumerate((
        (0, 1.0, -1, 2, 1, 0), (5, 0.5, 1, 0, 2, 1), (5, 0.25, 3, 1, 3, 0), (9, 0.75, 0, 0, -1, 0),
    )):  # fmt: skip
        one = s.change[at]
        one.after, one.share, one.what, one.target = after, share, what, target
        one.next, one.same = following, same
    loop.change(s, 0)
    assert set_events(s) == [(5, events.CHANGE, 1)]
    assert (s.link.capacity.tolist(), s.gpu.pace.tolist()) == ([8.0, 8.0], [1.0] * 8)
    s.run[0].event_count, s.run[0].now, s.run[0].solving = 0, 5, 1
    loop.change(s, 1)
    assert set_events(s) == [(14, events.CHANGE, 3)]
    assert (s.link.capacity.tolist(), s.gpu.pace[3]) == ([8.0, 4.0], 0.25)
    s.run[0].event_count = 0
    loop.change(s, 3)
    assert set_events(s) == []
    assert s.link.capacity.tolist() == [6.0, 4.0]


def ending(then: int, *, tail: int = 0) -> State:
    """A flow that ends at 20 ps, of row 1 or of op 1, with its plan's only phase."""
    s = with_phases([1.0], [(0, 20.0)])
    s.slot.op[:] = s.plan.copies_in[:] = s.plan.copies_out[:] = s.row.frame[:] = -1
    s.row.group[:] = -1
    s.phase[0].tail = tail
    s.run[0].stuck = -1
    flows.go(s, flows.start_flow(s, 0, 1, then, 1), 1.0)
    s.run[0].now = 20
    return s


@pytest.mark.parametrize(("tail", "when"), [(0, 20), (7, 27)])
def test_what_comes_of_a_flow_of_a_plan_with_one_phase(tail: int, when: int) -> None:
    s = ending(flows.THEN_MOVED, tail=tail)
    s.run[0].event_count = 0
    loop.end_due(s)
    assert set_events(s) == [(when, events.FINISH, 1)]
    assert (s.row[1].ended, s.run[0].flow_free) == (0, 0)
    s = ending(flows.THEN_FINISH)
    loop.end_due(s)
    assert (s.row[1].ended, s.run[0].flow_free) == (1, 0)


def test_what_comes_of_a_flow_of_an_op() -> None:
    s = ending(flows.THEN_DONE)
    loop.end_due(s)
    assert (s.op[1].end, s.run[0].ended, s.run[0].flow_free) == (20, 1, 0)
    s = ending(flows.THEN_STAGE)
    s.op[1].stage = 5  # a copy out
    loop.end_due(s)
    assert (s.op[1].end, s.run[0].ended, s.run[0].flow_free) == (20, 1, 0)


def test_who_shared_with_a_flow_that_ends_is_solved_again() -> None:
    s = with_phases([1.0], [(0, 20.0)], [(0, 10.0)])
    s.run[0].stuck = -1
    for phase in range(2):
        flows.go(s, flows.start_flow(s, phase, 1, flows.THEN_DONE, phase), 1.0)
    assert flows.solve(s) == 0
    s.run[0].event_count, s.run[0].now, s.run[0].alarm_at = 0, 20, -1  # it rings
    loop.end_due(s)  # the second has ended: the first gets all of the link at this instant's end
    assert set_events(s) == [(20, events.SOLVE, 0)]
    assert s.flow[0].rate == 0.025
    loop.run_events(s, 1, 0)
    assert (s.flow[0].rate, s.flow[0].wake) == (0.05, 30)
    assert set_events(s) == [(30, events.ALARM, 0)]


def test_a_run_goes_on_until_nothing_is_left_or_it_has_to_be_handed_over() -> None:
    s = run_tables(segment=8)
    s.run[0].stuck = -1
    for at in range(3):
        events.push(s, 5 * at, events.NORMAL, events.ALARM, 0)
    assert loop.run_events(s, 0, 0) == (loop.PAUSE, 0)
    assert loop.run_events(s, 2, 0) == (loop.PAUSE, 0)
    assert (s.run[0].now, s.run[0].event_count) == (5, 1)
    s.run[0].segments = 5  # more than half of its table
    assert loop.run_events(s, 2, 0) == (loop.PAUSE, 0)
    assert s.run[0].event_count == 1
    s.run[0].segments = 4
    s.run[0].full = events.FULL_TABLE
    assert loop.run_events(s, 2, 0) == (loop.OVER, 0)
    s.run[0].full = 0
    assert loop.run_events(s, 2, 0) == (loop.OVER, 0)
    assert (s.run[0].now, s.run[0].event_count) == (10, 0)


def test_an_alarm_rings_once_and_only_if_none_was_set_since() -> None:
    s = ending(flows.THEN_DONE)
    assert s.run[0].alarm_at == 20
    s.run[0].now, s.run[0].alarm_at = 0, 15
    loop.run_events(s, 1, 0)
    assert (s.run[0].ended, s.run[0].now) == (0, 20)
    events.push(s, 0, events.NORMAL, events.ALARM, 0)
    s.run[0].alarm_at = 20
    loop.run_events(s, 1, 0)
    assert s.run[0].ended == 1
    assert s.run[0].alarm_at > 20


def test_rates_that_the_caller_has_found_are_taken() -> None:
    """Two flows, each with two bytes on one link and one on the other: filling gets stuck."""
    s = with_phases([1.0, 1.0], [(0, 20.0), (1, 10.0)], [(0, 10.0), (1, 20.0)])
    s.run[0].stuck = -1
    for phase in range(2):
        flows.go(s, flows.start_flow(s, phase, 1, flows.THEN_DONE, phase), 1.0)
    assert loop.run_events(s, 9, 0) == (loop.RATES, 2)
    s.rate[:2] = 1 / 32, 1 / 64
    assert loop.run_events(s, 0, 2) == (loop.PAUSE, 0)
    assert [int(flow.wake) for flow in s.flow[:2]] == [32, 64]
    assert (s.run[0].alarm_at, s.wake[0].when) == (20, 32)  # the one of before sets the next


@pytest.mark.parametrize(("left", "over"), [(2, 0), (1, 1)])
def test_a_plan_of_several_parts_ends_with_the_last(left: int, over: int) -> None:
    s = run_tables()
    s.row[1].left_parts = left
    loop.handle_row(s, events.PART_ENDED, 1, 0)
    assert s.row[1].left_parts == left - 1
    assert set_events(s) == [(0, events.ALL_PARTS, 1)] * over


@pytest.mark.parametrize("parts", [1, 2])
def test_a_part_that_ends_ends_a_plan_that_has_no_other(parts: int) -> None:
    s = run_tables()
    s.slot.op[:] = s.row.frame[:] = s.row.group[:] = -1
    s.plan[0].parts, s.part[0].phases = parts, 0
    meetings.frame_part(s, 1, 0)
    loop.part(s, 0)
    assert s.row[1].ended == (1 if parts == 1 else 0)
    assert set_events(s) == ([] if parts == 1 else [(0, events.PART_ENDED, 1)])


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("back", [False, True])
def test_parts_that_wait_for_a_member_go_on_in_the_order_in_which_they_came(
    first: int, back: bool
) -> None:
    """Frames 0 and 2 wait for slot 4, `first` the longer; frame 1 for slot 5. They end at once."""
    s = run_tables()
    s.slot.op[:] = s.row.frame[:] = s.row.group[:] = -1
    s.plan[0].parts, s.row[1].joining = 3, 3
    for at, (slot, turn) in enumerate(((4, 7 + (first > 0)), (5, 6), (4, 7 + (first < 2)))):
        meetings.frame_part(s, 1, at)
        frame = s.frame[at]
        frame.state, frame.slot, frame.turn, frame.flow = meetings.JOINING, slot, turn, at
        s.part[at].first = s.part[at].first_stop = at
        s.phase[at].cap = 0.1
        s.part_phase[at] = at
    if back:  # a row's frames are in no order once some have been used again
        s.row[1].frame, s.frame.next[:3] = 0, (1, 2, -1)
    s.run[0].flow_count = 3
    s.flow.phase[:3] = range(3)
    s.flow.left[:] = 1.0
    loop.joined(s, 4, 1)
    assert s.row[1].joining == 1
    assert [int(frame.slot) for frame in s.frame[:3]] == [-1, 5, -1]
    assert [int(flow.number) for flow in s.flow[:3]] == ([2, 0, 1] if first else [1, 0, 2])
    loop.joined(s, 4, 1)  # nobody waits for it any more
    assert s.row[1].joining == 1
