"""Who has come to a collective over tables, whom its data waits for, and who is let go."""

from __future__ import annotations

import pytest
from helpers.run_tables import run_tables

from commsim.engine.columns import meetings
from commsim.engine.columns.events import ARRIVED, FULL_TABLE, LEAVE, MOVE, PART, RUN_ROW
from commsim.engine.columns.flows import THEN_PART, start_flow
from commsim.engine.columns.state import State
from commsim.timeline import Cause

ROW, FIRST = 1, 2  # the row of a collective, and the first of its slots


def meeting(*, members: tuple[int, ...] = (0, 1, 3, 6), group: int = 0, **plan: int) -> State:
    """Return tables with a collective of those members of a group, on lanes 10, 11, ... .

    Slots stand in the order of lanes, which is another one than that of members: the slot of the
    first lane is the last. Its plan has one part if nothing else is said.
    """
    s = run_tables(slot=10, lane_slot=10, slot_member=10, join=10, op=10)
    count = len(members)
    s.group[0].first, s.group[0].count, s.group[0].free = 3, count, -1
    for at, member in enumerate(members):
        s.lane_slot[3 + at].lane, s.lane_slot[3 + at].slot = 10 + at, count - 1 - at
        s.slot_member[3 + at] = member
    s.slot.op[:] = s.op.cause[:] = s.op.start[:] = s.op.arrive[:] = -1
    one = s.row[ROW]
    one.plan, one.group, one.first, one.count, one.frame = 0, group, FIRST, count, -1
    given = {"only": -1, "join": -1, "seen": -1, "parts": 1} | plan
    for name, value in given.items():
        setattr(s.plan[0], name, value)
    return s


def test_a_lane_has_its_slot() -> None:
    s = meeting()
    assert [meetings.slot_of(s, ROW, 10 + at) - FIRST for at in range(4)] == [3, 2, 1, 0]
    s = meeting(members=(5,))
    assert meetings.slot_of(s, ROW, 10) == FIRST


def test_members_and_their_places() -> None:
    s = meeting()
    assert [meetings.member_of(s, ROW, place) for place in range(4)] == [0, 1, 3, 6]
    assert [meetings.place_of(s, ROW, member) for member in range(8)] == [
        0, 1, -1, 2, -1, -1, 3, -1,
    ]  # fmt: skip
    s = meeting(group=-1)  # a message: its slots are its members
    assert [meetings.member_of(s, ROW, place) for place in range(4)] == [0, 1, 2, 3]
    assert [meetings.place_of(s, ROW, member) for member in range(5)] == [0, 1, 2, 3, -1]


def test_the_lowest_that_has_come() -> None:
    s = meeting()
    assert meetings.lowest_op(s, ROW) == -1
    s.slot[FIRST + 3].op = 5
    assert meetings.lowest_op(s, ROW) == 5
    s.slot[FIRST].op = 0
    assert meetings.lowest_op(s, ROW) == 0
    s.slot[FIRST - 1].op = 7  # of another row
    assert meetings.lowest_op(s, ROW) == 0


@pytest.mark.parametrize(("first", "missing"), [(0, 4), (1, 1), (2, 2)])
def test_data_waits_for_all_for_member_0_or_for_those_whom_it_reaches_at_once(
    first: int, missing: int
) -> None:
    """Data reaches members 0 and 3 at once."""
    s = meeting(first=first, join=1)
    s.join[1:8] = (0, 5, 0, 0, 9, 9, 7)
    s.run[0].seen = 4
    meetings.meet(s, ROW)
    assert (s.row[ROW].missing, s.row[ROW].met) == (missing, 1)
    assert (s.plan[0].seen, s.run[0].seen) == (4, 5)
    meetings.meet(s, ROW)
    assert (s.plan[0].seen, s.run[0].seen) == (4, 5)
    meetings.arrive(s, ROW, FIRST + 1, 5)
    assert (s.row[ROW].here, s.row[ROW].last, s.slot[FIRST + 1].op) == (1, 5, 5)
    assert s.row[ROW].missing == (missing - 1 if first == 0 else missing)
    assert not s.row[ROW].queued
    s.row[ROW].missing = 1
    meetings.arrive(s, ROW, FIRST, 6)
    assert (s.row[ROW].missing, s.row[ROW].queued, s.row[ROW].begun) == (0, 1, 1)


def test_what_moves_counts_from_the_last_to_come_or_from_the_end_of_the_one_before() -> None:
    """Ops 4 to 6 came at 10, 20 and 30; op 5 copied for 8; data reaches the third later."""
    for freed_by, cause, kind in ((-1, 6, Cause.RENDEZVOUS), (9, 9, Cause.QUEUE)):
        s = meeting(late=1, join=1)
        s.join[1:8] = (0, 0, 0, 4, 0, 0, 0)
        s.run[0].now, s.row[ROW].last = 30, 6
        for at, op in enumerate((4, 5, 6)):
            s.slot[FIRST + at].op, s.op[op].arrive = op, 10 * (at + 1)
        s.slot[FIRST + 1].copied = 8
        meetings.begin(s, ROW, freed_by)
        assert [int(s.op[op].start) for op in (4, 5, 6)] == [30, 22, -1]
        assert [int(s.op[op].cause) for op in (4, 5, 6)] == [cause, cause, -1]
        assert [int(s.op[op].cause_kind) for op in (4, 5)] == [kind, kind]
        assert s.row[ROW].begun
        assert (s.event[0].kind, s.event[0].what, s.event[0].when) == (RUN_ROW, ROW, 30)


@pytest.mark.parametrize(("last", "freed_by"), [(0, -1), (5, 0)])
def test_what_moves_may_count_from_the_first_op(last: int, freed_by: int) -> None:
    s = meeting()
    s.run[0].now, s.row[ROW].last = 30, last
    s.slot[FIRST].op, s.slot[FIRST + 1].op = 0, 5
    s.op[0].arrive, s.op[5].arrive = 20, 20
    meetings.begin(s, ROW, freed_by)
    assert [int(s.op[op].cause) for op in (0, 5)] == [-1, 0]
    assert [int(s.op[op].start) for op in (0, 5)] == [30, 30]


@pytest.mark.parametrize(("free", "begun"), [(-1, 1), (0, 0), (1, 1)])
def test_a_collective_that_is_complete_begins_if_its_group_has_a_slot_free(
    free: int, begun: int
) -> None:
    """-1: the group runs as many at once as there are."""
    s = meeting(members=(0,))
    s.group[0].free, s.group[0].turns, s.group[0].ended, s.turn[0] = free, 1, 6, ROW
    s.row[ROW].missing = 1
    meetings.arrive(s, ROW, FIRST, 4)
    assert (s.row[ROW].queued, s.row[ROW].begun) == (1, begun)
    assert s.group[0].free == min(free, 0)
    assert bool(s.row[ROW].in_turn) == (not begun)
    assert s.op[4].cause == -1  # it was the last to come, and waited for no turn


@pytest.mark.parametrize(("start", "ended", "found"), [
    (meetings.EAGER, 0, (40, 0)), (meetings.EAGER, 1, (40, 1)), (meetings.PATH, 1, (-1, 0)),
])  # fmt: skip
def test_who_comes_late_to_an_eager_message_has_it_at_once_or_when_it_is_there(
    start: int, ended: int, found: tuple[int, int]
) -> None:
    s = meeting(members=(0, 1), group=-1, start=start, first=1)
    one, s.run[0].now = s.row[ROW], 40
    one.queued, one.begun, one.ended = 1, 1, ended
    meetings.arrive(s, ROW, FIRST + 1, 4)
    assert (s.op[4].start, s.slot[FIRST + 1].left) == found


def events(s: State) -> list[tuple[int, int, int]]:
    """Return (when, kind, what) of the events that are set, in order of time."""
    rows = s.event[: s.run[0].event_count]
    return sorted((int(row.when), int(row.kind), int(row.what)) for row in rows)


def test_a_part_runs_its_phases_one_after_another() -> None:
    """Phase 0: a lead of 5 ps, 100 ps, a tail of 3 ps. Phase 1 is empty. Phase 2: 10 ps."""
    s = meeting(first_part=0)
    s.phase[0].lead, s.phase[0].idle, s.phase[0].tail, s.phase[2].idle = 5, 100, 3, 10
    s.phase.cap[:3] = 0.01, 1.0, 0.1
    s.part[0].first, s.part[0].phases, s.part_phase[1:4] = 1, 3, (0, 1, 2)
    s.slot[FIRST + 1].op = 7
    at, frame = meetings.frame_part(s, ROW, 0), s.frame[0]
    for now, state, phase, before, wake, event in (
        (0, meetings.LED, 1, 0, None, (5, PART)),
        (5, meetings.MOVED, 1, 0, 105, None),
        (105, meetings.TAILED, 1, 0, None, (108, PART)),
        (108, meetings.MOVED, 3, 108, 118, None),
    ):
        s.run[0].now, s.run[0].event_count, s.run[0].alarm_at = now, 0, -1
        assert not meetings.part_goes_on(s, at)
        assert (frame.state, frame.phase, frame.before) == (state, phase, before)
        if event:
            assert events(s) == [(*event, 0)]
        else:
            flow = s.flow[frame.flow]
            assert (flow.wake, flow.op, flow.then, flow.what) == (wake, 7, THEN_PART, 0)
    s.run[0].now = 118
    assert meetings.part_goes_on(s, at)
    assert (frame.state, frame.before) == (meetings.BEFORE_PHASE, 118)
    assert s.run[0].flow_free == frame.flow  # it serves the next
    s.run[0].full = FULL_TABLE
    assert not meetings.part_goes_on(s, at)


def test_a_plan_of_one_phase_moves_after_its_lead() -> None:
    s = meeting(only=2)
    s.phase[2].lead = 7
    meetings.begin(s, ROW, -1)
    assert (s.event[0].kind, s.event[0].when) == (MOVE, 7)
    s = meeting(only=2)
    s.phase[2].cap = 0.01
    meetings.begin(s, ROW, -1)
    assert (s.flow[0].phase, s.flow[0].what, s.flow[0].wake) == (2, ROW, 100)


def test_collectives_of_a_group_take_turns() -> None:
    """The group has one slot: rows 1 and 2 take turns, in that order."""
    s = meeting()
    group = s.group[0]
    group.free, group.first_turn, group.turns, group.ended = 1, 5, 2, 8
    s.turn[5:7] = (1, 2)
    s.row[2].plan, s.row[2].group, s.row[2].in_turn = 0, 0, 1
    meetings.start_next(s, 0, 1)  # row 1 is not ready
    assert (group.turn, group.free, s.row[2].begun) == (0, 1, 0)
    s.row[1].in_turn = 1
    meetings.start_next(s, 0, 1)
    assert (group.turn, group.free, s.row[1].begun, s.row[2].begun) == (1, 0, 1, 0)
    assert not s.row[1].in_turn
    group.free = 2
    meetings.start_next(s, 0, 1)
    assert (group.turn, group.free, s.row[2].begun) == (2, 1, 1)
    meetings.start_next(s, 0, 1)
    assert (group.turn, group.free) == (2, 1)


def test_a_member_is_let_go_once_and_starts_once() -> None:
    s = meeting()
    s.run[0].now = 50
    meetings.release(s, FIRST)
    meetings.start_member(s, FIRST)
    assert s.run[0].event_count == 0  # nobody is there
    s.slot[FIRST].op, s.slot[FIRST].copied = 0, 10
    for _ in range(2):
        meetings.release(s, FIRST)
        meetings.start_member(s, FIRST)
    assert s.run[0].event_count == 1
    assert (s.event[0].kind, s.event[0].what, s.slot[FIRST].left) == (LEAVE, 0, 1)
    assert s.op[0].start == 40
    s.op[0].start = 0
    meetings.start_member(s, FIRST)  # it has started at 0
    assert s.op[0].start == 0


def test_when_data_reaches_members() -> None:
    s = meeting(join=2)
    s.join[2:5] = (0, 6, 7)
    assert [meetings.joins_at(s, 0, member) for member in range(3)] == [0, 6, 7]
    assert meetings.joins_at(meeting(), 0, 1) == 0


def test_frames_of_parts_are_used_again() -> None:
    s = meeting(parts=2, first_part=3)
    s.part[3].first, s.part[4].first, s.part[4].first_stop = 2, 6, 5
    assert meetings.enter_parts(s, ROW) == -1
    assert (s.row[ROW].left_parts, s.row[ROW].frame, s.run[0].frame_count) == (2, 1, 2)
    assert [(e.kind, e.what) for e in s.event[:2]] == [(PART, 0), (PART, 1)]
    one = s.frame[1]
    assert (one.row, one.part, one.phase, one.flow, one.stop) == (ROW, 4, 6, -1, 5)
    assert (one.before, one.reached, one.state, one.slot, one.next) == (0, -1, 0, -1, 0)
    assert s.frame[0].next == -1
    s.run[0].frame_free, s.frame[0].next = 0, -1
    s.plan[0].parts = 1
    assert meetings.enter_parts(s, ROW) == 0
    assert (s.run[0].frame_free, s.run[0].frame_count, s.row[ROW].left_parts) == (-1, 2, 1)
    s.run[0].frame_count = len(s.frame) - 1
    assert meetings.enter_parts(s, ROW) == len(s.frame) - 1
    assert s.run[0].full == 0
    assert meetings.enter_parts(s, ROW) == 0
    assert s.run[0].full == FULL_TABLE


def stopping(*stops: tuple[int, int, int]) -> State:
    """Return a part that leads for 10 ps and moves for 100, with stops (when, member, joins)."""
    s = meeting(first_part=0)
    s.phase[0].lead, s.phase[0].idle, s.phase[0].cap = 10, 100, 0.01
    s.part[0].phases, s.part[0].stops = 1, len(stops)
    for at, (when, member, joins) in enumerate(stops):
        s.stop[at].when, s.stop[at].member, s.stop[at].joins = when, member, joins
    meetings.frame_part(s, ROW, 0)
    s.frame[0].state = meetings.LED
    s.frame[0].flow = start_flow(s, 0, 4, THEN_PART, 0)
    return s


@pytest.mark.parametrize(
    ("when", "waits", "stop", "goal"),
    [(9, False, 1, 0), (10, False, 1, 0), (11, True, 0, 0.01), (109, True, 0, 0.99),
     (110, False, 0, 0), (111, False, 0, 0)],
)  # fmt: skip
def test_a_part_moves_up_to_a_stop_within_its_phase(
    when: int, waits: bool, stop: int, goal: float
) -> None:
    """At 10 the phase begins to move, and at 110 the next one would."""
    s = stopping((when, 1, 0))
    assert meetings.pass_stops(s, 0) is waits
    assert s.frame[0].stop == stop
    if waits:
        assert (s.frame[0].state, s.frame[0].reached) == (meetings.REACHED, when)
        assert s.flow[0].goal == pytest.approx(1 - goal)
        assert not meetings.pass_stops(s, 0)  # it has come there
        assert s.frame[0].stop == 1


def test_at_a_stop_a_member_joins_when_it_is_there_and_another_is_let_go() -> None:
    s = stopping((10, 1, 1), (10, 0, 0), (10, 2, 1), (10, 2, 0))
    assert meetings.pass_stops(s, 0)
    frame, one = s.frame[0], s.row[ROW]
    assert (frame.state, frame.slot, frame.stop) == (meetings.JOINING, FIRST + 1, 0)
    assert (frame.turn, s.run[0].marks, one.joining) == (1, 1, 1)
    s.run[0].now = 60
    one.missing = 5
    meetings.arrive(s, ROW, FIRST + 1, 4)
    assert (s.event[0].kind, s.event[0].what, s.event[0].alarm) == (ARRIVED, FIRST + 1, ROW)
    s.slot[FIRST].op = 7
    assert not meetings.pass_stops(s, 0)  # member 2 is not in the graph
    assert (s.op[4].start, s.slot[FIRST].left, frame.stop) == (60, 1, 4)


def test_of_several_parts_the_one_that_waits_for_a_member_is_told() -> None:
    s = stopping((10, 1, 1))
    one = s.row[ROW]
    one.missing = 5
    meetings.arrive(s, ROW, FIRST + 1, 4)
    assert s.run[0].event_count == 0  # nobody waits
    s.slot[FIRST + 1].op = -1
    one.joining = 1
    s.frame[0].state, s.frame[0].slot = meetings.JOINING, FIRST + 2
    meetings.arrive(s, ROW, FIRST + 1, 4)
    assert s.run[0].event_count == 0  # for another one
    s.frame[0].slot, s.frame[0].state = FIRST + 1, meetings.REACHED
    meetings.arrive(s, ROW, FIRST + 1, 4)
    assert s.run[0].event_count == 0


def test_the_first_member_joins_at_a_stop_as_others_do() -> None:
    s = stopping((10, 0, 1))
    assert meetings.pass_stops(s, 0)  # it is not there yet
    assert (s.frame[0].state, s.frame[0].slot, s.row[ROW].joining) == (meetings.JOINING, FIRST, 1)
    s.slot[FIRST].op, s.run[0].now = 4, 60
    assert not meetings.pass_stops(s, 0)
    assert (s.op[4].start, s.slot[FIRST].left, s.frame[0].stop) == (60, 0, 1)
