"""Streams over tables, one function at a time: what an op waits for, and what its end lets go."""

from __future__ import annotations

import pytest
from helpers.run_tables import run_tables

from commsim.engine.columns import streams
from commsim.engine.columns.events import (
    ALL_ENDED,
    BEGIN,
    JOB,
    NORMAL,
    OP_DONE,
    OP_ENDED,
    READY,
    RUN_OP,
    STAGE,
    WOKEN,
    push,
)
from commsim.engine.columns.flows import THEN_DONE, THEN_STAGE
from commsim.engine.columns.loop import run_events
from commsim.engine.columns.meetings import PATH
from commsim.engine.columns.state import (
    BATCHED,
    COMPUTES,
    DEPENDS,
    IN_GROUP,
    ON_GPU,
    RECEIVES,
    RELEASES,
    WORKS,
    State,
)
from commsim.timeline import Cause


def stream_of(*durations: int, facts: int = WORKS) -> State:
    """Return tables with a stream of ops of those times, and nothing else."""
    s = run_tables(op=len(durations) + 1, queued=8, dependent=8)
    s.run[0].stuck = -1
    s.op.cause[:] = s.op.start[:] = s.op.end[:] = s.op.ready_by[:] = s.op.arrive[:] = -1
    for at, duration in enumerate(durations):
        s.op[at].duration, s.op[at].facts, s.queued[at] = duration, facts, at
    one = s.stream[0]
    one.last, one.op, one.before = len(durations), -1, -1
    return s


def events(s: State) -> list[tuple[int, int, int]]:
    """Return (when, kind, what) of the events that are set, in order of time."""
    rows = s.event[: s.run[0].event_count]
    return sorted((int(row.when), int(row.kind), int(row.what)) for row in rows)


def test_ops_of_no_time_pass_and_the_next_is_waited_for() -> None:
    s = stream_of(0, 0, 7, 5)
    streams.next_ops(s, 0)
    assert events(s) == [(7, OP_DONE, 2)]
    assert [int(end) for end in s.op.end[:4]] == [0, 0, -1, -1]
    assert [int(cause) for cause in s.op.cause[:4]] == [-1, 0, 1, -1]
    assert set(s.op.cause_kind[1:3].tolist()) == {Cause.STREAM}
    s.run[0].event_count, s.run[0].now = 0, 7
    streams.done(s, 2)
    assert events(s) == [(12, OP_DONE, 3)]
    assert (s.op[2].end, s.op[3].start, s.op[3].cause, s.run[0].ended) == (7, 7, 2, 3)
    streams.done(s, 3)
    assert (s.stream[0].at, s.run[0].ended, len(events(s))) == (4, 4, 1)


@pytest.mark.parametrize(
    ("waits", "ready_at", "now", "found"),
    [
        (1, 0, 0, []), (0, 9, 4, [(9, READY, 0)]), (0, 4, 4, [(11, OP_DONE, 0)]),
        (0, 3, 4, [(11, OP_DONE, 0)]),
    ],
)  # fmt: skip
def test_an_op_waits_for_what_it_depends_on_and_for_its_delay(
    waits: int, ready_at: int, now: int, found: list[tuple[int, int, int]]
) -> None:
    s = stream_of(7, facts=WORKS | DEPENDS)
    s.op[0].waits, s.op[0].ready_at, s.op[0].ready_by, s.run[0].now = waits, ready_at, 1, now
    streams.next_ops(s, 0)
    assert events(s) == found
    assert s.op[0].woken == (1 if waits else 0)
    if found and found[0][1] == OP_DONE:  # behind what it waited for, if that was last
        kind = Cause.DEPENDENCY if ready_at >= now else Cause.NONE
        assert (s.op[0].cause_kind, s.op[0].arrive) == (kind, now)


@pytest.mark.parametrize(("waits", "woken", "set_"), [(1, 1, 1), (1, 0, 0), (2, 1, 0)])
def test_the_end_of_an_op_wakes_who_waited_for_it_last(waits: int, woken: int, set_: int) -> None:
    """Op 0 releases op 2, 5 ps later; it was ready at 12 otherwise, or at 15."""
    for other, ready, by in ((12, 15, 0), (15, 15, 0), (16, 16, 7)):
        s = stream_of(7, 7, 7, facts=RELEASES)
        s.op[0].dependents, s.op[1].dependents = 0, 1
        s.dependent[0].op, s.dependent[0].delay = 2, 5
        s.op[2].waits, s.op[2].woken, s.op[2].ready_at, s.op[2].ready_by = waits, woken, other, 7
        s.run[0].now = 10
        streams.ended(s, 0)
        assert (s.op[2].ready_at, s.op[2].ready_by, s.op[2].waits) == (ready, by, waits - 1)
        assert events(s) == [(10, WOKEN, 2)] * set_
        assert s.op[2].woken == (1 if waits == 2 else 0)


def test_what_is_woken_waits_for_its_delay() -> None:
    for ready, found in ((15, [(15, READY, 0)]), (10, [(17, OP_DONE, 0)])):
        s = stream_of(7, facts=WORKS | DEPENDS)
        s.op[0].ready_at, s.run[0].now, s.stream[0].op = ready, 10, 0
        streams.woken(s, 0)
        assert events(s) == found


def test_ops_issued_as_one_start_together_and_end_with_the_last() -> None:
    s = stream_of(7, 0, 5, 1, facts=WORKS | BATCHED)
    for at, batch in enumerate((3, 3, 3, 4)):
        s.op[at].batch = batch
    s.op[1].waits = 1
    streams.next_ops(s, 0)
    assert (events(s), s.op[1].woken, s.stream[0].until) == ([], 1, 3)
    s.op[1].waits, s.op[1].ready_at = 0, 2
    streams.woken(s, 1)
    assert events(s) == [(2, READY, 0)]
    s.run[0].event_count, s.run[0].now = 0, 2
    streams.run_ready(s, 0)
    assert events(s) == [(2, RUN_OP, at) for at in range(3)]
    assert s.stream[0].running == 3
    s.run[0].event_count = 0
    for at in range(3):
        streams.run_one(s, at)
    assert events(s) == [(2, OP_ENDED, 0), (7, OP_DONE, 2), (9, OP_DONE, 0)]
    s.run[0].event_count = 0
    for at in (2, 0):
        streams.done(s, at)
    assert events(s) == [(2, OP_ENDED, 0)] * 2
    s.run[0].event_count = 0
    for left in (2, 1):
        streams.one_ended(s, 0)
        assert (s.stream[0].running, events(s)) == (left, [])
    streams.one_ended(s, 0)
    assert events(s) == [(2, ALL_ENDED, 0)]
    s.run[0].event_count = 0
    streams.all_ended(s, 0)  # the fourth is alone
    assert (s.stream[0].before, s.stream[0].at, s.stream[0].op) == (2, 3, 3)
    assert events(s) == [(3, OP_DONE, 3)]


def test_a_stream_begins_when_its_clock_does() -> None:
    s = stream_of(7)
    s.gpu[0].offset = 4
    streams.begin_stream(s, 0)
    assert (events(s), s.stream[0].op) == ([(4, READY, 0)], -1)
    s.run[0].event_count, s.run[0].now = 0, 4
    streams.run_ready(s, 0)
    assert events(s) == [(11, OP_DONE, 0)]
    s = stream_of(7, facts=WORKS | COMPUTES)
    streams.begin_stream(s, 0)
    assert events(s) == [(7, OP_DONE, 0)]


@pytest.mark.parametrize(("free", "left"), [(0, 1), (-1, -1)])
def test_a_collective_that_ends_lets_its_members_go_and_its_group_go_on(
    free: int, left: int
) -> None:
    """Group 0; members are ops 1 and 2 on streams of their own, the second has left already."""
    s = stream_of(0, 0, 0)
    s.slot.op[:], s.plan.copies_out[:], s.plan.copies_in[:] = -1, -1, -1
    s.group[0].free, s.group[0].ended = free, -1
    s.row[0].first, s.row[0].count, s.row[0].frame = 2, 3, 4
    s.frame[4].next, s.frame[5].next, s.run[0].frame_free = 5, -1, 6
    for at in (0, 1):
        s.slot[2 + at].op, s.op[1 + at].stream = 1 + at, 1 + at
    s.slot[3].left = 1
    streams.finish(s, 0)
    assert (s.row[0].ended, s.group[0].free) == (1, left)
    assert s.group[0].ended == (1 if free >= 0 else -1)
    assert (s.run[0].ended, s.op[1].end, s.op[2].end, s.slot[2].left) == (1, 0, -1, 1)
    assert (s.run[0].frame_free, s.frame[5].next, s.frame[4].next, s.row[0].frame) == (5, 4, 6, -1)


@pytest.mark.parametrize(
    ("now", "ready_at", "ready_by", "before", "cause", "kind"),
    [
        (1, 1, 0, 4, 0, Cause.DEPENDENCY),
        (5, 5, 3, 4, 3, Cause.DEPENDENCY),
        (5, 4, 3, 4, 4, Cause.STREAM),  # it was ready before its turn came
        (5, 4, 3, 0, 0, Cause.STREAM),
        (5, 5, -1, 4, 4, Cause.STREAM),
        (0, 0, 3, 4, 4, Cause.STREAM),
        (0, 0, 3, -1, -1, Cause.NONE),
        (5, 4, 3, -1, -1, Cause.NONE),
    ],
)  # fmt: skip
def test_an_op_comes_behind_what_it_waited_for_last(
    now: int, ready_at: int, ready_by: int, before: int, cause: int, kind: Cause
) -> None:
    s = stream_of(7, facts=DEPENDS)
    s.run[0].now, s.op[0].ready_at, s.op[0].ready_by = now, ready_at, ready_by
    streams.arrives(s, 0, before)
    assert (s.op[0].arrive, s.op[0].cause, s.op[0].cause_kind) == (now, cause, kind)
    s = stream_of(7, facts=0)  # it depends on nothing
    s.run[0].now = now
    streams.arrives(s, 0, 3)
    assert (s.op[0].cause, s.op[0].cause_kind) == (3, Cause.STREAM)


def member(facts: int, **plan: int) -> State:
    """Ops 0 and 1 are member 2 of a group of lanes 5 and 6, or receive a message: row 1."""
    s = stream_of(0, 0, facts=facts)
    s.op.row[:], s.op.lane[:] = 1, 6
    s.slot.op[:] = s.plan.copies_in[:] = s.plan.copies_out[:] = s.plan.seen[:] = -1
    s.group[0].first, s.group[0].count, s.group[0].free = 0, 2, -1
    s.lane_slot.lane[:2], s.lane_slot.slot[:2], s.slot_member[:2] = (5, 6), (0, 1), (0, 2)
    s.row[1].first, s.row[1].count, s.row[1].frame = 3, 2, -1
    s.row[1].group = 0 if facts & IN_GROUP else -1
    for name, value in plan.items():
        setattr(s.plan[0], name, value)
    return s


@pytest.mark.parametrize(("facts", "slot"), [(IN_GROUP, 4), (0, 3), (RECEIVES, 4)])
def test_the_slot_of_who_sends_receives_or_is_a_member(facts: int, slot: int) -> None:
    assert streams.slot_for(member(facts), 0) == slot


@pytest.mark.parametrize(("phase", "lead", "copies"), [(-1, 0, 0), (1, 0, 1), (1, 9, 1)])
def test_a_member_copies_through_host_memory_before_it_meets_the_others(
    phase: int, lead: int, copies: int
) -> None:
    """The copy of member 2 stands at 1 + 2: a lead if it has one, then a flow of 20 ps."""
    s = member(IN_GROUP, copies_in=1)
    s.copy.phase[:], s.copy[3].phase, s.copy[3].lead, s.phase[1].cap = 5, phase, lead, 0.05
    s.run[0].now = 100
    assert not streams.execute(s, 0, -1)
    if not copies:
        assert (s.slot[4].op, s.slot[4].copied, s.op[0].stage) == (0, 0, 3)
        return
    if lead:
        assert (events(s), s.op[0].stage) == ([(109, STAGE, 0)], 1)
        s.run[0].now = 109
        streams.staged(s, 0, -1)
    flow = s.flow[0]
    assert (s.op[0].stage, s.slot[4].op) == (2, -1)
    assert (flow.phase, flow.op, flow.then, flow.what) == (1, 0, THEN_STAGE, 0)
    assert flow.wake == s.run[0].now + 20
    s.run[0].now += 20
    streams.staged(s, 0, 0)
    assert (s.slot[4].op, s.slot[4].copied, s.op[0].stage) == (0, lead + 20, 3)
    assert s.run[0].flow_free == 0


@pytest.mark.parametrize("lead", [0, 9])
def test_a_member_copies_back_after_it_was_let_go(lead: int) -> None:
    s = member(RECEIVES, copies_out=0)
    s.copy[1].phase, s.copy[1].lead, s.phase[1].cap = 1, lead, 0.05
    s.gpu[6].held = s.gpu[6].last_held = 0
    s.held[0].op, s.held[0].next, s.held[0].before = 0, -1, -1
    streams.leave(s, 0)
    if lead:
        assert (events(s), s.op[0].stage) == ([(9, STAGE, 0)], 4)
        s.run[0].now = 9
        streams.staged(s, 0, -1)
    assert (s.op[0].stage, s.op[0].end, s.gpu[6].held) == (5, -1, 0)
    s.run[0].now = lead + 20
    streams.staged(s, 0, 0)
    assert (s.op[0].end, s.gpu[6].held, s.stream[0].at) == (lead + 20, -1, 1)
    s = member(RECEIVES)
    streams.leave(s, 0)  # nothing to copy
    assert (s.op[0].end, s.stream[0].at) == (0, 1)


def test_what_cannot_be_planned_is_not_run() -> None:
    s = member(IN_GROUP, bad=1)
    s.run[0].stuck, s.row[1].plan, s.plan[0].bad, s.plan[3].bad = -1, 3, 0, 1
    streams.next_ops(s, 0)
    assert (s.run[0].stuck, s.op[0].end, s.row[1].met, s.stream[0].at) == (3, -1, 0, 0)
    s.row[1].plan = 0
    streams.next_ops(s, 0)
    assert (s.row[1].met, s.slot[4].op, s.run[0].ended) == (1, 0, 0)


def test_a_copy_moves_as_a_flow_or_takes_its_time() -> None:
    s = stream_of(-1, 6, facts=WORKS)
    s.op[0].row, s.phase[2].cap, s.op.row[0] = 2, 0.125, 2
    assert not streams.execute(s, 0, -1)
    flow = s.flow[0]
    assert (flow.phase, flow.op, flow.then, flow.what, flow.wake) == (2, 0, THEN_DONE, 0, 8)
    assert not streams.execute(s, 1, 0)
    assert (6, OP_DONE, 1) in events(s)


@pytest.mark.parametrize("facts", [WORKS | COMPUTES, WORKS])
def test_only_compute_shares_a_gpu(facts: int) -> None:
    s = stream_of(6, facts=facts | ON_GPU)
    s.run[0].sharing = 1
    streams.execute(s, 0, -1)
    assert events(s) == [(6, JOB if facts & COMPUTES else OP_DONE, 0)]


def test_members_that_data_has_passed_start_at_the_latest_when_all_ends() -> None:
    """Of a plan along a path: the first has started, the second not; other plans start nobody."""
    for start in (PATH, PATH + 1):
        s = member(IN_GROUP, start=start)
        s.slot[3].op, s.slot[4].op, s.op[0].start, s.run[0].now = 0, 1, 5, 30
        streams.finish(s, 1)
        assert [int(op.start) for op in s.op[:2]] == [5, 30 if start == PATH else -1]
        assert [int(slot.left) for slot in s.slot[3:5]] == [1, 1]


@pytest.mark.parametrize(("stuck", "left"), [(-1, 0), (0, 1), (3, 1)])
def test_a_plan_that_cannot_be_run_stops_the_run(stuck: int, left: int) -> None:
    s = stream_of()
    s.run[0].stuck = stuck
    push(s, 5, NORMAL, BEGIN, 0)
    run_events(s, 10, 0)
    assert s.run[0].event_count == left
