"""Compute beside communication over tables: jobs and reservations of a GPU, one at a time."""

from __future__ import annotations

import pytest
from helpers.run_tables import run_tables

from commsim.engine.columns import gpus
from commsim.engine.columns.events import FULL_TABLE, JOB, OP_DONE
from commsim.engine.columns.state import IN_MEMORY, ON_GPU, State


def computing(ops: int, **lengths: int) -> State:
    """Return tables with ops of 100 ps on the GPU of lane 0, of which 3 are bound by memory."""
    s = run_tables(**lengths)
    s.run[0].sharing = 1
    s.gpu[0].sms, s.gpu[0].bandwidth = 100.0, 10.0
    for op in range(ops):
        s.op[op].duration, s.op[op].facts = 100, ON_GPU | (IN_MEMORY if op == 3 else 0)
    return s


def order(s: State, kind: str) -> list[int]:
    """Return the ops of a GPU's jobs or reservations in order, and check the way back."""
    table = getattr(s, kind)
    at, before, found = int(getattr(s.gpu[0], kind)), -1, []
    while at >= 0:
        assert table[at].before == before
        found.append(int(table[at].op))
        before, at = at, int(table[at].next)
    assert getattr(s.gpu[0], f"last_{kind}") == before
    return found


def events(s: State) -> list[tuple[int, int, int]]:
    """Return (when, kind, what) of the events that are set, in order of time."""
    rows = s.event[: s.run[0].event_count]
    return sorted((int(r.when), int(r.kind), int(r.what)) for r in rows)


@pytest.mark.parametrize("ended", [0, 1, 2])
def test_jobs_leave_the_list_from_any_place_and_their_place_is_used_again(ended: int) -> None:
    s = computing(4)
    for op in range(3):
        gpus.work(s, op)
    assert order(s, "job") == [0, 1, 2]
    assert events(s) == [(100, JOB, at) for at in range(3)]
    alarm = int(s.job[ended].alarm)
    assert gpus.end_job(s, ended, alarm + 1) == -1  # of an earlier speed
    assert order(s, "job") == [0, 1, 2]
    assert gpus.end_job(s, ended, alarm) == ended
    assert order(s, "job") == [op for op in range(3) if op != ended]
    assert gpus.end_job(s, ended, alarm) == -1
    gpus.work(s, 3)
    assert s.job[ended].op == 3
    assert order(s, "job") == [*(op for op in range(3) if op != ended), 3]
    assert s.run[0].job_count == 3


def test_a_table_of_jobs_that_is_full_asks_for_more() -> None:
    s = computing(3, job=2)
    for op in range(2):
        gpus.work(s, op)
    assert s.run[0].full == 0
    gpus.work(s, 2)
    assert (s.run[0].full, s.run[0].job_count) == (FULL_TABLE, 2)


def test_work_that_shares_nothing_ends_after_its_time() -> None:
    s = computing(2)
    s.op[1].facts = 0
    gpus.work(s, 1)  # on the CPU
    s.run[0].sharing = 0
    gpus.work(s, 0)
    assert events(s) == [(100, OP_DONE, 0), (100, OP_DONE, 1)]
    assert order(s, "job") == []


@pytest.mark.parametrize(("sms", "moved", "compute", "memory"), [
    (20.0, 1.0, 0.8, 0.9), (90.0, 9.0, 0.1, 0.1), (95.0, 10.0, 0.1, 0.1), (80.0, 0.0, 0.2, 1.0),
])  # fmt: skip
def test_communication_leaves_compute_the_rest_of_sms_and_memory_but_a_tenth(
    sms: float, moved: float, compute: float, memory: float
) -> None:
    s = computing(4)
    s.plan[0].sms, s.plan[0].moved = sms, moved
    gpus.hold(s, 6, 0)
    assert gpus.speed_of(s, 0, 0) == pytest.approx(compute)
    assert gpus.speed_of(s, 0, 1) == pytest.approx(memory)
    for op in (0, 3):
        gpus.work(s, op)
    assert [job.speed for job in s.job[:2]] == pytest.approx([compute, memory])
    gpus.give_back(s, 6)
    assert [job.speed for job in s.job[:2]] == [1.0, 1.0]


def test_a_job_that_is_slowed_has_done_what_it_did_before() -> None:
    """40 of 100 ps at full speed, the others at a half: 120 ps; and at full speed again from 80."""
    s = computing(1)
    s.plan[0].sms = 50.0
    gpus.work(s, 0)
    s.run[0].now = 40
    gpus.hold(s, 6, 0)
    assert (s.job[0].left, s.job[0].settled, s.job[0].speed) == (60.0, 40, 0.5)
    assert events(s)[-1] == (160, JOB, 0)
    s.run[0].now = 80
    gpus.give_back(s, 6)
    assert (s.job[0].left, s.job[0].speed) == (40.0, 1.0)
    assert (120, JOB, 0) in events(s)
    gpus.set_pace(s, 0, 0.25)
    assert (s.job[0].left, s.job[0].speed, s.gpu[0].pace) == (40.0, 0.25, 0.25)
    assert (240, JOB, 0) in events(s)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_reservations_are_given_back_from_any_place(left: int) -> None:
    s = computing(0, held=3)
    s.plan[0].sms = 10.0
    for op in (4, 5, 6):
        gpus.hold(s, op, 0)
    assert order(s, "held") == [4, 5, 6]
    gpus.give_back(s, 7)  # it holds nothing
    gpus.give_back(s, 4 + left)
    assert order(s, "held") == [op for op in (4, 5, 6) if op != 4 + left]
    gpus.hold(s, 7, 0)
    assert order(s, "held") == [*(op for op in (4, 5, 6) if op != 4 + left), 7]
    assert (s.run[0].held_count, s.run[0].full) == (3, 0)
    gpus.hold(s, 3, 0)
    assert s.run[0].full == FULL_TABLE


def test_nothing_is_held_where_nothing_is_shared() -> None:
    s = computing(0)
    gpus.hold(s, 4, 0)  # a plan without SMs
    s.plan[0].sms = 10.0
    s.gpu[0].sms = 0.0
    gpus.hold(s, 4, 0)
    s.gpu[0].sms, s.run[0].sharing = 100.0, 0
    gpus.hold(s, 4, 0)
    gpus.set_pace(s, 0, 0.5)
    assert order(s, "held") == []
    assert s.gpu[0].pace == 1.0
    s.run[0].sharing, s.gpu[0].bandwidth, s.plan[0].moved = 1, 0.0, 5.0
    gpus.hold(s, 4, 0)
    assert (s.held[0].sms, s.held[0].bandwidth) == (0.1, 0.0)
