"""
Compute slowed by communication over tables, as `engine.sharing` does.
"""

from __future__ import annotations

from commsim.engine.columns.events import FULL_TABLE, JOB, NORMAL, OP_DONE, push
from commsim.engine.columns.flows import duration_of
from commsim.engine.columns.state import IN_MEMORY, ON_GPU, State

__all__ = ["GPU_KERNEL", "end_job", "give_back", "hold", "set_pace", "work"]

_LEAST = 0.1  # share of a GPU that compute keeps whatever communicates


def speed_of(s: State, lane: int, in_memory: int) -> float:
    """Return the share of its speed that compute keeps."""
    gpu = s.gpu[lane]
    at = gpu.held
    if at < 0:
        return gpu.pace
    lost = 0.0
    while at >= 0:
        held = s.held[at]
        lost += held.bandwidth if in_memory else held.sms
        at = held.next
    return gpu.pace * max(1.0 - lost, _LEAST)


def set_job_alarm(s: State, at: int) -> None:
    """Wake when the job will be done; a newer alarm makes the older ones stale."""
    run, job = s.run[0], s.job[at]
    run.alarm += 1
    job.alarm = run.alarm
    push(s, duration_of(job.left, job.speed), NORMAL, JOB, at, run.alarm)


def adjust(s: State, lane: int) -> None:
    """Account for work done at the old speeds, and continue at the new ones."""
    now, at = s.run[0].now, s.gpu[lane].job
    while at >= 0:
        job = s.job[at]
        speed = speed_of(s, lane, job.in_memory)
        if speed != job.speed:
            job.left = max(job.left - (now - job.settled) * job.speed, 0.0)
            job.settled, job.speed = now, speed
            set_job_alarm(s, at)
        at = job.next


def work(s: State, op: int) -> None:
    """Let an op compute; an event tells when it is done."""
    run, one = s.run[0], s.op[op]
    if not run.sharing or not one.facts & ON_GPU:
        push(s, one.duration, NORMAL, OP_DONE, op)
        return
    at = run.job_free
    if at >= 0:
        run.job_free = s.job[at].next
    else:
        at = run.job_count
        if at >= len(s.job):
            run.full |= FULL_TABLE
            return
        run.job_count += 1
    gpu, job = s.gpu[one.lane], s.job[at]
    job.op, job.left, job.settled, job.speed = op, float(one.duration), run.now, 1.0
    job.in_memory, job.next, job.before = 1 if one.facts & IN_MEMORY else 0, -1, gpu.last_job
    if gpu.last_job >= 0:
        s.job[gpu.last_job].next = at
    else:
        gpu.job = at
    gpu.last_job = at
    if gpu.held >= 0 or gpu.pace != 1.0:
        job.speed = speed_of(s, one.lane, job.in_memory)
        set_job_alarm(s, at)
    else:
        run.alarm += 1
        job.alarm = run.alarm
        push(s, one.duration, NORMAL, JOB, at, run.alarm)


def end_job(s: State, at: int, alarm: int) -> int:
    """Return the op that is done with an alarm, -1 if the alarm is stale."""
    job = s.job[at]
    if job.alarm != alarm:
        return -1
    run, op = s.run[0], job.op
    gpu = s.gpu[s.op[op].lane]
    if job.before >= 0:
        s.job[job.before].next = job.next
    else:
        gpu.job = job.next
    if job.next >= 0:
        s.job[job.next].before = job.before
    else:
        gpu.last_job = job.before
    job.alarm, job.next = -1, run.job_free
    run.job_free = at
    return op


def hold(s: State, op: int, plan: int) -> None:
    """Reserve the SMs and bandwidth that a communication op's plan needs of its lane's GPU."""
    run, lane = s.run[0], s.op[op].lane
    gpu = s.gpu[lane]
    if not run.sharing or s.plan[plan].sms == 0 or gpu.sms == 0:
        return
    at = run.held_free
    if at >= 0:
        run.held_free = s.held[at].next
    else:
        at = run.held_count
        if at >= len(s.held):
            run.full |= FULL_TABLE
            return
        run.held_count += 1
    held = s.held[at]
    held.op, held.sms = op, s.plan[plan].sms / gpu.sms
    held.bandwidth = s.plan[plan].moved / gpu.bandwidth if gpu.bandwidth > 0 else 0.0
    held.next, held.before = -1, gpu.last_held
    if gpu.last_held >= 0:
        s.held[gpu.last_held].next = at
    else:
        gpu.held = at
    gpu.last_held = at
    adjust(s, lane)


def give_back(s: State, op: int) -> None:
    """Return what a communication op reserved."""
    run, lane = s.run[0], s.op[op].lane
    gpu = s.gpu[lane]
    at = gpu.held
    while at >= 0 and s.held[at].op != op:
        at = s.held[at].next
    if at < 0:
        return
    held = s.held[at]
    if held.before >= 0:
        s.held[held.before].next = held.next
    else:
        gpu.held = held.next
    if held.next >= 0:
        s.held[held.next].before = held.before
    else:
        gpu.last_held = held.before
    held.next = run.held_free
    run.held_free = at
    adjust(s, lane)


def set_pace(s: State, lane: int, pace: float) -> None:
    """Let a lane's GPU go at `pace` times its speed from now on."""
    if s.run[0].sharing:
        s.gpu[lane].pace = pace
        adjust(s, lane)


GPU_KERNEL = (
    speed_of, set_job_alarm, adjust, work, end_job, hold, give_back, set_pace,
)  # fmt: skip
