"""Streams over tables, one function at a time: what an op waits for, and what its end lets go."""

from __future__ import annotations

import pytest
from helpers.run_tables import run_tables

from commsim.engine.columns import streams
from commsim.engine.columns.events import (
    ALL_ENDED,
    BEGIN,
    NORMAL,
    OP_DONE,
    OP_ENDED,
    READY,
    RUN_OP,
    WOKEN,
    push,
)
from commsim.engine.columns.loop import run_events
from commsim.engine.columns.state import BATCHED, COMPUTES, DEPENDS, RELEASES, WORKS, State
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


@pytest.mark.parametrize(("stuck", "left"), [(-1, 0), (0, 1), (3, 1)])
def test_a_plan_that_cannot_be_run_stops_the_run(stuck: int, left: int) -> None:
    s = stream_of()
    s.run[0].stuck = stuck
    push(s, 5, NORMAL, BEGIN, 0)
    run_events(s, 10, 0)
    assert s.run[0].event_count == left
