"""
The loop: take the next event and let it happen, until none is left or the caller is needed.
"""

from __future__ import annotations

from commsim.engine.columns.ends import END_KERNEL, set_alarm
from commsim.engine.columns.events import (
    ALARM,
    ALL_ENDED,
    ALL_PARTS,
    ARRIVED,
    BEGIN,
    CHANGE,
    EVENT_KERNEL,
    FINISH,
    JOB,
    LEAVE,
    MOVE,
    NORMAL,
    OP_DONE,
    OP_ENDED,
    PART,
    PART_ENDED,
    READY,
    RUN_OP,
    RUN_ROW,
    SOLVE,
    STAGE,
    pop,
    push,
)  # fmt: skip
from commsim.engine.columns.filling import FILLING_KERNEL
from commsim.engine.columns.flows import (
    FLOW_KERNEL,
    THEN_DONE,
    THEN_FINISH,
    THEN_MOVED,
    THEN_PART,
    free_flow,
    next_due,
    run_component,
    set_link,
    solve,
    solve_soon,
)  # fmt: skip
from commsim.engine.columns.gpus import GPU_KERNEL, end_job, set_pace
from commsim.engine.columns.meetings import (
    JOINING,
    MEETING_KERNEL,
    enter_parts,
    move,
    part_goes_on,
)  # fmt: skip
from commsim.engine.columns.state import NEVER, State
from commsim.engine.columns.streams import (
    STREAM_KERNEL,
    all_ended,
    begin_stream,
    done,
    finish,
    leave,
    one_ended,
    run_one,
    run_ready,
    staged,
    woken,
)  # fmt: skip

__all__ = ["KERNEL", "OVER", "PAUSE", "RATES", "run_events"]

OVER, PAUSE, RATES = 0, 1, 2
"""No event is left (or none can be handled); so many have happened; rates have to be found."""


def part(s: State, at: int) -> None:
    """Go on with a part of a plan; tell its collective if it has ended."""
    if part_goes_on(s, at):
        row = s.frame[at].row
        if s.plan[s.row[row].plan].parts == 1:
            finish(s, row)
        else:
            push(s, 0, NORMAL, PART_ENDED, row)


def joined(s: State, slot: int, row: int) -> None:
    """Go on with the parts that waited for a member, in the order in which they came to wait."""
    one = s.row[row]
    while one.joining > 0:
        first, turn, at = -1, 0, one.frame
        while at >= 0:
            frame = s.frame[at]
            if frame.state == JOINING and frame.slot == slot and (first < 0 or frame.turn < turn):
                first, turn = at, frame.turn
            at = frame.next
        if first < 0:
            return
        one.joining -= 1
        s.frame[first].slot = -1
        part(s, first)


def end_due(s: State) -> None:
    """End the flows that are due, and let what comes of each come."""
    while True:
        at = next_due(s)
        if at < 0 or s.run[0].full:
            break
        flow = s.flow[at]
        then, what = flow.then, flow.what
        if then == THEN_PART:
            part(s, what)
            continue
        if then == THEN_FINISH:
            free_flow(s, at)
            finish(s, what)
        elif then == THEN_MOVED:
            free_flow(s, at)
            push(s, s.phase[s.plan[s.row[what].plan].only].tail, NORMAL, FINISH, what)
        elif then == THEN_DONE:
            free_flow(s, at)
            done(s, what)
        else:
            staged(s, what, at)
    if s.run[0].touched_count > 0:
        solve_soon(s)
    else:  # those that have ended shared no link
        set_alarm(s)


def change(s: State, at: int) -> None:
    """Let a change of the cluster happen, and those that go with it; set the next."""
    while True:
        one = s.change[at]
        if one.target == 0:
            set_link(s, one.what, one.share)
        elif one.target == 1:
            set_pace(s, one.what, one.share)
        at = one.next
        if at < 0:
            return
        if not one.same:
            push(s, s.change[at].after, NORMAL, CHANGE, at)
            return


def handle_row(s: State, kind: int, what: int, alarm: int) -> None:
    """Let an event of a collective or message happen."""
    if kind == MOVE:
        move(s, what)
    elif kind in (FINISH, ALL_PARTS):
        finish(s, what)
    elif kind == LEAVE:
        leave(s, what)
    elif kind == RUN_ROW:
        frame = enter_parts(s, what)
        if frame >= 0:
            part(s, frame)
    elif kind == PART:
        part(s, what)
    elif kind == PART_ENDED:
        s.row[what].left_parts -= 1
        if s.row[what].left_parts == 0:
            push(s, 0, NORMAL, ALL_PARTS, what)
    elif kind == ARRIVED:
        joined(s, what, alarm)


def handle_op(s: State, kind: int, what: int) -> None:
    """Let an event of an op or a stream happen."""
    if kind == OP_DONE:
        done(s, what)
    elif kind == READY:
        run_ready(s, what)
    elif kind == BEGIN:
        begin_stream(s, what)
    elif kind == RUN_OP:
        run_one(s, what)
    elif kind == OP_ENDED:
        one_ended(s, what)
    elif kind == ALL_ENDED:
        all_ended(s, what)
    elif kind == STAGE:
        staged(s, what, -1)
    else:
        woken(s, what)


def run_events(s: State, most: int, component: int) -> tuple[int, int]:
    """Run up to `most` events; `component` flows have been given rates by the caller (0: none).

    Returns why it stops, and how many flows (the first of `member`) want rates.
    """
    run = s.run[0]
    if component > 0:
        run_component(s, component)
    for _ in range(most):
        if run.event_count == 0 or run.full or run.stuck >= 0:
            return OVER, 0
        if run.segments * 2 > len(s.segment):
            return PAUSE, 0
        kind, what, alarm = pop(s)
        if kind == JOB:
            op = end_job(s, what, alarm)
            if op >= 0:
                done(s, op)
        elif kind == ALARM:
            if run.alarm_at == run.now:  # else an earlier one has been set since
                run.alarm_at = NEVER
                end_due(s)
        elif kind == SOLVE:
            stuck = solve(s)
            if stuck > 0:
                return RATES, stuck
        elif kind == CHANGE:
            change(s, what)
        elif MOVE <= kind <= ARRIVED:
            handle_row(s, kind, what, alarm)
        else:
            handle_op(s, kind, what)
    return PAUSE, 0


KERNEL = (
    *EVENT_KERNEL, *FILLING_KERNEL, *END_KERNEL, *FLOW_KERNEL, *GPU_KERNEL, *MEETING_KERNEL,
    *STREAM_KERNEL, part, joined, end_due, change, handle_row, handle_op, run_events,
)  # fmt: skip
"""`run_events` after the functions that it calls, for a compiler."""
