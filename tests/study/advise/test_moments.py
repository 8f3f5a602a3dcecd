"""When the first device of a pipeline ends, of actions whose times are made by hand."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.study.advise.floor import Floor, StepMoments
from commsim.study.advise.shards import Pace
from commsim.workload import Action, Schedule, Work

F, B, I, W = Work.F, Work.B, Work.I, Work.W  # noqa: E741  (torch's letter)


def schedule(*devices: str) -> Schedule:
    """Return a schedule of a stage to a device: "F0 B0" are a microbatch's passes."""
    actions = tuple(
        tuple(Action(Work(one[0]), device, int(one[1:])) for one in words.split())
        for device, words in enumerate(devices)
    )
    stages = tuple(range(len(devices)))
    return Schedule("x", actions, stages, (stages,))


def whole(took: int) -> Pace:
    return Pace(took, late=took)


def moments(
    given: Schedule, paces: Any, gathered: Any = (), *, hop: int = 10, ends: Any = None
) -> StepMoments:
    """Return the moments of a step whose messages take `hop` ps."""

    def idle(kind: str, size: int, ranks: Any, *, hop: Any) -> int:
        assert (kind, size) == ("send_recv", 64)
        assert ranks == tuple(4 + device for device in hop)
        return took

    took = hop
    made: Any = SimpleNamespace(
        plan=SimpleNamespace(schedule=given, boundary=64),
        _groups=SimpleNamespace(ranks=lambda axis: (4, 5, 6)),
        _action_times=SimpleNamespace(idle=idle),
    )

    def rows(times: dict[Work, Pace]) -> dict[Work, list[Pace]]:
        return {work: [pace] * given.stages for work, pace in times.items()}

    return Floor._pipeline(
        made, rows(paces), dict(gathered), at_the_ends=None if ends is None else rows(ends)
    )


PLAIN = {F: whole(100), B: whole(200)}


def test_1f1b_on_two_stages() -> None:
    """The second stage: 110 to 210, 210 to 410, 410 to 510, 510 to 710; then 10 ps and 200."""
    found = moments(schedule("F0 F1 B0 B1", "F0 B0 F1 B1"), PLAIN)
    assert found == StepMoments(920, [[(420, 0), (720, 0)], [(210, 1), (510, 1)]])


def test_messages_of_one_way_leave_one_after_another() -> None:
    """Of 150 ps: the forwards are there at 250 and 400, and the last gradients at 1050."""
    found = moments(schedule("F0 F1 B0 B1", "F0 F1 B0 B1"), PLAIN, hop=150)
    assert found == StepMoments(1250, [[(850, 0), (1050, 0)], [(500, 1), (700, 1)]])


def test_the_first_forward_waits_for_parameters_that_are_still_gathered() -> None:
    """Until 130: 30 ps later than without. On the other stage nothing waits for them."""
    given = schedule("F0 F1 B0 B1", "F0 B0 F1 B1")
    assert moments(given, PLAIN, {0: 130}).end == 950
    assert moments(given, PLAIN, {0: 100}).end == moments(given, PLAIN, {1: 5000}).end == 920


def test_input_gradients_are_no_gradients_of_parameters() -> None:
    found = moments(schedule("F0 I0 W0"), {F: whole(100), I: whole(70), W: whole(30)})
    assert found == StepMoments(200, [[(170, 0)]])


@pytest.mark.parametrize(
    ("between", "end"), [((5, 8), 740), ((5, 30), 740), ((5, 60), 770), ((500, 60), 1120)]
)
def test_gathers_lead_and_reductions_follow(between: tuple[int, int], end: int) -> None:
    """Forwards 20 + 100, backwards 20 + 200 and a tail of 30, for which the next gather waits:
    120, 340, 490 (from 370 on), 710, and the last tail. HSDP's copies may take longer."""
    paces = {F: Pace(100, lead=20, late=90), B: Pace(200, 20, 30, 180, between)}
    found = moments(schedule("F0 B0 F1 B1"), paces)
    assert found == StepMoments(end, [[(120, 0), (490, 0)]])
    free = {F: Pace(100, late=90), B: Pace(200, 0, 30, 180)}  # without gathers no tail holds it up
    assert moments(schedule("F0 B0 F1 B1"), free).end == 100 + 200 + 100 + 200 + 30


def test_the_first_forward_and_the_last_gradient_have_paces_of_their_own() -> None:
    found = moments(schedule("F0 F1 B0 B1"), PLAIN, ends={F: whole(1000), B: whole(2000)})
    assert found == StepMoments(3300, [[(1100, 0), (1300, 0)]])


def test_an_unsharded_step_is_reckoned_once_for_each_way_to_gather() -> None:
    asked: list[Any] = []

    def pipeline(paces: Any, gathered: Any) -> str:
        asked.append((paces, gathered))
        return f"moments {len(asked)}"

    made: Any = SimpleNamespace(
        _moments={}, _unsharded_paces=None, _pipeline=pipeline, _action_times=SimpleNamespace(
            serial=None), _actions=SimpleNamespace(of_each=lambda timed: {F: [100, 150]}),
    )  # fmt: skip
    answers: list[Any] = [
        Floor._first_device(made, gathered) for gathered in ({}, {0: 5}, {}, {0: 5})
    ]
    assert answers == ["moments 1", "moments 2"] * 2
    assert asked[0] == ({F: [Pace(100, late=100), Pace(150, late=150)]}, {})


@pytest.mark.parametrize(
    ("shard", "inside", "copies"),
    [("all", (0, 1, 2, 3), 0), (2, (0, 1), 2000)],
)
def test_sharded_parameters_take_their_pipeline_or_all_their_collectives(
    monkeypatch: pytest.MonkeyPatch, shard: Any, inside: tuple[int, ...], copies: int
) -> None:
    """30 dense entries, of 2 bytes and of 4 as gradients: 5 gathers, 3 reductions, a ps a byte."""
    made_of: dict[str, Any] = {}

    def shards(plan: Any, model: Any, **given: Any) -> str:
        made_of.update(given)
        return "shards"

    def idle(kind: str, size: int, ranks: Any, *, axis: str = "") -> int:
        asked.append((kind, ranks, axis))
        return 2 * size if kind == "all_reduce" else size

    asked: list[Any] = []
    last = [0]  # when the pipeline ends
    monkeypatch.setattr(sys.modules["commsim.study.advise.floor"], "Shards", shards)
    units = [SimpleNamespace(entries=lambda expert, own=own: 1000 if expert else own)
             for own in (10, 20)]  # fmt: skip
    plan: Any = SimpleNamespace(
        section=SimpleNamespace(data_parallel=SimpleNamespace(shard=shard),
                                parallel=SimpleNamespace(ep=2)),
        held=lambda device: [SimpleNamespace(units=units)], width=2, gradient_width=4,
        parameter_gathers=5, gradient_reductions=3,
    )  # fmt: skip
    made: Any = SimpleNamespace(
        _model=None, _held=lambda: "held", _action_times=SimpleNamespace(idle=idle),
        _groups=SimpleNamespace(ranks=lambda axis: (0, 1, 2, 3), shard=lambda size: (0, 1),
                                between=lambda size: (0, 2)),
        _sharded_paces=lambda shards, at_the_ends=False: ("ends" if at_the_ends else "usual"),
        _pipeline=lambda paces, gathered, at_the_ends: SimpleNamespace(
            end=last[0] if (paces, gathered, at_the_ends) == ("usual", {}, "ends") else 0),
    )  # fmt: skip
    every = 5 * 30 * 2 + 3 * 30 * 4
    for last[0] in (every - 1, every + 1):
        assert Floor._sharded(made, plan, 0) == max(last[0], every)
    axis = "dp" if shard == "all" else ""
    assert asked[0] == ("all_gather", inside, axis)
    assert asked[1] == ("reduce_scatter", inside, axis)
    assert (made_of["shards"], made_of["held"]) == (len(inside), "held")
    asked.clear()
    assert made_of["within"]("all_gather", 8, expert=True) == 8
    assert asked == [("all_gather", inside[::2], "")]
    assert made_of["between"](1000) == copies


def test_paces_of_stages_that_are_alike_are_reckoned_once() -> None:
    asked: list[Any] = []

    def pace(work: Work, units: Any, *, at_the_ends: bool) -> Pace:
        asked.append((work, units, at_the_ends))
        return Pace(len(asked))

    alike, last = [(0, "t0"), (0, "t0")], [(1, "t1")]
    made: Any = SimpleNamespace(
        _unit_times={F: [alike, alike, last]},
        _actions=SimpleNamespace(units=lambda stage: [f"unit {stage}.0", f"unit {stage}.1"]),
    )
    shards: Any = SimpleNamespace(pace=pace)
    found = Floor._sharded_paces(made, shards, at_the_ends=True)
    assert found == {F: [Pace(1), Pace(1), Pace(2)]}
    assert asked == [
        (F, [("unit 0.0", "t0"), ("unit 0.0", "t0")], True), (F, [("unit 2.1", "t1")], True),
    ]  # fmt: skip
    Floor._sharded_paces(made, shards)
    assert asked[-1][2] is False
