"""
Members of collectives and messages meet, over tables, as `engine.rendezvous` has them do.

A row is one collective or message, a slot one of its members that the graph has. Whatever lets a
member go sets an event or calls `leave` of `streams`, which comes later in the order of calls.
"""

from __future__ import annotations

from commsim.engine.columns.events import (
    ARRIVED,
    FULL_TABLE,
    LEAVE,
    MOVE,
    NORMAL,
    PART,
    RUN_ROW,
    URGENT,
    push,
)
from commsim.engine.columns.flows import (
    THEN_FINISH,
    THEN_MOVED,
    THEN_PART,
    free_flow,
    go,
    start_flow,
)
from commsim.engine.columns.state import State

__all__ = [
    "EAGER", "MEETING_KERNEL", "MOVED", "arrive", "enter_parts", "frame_part", "lowest_op",
    "move", "part_goes_on", "release", "slot_of", "start_member", "start_next",
]  # fmt: skip

PATH, EAGER = 1, 3  # of `libraries.Start`
_RENDEZVOUS, _QUEUE = 3, 4  # of `timeline.Cause`
BEFORE_PHASE, LED, REACHED, JOINING, MOVED, TAILED = 0, 1, 2, 3, 4, 5
"""What a part of a plan waits for."""


def slot_of(s: State, row: int, lane: int) -> int:
    """Return the slot of a collective's member on a lane."""
    group = s.group[s.row[row].group]
    low, high = group.first, group.first + group.count
    while high - low > 1:
        middle = (low + high) >> 1
        if s.lane_slot[middle].lane <= lane:
            low = middle
        else:
            high = middle
    return int(s.row[row].first + s.lane_slot[low].slot)


def member_of(s: State, row: int, place: int) -> int:
    """Return which member of its group the slot at a place of a row is."""
    group = s.row[row].group
    return s.slot_member[s.group[group].first + place] if group >= 0 else place


def place_of(s: State, row: int, member: int) -> int:
    """Return the place of a member among the slots of a row, -1 if the graph does not have it."""
    low, high = 0, s.row[row].count
    while low < high:
        middle = (low + high) >> 1
        if member_of(s, row, middle) < member:
            low = middle + 1
        else:
            high = middle
    return low if low < s.row[row].count and member_of(s, row, low) == member else -1


def lowest_op(s: State, row: int) -> int:
    """Return the op of the lowest member that has arrived."""
    one = s.row[row]
    for at in range(one.first, one.first + one.count):
        if s.slot[at].op >= 0:
            return int(s.slot[at].op)
    return -1


def joins_at(s: State, plan: int, member: int) -> int:
    """Return when the first data reaches a member."""
    at = s.plan[plan].join
    return s.join[at + member] if at >= 0 else 0


def record_start(s: State, at: int) -> None:
    """Record that a slot's member moves data from now on; its copies before count as moving."""
    slot = s.slot[at]
    s.op[slot.op].start = s.run[0].now - slot.copied


def start_member(s: State, at: int) -> None:
    """Start a member that the data has reached, if it has arrived and not started."""
    slot = s.slot[at]
    if slot.op >= 0 and s.op[slot.op].start < 0:
        record_start(s, at)


def release(s: State, at: int) -> None:
    """Let a member go, if it is there and still has to."""
    slot = s.slot[at]
    if slot.op >= 0 and not slot.left:
        slot.left = 1
        push(s, 0, NORMAL, LEAVE, slot.op)


def meet(s: State, row: int) -> None:
    """Prepare a row for its first member: whom its data has to wait for."""
    one = s.row[row]
    run, plan = s.run[0], s.plan[one.plan]
    one.met = 1
    if plan.seen < 0:
        plan.seen = run.seen
        run.seen += 1
    if plan.first == 1:
        one.missing = 1
    elif plan.first == 2:
        one.missing = 0
        for place in range(one.count):
            if joins_at(s, one.plan, member_of(s, row, place)) == 0:
                one.missing += 1
    else:
        one.missing = one.count


def move(s: State, row: int) -> None:
    """Run the only phase of a plan."""
    at = s.plan[s.row[row].plan].only
    then = THEN_MOVED if s.phase[at].tail else THEN_FINISH
    flow = start_flow(s, at, lowest_op(s, row), then, row)
    if not s.run[0].full:
        go(s, flow, 1.0)


def begin(s: State, row: int, freed_by: int) -> None:
    """Start moving data; `freed_by` is the op whose end freed the slot, -1 if one was free."""
    one = s.row[row]
    one.begun = 1
    plan, now = s.plan[one.plan], s.run[0].now
    cause, kind = (freed_by, _QUEUE) if freed_by >= 0 else (one.last, _RENDEZVOUS)
    for place in range(one.count):
        slot = s.slot[one.first + place]
        if slot.op < 0:
            continue
        op, since = s.op[slot.op], now - slot.copied
        if slot.op != cause and op.arrive < since and cause >= 0:
            op.cause, op.cause_kind = cause, kind
        if not plan.late or joins_at(s, one.plan, member_of(s, row, place)) == 0:
            op.start = since
    if plan.only < 0:
        push(s, 0, URGENT, RUN_ROW, row)
    elif s.phase[plan.only].lead:
        push(s, s.phase[plan.only].lead, NORMAL, MOVE, row)
    else:
        move(s, row)


def start_next(s: State, at: int, waited: int) -> None:
    """Begin the collectives of a group whose turn has come, while it has a slot free."""
    group = s.group[at]
    while group.free > 0 and group.turn < group.turns:
        row = s.turn[group.first_turn + group.turn]
        if not s.row[row].in_turn:
            return
        s.row[row].in_turn = 0
        group.turn += 1
        group.free -= 1
        begin(s, row, group.ended if waited else -1)


def arrive(s: State, row: int, at: int, op: int) -> None:
    """Record that the member of a slot has arrived with its op."""
    one, slot = s.row[row], s.slot[at]
    plan, place = s.plan[one.plan], at - one.first
    slot.op = op
    one.here += 1
    one.last = op
    if one.joining > 0:
        frame = one.frame
        while frame >= 0:
            if s.frame[frame].state == JOINING and s.frame[frame].slot == at:
                push(s, 0, NORMAL, ARRIVED, at, row)
                break
            frame = s.frame[frame].next
    first = plan.first
    if first == 0:
        one.missing -= 1
    elif first == 1:
        one.missing -= 1 if member_of(s, row, place) == 0 else 0
    elif joins_at(s, one.plan, member_of(s, row, place)) == 0:
        one.missing -= 1
    if one.queued:
        if one.begun and plan.start == EAGER:
            record_start(s, at)
            if one.ended:
                release(s, at)
    elif one.missing == 0:
        one.queued = 1
        if one.group < 0 or s.group[one.group].free < 0:
            begin(s, row, -1)
        else:
            one.in_turn = 1
            start_next(s, one.group, 0)


def frame_part(s: State, row: int, part: int) -> int:
    """Return a frame for a part of a plan that begins."""
    run = s.run[0]
    at = run.frame_free
    if at >= 0:
        run.frame_free = s.frame[at].next
    else:
        at = run.frame_count
        if at >= len(s.frame):
            run.full |= FULL_TABLE
            return 0
        run.frame_count += 1
    frame = s.frame[at]
    frame.row, frame.part, frame.phase, frame.flow = row, part, s.part[part].first, -1
    frame.stop, frame.before, frame.reached = s.part[part].first_stop, 0, -1
    frame.state, frame.slot, frame.next = BEFORE_PHASE, -1, s.row[row].frame
    s.row[row].frame = at
    return at


def enter_parts(s: State, row: int) -> int:
    """Begin the parts of a plan; return the frame to go on with if it has one part, else -1."""
    plan = s.plan[s.row[row].plan]
    s.row[row].left_parts = plan.parts
    if plan.parts == 1:
        return frame_part(s, row, plan.first_part)
    for part in range(plan.parts):
        push(s, 0, URGENT, PART, frame_part(s, row, plan.first_part + part))
    return -1


def pass_stops(s: State, at: int) -> bool:
    """Let members join and leave on the way; return whether the part has to wait."""
    frame = s.frame[at]
    phase, part = s.phase[s.part_phase[frame.phase]], s.part[frame.part]
    begin_at = frame.before + phase.lead
    end = begin_at + phase.idle
    while frame.stop < part.first_stop + part.stops:
        stop = s.stop[frame.stop]
        if stop.when >= end:
            return False
        if stop.when < begin_at:
            frame.stop += 1
            continue
        if stop.when > begin_at and frame.reached < stop.when:
            frame.reached, frame.state = stop.when, REACHED
            go(s, frame.flow, (stop.when - begin_at) / phase.idle)
            return True
        place = place_of(s, frame.row, stop.member)
        slot = s.row[frame.row].first + place
        if stop.joins and place >= 0 and s.slot[slot].op < 0:
            run = s.run[0]
            run.marks += 1
            frame.state, frame.slot, frame.turn = JOINING, slot, run.marks
            s.row[frame.row].joining += 1
            return True
        if place >= 0 and stop.joins:
            start_member(s, slot)
        elif place >= 0:
            release(s, slot)
        frame.stop += 1
    return False


def part_goes_on(s: State, at: int) -> bool:
    """Run a part until it has to wait; return whether it has ended."""
    frame = s.frame[at]
    while not s.run[0].full:
        part = s.part[frame.part]
        if frame.state == BEFORE_PHASE:
            if frame.phase == part.first + part.phases:
                return True
            frame.state = LED
            lead = s.phase[s.part_phase[frame.phase]].lead
            if lead:
                push(s, lead, NORMAL, PART, at)
                return False
        number = s.part_phase[frame.phase]
        phase = s.phase[number]
        if frame.state == LED and not phase.idle:  # nothing to move, and no picosecond for it
            frame.phase += 1
            frame.state = BEFORE_PHASE
            continue
        if frame.state == LED:
            frame.flow = start_flow(s, number, lowest_op(s, frame.row), THEN_PART, at)
            frame.stop = part.first_stop
        if frame.state == MOVED:
            free_flow(s, frame.flow)
            frame.state = TAILED
            if phase.tail:
                push(s, phase.tail, NORMAL, PART, at)
                return False
        if frame.state == TAILED:
            frame.before += phase.lead + phase.idle + phase.tail
            frame.phase += 1
            frame.state = BEFORE_PHASE
            continue
        if pass_stops(s, at):
            return False
        frame.state = MOVED
        go(s, frame.flow, 1.0)
        return False
    return False


MEETING_KERNEL = (
    slot_of, member_of, place_of, lowest_op, joins_at, record_start, start_member, release, meet,
    move, begin, start_next, arrive, frame_part, enter_parts, pass_stops, part_goes_on,
)  # fmt: skip
