"""Schedules as data: their published orders, and what every one of them must satisfy."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import partial
from itertools import product

import pytest
from helpers.counting import python_calls
from helpers.share import examples, later
from hypothesis import given
from hypothesis import strategies as st

from commsim.errors import ScenarioError
from commsim.workload.schedules import (
    SCHEDULES,
    Action,
    Schedule,
    StageTimes,
    Work,
    check_schedule,
    execution_order,
    home_of,
    live_activations,
    make_schedule,
    peak_activations,
)
from commsim.workload.schedules.fill import walk

F, B, I, W = Work.F, Work.B, Work.I, Work.W  # noqa: E741
LOOPED = ("interleaved_1f1b", "breadth_first")
DUAL = ("dualpipe", "dualpipev")


def made(name: str, p: int, m: int, v: int = 1) -> Schedule:
    return make_schedule(name, p, m, where="x", virtual=v)


def letters(name: str, device: int, devices: int, microbatches: int, v: int = 1) -> str:
    schedule = made(name, devices, microbatches, v)
    return " ".join(str(action) for action in schedule.actions[device])


def suited(name: str, p: int, rounds: int) -> tuple[int, int, int]:
    """Return (p, m, v) that a schedule can use."""
    if name == "dualpipe":
        p += p % 2
    if name in DUAL:
        return p, 2 * p + 2 * rounds, 1
    if name == "interleaved_1f1b":
        return p, p * rounds, 2 + rounds % 3
    return p, rounds, 1 + rounds % 3 if name == "breadth_first" else 1


def test_the_published_orders() -> None:
    assert letters("naive", 1, 2, 2) == "1F0 1B0 1F1 1B1"
    assert letters("gpipe", 0, 4, 3) == "0F0 0F1 0F2 0B0 0B1 0B2"
    assert letters("1f1b", 0, 3, 4) == "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3"
    assert letters("1f1b", 1, 3, 4) == "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3"
    assert letters("1f1b", 2, 3, 4) == "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3"
    assert letters("1f1b", 0, 8, 2) == "0F0 0F1 0B0 0B1"
    assert letters("breadth_first", 1, 2, 2, 2) == "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1"


def test_megatrons_interleaved_order() -> None:
    """p=2, v=2, m=4: device 0 has stages 0 and 2; 2(2-0-1) + 2 = 4 forwards go ahead."""
    assert letters("interleaved_1f1b", 0, 2, 4, 2) == (
        "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3"
    )
    assert letters("interleaved_1f1b", 1, 2, 4, 2) == (
        "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"
    )


def test_handcrafted_zero_bubble_orders() -> None:
    assert letters("zb_h1", 0, 2, 3) == "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2"
    assert letters("zb_h1", 1, 2, 3) == "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"
    assert letters("zb_h2", 0, 2, 4) == "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3"
    assert letters("zb_h2", 1, 2, 4) == "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1F3 1I3 1W1 1W2 1W3"


def test_a_v_warms_up_with_2p_minus_1_forwards() -> None:
    """Device i: 2p-i-1 of its first stage and i of its second before the first backward."""
    for p in (2, 4, 7):
        schedule = made("zb_v", p, 3 * p)
        for i, actions in enumerate(schedule.actions):
            ahead = actions[: next(n for n, a in enumerate(actions) if a.work == I)]
            stages = Counter(action.stage for action in ahead)
            assert stages == {i: 2 * p - 1 - i, 2 * p - 1 - i: i + 1}


def test_dualpipe_enters_from_both_ends() -> None:
    schedule = made("dualpipe", 4, 10)
    assert schedule.home == (0, 1, 2, 3, 3, 2, 1, 0)
    assert schedule.pipes == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert [schedule.part(stage) for stage in schedule.held(0)] == [0, 3]
    microbatches = {
        s: [a.microbatch for a in schedule.actions[0] if a[:2] == (F, s)] for s in (0, 7)
    }
    assert microbatches == {0: [0, 1, 2, 3, 4], 7: [5, 6, 7, 8, 9]}
    pairs = [(schedule.actions[0][n].stage, schedule.actions[0][n + 1].stage)
             for n in sorted(schedule.paired[0])]  # fmt: skip
    assert pairs[:4] == [(0, 7), (7, 0), (0, 7), (7, 0)]


@examples(150)
@given(name=st.sampled_from(list(SCHEDULES)), p=st.integers(1, 8), rounds=st.integers(1, 12))
def test_every_schedule_is_complete_and_can_run(name: str, p: int, rounds: int) -> None:
    p, m, v = suited(name, p, rounds)
    schedule = made(name, p, m, v)
    check_schedule(schedule, where=name)
    ran = [step.action for step in execution_order(schedule)]
    assert len(ran) == sum(len(actions) for actions in schedule.actions)
    per_pipe = m // len(schedule.pipes)
    work = Counter(action.work for action in ran)
    assert work[F] == per_pipe * schedule.stages == work[B] + work[I]
    assert work[I] == work[W]


@examples(60)
@given(
    name=st.sampled_from(list(SCHEDULES)),
    p=st.integers(1, 6),
    rounds=st.integers(1, 6),
    data=st.data(),
)
def test_sources_are_what_feeds_an_action_from_another_device(
    name: str, p: int, rounds: int, data: st.DataObject
) -> None:
    p, m, v = suited(name, p, rounds)
    schedule = made(name, p, m, v)
    before = {b: a for pipe in schedule.pipes for a, b in zip(pipe, pipe[1:], strict=False)}
    after = {a: b for b, a in before.items()}
    ran: dict[tuple[int, int], tuple[bool, int, int]] = {}
    waiting: list[tuple[int, tuple[int, int]]] = []
    for step in execution_order(schedule):
        work, stage, k = step.action
        ran[step.device, step.position] = (work == F, stage, k)
        assert set(step.sources) <= ran.keys()
        target = None if work == W else (after if work == F else before).get(stage)
        home = step.device if target is None else schedule.home[target]
        assert step.feeds == (home if home != step.device else -1)
        waiting += [(step.device, source) for source in step.sources]
    for device, source in waiting:
        assert source[0] != device
    crossings = (
        sum(schedule.home[a] != schedule.home[b] for b, a in before.items())
        * (m // len(schedule.pipes))
        * 2
    )
    assert len(waiting) == crossings


@pytest.mark.share(0.6)
@pytest.mark.parametrize(("p", "rounds"), [
    later(case) if case in ((12, 5), (12, 2), (12, 1), (8, 5), (8, 2), (6, 5)) else case
    for case in product([1, 2, 3, 4, 6, 8, 12], [1, 2, 5])
])  # fmt: skip
def test_live_activations_peak_where_published(p: int, rounds: int) -> None:
    m = 4 * p * rounds
    peaks = {name: peak_activations(made(name, p, m)) for name in SCHEDULES
             if name not in (*LOOPED, *DUAL)}  # fmt: skip
    assert peaks["naive"] == (1,) * p
    assert peaks["gpipe"] == (m,) * p
    assert peaks["1f1b"] == tuple(p - i for i in range(p))
    assert peaks["zb_h1"] == peaks["zb_1p"] == (p,) * p
    assert peaks["zb_h2"] == (2 * p - 1,) * p
    assert max(peaks["zb_2p"]) <= 2 * p
    assert peaks["zb_v"] == (p,) * p
    assert max(peaks["v_half"]) == (p + 2) // 2
    assert max(peaks["v_min"]) <= (p + 4) // 3
    if p > 2:
        assert max(peaks["v_min"]) == (p + 4) // 3
    assert peak_activations(made("dualpipev", p, m)) == (p + Fraction(1, 2),) * p
    if p % 2 == 0:
        assert peak_activations(made("dualpipe", p, m)) == (p + 1,) * p
    for v in (2, 3, 4):
        looped = peak_activations(made("interleaved_1f1b", p, m, v))
        assert looped[0] == p * (1 + Fraction(p - 1, p * v))
        assert peak_activations(made("breadth_first", p, m, v)) == (m,) * p


def test_an_input_gradient_frees_what_the_weight_gradient_does_not_keep() -> None:
    row = tuple(Action(w, 0, k) for w, k in ((F, 0), (F, 1), (I, 0), (I, 1), (W, 0), (W, 1)))
    quarter = Fraction(1, 4)
    assert live_activations(row, kept=quarter) == [
        1, 2, 2, Fraction(5, 4), Fraction(1, 2), quarter,
    ]  # fmt: skip


def test_a_cap_counts_what_the_weight_gradient_keeps() -> None:
    times = StageTimes((20,) * 8, (20,) * 8, (10,) * 8, (0,) * 8)
    for name, cap in (("zb_1p", 8), ("zb_2p", 16), ("zb_v", 8), ("v_half", 5), ("v_min", 4)):
        v = 2 if name.startswith(("zb_v", "v_")) else 1
        scaled = times if v == 1 else StageTimes((10,) * 16, (10,) * 16, (5,) * 16, (0,) * 8)
        schedule = make_schedule(name, 8, 24, where="x", times=scaled, kept=0.4)
        assert max(peak_activations(schedule, kept=Fraction(2, 5))) <= cap


A = Action


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (((A(B, 0, 0), A(F, 0, 0)),), "device 0: 0B0 comes before its forward 0F0"),
        (((A(F, 0, 0), A(W, 0, 0), A(I, 0, 0)),), "0W0 comes before its input gradient 0I0"),
        (((A(F, 0, 0), A(I, 0, 0)),), "stage 0 (device 0) has no weight gradient of microbatch 0"),
        (((A(F, 0, 0),),), "stage 0 (device 0) has no backward of microbatch 0"),
        (((A(F, 0, 0), A(F, 0, 0), A(B, 0, 0)),), "device 0: 0F0 is there twice"),
        (((A(F, 0, 0), A(B, 0, 0), A(W, 0, 0)),), "device 0: 0W0 is there twice"),
        (((A(F, 0, 0), A(B, 0, 0)), (A(F, 1, 1), A(B, 1, 1))), "stage 0 (device 0) has no forward"),
        (((A(F, 1, 0), A(B, 1, 0)), (A(F, 0, 0), A(B, 0, 0))), "1F0: stage 1 is on device 1"),
        (((A(F, 3, 0),),), "3F0: no such stage"),
        (
            ((A(F, 0, 0), A(B, 0, 0), A(F, 0, 1), A(B, 0, 1)),
             (A(F, 1, 0), A(F, 1, 1), A(B, 1, 0), A(B, 1, 1))),
            "the devices wait for each other: device 0 at 0B0; device 1 at 1F1",
        ),
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_refused(rows: tuple[tuple[Action, ...], ...], words: str) -> None:
    home = tuple(range(len(rows)))
    with pytest.raises(ScenarioError) as caught:
        check_schedule(Schedule("mine", rows, home, (home,)), where="mine.csv")
    assert words in str(caught.value)
    assert str(caught.value).startswith("mine.csv: ")


def test_devices_that_are_done_wait_for_nobody() -> None:
    """A pipe of two devices that is stuck, and one of a device alone."""
    rows = (
        (A(F, 0, 0), A(B, 0, 0), A(F, 0, 1), A(B, 0, 1)),
        (A(F, 1, 0), A(F, 1, 1), A(B, 1, 0), A(B, 1, 1)),
        (A(F, 2, 0), A(B, 2, 0), A(F, 2, 1), A(B, 2, 1)),
    )
    with pytest.raises(ScenarioError) as caught:
        check_schedule(Schedule("mine", rows, (0, 1, 2), ((0, 1), (2,))), where="mine.csv")
    said = "the devices wait for each other: device 0 at 0B0; device 1 at 1F1."
    assert str(caught.value) == f"mine.csv: {said}"


@pytest.mark.parametrize(
    ("name", "p", "m", "v", "words"),
    [
        ("1f1", 4, 8, 1, "s: no schedule '1f1'. Did you mean '1f1b'"),
        ("interleaved_1f1b", 4, 8, 1, "interleaved_1f1b needs virtual_stages above 1"),
        ("zb_h1", 4, 8, 2, "zb_h1 has 1 stage per device, but virtual_stages is 2"),
        ("zb_v", 4, 8, 3, "zb_v has 2 stages per device, but virtual_stages is 3"),
        ("interleaved_1f1b", 4, 10, 2, "10 microbatches do not divide by 4 stages"),
        ("dualpipe", 4, 6, 1, "at least 2 x 4 devices = 8 microbatches, not 6"),
        ("dualpipe", 3, 8, 1, "3 devices and 8 microbatches must both be even"),
        ("dualpipev", 3, 5, 1, "at least 2 x 3 devices = 6 microbatches, not 5"),
        ("1f1b", 1000, 10_000, 1, "Take fewer microbatches"),
    ],
)
def test_what_a_schedule_cannot_use_is_refused(
    name: str, p: int, m: int, v: int, words: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        make_schedule(name, p, m, where="s", virtual=v)
    assert words in str(caught.value)


def test_where_stages_live() -> None:
    assert home_of("interleaved_1f1b", 3, 2, where="x") == (0, 1, 2, 0, 1, 2)
    assert (
        home_of("zb_v", 3, 2, where="x") == home_of("zb_v", 3, 1, where="x") == (0, 1, 2, 2, 1, 0)
    )
    assert home_of("1f1b", 3, 1, where="x") == (0, 1, 2)


@examples(25)
@given(data=st.data(), p=st.integers(2, 5), repeats=st.booleans(), kept=st.sampled_from([0.5, 1.0]))
def test_a_search_never_loses_to_a_schedule_made_by_hand(
    data: st.DataObject, p: int, repeats: bool, kept: float
) -> None:
    """Nor under the larger cap to what the smaller one allows; times as they come."""
    m = data.draw(st.integers(1, 3 * p))
    rows = [data.draw(st.lists(st.integers(1, 30), min_size=p, max_size=p)) for _ in range(4)]
    forward, backward, weight, hops = (tuple(row) for row in rows)
    times = StageTimes(forward, backward, weight, hops, repeats, tied=data.draw(st.booleans()))

    def judged(name: str) -> int:
        actions = make_schedule(name, p, m, where="x", times=times, kept=kept).actions
        first = walk(actions, range(p), times)
        if not repeats:
            return first.span
        ends = list(first.ends)
        if times.tied:
            ends[0] = ends[-1] = max(ends[0], ends[-1])
        return max(walk(actions, range(p), times, free=ends).ends) - max(ends)

    slack = 1.002 if repeats else 1  # estimates: an order of less memory wins within 0.1 %
    assert judged("zb_1p") <= slack * judged("zb_h1")
    assert judged("zb_2p") <= slack * min(judged(name) for name in ("zb_h1", "zb_h2", "zb_1p"))


def test_orders_that_draw_leave_it_to_the_one_made_by_hand() -> None:
    times = StageTimes((10,) * 4, (10,) * 4, (10,) * 4, (0,) * 4, repeats=True)
    made, found = (make_schedule(name, 4, 8, where="x", times=times) for name in ("zb_h1", "zb_1p"))
    assert found.actions == made.actions


def test_the_work_of_ordering_grows_with_the_actions_alone() -> None:
    """Four times the stages: four times the calls, not sixteen."""
    calls = []
    for stages in (64, 256):
        schedule = made("1f1b", stages, 8, 1)
        calls.append(python_calls(partial(list, execution_order(schedule))))
    assert calls[1] < 4.2 * calls[0]
