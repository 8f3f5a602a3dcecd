"""The parts of a floor, of times and sizes made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.study.advise.floor import Floor, ReplicaTraffic, _last, _limits, _ready
from commsim.study.advise.shards import Share
from commsim.workload import Work

PS = 10**12


def seconds(amount: float) -> Any:
    return SimpleNamespace(seconds=amount)


def floor(**parts: Any) -> Any:
    """A floor whose optimizer takes a second an entry."""
    return SimpleNamespace(_model=SimpleNamespace(optimizer=seconds), **parts)


def plan(*parameters: int, sharers: int = 1, **more: Any) -> Any:
    """A plan of a stage on each device, with so many parameters."""
    stages = [[SimpleNamespace(parameters=count)] for count in parameters]
    devices = len(stages)
    schedule = SimpleNamespace(devices=devices, home=list(range(devices)), pipes=[range(devices)])
    return SimpleNamespace(
        schedule=schedule, held=stages.__getitem__, sharers=sharers, boundary=64, **more
    )


@pytest.mark.parametrize(
    ("memory", "late"), [(0.0, 0.0), (0.25, 34.0), (0.4, 136.0), (0.5, 34.0), (0.6, 34.0)]
)
def test_the_optimizer_of_the_step_before_is_slowed_by_two_receives(
    memory: float, late: float
) -> None:
    """100 entries of the fullest device are 34 for each of three: 34 s, at 1 / (1 - 2 m)."""
    share = Share(0.9, memory)

    def shared(kind: str, size: int, ranks: tuple[int, ...]) -> Share:
        assert (kind, size, ranks) == ("send_recv", 64, (3, 5))
        return share

    made = floor(
        _action_times=SimpleNamespace(share=shared),
        _groups=SimpleNamespace(ranks=lambda axis: {"pp": (3, 5, 7)}[axis]),
    )
    assert Floor._step_boundary(made, plan(99, 100, 98, sharers=3)) == pytest.approx(late)
    assert Floor._step_boundary(made, plan(99, 100, sharers=3)) == pytest.approx(late)
    assert Floor._step_boundary(made, plan(100, sharers=3)) == 0.0


@pytest.mark.parametrize(("inside", "found"), [(60.0, 70.5), (60.6, 70.6), (0.0, 70.5)])
def test_a_step_takes_its_first_device_or_what_all_nodes_send(inside: float, found: float) -> None:
    """38 s of gradients and of a tied table, 34 of the optimizer, less 1.5; and 10 s to share."""
    made = floor(
        plan=None, _layer_bytes_s=None, _actions=None, _groups=None, _tied=lambda: 3 * PS,
        _replicas=lambda plan, device: (35 + device) * PS, _step_boundary=lambda plan: 1.5,
        _traffic=SimpleNamespace(inside=lambda *_: inside, sharing=lambda *_: 10.0),
    )  # fmt: skip
    assert Floor.seconds(made, plan(100, 900, sharers=3)) == pytest.approx(found)
    made._traffic.inside = None  # which is asked for once
    assert Floor.seconds(made, plan(100, 900, sharers=3)) == pytest.approx(found)


def test_the_compute_of_a_device_is_that_of_its_actions() -> None:
    """By arithmetic 1 ps a stage's number and one, by memory ten times as long; F once, B twice."""

    def busy(work_list: Any, repeats: Any, *, memory: bool) -> int:
        return 10 if memory else 1

    def of_each(timed: Any) -> Any:
        each = timed((), ())
        return {work: [each * times * (stage + 1) for stage in range(3)]
                for work, times in ((Work.F, 1), (Work.B, 2))}  # fmt: skip

    actions = [[(Work.F, 2, 0), (Work.B, 2, 0)], [(Work.F, 0, 0), (Work.F, 1, 0), (Work.B, 0, 0)]]
    made = floor(
        _compute_times={}, _actions=SimpleNamespace(of_each=of_each),
        _action_times=SimpleNamespace(busy=busy),
        plan=SimpleNamespace(schedule=SimpleNamespace(actions=actions)),
    )  # fmt: skip
    assert Floor._compute(made, 0) == (3 + 6, 30 + 60)
    assert Floor._compute(made, 1) == (1 + 2 + 2, 10 + 20 + 20)
    made._actions = None  # a device is reckoned once
    assert Floor._compute(made, 1) == (5, 50)


@pytest.mark.parametrize(
    ("experts", "ranks", "share"),
    [
        (None, {"dp": (0, 1), "edp": (0, 9)}, Share(0.1, 0.1)),
        (object(), {"dp": (0, 1), "edp": (0, 9)}, Share(0.1, 0.01)),
        (object(), {"dp": (0, 1), "edp": (9,)}, Share(0.1, 0.1)),
    ],
)
def test_collectives_of_replicas_take_the_least_share_of_those_there_are(
    experts: Any, ranks: dict[str, tuple[int, ...]], share: Share
) -> None:
    shares = {(0, 1): Share(0.1, 0.1), (0, 9): Share(0.2, 0.01), (9,): Share(0.0, 0.0)}
    made = floor(
        plan=SimpleNamespace(model=SimpleNamespace(shape=SimpleNamespace(experts=experts))),
        _groups=SimpleNamespace(ranks=ranks.__getitem__),
        _action_times=SimpleNamespace(share=lambda kind, size, ranks: shares[ranks]),
    )
    assert Floor._held(made) == share


def test_a_tied_table_is_reduced_by_both_ends_of_a_pipeline() -> None:
    def idle(kind: str, size: int, ranks: Any, *, hop: tuple[int, int]) -> int:
        assert (kind, size, ranks, hop) == ("all_reduce", 640, (10, 13), (0, 3))
        return 77

    schedule = SimpleNamespace(pipes=[[1, 0, 2]], home={1: 0, 0: 1, 2: 3})
    made = floor(
        plan=SimpleNamespace(tied_bytes=640, schedule=schedule),
        _groups=SimpleNamespace(ranks=lambda axis: (10, 11, 12, 13)),
        _action_times=SimpleNamespace(idle=idle),
    )
    assert Floor._tied(made) == 77
    made.plan.tied_bytes = 0
    assert Floor._tied(made) == 0


@pytest.mark.parametrize(
    ("kind", "reduces", "gathers"),
    [
        ("ddp", "all_reduce", 0),
        ("zero", "reduce_scatter", 1 * 30 * 2),
        ("fsdp", "reduce_scatter", 0),
    ],
)
def test_what_replicas_of_a_device_share(kind: str, reduces: str, gathers: int) -> None:
    """30 entries in two stages, of 4 bytes as gradients and 2 as parameters; a ps for a byte."""
    asked: list[str] = []

    def idle(kind: str, size: int, ranks: Any, *, axis: str) -> int:
        assert (ranks, axis) == ((0, 1), "dp")
        asked.append(kind)
        return size

    def stage(number: int, part: int, *entries: int) -> Any:
        units = [SimpleNamespace(entries=lambda expert, own=own: 0 if expert else own)
                 for own in entries]  # fmt: skip
        return SimpleNamespace(number=number, part=part, units=units)

    held = [stage(2, 1, 5), stage(0, 0, 10, 15)]
    made = floor(
        _groups=SimpleNamespace(ranks={"dp": (0, 1), "edp": (0, 1)}.__getitem__),
        _action_times=SimpleNamespace(idle=idle),
    )
    given: Any = SimpleNamespace(
        section=SimpleNamespace(data_parallel=SimpleNamespace(kind=kind)),
        held=lambda device: held, gradient_width=4, width=2,
    )  # fmt: skip
    found = Floor._family(made, given, 0, expert=False)
    assert found == ReplicaTraffic({0: 25, 2: 5}, 30, 120, gathers)
    assert found is not None
    assert list(found.entries) == [0, 2]  # in the order of the stages' parts
    assert asked[0] == reduces
    assert Floor._family(made, given, 0, expert=True) is None  # no entries of experts
    made._groups.ranks = lambda axis: (0,)
    assert Floor._family(made, given, 0, expert=False) is None


def test_gradients_are_reduced_one_stage_after_another_from_the_start_of_each_backward() -> None:
    """100 ps for 10 entries, of which stage 0 has 3 and stage 1 has 7."""
    family = ReplicaTraffic({0: 3, 1: 7}, 10, 100, 50)
    assert family.ends([(1000, 1), (1020, 0)]) == 1000 + 70 + 30
    assert family.ends([(1000, 1), (1200, 0)]) == 1230
    assert family.ends([]) == 0


def test_parameters_are_gathered_one_stage_after_another() -> None:
    """Dense ones in 50 ps for 10 entries, experts in 80 for 4: of stage 0 15 and 20, 35 and 60."""
    dense, experts = ({0: 3, 1: 7}, 10), ({0: 1, 1: 3}, 4)
    families = [ReplicaTraffic(*dense, 100, 50), ReplicaTraffic(*experts, 100, 80)]
    assert _ready(families) == {0: 15 + 20, 1: 15 + 20 + 35 + 60}
    assert _ready(families[:1]) == {0: 15, 1: 50}
    assert _ready([ReplicaTraffic(*dense, 100, 0)]) == _ready([]) == {}


def test_the_last_backward_of_each_stage() -> None:
    assert _last([(10, 0), (20, 1), (30, 0), (25, 1)]) == [(25, 1), (30, 0)]


def test_where_a_stage_has_its_first_forward_and_its_last_gradient() -> None:
    """An input's gradient is no gradient of parameters."""
    first = [(Work.F, 0, 0), (Work.F, 0, 1), (Work.B, 0, 0), (Work.B, 0, 1)]
    second = [(Work.F, 2, 0), (Work.F, 1, 0), (Work.F, 1, 1), (Work.W, 1, 0), (Work.I, 1, 1),
              (Work.B, 2, 0)]  # fmt: skip
    found = _limits(SimpleNamespace(actions=[first, second]))  # type: ignore[arg-type]
    assert found == {0: (0, 3), 1: (1, 3), 2: (0, 5)}


def replicated(**data: Any) -> Any:
    """Two devices; gradients of dense parameters take 100 ps, of experts (if there) 40."""
    section = SimpleNamespace(
        data_parallel=SimpleNamespace(kind="zero", stage=1, no_sync=True) if not data
        else SimpleNamespace(**data)
    )  # fmt: skip
    return plan(10, 10, sharers=2, section=section, tied_bytes=0, microbatches=4)


def replicas(given: Any, *families: ReplicaTraffic | None, sharded: int = 0) -> int:
    """Return when the first device has its gradients: backwards begin at 500 and 600."""
    it = {False: families[0], True: families[1]}
    later = {False: families[2], True: families[3]} if len(families) > 2 else it
    moments = SimpleNamespace(end=700, backwards=[[(500, 0), (600, 0)], [(550, 1), (650, 1)]])
    made: Any = floor(
        _sharded=lambda plan, device: sharded,
        _family=lambda plan, device, expert: (it if device == 0 else later)[expert],
        _first_device=lambda gathered: moments,
        _overlapping_end=lambda device, end, communicates: end + communicates // 10,
    )
    return Floor._replicas(made, given, 0)


def dense(reduced: int, gathered: int = 0, stage: int = 0) -> ReplicaTraffic:
    return ReplicaTraffic({stage: 1}, 1, reduced, gathered)


def test_replicas_reduce_after_the_last_backward_or_after_every_one() -> None:
    """The last begins at 600. Whatever takes longest; a tenth of it stretches the 700."""
    assert replicas(replicated(), dense(30), None) == 703
    assert replicas(replicated(), dense(200), None) == 600 + 200
    assert replicas(replicated(), dense(30, gathered=50), dense(40, gathered=10)) == 700 + 10
    every = {"kind": "zero", "stage": 2, "no_sync": False}
    assert replicas(replicated(**every), dense(30), None) == 712
    assert replicas(replicated(**every), dense(200), None) == 500 + 2 * 200
    assert replicas(replicated(**every | {"no_sync": True}), dense(30), None) == 703
    assert replicas(replicated(**every | {"stage": 3}), dense(30), None) == 703
    assert replicas(replicated(kind="fsdp", stage=0, no_sync=True), None, None, sharded=9) == 9


def test_one_replica_shares_nothing_and_a_tied_table_waits_for_the_last_stage() -> None:
    alone = replicated()
    alone.sharers = 1
    assert replicas(alone, None, None) == 700
    tied = replicated()
    late = (dense(30), None, dense(300, stage=1), None)
    assert replicas(tied, *late) == 703
    tied.tied_bytes = 8
    assert replicas(tied, *late) == 650 + 300
    assert replicas(tied, dense(30), None, None, dense(300, stage=1)) == 650 + 300
    every = replicated(kind="zero", stage=2, no_sync=False)
    every.tied_bytes = 8
    assert replicas(every, *late) == 550 + 2 * 300
