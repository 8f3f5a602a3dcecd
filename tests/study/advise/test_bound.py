"""Bounds of layouts, of units and parts whose times are made by hand."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.errors import ScenarioError, UnitError
from commsim.models import ModelSection, build_model
from commsim.scenario import scenario_from
from commsim.sections import decode
from commsim.study.advise.bound import LayoutBound
from commsim.study.advise.infeasible import _least
from commsim.study.advise.layouts import Candidate, Degrees
from commsim.study.advise.simulate import Worker
from commsim.workload import TrainingSection, Work
from commsim.workload.training import EMBEDDING, HEAD, LAYER

TIMES = {
    Work.F: {"a": 1, "b": 20}, Work.B: {"a": 51, "b": 40}, Work.I: {"a": 50, "b": 24},
    Work.W: {"a": 1, "b": 16},
}  # fmt: skip
"""ps of a unit of each kind."""


def bound(parts: Any, *, schedule: str = "1f1b", batch: int = 16, times: Any = TIMES) -> Any:
    """Return the bound in ps, of two stages, four replicas and microbatches of a sequence."""
    made: Any = SimpleNamespace(
        _times=lambda shape: times, _kinds=lambda shape: parts,
        _section=SimpleNamespace(batch=SimpleNamespace(global_=batch)),
    )  # fmt: skip
    shape = Candidate(Degrees(4, 1, 2, 1, 1), schedule, 1, 1, "none", "ddp")
    found = LayoutBound.seconds(made, shape)
    return None if found is None else found * 1e12


def test_a_stage_works_after_the_first_forward_and_before_the_last_backward() -> None:
    """Four microbatches. The second stage: 1 + 4 (20 + 40) + 51; the first alone 4 (1 + 51)."""
    assert bound([{"a": 1}, {"b": 1}]) == pytest.approx(292)
    assert bound([{"b": 1}, {"a": 1}]) == pytest.approx(20 + 4 * 52 + 40)
    assert bound([{"b": 1, "a": 2}, {"a": 1}]) == pytest.approx(4 * (22 + 142))


def test_virtual_stages_of_a_device_work_in_turn() -> None:
    """Parts 0 and 2 are the first device's, 1 and 3 the second's: after 20 and before 40."""
    parts = [{"b": 1}, {"a": 1}, {"b": 1}, {"a": 2}]
    assert bound(parts) == pytest.approx(20 + 4 * 3 * 52 + 40)
    parts = [{"a": 1}, {"b": 1}, {"a": 1}, {"b": 2}]
    assert bound(parts) == pytest.approx(1 + 4 * 3 * 60 + 51)


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        (16, 1 + 4 * 44 + 2 * 16 + 50), (8, 1 + 2 * 44 + 0 * 16 + 50), (4, 1 + 44 + 50),
        (48, 1 + 12 * 44 + 10 * 16 + 50),
    ],
)  # fmt: skip
def test_weight_gradients_fill_what_the_last_input_gradients_leave(batch: int, found: int) -> None:
    """zb_h1's second stage: what the last of m microbatches waits for, less the weight gradients of
    the last two; a first stage that works longer, all of its work."""
    given = [{"a": 1}, {"b": 1}]
    assert bound(given, schedule="zb_h1", batch=batch) == pytest.approx(found)
    if batch > 4:
        long = bound([{"b": 2}, {"a": 1}], schedule="zb_h1", batch=batch)
        assert long == pytest.approx(batch // 4 * 120)


def test_degrees_that_do_not_fit_have_no_bound() -> None:
    assert bound(None) is None
    assert bound([{"a": 1}, {"b": 1}], times=None) is None


@pytest.mark.parametrize(("dp", "cp", "shard"), [
    (1, 1, "ddp"), (2, 1, "fsdp"), (1, 2, "fsdp"), (2, 2, "fsdp"),
])  # fmt: skip
def test_the_least_is_asked_of_what_shares_all_among_replicas(
    monkeypatch: pytest.MonkeyPatch, dp: int, cp: int, shard: str
) -> None:
    asked: list[Any] = []

    def judge(section: Any, cluster: Any, library: Any) -> Any:
        def least(degrees: Degrees, shard: str, recompute: str) -> Any:
            asked.append((degrees, shard, recompute))
            return [None, SimpleNamespace(fits=False), SimpleNamespace(fits=True)][len(asked) - 1]

        return SimpleNamespace(degrees=lambda: [Degrees(dp, 1, 1, cp, 1)] * 4, least=least)

    monkeypatch.setattr(sys.modules["commsim.study.advise.infeasible"], "Judge", judge)
    nothing: Any = None
    found = _least(nothing, nothing)
    assert found is not None
    assert found.fits
    assert asked == [(Degrees(dp, 1, 1, cp, 1), shard, "full")] * 3


@pytest.mark.parametrize(
    ("pp", "virtual", "parts"),
    [
        (1, 1, [{False: 3, True: 5, EMBEDDING: 1, HEAD: 1}]),
        (2, 1, [{False: 3, True: 1, EMBEDDING: 1}, {True: 4, HEAD: 1}]),
        (2, 2, [{False: 2, EMBEDDING: 1}, {False: 1, True: 1}, {True: 2}, {True: 2, HEAD: 1}]),
        (2, 3, [{False: 1, EMBEDDING: 1}, {False: 2}, {True: 2}, {True: 2}, {True: 1}, {HEAD: 1}]),
        (11, 1, None),
    ],
)  # fmt: skip
def test_parts_have_so_many_layers_of_each_kind(pp: int, virtual: int, parts: Any) -> None:
    """Eight layers, of which the first three are dense; embedding and head count as one each."""
    experts = {"experts": 4, "top_k": 2, "expert_ffn": 32, "first_dense_layers": 3}
    data = {"layers": 8, "hidden": 64, "heads": 2, "vocab": 64, "seq_len": 64, "experts": experts}
    shape = build_model(decode(data, ModelSection, "x"), where="x").shape
    made: Any = LayoutBound.__new__(LayoutBound)
    made._shape, made._parts = shape, {}
    one = Candidate(Degrees(1, 1, pp, 1, 1), "1f1b", virtual, 1, "none", "ddp")
    assert made._kinds(one) == parts
    made._counted = None  # which is asked for once
    assert made._kinds(one) == parts


@pytest.mark.parametrize(
    ("order", "neighbours"),
    [
        (("tp", "cp", "dp", "pp"), True), (("cp", "tp", "dp", "pp"), True),
        (("tp", "dp", "cp", "pp"), False), (("cp", "dp", "tp", "pp"), False),
        (("dp", "tp", "cp", "pp"), False),
    ],
)  # fmt: skip
def test_units_are_timed_once_for_layouts_that_divide_a_layer_alike(
    order: tuple[str, ...], neighbours: bool
) -> None:
    """Where tp and cp are next to each other, replicas and stages make no difference."""
    section: Any = SimpleNamespace(parallel=SimpleNamespace(order=order))
    nothing: Any = None
    made: Any = LayoutBound(section, nothing, nothing, nothing, nothing, nothing, {}, slows=True)
    asked: list[Candidate] = []

    def timed(shape: Candidate) -> Any:
        asked.append(shape)
        return {}

    made._timed = timed
    first = Candidate(Degrees(4, 2, 1, 1, 1), "1f1b", 1, 1, "none", "ddp")
    moved = first._replace(degrees=Degrees(2, 2, 2, 1, 1), schedule="gpipe")
    others = [
        first._replace(degrees=Degrees(4, 4, 1, 1, 1)), first._replace(micro=2),
        first._replace(degrees=Degrees(4, 2, 1, 2, 1)), first._replace(overlap="ring"),
        first._replace(degrees=Degrees(4, 2, 1, 1, 2)), first._replace(recompute="full"),
    ]  # fmt: skip
    for one in (first, first, moved, *others):
        assert made._times(one) == {}
    assert asked == [first, *([] if neighbours else [moved]), *others]


def test_layouts_that_cannot_be_planned_have_no_times_but_the_clock_is_nobodys_fault() -> None:
    made: Any = LayoutBound.__new__(LayoutBound)
    made._rows, made._neighbours = {}, True
    errors: list[Exception] = [ScenarioError("no"), UnitError("too long")]

    def timed(shape: Candidate) -> Any:
        raise errors.pop(0)

    made._timed = timed
    one = Candidate(Degrees(1, 1, 1, 1, 1), "1f1b", 1, 1, "none", "ddp")
    assert made._times(one) is None
    with pytest.raises(UnitError):
        made._times(one._replace(micro=2))


def test_units_are_timed_on_one_stage_of_all_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of equal units the further one counts if it adds less; a first of 0 ps does not."""
    module = sys.modules["commsim.study.advise.bound"]
    units = [SimpleNamespace(kind=kind, layer=layer) for kind, layer in
             ((EMBEDDING, 0), (LAYER, 0), (LAYER, 1), (LAYER, 2), (HEAD, 0))]  # fmt: skip
    took = {Work.F: [5, 9, 7, 8, 3], Work.B: [0, 6, 7, 0, 4], Work.W: [2]}
    asked: list[Any] = []

    def planned(section: Any, cluster: Any, *, where: str) -> str:
        asked.append(section)
        return "plan"

    def floor(*given: Any, slows: str, contended: bool, known: Any) -> Any:
        assert given[0] == "plan"
        assert (slows, contended) == ("as the engine", False)
        return SimpleNamespace(
            units=lambda: {work: list(zip(units, row, strict=False)) for work, row in took.items()}
        )

    monkeypatch.setattr(module, "plan_training", planned)
    monkeypatch.setattr(module, "Floor", floor)
    monkeypatch.setattr(module, "is_moe_layer", lambda shape, layer: layer == 2)
    data = {"model": {"layers": 4, "hidden": 64, "heads": 4, "vocab": 64, "seq_len": 64},
            "batch": {"global": 64, "micro": 1}}  # fmt: skip
    made: Any = LayoutBound.__new__(LayoutBound)
    made._section = decode(data, TrainingSection, "x")
    made._shape = made._cluster = made._library = made._model = made._traffic = None
    made._known, made._slows = {}, "as the engine"
    one = Candidate(Degrees(4, 2, 2, 1, 1), "interleaved_1f1b", 2, 2, "full", "fsdp")
    assert made._timed(one) == {
        Work.F: {EMBEDDING: 5, False: 7, True: 8, HEAD: 3},
        Work.B: {EMBEDDING: 0, False: 6, True: 0, HEAD: 4},
        Work.W: {EMBEDDING: 2, False: 0, True: 0, HEAD: 0},  # which the others have none of
    }
    (section,) = asked
    parallel = section.parallel
    assert (parallel.dp, parallel.tp, parallel.pp, parallel.virtual_stages) == (8, 2, 1, 1)
    assert (section.batch.global_, section.batch.micro) == (16, 2)
    assert section.data_parallel.kind == "ddp"


@pytest.mark.parametrize("slows", [True, False])
def test_a_bound_is_below_the_floor_whether_or_not_communication_slows_compute(slows: bool) -> None:
    """A ring of tensor parallelism beside products, which it slows where the engine says so."""
    model = {"layers": 2, "hidden": 2048, "heads": 16, "vocab": 8192, "seq_len": 8192}
    data = {
        "cluster": {"preset": "dgx-h100"}, "engine": {"overlap_slowdown": slows},
        "workload": {"training": {"model": model, "batch": {"global": 8, "micro": 1}}},
    }  # fmt: skip
    judge = Worker(scenario_from(data, "x")).judge
    one = Candidate(Degrees(4, 2, 1, 1, 1), "1f1b", 1, 1, "none", "ddp", "ring")
    (bound,) = (bound for bound, found in judge.variants(one) if found == one)
    judged = judge.one(one)
    assert judged is not None
    assert 0.9 * judged.floor < bound <= judged.floor
