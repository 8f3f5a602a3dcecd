"""
The events to come: a heap by time, then urgency, then the order in which they were set.

As SimPy's queue: of one instant what begins comes first (URGENT), then what happens (NORMAL), then
what closes the instant (LATE). `alarm` is a second number of an event, of alarms only.
"""

from __future__ import annotations

from commsim.engine.columns.state import NEVER, State

__all__ = [
    "ALARM",
    "ALL_ENDED",
    "ALL_PARTS",
    "ARRIVED",
    "BEGIN",
    "CHANGE",
    "EVENT_KERNEL",
    "FINISH",
    "FULL_TABLE",
    "JOB",
    "LATE",
    "LEAVE",
    "MOVE",
    "NORMAL",
    "OP_DONE",
    "OP_ENDED",
    "PART",
    "PART_ENDED",
    "READY",
    "RUN_OP",
    "RUN_ROW",
    "SOLVE",
    "STAGE",
    "URGENT",
    "WOKEN",
    "pop",
    "push",
]  # fmt: skip

URGENT, NORMAL, LATE = 0, 1 << 56, 2 << 56

BEGIN, READY, WOKEN, OP_DONE, JOB, ALARM, SOLVE = 0, 1, 2, 3, 4, 5, 6
MOVE, FINISH, LEAVE, RUN_ROW, PART, PART_ENDED, ALL_PARTS, ARRIVED = 7, 8, 9, 10, 11, 12, 13, 14
RUN_OP, OP_ENDED, ALL_ENDED, STAGE, CHANGE = 15, 16, 17, 18, 19
"""What an event is, and of which stream, op, collective, frame or change: see `loop.handle`."""

FULL_TABLE = 1
"""Why a run has to be started again: with larger tables."""


def push(s: State, delay: int, urgency: int, kind: int, what: int, alarm: int = 0) -> None:
    """Set an event after `delay` ps; what would come when time has ended is left out."""
    run, heap = s.run[0], s.event
    at = run.event_count
    if at >= len(heap):
        run.full |= FULL_TABLE
        return
    if delay >= NEVER - run.now:
        run.cut = 1
        return
    when = run.now + delay
    turn = urgency + run.events
    run.events += 1
    run.event_count = at + 1
    while at > 0:
        up = (at - 1) >> 1
        above = heap[up]
        if above.when < when or (above.when == when and above.turn < turn):
            break
        here = heap[at]
        here.when, here.turn, here.alarm = above.when, above.turn, above.alarm
        here.kind, here.what = above.kind, above.what
        at = up
    here = heap[at]
    here.when, here.turn, here.alarm, here.kind, here.what = when, turn, alarm, kind, what


def pop(s: State) -> tuple[int, int, int]:
    """Take the next event: its kind, of what it is, and its alarm. The clock goes on to it."""
    run, heap = s.run[0], s.event
    first = heap[0]
    found = (first.kind, first.what, first.alarm)
    run.now = first.when
    count = run.event_count - 1
    run.event_count = count
    last = heap[count]
    when, turn, alarm, kind, what = last.when, last.turn, last.alarm, last.kind, last.what
    at = 0
    while True:
        down = 2 * at + 1
        if down >= count:
            break
        below = heap[down]
        if down + 1 < count:
            other = heap[down + 1]
            if other.when < below.when or (other.when == below.when and other.turn < below.turn):
                down += 1
                below = other
        if when < below.when or (when == below.when and turn < below.turn):
            break
        here = heap[at]
        here.when, here.turn, here.alarm = below.when, below.turn, below.alarm
        here.kind, here.what = below.kind, below.what
        at = down
    here = heap[at]
    here.when, here.turn, here.alarm, here.kind, here.what = when, turn, alarm, kind, what
    return found


EVENT_KERNEL = (push, pop)
