"""Schedules as data: their published orders, and what every one of them must satisfy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commsim.errors import ScenarioError
from commsim.graph import Phase
from commsim.workload import Action, Schedule, execution_order, make_schedule

NAMES = ("naive", "gpipe", "1f1b")
F, B = Phase.FORWARD, Phase.BACKWARD


def letters(name: str, device: int, devices: int, microbatches: int) -> str:
    schedule = make_schedule(name, devices, microbatches, where="x")
    return " ".join(f"{a.phase.name[0]}{a.microbatch}" for a in schedule.actions[device])


def test_the_published_orders() -> None:
    assert letters("naive", 1, 2, 2) == "F0 B0 F1 B1"
    assert letters("gpipe", 0, 4, 3) == "F0 F1 F2 B0 B1 B2"
    assert letters("1f1b", 0, 3, 4) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert letters("1f1b", 1, 3, 4) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert letters("1f1b", 2, 3, 4) == "F0 B0 F1 B1 F2 B2 F3 B3"
    assert letters("1f1b", 0, 8, 2) == "F0 F1 B0 B1"


@given(name=st.sampled_from(NAMES), p=st.integers(1, 9), m=st.integers(1, 20))
def test_every_microbatch_goes_forward_and_back_once_on_every_stage(
    name: str, p: int, m: int
) -> None:
    schedule = make_schedule(name, p, m, where="x")
    for actions in schedule.actions:
        for phase in (F, B):
            assert [a.microbatch for a in actions if a.phase == phase] == list(range(m))
        for k in range(m):
            assert actions.index(Action(F, k)) < actions.index(Action(B, k))


@given(name=st.sampled_from(NAMES), p=st.integers(1, 9), m=st.integers(1, 20))
def test_the_execution_order_yields_all_and_producers_first(name: str, p: int, m: int) -> None:
    schedule = make_schedule(name, p, m, where="x")
    seen: dict[tuple[int, int], tuple[Phase, int, int]] = {}
    for step in execution_order(schedule):
        phase, k, _ = step.action
        assert step.position == sum(1 for device, _ in seen if device == step.device)
        if phase == F:
            needed = (F, k, step.stage - 1) if step.stage else None
        else:
            needed = (B, k, step.stage + 1) if step.stage < p - 1 else (F, k, step.stage)
        assert (seen[step.producer] if step.producer else None) == needed
        seen[step.device, step.position] = (phase, k, step.stage)
    assert len(seen) == 2 * p * m


@given(p=st.integers(1, 9), m=st.integers(1, 20))
def test_1f1b_holds_at_most_p_minus_i_microbatches(p: int, m: int) -> None:
    schedule = make_schedule("1f1b", p, m, where="x")
    for i, actions in enumerate(schedule.actions):
        live = peak = 0
        for action in actions:
            live += 1 if action.phase == F else -1
            peak = max(peak, live)
        assert peak == min(p - i, m)


def test_an_order_that_waits_for_itself_is_refused() -> None:
    backward_first = (Action(B, 0), Action(F, 0))
    schedule = Schedule("mine", (backward_first, backward_first), ((0,), (1,)))
    with pytest.raises(ScenarioError, match=r"'mine'.*device 0 at backward of microbatch 0"):
        list(execution_order(schedule))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("zb_h1", "pipeline.schedule: 'zb_h1' is not built yet; available: naive, gpipe, 1f1b"),
        ("interleaved_1f1b", "is not built yet; available: naive, gpipe, 1f1b"),
        ("1f1", "no schedule '1f1'. Did you mean '1f1b'"),
    ],
)
def test_a_schedule_that_is_not_there_is_refused(name: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        make_schedule(name, 4, 8, where="pipeline.schedule")
    assert words in str(caught.value)
