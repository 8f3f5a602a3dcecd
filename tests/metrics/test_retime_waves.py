"""Many changes timed wave by wave: the same times, to the bit, as span by span."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.hand_made import timeline

from commsim.graph import GraphBuilder, OpKind
from commsim.metrics import retime
from commsim.metrics.meetings import Meetings
from commsim.metrics.retime import Change, Retiming
from commsim.metrics.retime_spans import time_spans
from commsim.metrics.retime_waves import in_waves
from commsim.study.replay import replay
from commsim.study.run import run

WORKS = ("1f1b", "dp-pp", "ddp", "batched-exchange", "parameter-server", "host-offload", "faults")


def changes(line, seed=0):
    """Return changes of every kind: of durations, of what is waited for, of delays."""
    draw, ones = np.random.default_rng(seed), np.ones(len(line))
    return [
        Change(ones),
        Change(draw.random(len(line))),
        Change(np.where(line.communicates, 0.0, 1.0)),
        Change(ones, detached=line.kind == OpKind.COMPUTE),
        Change(draw.random(len(line)), detached=draw.random(len(line)) < 0.5),
        Change(draw.random(len(line)), delays=draw.integers(0, 3, len(line)) / 2),
    ]


def check(line):
    """Hold every arrival and end to those of the loop over spans."""
    plan, asked = Retiming(line), changes(line)
    waves = plan._waves
    assert waves is not None
    together = plan._together(waves, asked)
    for one, (arrive, end) in zip(asked, together, strict=True):
        expected = plan._times(one)
        assert (arrive == expected[0]).all()
        assert (end == expected[1]).all()


@pytest.mark.parametrize("name", WORKS)
def test_waves_give_the_times_of_the_loop(name):
    check(run(name).timeline)


def test_waves_give_the_times_of_the_loop_for_a_recording():
    check(replay("example-dlrm").result.timeline)


def check_compiled(line):
    pytest.importorskip("numba", reason="compiled code is of the extra fast")
    plan = Retiming(line)
    for one in changes(line):
        for fast, slow in zip(plan._times(one, fast=True), plan._times(one), strict=True):
            assert (fast == slow).all()


@pytest.mark.parametrize("name", WORKS)
def test_compiled_code_gives_the_times_of_the_loop(name):
    check_compiled(run(name).timeline)


def test_compiled_code_gives_the_times_of_the_loop_for_a_recording():
    check_compiled(replay("example-dlrm").result.timeline)


@pytest.mark.parametrize("numba", [True, False], ids=["numba", "without"])
def test_what_is_asked_for_at_once_is_compiled_if_it_is_much(numba, monkeypatch):
    line, calls = run("dp-pp").timeline, []
    plan, asked = Retiming(line), changes(line)
    expected = [plan._step(*plan._times(one)) for one in asked]

    def kernel(*columns):
        calls.append(columns)
        time_spans(*columns)

    monkeypatch.setattr(retime, "compiled", lambda _: kernel)
    monkeypatch.setattr(retime, "can_compile", lambda: numba)
    monkeypatch.setattr(retime, "COMPILED_FROM", 2 * len(line))
    assert plan.steps(asked) == expected
    assert len(calls) == numba * len(asked)
    assert plan.step(asked[1]) == expected[1]
    assert len(calls) == numba * len(asked)


@pytest.mark.parametrize("wave", [0, 10**9], ids=["waves", "loop"])
def test_steps_are_those_that_are_asked_for_one_by_one(wave, monkeypatch):
    line = run("dp-pp").timeline
    plan, asked = Retiming(line), changes(line)
    expected = [plan._step(*plan._times(one)) for one in asked]
    monkeypatch.setattr(retime, "_WAVE", wave)
    assert plan.steps(asked) == expected
    monkeypatch.setattr(retime, "_AT_ONCE", 4 * len(line))  # two times: four changes, then two
    assert plan.steps(asked) == expected
    assert [plan.step(one) for one in asked] == expected


def met(members: list[int], of: list[int]) -> Meetings:
    """Return at most one meeting, of `members`."""
    first = [0, len(members)] if members else [0]
    return Meetings(*(np.array(column, dtype=np.int32) for column in (first, members, of)))


def test_an_order_in_which_a_need_comes_late_has_no_waves():
    first, needs, nobody = np.array([0, 1, 1]), np.array([1]), met([], [-1, -1])
    assert in_waves([0, 1], first, needs, nobody) is None
    waves = in_waves([1, 0], first, needs, nobody)
    assert waves is not None
    assert waves.count == 2
    pair = met([0, 2], [0, -1, 0])
    assert in_waves([2, 0, 1], np.array([0, 1, 1, 1]), needs, pair) is None


@pytest.mark.parametrize("links", [1, 4])
def test_what_meets_arrives_a_wave_behind_what_its_last_member_needs(links: int) -> None:
    """A chain of spans, one per wave; the first of a pair meets the one behind the chain's end."""
    early, late = links, links + 1
    first = np.array([0, *range(links), links - 1, links])  # the chain, the early, the late one
    pair = met([early, late], [-1] * links + [0, 0])
    waves = in_waves(range(links + 2), first, np.arange(links), pair)
    assert waves is not None
    assert waves.count == links + 1
    behind = in_waves([1, 0], np.array([0, 0, 1]), np.array([0]), met([], [-1, -1]))
    assert behind is None  # what needs another comes before it


def test_two_that_meet_once_start_together() -> None:
    """One meeting in all: who comes at 0 waits for who comes at 70, and 30 later if that one is."""
    build = GraphBuilder()
    pair = build.group("pair", [0, 1])
    for rank in range(2):
        lane = build.lane(rank)
        build.compute(lane, 1, name="work", stream="comm")
        build.collective(lane, pair, "all_reduce", 8, stream="comm")
    line = timeline(build, [(0, 10), (10, 70, 80), (0, 70), (70, 70, 80)])
    plan = Retiming(line)
    waves = plan._waves
    assert waves is not None
    doubled = Change(np.array([1.0, 1.0, 2.0, 1.0]))
    alone = Change(np.ones(4), detached=np.array([False, True, False, False]))
    (_, end), (_, later), (_, apart) = plan._together(waves, [Change(np.ones(4)), doubled, alone])
    assert end.tolist() == [10, 80, 70, 80]
    assert later.tolist() == [10, 150, 140, 150]
    assert apart.tolist() == [10, 20, 70, 80]
    for change, expected in ((doubled, later), (alone, apart)):
        assert plan._times(change)[1].tolist() == expected.tolist()
