"""
The ends of flows to come: a heap by time, then the order in which the flows began.

A flow whose rate has changed is queued anew; what it was queued for before is stale. One alarm is
set, for the first end that stands.
"""

from __future__ import annotations

from commsim.engine.columns.events import ALARM, FULL_TABLE, NORMAL, push
from commsim.engine.columns.state import NEVER, State

__all__ = ["END_KERNEL", "pop_wake", "push_wake", "set_alarm", "stands"]


def sift_wake(s: State, when: int, number: int, flow: int) -> None:
    """Put an end into the queue, which has room."""
    run, heap = s.run[0], s.wake
    place = run.wake_count
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
    here.when, here.number, here.flow = when, number, flow


def stands(s: State, at: int) -> bool:
    """Return whether an end in the queue is still that of its flow; others are stale."""
    queued = s.wake[at]
    flow = s.flow[queued.flow]
    return bool(flow.active and flow.number == queued.number and flow.wake == queued.when)


def push_wake(s: State, at: int) -> None:
    """Queue the end of a flow; where the queue is full, without the ends that are stale."""
    run = s.run[0]
    if run.wake_count >= len(s.wake):
        count = run.wake_count
        run.wake_count = 0
        for place in range(count):  # it is read ahead of where it is written
            queued = s.wake[place]
            if stands(s, place):
                sift_wake(s, queued.when, queued.number, queued.flow)
        if run.wake_count * 2 > len(s.wake):
            run.full |= FULL_TABLE
            return
    sift_wake(s, s.flow[at].wake, s.flow[at].number, at)


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
        if stands(s, 0):
            wake_next(s, s.wake[0].when)
            return
        pop_wake(s)


END_KERNEL = (sift_wake, stands, push_wake, pop_wake, wake_next, set_alarm)
