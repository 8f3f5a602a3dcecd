"""What a plan of training works out: microbatches, gathers, groups, and files that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.toy_cluster import SMALL, ToyCluster

from commsim.errors import ScenarioError
from commsim.sections import decode
from commsim.workload import TrainingSection
from commsim.workload.schedules import Action, Schedule, Work, make_schedule
from commsim.workload.training import plan_training
from commsim.workload.training.plan import TrainingPlan, _check_read, _runs_again

F, B = Work.F, Work.B
DEFAULT: dict[str, Any] = {
    "model": {**SMALL, "heads": 4},
    "batch": {"global": 32, "micro": 1},
    "parallel": {"dp": 8},
}


def planned(n: int = 8, **settings: Any) -> TrainingPlan:
    section = decode({**DEFAULT, **settings}, TrainingSection, "x")
    return plan_training(section, ToyCluster(n), where="x")


@pytest.mark.parametrize(
    ("data", "gathers", "reductions"),
    [
        ({}, 8, 4),
        ({"shard": "grad_op"}, 4, 4),
        ({"reshard": "step"}, 1, 4),
        ({"reshard": "microbatch"}, 8, 4),
        ({"no_sync": True}, 8, 1),
        ({"no_sync": False}, 8, 4),
        ({"no_sync": True, "reshard": "step"}, 1, 1),
    ],
)
def test_how_often_four_microbatches_gather_and_reduce(
    data: dict[str, Any], gathers: int, reductions: int
) -> None:
    """Each gathers for its forward and its backward, or once if it stays whole in between."""
    plan = planned(data_parallel={"kind": "fsdp", **data})
    assert (plan.microbatches, plan.parameter_gathers) == (4, gathers)
    assert plan.gradient_reductions == reductions
    assert plan.adds_up_whole == (reductions == 1)
    one = planned(data_parallel={"kind": "fsdp", **data}, batch={"global": 8, "micro": 1})
    assert (one.microbatches, one.gradient_reductions, one.adds_up_whole) == (1, 1, False)


@pytest.mark.parametrize(
    ("parallel", "groups", "sharers"),
    [
        ({"dp": 8}, 1, 8), ({"tp": 4, "dp": 2}, 2, 2), ({"tp": 2, "cp": 2, "dp": 2}, 3, 4),
        ({"tp": 4, "cp": 2}, 3, 2), ({"tp": 2, "pp": 4}, 2, 1), ({"pp": 2, "dp": 4}, 2, 4),
        ({"pp": 2, "dp": 4, "schedule": "dualpipe"}, 2, 8),
    ],
)  # fmt: skip
def test_a_rank_talks_in_a_group_per_axis_that_is_split_and_one_of_replicas(
    parallel: dict[str, Any], groups: int, sharers: int
) -> None:
    plan = planned(parallel=parallel)
    assert (plan.communicators, plan.sharers) == (groups, sharers)
    assert plan.agree_at_the_end == ("schedule" in parallel)


@pytest.mark.parametrize(("whole", "ep", "sharers"), [
    (False, 2, 2), (False, 4, 1), (True, 2, 4), (True, 8, 1),
])  # fmt: skip
def test_who_shares_an_expert(whole: bool, ep: int, sharers: int) -> None:
    """Of 8 ranks with tp 2, four replicas; whole experts lie on all eight."""
    parallel: dict[str, Any] = {"dp": 4, "tp": 2, "ep": ep}
    if whole:
        parallel |= {"etp": 1, "sequence_parallel": True}
    model = {**DEFAULT["model"], "experts": {"experts": 8, "top_k": 2, "expert_ffn": 8}}
    assert planned(parallel=parallel, model=model).expert_sharers == sharers


@pytest.mark.parametrize(
    ("data", "every", "overlaps"),
    [
        ({}, False, True), ({"no_sync": False}, True, True), ({"overlap": False}, False, False),
        ({"kind": "zero", "stage": 1}, False, True), ({"kind": "zero", "stage": 2}, True, True),
        ({"kind": "zero", "stage": 2, "no_sync": False}, True, True),
    ],
)  # fmt: skip
def test_when_buckets_are_reduced(data: dict[str, Any], every: bool, overlaps: bool) -> None:
    plan = planned(data_parallel=data)
    assert (plan.reduces_every_microbatch, plan.overlaps_reductions) == (every, overlaps)


def test_the_two_ends_of_dualpipe_reduce_behind_the_last_microbatch() -> None:
    plan = planned(parallel={"pp": 2, "dp": 4, "schedule": "dualpipe"})
    assert (plan.reduces_every_microbatch, plan.overlaps_reductions) == (False, False)


@pytest.mark.parametrize(
    ("batch", "data", "count"),
    [
        ({"global": 32, "micro": 1}, {}, 4), ({"global": 32, "micro": 2}, {}, 2),
        ({"global": 16, "micro": 2}, {}, 1),
        ({"global": 28, "micro": 1}, {"kind": "parameter_server"}, 4),
        ({"global": 12, "micro": 2}, {"kind": "parameter_server", "servers": 2}, 1),
        ({"global": 3, "micro": 1}, {"kind": "parameter_server", "servers": 7}, 3),
    ],
)  # fmt: skip
def test_microbatches_are_what_each_worker_gets(
    batch: dict[str, int], data: dict[str, Any], count: int
) -> None:
    assert planned(batch=batch, data_parallel=data).microbatches == count


@pytest.mark.parametrize(
    ("batch", "data", "said"),
    [
        ({"global": 30, "micro": 1}, {}, "global 30 does not divide by dp=8 × micro=1 = 8"),
        ({"global": 24, "micro": 2}, {}, "by dp=8 × micro=2 = 16 sequences. Give a multiple of 16"),
        ({"global": 32, "micro": 1}, {"kind": "parameter_server"},
         "global 32 does not divide by workers=7 × micro=1 = 7"),
        ({"global": 32, "micro": 1}, {"kind": "parameter_server", "servers": 8},
         "8 servers of dp=8 ranks leave no worker"),
    ],
)  # fmt: skip
def test_a_batch_that_does_not_divide_is_refused(
    batch: dict[str, int], data: dict[str, Any], said: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        planned(batch=batch, data_parallel=data)
    assert said in str(caught.value)


def test_a_file_has_the_ranks_stages_and_microbatches_of_the_layout() -> None:
    read = make_schedule("1f1b", 2, 4, where="x")
    _check_read(read, 2, 4, "x")
    for pp, microbatches in ((1, 4), (4, 4), (2, 3), (2, 5)):
        with pytest.raises(ScenarioError) as caught:
            _check_read(read, pp, microbatches, "x")
        assert str(caught.value) == (
            "x: 1f1b has 2 ranks, 2 stages and 4 microbatches; the layout has"
            f" pp={pp} and {microbatches} microbatches."
        )
    rows = tuple(tuple(Action(w, s, 0) for w in (F, B)) for s in (0, 1))
    odd = Schedule("odd.csv", rows, (0, 1, 1), ((0, 1, 2),))
    with pytest.raises(ScenarioError, match=r"odd.csv has 2 ranks, 3 stages and 1 microbatches"):
        _check_read(odd, 2, 1, "x")


@pytest.mark.parametrize(
    ("how", "again"),
    [
        ({}, [True] * 6),
        ({"recompute_every": 1}, [True] * 6),
        ({"recompute_every": 2}, [False, True] * 3),
        ({"recompute_every": 3}, [False, False, True] * 2),
        ({"recompute_first": 2}, [True, True, False] * 2),
        ({"recompute_first": 1}, [True, False, False] * 2),
    ],
)
def test_which_layers_run_again(how: dict[str, int], again: list[bool]) -> None:
    """Six layers in two stages of three: each so many-th of all, or the first of each stage."""
    section = decode({**DEFAULT, "recompute": "full", **how}, TrainingSection, "x")
    assert [_runs_again(section, layer, layer % 3) for layer in range(6)] == again
    model = {**DEFAULT["model"], "layers": 6}
    parallel = {"pp": 2, "dp": 4, "layers_per_stage": [3, 3]}
    plan = planned(model=model, parallel=parallel, recompute="full", **how)
    assert plan.recomputed == sum(again) / 6


@pytest.mark.parametrize(
    ("parallel", "boundary"),
    [
        ({"pp": 2, "dp": 4}, 256), ({"pp": 2, "tp": 2, "dp": 2}, 256),
        ({"pp": 2, "tp": 4, "scatter_gather": True}, 64),
        ({"pp": 2, "tp": 2, "dp": 2, "sequence_parallel": True}, 128),
    ],
)  # fmt: skip
def test_a_boundary_is_two_bytes_for_each_of_16_tokens_of_8(
    parallel: dict[str, Any], boundary: int
) -> None:
    assert planned(parallel=parallel).boundary == boundary


@pytest.mark.parametrize(
    ("parallel", "tied", "size"),
    [
        ({"pp": 2, "dp": 4}, True, 32 * 8 * 4), ({"pp": 2, "dp": 4}, False, 0),
        ({"pp": 2, "tp": 4}, True, 8 * 8 * 4), ({"dp": 8}, True, 0),
        ({"pp": 2, "dp": 4, "schedule": "zb_v"}, True, 0),
        ({"pp": 2, "dp": 4, "schedule": "dualpipe"}, True, 0),
    ],
)  # fmt: skip
def test_a_table_that_two_devices_hold_is_reduced_between_them(
    parallel: dict[str, Any], tied: bool, size: int
) -> None:
    """32 entries of 8, by tp, in fp32 gradients."""
    model = {**DEFAULT["model"], "tied_embeddings": tied}
    assert planned(model=model, parallel=parallel).tied_bytes == size
    uneven = planned(model={**model, "vocab": 33}, parallel={"pp": 2, "tp": 4})
    assert uneven.tied_bytes == (9 * 8 * 4 if tied else 0)


def test_types_on_the_wire_are_those_of_the_precision() -> None:
    assert (planned().dtype, planned().gradient_dtype) == ("bf16", "fp32")
    assert planned(precision="fp32").width == 4
    half = planned(data_parallel={"gradients": "bf16"})
    assert (half.gradient_dtype, half.gradient_width, half.width) == ("bf16", 2, 2)


def test_units_gathered_ahead_are_those_asked_for_or_the_stack_s() -> None:
    for prefetch in (0, 1, 3):
        plan = planned(data_parallel={"kind": "fsdp", "prefetch": prefetch})
        assert [plan.gathers_ahead(forward=way) for way in (True, False)] == [prefetch] * 2


def test_a_split_is_what_its_settings_say() -> None:
    ring, heads = (
        planned(parallel={"dp": 4, "cp": 2, "context": how}) for how in ("ring", "ulysses")
    )
    assert (ring.split.ulysses, heads.split.ulysses) == (False, True)
    assert (ring.split.cp, ring.split.micro, ring.split.seq, ring.split.tokens) == (2, 1, 16, 8)
    assert planned().split.loss_parallel
    assert not planned(compute={"stack": "kempnerforge"}).split.loss_parallel


@pytest.mark.parametrize("skew", [1, 1.5, 2])
def test_experts_that_get_more_than_the_mean_exchange_unevenly(skew: float) -> None:
    model = {**DEFAULT["model"], "experts": {"experts": 8, "top_k": 2, "expert_ffn": 8}}
    plan = planned(parallel={"dp": 8, "ep": 8, "expert_skew": skew}, model=model)
    anything: Any = None
    compiler = plan.compiler(anything, load=1.25)
    assert (compiler.skewed, compiler.load) == (skew > 1, 1.25)
    assert plan.compiler(anything).load == 1.0
    assert (compiler.tp_overlap, compiler.context, compiler.width) == ("none", "ring", 2)


def test_the_only_layer_is_all_of_them() -> None:
    model = {**DEFAULT["model"], "layers": 1}
    assert planned(model=model, parallel={"dp": 8}, recompute="full").recomputed == 1.0
