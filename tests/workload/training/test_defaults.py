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
from commsim.workload.training.defaults import StackDefaults, with_defaults


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
