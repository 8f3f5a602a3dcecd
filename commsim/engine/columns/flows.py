"""
The fluid network over tables: coupled flows that share links, as `engine.fluid_network` does.

Flows of a component (those that a chain of shared links joins) are shared as a whole.
"""

from __future__ import annotations

import math

import numpy as np

from commsim.engine.columns.ends import pop_wake, push_wake, set_alarm, stands
from commsim.engine.columns.events import FULL_TABLE, LATE, SOLVE, push
from commsim.engine.columns.filling import fair_rates_of
from commsim.engine.columns.state import NEVER, State

__all__ = [
    "FLOW_KERNEL", "THEN_DONE", "THEN_FINISH", "THEN_MOVED", "THEN_PART", "THEN_STAGE",
    "end_flow", "free_flow", "go", "next_due", "run_component", "set_link",
    "solve", "solve_soon", "start_flow",
]  # fmt: skip

THEN_FINISH, THEN_MOVED, THEN_PART, THEN_DONE, THEN_STAGE = 0, 1, 2, 3, 4
"""What comes of a flow that has reached its goal: of a collective, a part of one, or an op."""

_SAME = 1e-12  # rates this close are the same rate
_FEW = 64  # flows up to which is asked whether they share a link at all


def duration_of(share: float, rate: float) -> int:
    """Return the ps in which `share` of a phase moves at `rate`, rounded up, NEVER at most."""
    if share >= rate * NEVER:
        return NEVER
    # A thousandth of a ps of float noise must not cost a whole one.
    return int(max(math.ceil(share / rate - 1e-3), 0))


def wake_at(settled: int, time: int) -> int:
    """Return when a flow will be done."""
    return min(settled + time, NEVER)


def start_flow(s: State, phase: int, op: int, then: int, what: int) -> int:
    """Return a flow of a phase, which moves once it is let `go`; `op` is one whose data it has."""
    run = s.run[0]
    at = run.flow_free
    if at >= 0:
        run.flow_free = s.flow[at].free
    else:
        at = run.flow_count
        if at >= len(s.flow):
            run.full |= FULL_TABLE
            return 0
        run.flow_count += 1
        s.flow[at].place = -1
    flow = s.flow[at]
    flow.phase, flow.op, flow.then, flow.what = phase, op, then, what
    flow.left, flow.rate, flow.settled, flow.wake = 1.0, 0.0, run.now, NEVER
    flow.active, flow.fixed = 0, 0
    return at


def free_flow(s: State, at: int) -> None:
    """Give back a flow that is no longer needed."""
    s.flow[at].free = s.run[0].flow_free
    s.run[0].flow_free = at


def know_alone(s: State, at: int) -> None:
    """Find the rate of a phase that has its links to itself, and its time."""
    phase, epoch = s.phase[at], s.run[0].epoch
    if phase.epoch == epoch:
        return
    rate = phase.cap
    slowest = math.inf
    for entry in range(phase.first, phase.first + phase.loads):
        load = s.load[entry]
        slowest = min(slowest, s.link[load.link].capacity / max(load.bytes, 1e-300))
    rate = min(rate, slowest)
    phase.alone, phase.time, phase.epoch = rate, duration_of(1.0, rate), epoch


def record(s: State, at: int) -> None:
    """Note that a flow has kept its rate from when it was last settled until now."""
    run, flow = s.run[0], s.flow[at]
    phase = s.phase[flow.phase]
    if run.now > flow.settled and flow.rate > 0 and phase.loads > 0:
        if phase.template < 0:
            phase.template = run.templates
            run.templates += 1
        if run.segments >= len(s.segment):
            run.full |= FULL_TABLE
            return
        made = s.segment[run.segments]
        run.segments += 1
        made.template, made.start, made.end = phase.template, flow.settled, run.now
        made.op, made.rate = flow.op, flow.rate


def solve_soon(s: State) -> None:
    """Share the links again at the end of this instant."""
    run = s.run[0]
    if not run.solving:
        run.solving = 1
        push(s, 0, LATE, SOLVE, 0)


def touch_one(s: State, at: int) -> None:
    """Remember that the rate of a flow may have changed."""
    run, flow = s.run[0], s.flow[at]
    if not flow.touched:
        if run.touched_count >= len(s.member):
            run.full |= FULL_TABLE
            return
        flow.touched = 1
        s.member[run.touched_count] = at
        run.touched_count += 1


def touch(s: State, at: int) -> None:
    """Remember a flow that came or went, and those that share a link with it."""
    flow = s.flow[at]
    if flow.active:
        touch_one(s, at)
    phase = s.phase[flow.phase]
    for entry in range(phase.first, phase.first + phase.loads):
        place = s.link[s.load[entry].link].head
        while place >= 0:
            touch_one(s, s.place[place].flow)
            place = s.place[place].next


def put_on_links(s: State, at: int) -> bool:
    """Put a flow on its links; return whether it has them to itself."""
    run, flow = s.run[0], s.flow[at]
    phase = s.phase[flow.phase]
    alone, count = True, phase.loads
    first = phase.free  # places of a flow stand together, and serve the next of its phase
    if first >= 0 and count:
        phase.free = s.place[first].next
    else:
        first = run.place_count
        if first + count > len(s.place):
            run.full |= FULL_TABLE
            return True
        run.place_count = first + count
    flow.place = first
    for entry in range(count):
        link_at = s.load[phase.first + entry].link
        link, place = s.link[link_at], s.place[first + entry]
        alone = alone and link.users == 0
        link.users += 1
        place.flow, place.link, place.before, place.next = at, link_at, -1, link.head
        if link.head >= 0:
            s.place[link.head].before = first + entry
        link.head = first + entry
    return alone


def take_off_links(s: State, at: int) -> bool:
    """Take a flow off its links; return whether it had them to itself."""
    flow = s.flow[at]
    phase = s.phase[flow.phase]
    alone, first = True, flow.place
    for entry in range(phase.loads):
        place = s.place[first + entry]
        link = s.link[place.link]
        link.users -= 1
        alone = alone and link.users == 0
        if place.before >= 0:
            s.place[place.before].next = place.next
        else:
            link.head = place.next
        if place.next >= 0:
            s.place[place.next].before = place.before
    if phase.loads:
        s.place[first].next = phase.free
        phase.free = first
    return alone


def find_end(s: State, at: int) -> None:
    """Find out when a flow will reach its goal."""
    flow = s.flow[at]
    flow.wake = wake_at(flow.settled, duration_of(flow.left - flow.goal, flow.rate))


def run_at(s: State, at: int, rate: float) -> None:
    """Let a flow go on at a rate, and queue its end."""
    run, flow = s.run[0], s.flow[at]
    if abs(rate - flow.rate) > _SAME * flow.rate:
        record(s, at)
        flow.left = max(flow.left - (run.now - flow.settled) * flow.rate, 0.0)
        flow.settled = run.now
        flow.rate = rate
    before = flow.wake
    find_end(s, at)
    if flow.wake != before:  # else it is queued for that
        push_wake(s, at)


def go(s: State, at: int, fraction: float) -> None:
    """Let a flow move until `fraction` of its phase has."""
    run, flow = s.run[0], s.flow[at]
    flow.goal, flow.settled = 1.0 - fraction, run.now
    run.count += 1
    flow.number, flow.active = run.count, 1
    run.active += 1
    alone = put_on_links(s, at)
    if run.full:
        return
    if alone and run.touched_count == 0:
        know_alone(s, flow.phase)
        phase = s.phase[flow.phase]
        flow.rate = phase.alone
        if flow.left == 1.0 and flow.goal == 0.0:
            flow.wake = wake_at(flow.settled, phase.time)
        else:
            find_end(s, at)
        push_wake(s, at)
        if not flow.settled <= run.alarm_at <= flow.wake:  # one set before then sees to it
            set_alarm(s)
    else:
        touch(s, at)
        solve_soon(s)


def set_link(s: State, at: int, left: float) -> None:
    """Let a link carry the share `left` of what it is built for from now on."""
    link = s.link[at]
    link.capacity = link.whole * left
    s.run[0].epoch += 1
    place = link.head
    while place >= 0:
        touch_one(s, s.place[place].flow)
        place = s.place[place].next
    solve_soon(s)


def find_component(s: State) -> int:
    """Put the flows touched, and all that shared links join to them, in order; return how many."""
    run = s.run[0]
    count = 0
    for at in range(run.touched_count):
        one = s.member[at]
        if s.flow[one].active:
            s.member[count] = one
            count += 1
        else:
            s.flow[one].touched = 0
    done = 0
    while done < count:
        phase = s.phase[s.flow[s.member[done]].phase]
        for entry in range(phase.first, phase.first + phase.loads):
            link = s.link[s.load[entry].link]
            if link.users < 2:
                continue
            place = link.head
            while place >= 0:
                other = s.place[place].flow
                if not s.flow[other].touched:
                    if count >= len(s.member):
                        run.full |= FULL_TABLE
                        return 0
                    s.flow[other].touched = 1
                    s.member[count] = other
                    count += 1
                place = s.place[place].next
        done += 1
    numbers = np.empty(count, np.int64)
    for at in range(count):
        numbers[at] = s.flow[s.member[at]].number
    order, found = np.argsort(numbers), s.member[:count].copy()
    for at in range(count):
        s.member[at] = found[order[at]]
        s.flow[found[at]].touched = 0
    run.touched_count = 0
    return count


def share_no_link(s: State, count: int) -> bool:
    """Return whether no link of the flows found carries another too."""
    for at in range(count):
        phase = s.phase[s.flow[s.member[at]].phase]
        for entry in range(phase.first, phase.first + phase.loads):
            if s.link[s.load[entry].link].users > 1:
                return False
    return True


def run_component(s: State, count: int) -> None:
    """Let the flows found go on at the rates found, and set the alarm."""
    for at in range(count):
        run_at(s, s.member[at], s.rate[at])
    set_alarm(s)


def solve(s: State) -> int:
    """Share links anew; return how many flows wait for their rates if filling is stuck, else 0."""
    s.run[0].solving = 0
    count = find_component(s)
    if count <= _FEW and share_no_link(s, count):
        for at in range(count):
            one = s.flow[s.member[at]].phase
            know_alone(s, one)
            s.rate[at] = s.phase[one].alone
    elif not fair_rates_of(s, count):
        return count
    run_component(s, count)
    return 0


def end_flow(s: State, at: int) -> None:
    """Book that a flow has reached its goal."""
    record(s, at)
    flow = s.flow[at]
    flow.left, flow.settled, flow.rate, flow.wake = flow.goal, s.run[0].now, 0.0, NEVER


def next_due(s: State) -> int:
    """Return a flow that ends now, off its links and no longer active; -1 if none does."""
    run = s.run[0]
    while run.wake_count > 0 and s.wake[0].when <= run.now:
        due, at = stands(s, 0), s.wake[0].flow
        pop_wake(s)
        if not due:
            continue
        s.flow[at].active = 0
        run.active -= 1
        alone = take_off_links(s, at)
        if not alone or run.touched_count > 0:
            touch(s, at)
        end_flow(s, at)
        return at
    return -1


FLOW_KERNEL = (
    duration_of, wake_at, start_flow, free_flow, know_alone, record,
    solve_soon, touch_one, touch, put_on_links, take_off_links, find_end,
    run_at, go, set_link, find_component, share_no_link, run_component, solve, end_flow, next_due,
)  # fmt: skip
