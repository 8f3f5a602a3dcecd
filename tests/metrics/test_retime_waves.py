"""Many changes timed wave by wave: the same times, to the bit, as span by span."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.graph import OpKind
from commsim.metrics import retime
from commsim.metrics.retime import Change, Retiming
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
        Change(draw.random(len(line)), undelayed=draw.random(len(line)) < 0.5),
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


def test_an_order_in_which_a_need_comes_late_has_no_waves():
    first, needs, meets = np.array([0, 1, 1]), np.array([1]), [-1, -1]
    assert in_waves([0, 1], first, needs, [], meets) is None
    waves = in_waves([1, 0], first, needs, [], meets)
    assert waves is not None
    assert waves.count == 2
    assert in_waves([2, 0, 1], np.array([0, 1, 1, 1]), needs, [[0, 2]], [0, -1, 0]) is None


@pytest.mark.parametrize("links", [1, 4])
def test_what_meets_arrives_a_wave_behind_what_its_last_member_needs(links: int) -> None:
    """A chain of spans, one per wave; the first of a pair meets the one behind the chain's end."""
    early, late = links, links + 1
    first = np.array([0, *range(links), links - 1, links])  # the chain, the early, the late one
    waves = in_waves(
        range(links + 2), first, np.arange(links), [[early, late]], [-1] * links + [0, 0]
    )
    assert waves is not None
    assert waves.count == links + 1
    behind = in_waves([1, 0], np.array([0, 0, 1]), np.array([0]), [], [-1, -1])
    assert behind is None  # what needs another comes before it
