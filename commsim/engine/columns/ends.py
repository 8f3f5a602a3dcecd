"""
The ends of flows to come: a heap by time, then the order in which the flows began.

A flow whose rate has changed is queued anew; what it was queued for before is stale. One alarm is
set, for the first end that stands.
"""

from __future__ import annotations

from commsim.engine.columns.events import ALARM, FULL_TABLE, NORMAL, push
from commsim.engine.columns.state import NEVER, State

__all__ = ["END_KERNEL", "is_next", "pop_wake", "push_wake", "set_alarm"]


def push_wake(s: State, at: int) -> None:
    """Queue the end of a flow."""
    run, heap = s.run[0], s.wake
    when, number = s.flow[at].wake, s.flow[at].number
    place = run.wake_count
    if place >= len(heap):
        run.full |= FULL_TABLE
        return
    run.wake_count += 1
    while place > 0:
        up = (place - 1) >> 1
        above = heap[up]
        if above.when < when or (above.when == when and above.number <= number):
            break
        here = heap[place]
        here.when, here.number, here.flow = above.when, above.number, above.flow
        place = up
    here = heap[place]
    here.when, here.number, here.flow = when, number, at


def pop_wake(s: State) -> None:
    """Take the first end off the queue."""
    run, heap = s.run[0], s.wake
    count = run.wake_count - 1
    run.wake_count = count
    last = heap[count]
    when, number, flow = last.when, last.number, last.flow
    at = 0
    while True:
        down = 2 * at + 1
        if down >= count:
            break
        below = heap[down]
        if down + 1 < count:
            other = heap[down + 1]
            if other.when < below.when or (
                other.when == below.when and other.number < below.number
            ):
                down += 1
                below = other
        if when < below.when or (when == below.when and number <= below.number):
            break
        here = heap[at]
        here.when, here.number, here.flow = below.when, below.number, below.flow
        at = down
    here = heap[at]
    here.when, here.number, here.flow = when, number, flow


def is_next(s: State) -> bool:
    """Return whether the first end in the queue still stands; others are stale."""
    first = s.wake[0]
    flow = s.flow[first.flow]
    return bool(flow.active and flow.number == first.number and flow.wake == first.when)


def wake_next(s: State, when: int) -> None:
    """Set an alarm, unless an earlier one is set: that one sets the next."""
    run = s.run[0]
    if when >= NEVER or run.now <= run.alarm_at <= when:
        return
    run.alarm_at = when
    push(s, max(when - run.now, 0), NORMAL, ALARM, 0)


def set_alarm(s: State) -> None:
    """Set the alarm for the end of the next flow."""
    while s.run[0].wake_count > 0:
        if is_next(s):
            wake_next(s, s.wake[0].when)
            return
        pop_wake(s)


END_KERNEL = (push_wake, pop_wake, is_next, wake_next, set_alarm)
