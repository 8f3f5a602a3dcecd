"""
Streams of ranks over tables: in-order queues of ops, as `engine.streams` and `engine.core` run
them.
"""

from __future__ import annotations

from commsim.engine.columns.events import (
    ALL_ENDED,
    NORMAL,
    OP_DONE,
    OP_ENDED,
    READY,
    RUN_OP,
    STAGE,
    URGENT,
    WOKEN,
    push,
)
from commsim.engine.columns.flows import THEN_DONE, THEN_STAGE, free_flow, go, start_flow
from commsim.engine.columns.gpus import give_back, hold, work
from commsim.engine.columns.meetings import (
    PATH,
    arrive,
    lowest_op,
    meet,
    member_of,
    slot_of,
    start_member,
    start_next,
)
from commsim.engine.columns.state import (
    BATCHED,
    COMPUTES,
    DEPENDS,
    IN_GROUP,
    RECEIVES,
    RELEASES,
    WORKS,
    State,
)

__all__ = [
    "STREAM_KERNEL", "all_ended", "begin_stream", "done", "finish", "leave", "next_ops",
    "one_ended", "run_one", "run_ready", "staged", "together", "woken",
]  # fmt: skip

_STREAM, _DEPENDENCY = 1, 2  # of `timeline.Cause`
_WITH_OTHERS = 1  # the mode of ops that were issued together
_LEAD_IN, _COPY_IN, _MEETS, _LEAD_OUT, _COPY_OUT = 1, 2, 3, 4, 5


def arrives(s: State, at: int, before: int) -> None:
    """Write down when an op arrived, and behind what."""
    op, now = s.op[at], s.run[0].now
    op.arrive = now
    if op.facts & DEPENDS and op.ready_by >= 0 and op.ready_at >= now > 0:
        op.cause, op.cause_kind = op.ready_by, _DEPENDENCY
    elif before >= 0:
        op.cause, op.cause_kind = before, _STREAM


def slot_for(s: State, at: int) -> int:
    """Return the slot of the member that an op of a collective or message is."""
    op = s.op[at]
    if op.facts & IN_GROUP:
        return slot_of(s, op.row, op.lane)
    return int(s.row[op.row].first) + (1 if op.facts & RECEIVES else 0)


def copies(s: State, at: int, first: int, lead_stage: int) -> bool:
    """Begin the copy of a member between GPU and host memory; return whether it has one."""
    op = s.op[at]
    if first < 0:
        return False
    slot = slot_for(s, at)
    copy = s.copy[first + member_of(s, op.row, slot - s.row[op.row].first)]
    if copy.phase < 0:
        return False
    if copy.lead:
        op.stage = lead_stage
        push(s, copy.lead, NORMAL, STAGE, at)
    else:
        op.stage = lead_stage + 1
        go(s, start_flow(s, copy.phase, at, THEN_STAGE, at), 1.0)
    return True


def meets(s: State, at: int) -> None:
    """Let an op arrive among the members of its collective or message."""
    row = s.op[at].row
    slot = slot_for(s, at)
    if s.plan[s.row[row].plan].copies_in >= 0:
        s.slot[slot].copied = s.run[0].now - s.op[at].arrive
    s.op[at].stage = _MEETS
    arrive(s, row, slot, at)


def execute(s: State, at: int, before: int) -> bool:
    """Run an op that is ready; return whether it has ended already."""
    op = s.op[at]
    arrives(s, at, before)
    if op.facts & WORKS:
        op.start = s.run[0].now
        if op.duration < 0:
            go(s, start_flow(s, op.row, at, THEN_DONE, at), 1.0)
        elif op.duration == 0:
            return True
        elif op.facts & COMPUTES:
            work(s, at)
        else:
            push(s, op.duration, NORMAL, OP_DONE, at)
        return False
    row = s.row[op.row]
    if s.plan[row.plan].bad:
        s.run[0].stuck = row.plan
        return False
    if not row.met:
        meet(s, op.row)
    hold(s, at, row.plan)
    if not copies(s, at, s.plan[row.plan].copies_in, _LEAD_IN):
        meets(s, at)
    return False


def ended(s: State, at: int) -> None:
    """Record the end of an op, and release the ops that waited for it."""
    run, op = s.run[0], s.op[at]
    run.ended += 1
    op.end = run.now
    if not op.facts & RELEASES:
        return
    for entry in range(op.dependents, s.op[at + 1].dependents):
        dependent = s.dependent[entry]
        later, ready = s.op[dependent.op], run.now + dependent.delay
        if ready >= later.ready_at:
            later.ready_at, later.ready_by = ready, at
        later.waits -= 1
        if later.waits == 0 and later.woken:
            later.woken = 0
            push(s, 0, NORMAL, WOKEN, dependent.op)


def together(s: State, at: int) -> bool:
    """Start the ops that were issued as one, once all are ready; return whether one has ended."""
    stream, now = s.stream[at], s.run[0].now
    while stream.running < stream.until:
        one = s.queued[stream.running]
        op = s.op[one]
        if op.waits > 0:
            op.woken = 1
            return False
        if op.ready_at > now:
            push(s, op.ready_at - now, NORMAL, READY, at)
            return False
        stream.running += 1
    if stream.until - stream.at == 1:
        return execute(s, stream.op, stream.before)
    stream.running = stream.until - stream.at
    for place in range(stream.at, stream.until):
        one = s.queued[place]
        s.op[one].mode = _WITH_OTHERS
        push(s, 0, URGENT, RUN_OP, one)
    return False


def take(s: State, at: int) -> bool:
    """Take the next op of a stream; return whether it has ended already."""
    stream = s.stream[at]
    one = s.queued[stream.at]
    stream.op = one
    op = s.op[one]
    if op.facts & BATCHED:
        stream.running, end = stream.at, stream.at + 1
        while end < stream.last and s.op[s.queued[end]].batch == op.batch:
            end += 1
        stream.until = end
        return together(s, at)
    if op.facts & DEPENDS:
        if op.waits > 0:
            op.woken = 1
            return False
        wait = op.ready_at - s.run[0].now
        if wait > 0:
            push(s, wait, NORMAL, READY, at)
            return False
    return execute(s, one, stream.before)


def next_ops(s: State, at: int) -> None:
    """Take ops until one has to be waited for."""
    stream = s.stream[at]
    while stream.at < stream.last and take(s, at):
        ended(s, stream.op)
        stream.before = stream.op
        stream.at += 1


def run_ready(s: State, at: int) -> None:
    """Go on with the op of a stream that has become ready."""
    stream = s.stream[at]
    if stream.op < 0:  # its clock has only now reached its offset
        next_ops(s, at)
        return
    batched = s.op[stream.op].facts & BATCHED
    over = together(s, at) if batched else execute(s, stream.op, stream.before)
    if over:
        ended(s, stream.op)
        stream.before = stream.op
        stream.at += 1
        next_ops(s, at)


def woken(s: State, op: int) -> None:
    """Go on: all that an op depends on has ended."""
    at = s.op[op].stream
    wait = s.op[op].ready_at - s.run[0].now
    if wait > 0 and not s.op[op].facts & BATCHED:
        push(s, wait, NORMAL, READY, at)
    else:
        run_ready(s, at)


def begin_stream(s: State, at: int) -> None:
    """Begin a stream, at the offset of its lane's clock."""
    offset = s.gpu[s.stream[at].lane].offset
    if offset > 0:
        s.stream[at].op = -1
        push(s, offset, NORMAL, READY, at)
    else:
        next_ops(s, at)


def done(s: State, op: int) -> None:
    """Go on after an op: its stream takes the next."""
    at = s.op[op].stream
    ended(s, op)
    if s.op[op].mode == _WITH_OTHERS:
        push(s, 0, NORMAL, OP_ENDED, at)
        return
    stream = s.stream[at]
    stream.before = op
    stream.at += 1
    next_ops(s, at)


def run_one(s: State, op: int) -> None:
    """Run one of several ops that were issued together."""
    at = s.op[op].stream
    if execute(s, op, s.stream[at].before):
        ended(s, op)
        push(s, 0, NORMAL, OP_ENDED, at)


def one_ended(s: State, at: int) -> None:
    """Count the end of one of several ops that were issued together."""
    stream = s.stream[at]
    stream.running -= 1
    if stream.running == 0:
        push(s, 0, NORMAL, ALL_ENDED, at)


def all_ended(s: State, at: int) -> None:
    """Go on after ops that were issued together."""
    stream = s.stream[at]
    stream.before = s.queued[stream.until - 1]
    stream.op, stream.at = stream.before, stream.until
    next_ops(s, at)


def leave(s: State, op: int) -> None:
    """Go on: a collective or message has let an op go."""
    if copies(s, op, s.plan[s.row[s.op[op].row].plan].copies_out, _LEAD_OUT):
        return
    give_back(s, op)
    done(s, op)


def staged(s: State, at: int, flow: int) -> None:
    """Go on with the copy of a member: its software's lead is over, or its `flow` (-1: none)."""
    op = s.op[at]
    if flow >= 0:
        free_flow(s, flow)
    if op.stage == _COPY_IN:
        meets(s, at)
    elif op.stage == _COPY_OUT:
        give_back(s, at)
        done(s, at)
    else:
        plan = s.plan[s.row[op.row].plan]
        first = plan.copies_in if op.stage == _LEAD_IN else plan.copies_out
        place = slot_for(s, at) - s.row[op.row].first
        op.stage += 1
        phase = s.copy[first + member_of(s, op.row, place)].phase
        go(s, start_flow(s, phase, at, THEN_STAGE, at), 1.0)


def finish(s: State, row: int) -> None:
    """Release all members, and start the next collective of the group."""
    one, run = s.row[row], s.run[0]
    one.ended = 1
    while one.frame >= 0:
        at = one.frame
        one.frame = s.frame[at].next
        s.frame[at].next, run.frame_free = run.frame_free, at
    first, last = one.first, one.first + one.count
    if s.plan[one.plan].start == PATH:
        for at in range(first, last):
            start_member(s, at)
    for at in range(first, last):
        slot = s.slot[at]
        if slot.op >= 0 and not slot.left:
            slot.left = 1
            leave(s, slot.op)
    if one.group >= 0 and s.group[one.group].free >= 0:
        group = s.group[one.group]
        group.free += 1
        group.ended = lowest_op(s, row)
        start_next(s, one.group, 1)


STREAM_KERNEL = (
    arrives, slot_for, copies, meets, execute, ended, together, take, next_ops, run_ready, woken,
    begin_stream, done, run_one, one_ended, all_ended, leave, staged, finish,
)  # fmt: skip
