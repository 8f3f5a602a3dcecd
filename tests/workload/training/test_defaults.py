"""What a scenario leaves open follows from its software stack, and is named."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.toy_cluster import SMALL

from commsim.cluster import Cluster
from commsim.cluster.nodes.gpus import gpu_spec
from commsim.errors import ScenarioError
from commsim.models import stack_constants, stack_names
from commsim.models.constants import stack_on
from commsim.sections import decode
from commsim.workload import TrainingSection, build_training
from commsim.workload.training.defaults import StackDefaults, gradient_precision, with_defaults


def section(**settings: Any) -> TrainingSection:
    base = {"model": SMALL, "batch": {"global": 64, "micro": 1}, "parallel": {"dp": 64}}
    return decode({**base, **settings}, TrainingSection, "x")


def filled(**settings: Any) -> TrainingSection:
    return with_defaults(section(**settings), where="x")[0]


@pytest.mark.parametrize(
    ("data", "stack"),
    [
        ({}, "megatron"),
        ({"kind": "zero", "stage": 1}, "megatron"),
        ({"kind": "zero", "stage": 3}, "deepspeed"),
        ({"kind": "fsdp"}, "torchtitan"),
        ({"kind": "hsdp", "shard": 8}, "torchtitan"),
        ({"kind": "dataparallel"}, "torch-fsdp"),
    ],
)
def test_the_stack_goes_with_how_replicas_are_kept_equal(data: dict[str, Any], stack: str) -> None:
    found, taken = with_defaults(section(data_parallel=data), where="x")
    assert found.compute.stack == stack
    assert taken.chosen_by.startswith(data.get("kind", "ddp"))
    named = section(data_parallel=data, compute={"stack": stack})
    assert with_defaults(named, where="x") == (found, StackDefaults("", taken.settings))


@pytest.mark.parametrize(("dp", "entries"), [(8, 40_000_000), (64, 64_000_000)])
def test_megatron_s_buckets_grow_with_the_replicas(dp: int, entries: int) -> None:
    """max(40e6, 1e6 x dp) fp32 gradients."""
    data = filled(parallel={"dp": dp}).data_parallel
    assert (data.bucket, data.first_bucket, data.gradients) == (4 * entries, 4 * entries, "fp32")


def test_torch_s_buckets() -> None:
    data = filled(compute={"stack": "megatron-2020"}, precision="fp16").data_parallel
    assert (data.bucket, data.first_bucket, data.gradients) == (25 * 2**20, 2**20, "fp16")


def test_what_is_given_stays() -> None:
    data = {"bucket": "1MiB", "gradients": "bf16", "overlap": False}
    found = filled(data_parallel=data).data_parallel
    assert (found.bucket, found.first_bucket) == (2**20, 2**20)
    assert (found.gradients, found.overlap) == ("bf16", False)


def test_products_overlap_tensor_parallel_collectives_where_the_stack_does() -> None:
    parallel = {"dp": 32, "tp": 2, "sequence_parallel": True}
    assert filled(parallel=parallel, compute={"stack": "nemo"}).parallel.tp_overlap == "ring"
    assert filled(parallel=parallel).parallel.tp_overlap == "none"
    whole = {"dp": 32, "tp": 2}
    assert filled(parallel=whole, compute={"stack": "nemo"}).parallel.tp_overlap == "none"


def settings_taken(**settings: Any) -> tuple[str, ...]:
    return with_defaults(section(**settings), where="x")[1].settings


MOE = {**SMALL, "experts": {"experts": 16, "top_k": 2, "expert_ffn": 8}}


def test_what_concerns_tensor_parallelism_is_named_where_there_is_some() -> None:
    for tp in (1, 2, 3):
        taken = settings_taken(parallel={"dp": 64, "tp": tp, "sequence_parallel": tp > 1})
        assert ("tp_overlap none" in taken) == (tp > 1)
        assert filled(parallel={"dp": 64, "tp": tp}).parallel.tp_overlap == "none"
    alone = {"dp": 64, "sequence_parallel": True}
    assert filled(parallel=alone, compute={"stack": "nemo"}).parallel.tp_overlap == "none"
    given = {"dp": 32, "tp": 2, "sequence_parallel": True, "tp_overlap": "full"}
    assert not any(one.startswith("tp_overlap") for one in settings_taken(parallel=given))
    assert filled(parallel=given, compute={"stack": "nemo"}).parallel.tp_overlap == "full"


def test_a_stack_s_graphs_are_taken_unless_some_are_named() -> None:
    assert filled(compute={"stack": "nemo"}).compute.cuda_graph == "experts"
    assert "cuda_graph experts" in settings_taken(compute={"stack": "nemo"})
    given = {"stack": "nemo", "cuda_graph": "none"}
    assert filled(compute=given).compute.cuda_graph == "none"
    assert not any(one.startswith("cuda_graph") for one in settings_taken(compute=given))
    assert filled().compute.cuda_graph is None
    assert not any(one.startswith("cuda_graph") for one in settings_taken())


@pytest.mark.parametrize(
    ("data", "buckets"),
    [({}, True), ({"kind": "zero", "stage": 1}, True), ({"kind": "zero", "stage": 2}, True),
     ({"kind": "zero", "stage": 3}, False), ({"kind": "fsdp"}, False)],
)  # fmt: skip
def test_buckets_are_for_replicas_that_hold_whole_parameters(
    data: dict[str, Any], buckets: bool
) -> None:
    found = filled(data_parallel=data).data_parallel
    assert (found.bucket is not None) == (found.first_bucket is not None) == buckets
    assert (found.overlap is not None) == buckets
    taken = settings_taken(data_parallel=data)
    assert ("overlap true" in taken) == any(one.startswith("bucket ") for one in taken) == buckets


@pytest.mark.parametrize("ep", [1, 2, 4])
def test_what_concerns_experts_is_taken_where_they_are_spread(ep: int) -> None:
    how: dict[str, Any] = {"model": MOE, "compute": {"stack": "nemo"}}
    found = filled(parallel={"dp": 64, "ep": ep}, **how).parallel
    assert found.dispatcher == ("deepep" if ep > 1 else None)
    taken = settings_taken(parallel={"dp": 64, "ep": ep}, **how)
    assert ("dispatcher deepep" in taken) == (ep > 1)
    given = {"dp": 64, "ep": ep, "dispatcher": "alltoall"}
    assert filled(parallel=given, **how).parallel.dispatcher == "alltoall"
    assert not any(one.startswith("dispatcher") for one in settings_taken(parallel=given, **how))


def test_a_stack_that_pairs_does_so_where_schedule_and_replicas_allow_it() -> None:
    def pairs(data: dict[str, Any], **parallel: Any) -> tuple[bool | None, bool]:
        how: dict[str, Any] = {
            "model": MOE, "compute": {"stack": "nemo-26.06"}, "data_parallel": data,
            "parallel": {"dp": 32, "ep": 2, "pp": 2, **parallel},
        }  # fmt: skip
        return filled(**how).parallel.expert_overlap, "expert_overlap true" in settings_taken(**how)

    assert pairs({}) == (True, True)
    assert pairs({}, schedule="interleaved_1f1b", virtual_stages=2) == (True, True)
    assert pairs({}, schedule="gpipe") == (False, False)
    assert pairs({"kind": "fsdp"}) == (False, False)
    assert pairs({}, expert_overlap=False) == (False, False)
    assert pairs({}, expert_overlap=True) == (True, False)
    assert pairs({}, ep=1) == (None, False)
    other: dict[str, Any] = {"model": MOE, "parallel": {"dp": 32, "ep": 2, "pp": 2}}
    assert filled(**other).parallel.expert_overlap is False


def test_a_first_bucket_is_no_larger_than_a_bucket() -> None:
    """torch's: 25 MiB, the first 1 MiB; Megatron's grow by dp x cp."""
    for bucket, first in ((2**19, 2**19), (2**20, 2**20), (2**21, 2**20)):
        data = {"bucket": f"{bucket}B"}
        found = filled(compute={"stack": "megatron-2020"}, data_parallel=data).data_parallel
        assert (found.bucket, found.first_bucket) == (bucket, first)
    wide = filled(parallel={"dp": 32, "cp": 3}).data_parallel
    assert wide.bucket == 4 * 96_000_000


@pytest.mark.parametrize(
    ("data", "pp", "no_sync", "reshard"),
    [
        ({}, 1, False, "microbatch"),
        ({}, 2, True, "step"),
        ({"shard": "grad_op"}, 1, False, None),
        ({"shard": "grad_op"}, 2, True, None),
        ({"no_sync": False, "reshard": "microbatch"}, 2, False, "microbatch"),
    ],
)
def test_when_whole_parameters_are_given_up(
    data: dict[str, Any], pp: int, no_sync: bool, reshard: str | None
) -> None:
    how: dict[str, Any] = {"data_parallel": {"kind": "fsdp", **data}, "parallel": {"pp": pp}}
    found = filled(**how).data_parallel
    assert (found.no_sync, found.reshard) == (no_sync, reshard)
    taken = settings_taken(**how)
    assert ("no_sync true" in taken) == (no_sync and "no_sync" not in data)
    assert ("reshard step" in taken) == (pp > 1 and not data)


@pytest.mark.parametrize(
    ("precision", "stack", "gradients"),
    [
        ("fp16", "megatron", "fp16"), ("fp32", "nemo", "fp32"), ("tf32", "nemo", "fp32"),
        ("bf16", "megatron", "fp32"), ("bf16", "nemo", "bf16"), ("fp8", "megatron", "fp32"),
        ("fp8", "nemo", "bf16"),
    ],
)  # fmt: skip
def test_gradients_are_reduced_in_what_the_stack_keeps_them_in(
    precision: str, stack: str, gradients: str
) -> None:
    assert gradient_precision(precision, stack_constants(stack)) == gradients
    taken = settings_taken(precision=precision, compute={"stack": stack})
    assert (f"gradients {gradients}" in taken) == (precision not in ("fp32", "tf32"))


def test_the_notes_name_the_defaults_taken() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=1)
    settings: dict[str, Any] = {"parallel": {"dp": 8}, "data_parallel": {"kind": "fsdp"}}
    notes = build_training(section(**settings), cluster).notes
    assert any("stack torchtitan, which goes with fsdp, gradients fp32" in n for n in notes)
    assert any("stack torchtitan (2025), attention fa2" in n for n in notes)
    assert [n for n in notes if n.startswith("stack: torchtitan goes with fsdp; another kind may")]
    named = section(**settings, compute={"stack": "torchtitan"})
    assert not [n for n in build_training(named, cluster).notes if n.startswith("stack:")]


def test_an_unknown_stack_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ScenarioError, match=r"compute\.stack: no software stack 'torchtian'"):
        filled(compute={"stack": "torchtian"})


@pytest.mark.parametrize("name", stack_names())
def test_every_stack_says_where_its_constants_are_from(name: str) -> None:
    stack = stack_constants(name)
    assert len(stack.source) > 10
    assert 2019 < stack.year < 2027
    assert stack.gradient_width in (2, 4)
    assert stack_on(name, gpu_spec("H100-SXM5-80GB")).attention in (
        "unfused",
        "fa1",
        "fa2",
        "cudnn",
    )
