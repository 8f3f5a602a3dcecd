"""Timing a plan again: unchanged it is the run itself, changed it is the closed form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from commsim.engine import simulate
from commsim.graph import GraphBuilder, OpKind
from commsim.libraries import Ideal
from commsim.metrics.retime import Change, Retiming
from commsim.scenario import scenario_names
from commsim.study.run import run
from commsim.timeline import Timeline

CHEAP = ("1f1b", "dp-pp", "ddp", "batched-exchange", "broadcast", "parameter-server",
         "sub-groups", "host-offload", "dualpipe")  # fmt: skip
QUICK = sorted(
    set(scenario_names()) - {"llama3-405b", "zero-offload", "buy-aws-p5", "buy-aws-p6-b200"}
)


@pytest.mark.parametrize("name", CHEAP)
def test_nothing_changed_is_the_step_that_was(name: str) -> None:
    result = run(name)
    step = result.metrics.step_time_s * 1e12
    assert Retiming(result.timeline).step() == pytest.approx(step, rel=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("name", QUICK)
def test_nothing_changed_is_the_step_that_was_all_of_the_catalogue(name: str) -> None:
    test_nothing_changed_is_the_step_that_was(name)


def pipeline(stages: int, microbatches: int, forward: int, backward: int) -> Timeline:
    work = {"stages": stages, "microbatches": microbatches, "schedule": "gpipe",
            "forward": f"{forward}us", "backward": f"{backward}us"}  # fmt: skip
    return run({"workload": {"pipeline": work}}).timeline


@given(st.integers(2, 4), st.integers(1, 4), st.integers(1, 9), st.integers(1, 9))
def test_a_pipeline_without_waiting_takes_the_work_of_one_stage(
    stages: int, microbatches: int, forward: int, backward: int
) -> None:
    line = pipeline(stages, microbatches, forward, backward)
    same = np.ones(len(line))
    alone = Retiming(line).step(Change(same, detached=line.kind == OpKind.COMPUTE))
    assert alone == microbatches * (forward + backward) * 1e6
    assert Retiming(line).step() == (microbatches + stages - 1) * (forward + backward) * 1e6


@given(st.integers(1, 9), st.floats(0.1, 3.0))
def test_all_durations_scaled_scale_the_step(microbatches: int, factor: float) -> None:
    line = pipeline(3, microbatches, 2, 4)
    retiming = Retiming(line)
    scaled = retiming.step(Change(np.full(len(line), factor)))
    assert scaled == pytest.approx(factor * retiming.step(), rel=1e-9)


def test_less_time_for_a_part_never_makes_the_step_longer() -> None:
    line = run("dp-pp").timeline
    retiming, steps = Retiming(line), []
    for part in (1.0, 0.7, 0.3, 0.0):
        steps.append(retiming.step(Change(np.where(line.communicates, part, 1.0))))
    assert steps == sorted(steps, reverse=True)


def test_a_window_within_a_run_is_timed_from_its_own_first_to_its_own_last() -> None:
    """Of 5, 7 and 11 us in a row the window is the middle; its op twice as long adds 7."""
    build = GraphBuilder()
    lane = build.lane(0)
    ops = [build.compute(lane, us * 10**6, stream="gpu", name=f"{us}") for us in (5, 7, 11)]
    graph = replace(build.build(), window=np.array([[ops[1], ops[1]]]))
    retiming = Retiming(simulate(graph, None, library=Ideal()))
    assert retiming.step() == 7e6
    assert retiming.step(Change(np.array([3.0, 2.0, 3.0]))) == 14e6


def test_spans_in_any_order_have_the_needs_of_their_ops() -> None:
    """An op that needs none, one, two and none others: 3, 5 and 2 us in a row, 4 us beside."""
    build = GraphBuilder()
    lane, ops = build.lane(0), list[int]()
    for number, (us, needs) in enumerate([(3, ()), (5, (0,)), (2, (0, 1)), (4, ())]):
        after = [ops[at] for at in needs]
        ops.append(build.compute(lane, us * 10**6, stream=f"{us}", name=f"{number}", after=after))
    line = simulate(build.build(), None, library=Ideal())
    order = np.array([2, 0, 3, 1])
    place = np.append(np.argsort(order), -1)
    turned = replace(
        line, op=line.op[order], arrive=line.arrive[order], start=line.start[order],
        end=line.end[order], cause=place[line.cause[order]], cause_kind=line.cause_kind[order],
    )  # fmt: skip
    for op, step in enumerate([13, 15, 12, 10]):
        scale = np.ones(4)
        scale[op] = 2
        assert Retiming(line).step(Change(scale)) == step * 1e6
        assert Retiming(turned).step(Change(scale[order])) == step * 1e6
