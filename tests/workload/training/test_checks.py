"""Which settings of training go together and which do not, each limit from both sides."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.toy_cluster import SMALL

from commsim.errors import ScenarioError
from commsim.models import build_model
from commsim.sections import decode
from commsim.workload import TrainingSection
from commsim.workload.training.checks import check_context, check_experts, check_settings
from commsim.workload.training.section import ParallelSection, whole_experts

EXPERTS = {"experts": 8, "top_k": 2, "expert_ffn": 8}
HSDP = {"kind": "hsdp", "shard": 2}


def zero(stage: int, **how: Any) -> dict[str, Any]:
    return {"kind": "zero", "stage": stage, **how}


def refused(
    data: dict[str, Any] | None = None, parallel: dict[str, Any] | None = None, **settings: Any
) -> str:
    """Return what is said against settings, "" if nothing is."""
    base: dict[str, Any] = {"model": SMALL, "batch": {"global": 8, "micro": 1}, **settings}
    if data is not None:
        base["data_parallel"] = data
    if parallel is not None:
        base["parallel"] = parallel
    section = decode(base, TrainingSection, "t")
    try:
        check_settings(section, where="t")
    except ScenarioError as error:
        return str(error)
    return ""


HAS = {
    "ddp": "no_sync gradients",
    "zero": "no_sync gradients parameters stage offload prefetch",
    "fsdp": "no_sync gradients shard prefetch reshard",
    "hsdp": "no_sync gradients shard prefetch reshard",
    "dataparallel": "",
    "parameter_server": "gradients sync servers",
}
VALUES = {
    "no_sync": True, "gradients": "bf16", "parameters": "fp8", "stage": 1, "shard": "full",
    "offload": "cpu", "prefetch": True, "reshard": "step", "sync": True, "servers": 1,
}  # fmt: skip


@pytest.mark.parametrize("kind", HAS)
@pytest.mark.parametrize("name", VALUES)
def test_each_kind_has_its_own_settings(kind: str, name: str) -> None:
    said = refused({"kind": kind, name: VALUES[name]})
    assert (f"t.data_parallel.{name}: not a setting of kind {kind}" in said) == (
        name not in HAS[kind].split()
    )


def test_what_is_no_setting_of_a_kind_names_those_that_are() -> None:
    said = refused({"kind": "dataparallel", "no_sync": True})
    assert said == (
        "t.data_parallel.no_sync: not a setting of kind dataparallel; it has none of these. To"
        ' change the kind, replace all of it: --set "t.data_parallel={kind: dataparallel}".'
    )
    assert "; it has no_sync, gradients. To" in refused({"stage": 1})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"kind": "zero"}, "stage is missing"),
        (zero(1), ""), (zero(2), ""), (zero(3), ""), ({"kind": "fsdp"}, ""),
        (HSDP, ""),
        ({"kind": "hsdp"}, "hsdp needs the number of ranks"),
        ({"kind": "hsdp", "shard": "full"}, "hsdp needs the number of ranks"),
        ({"kind": "fsdp", "shard": "full"}, ""), ({"kind": "fsdp", "shard": "grad_op"}, ""),
        ({"kind": "fsdp", "shard": 2}, "For groups of 2 use kind: hsdp"),
        (zero(3, no_sync=True), "ZeRO-3 reduces every microbatch"),
        (zero(3, no_sync=False), "ZeRO-3 reduces every microbatch"),
        (zero(2, no_sync=True), "ZeRO-2 keeps no whole gradient"),
        (zero(2, no_sync=False), ""), (zero(1, no_sync=True), ""), (zero(1, no_sync=False), ""),
        ({"kind": "fsdp", "no_sync": True}, ""), ({"no_sync": True}, ""),
        ({"kind": "fsdp", "shard": "grad_op", "reshard": "step"}, "shard grad_op says already"),
        ({"kind": "fsdp", "shard": "full", "reshard": "step"}, ""),
        (zero(2, offload="cpu"), ""),
        (zero(3, offload="cpu"), "built for stages 1 and 2. Take stage: 2"),
        # buckets are of ddp and of stages 1 and 2
        *[({"kind": "fsdp", name: value}, f"data_parallel.{name}: only ddp and zero stages 1 and 2")
          for name, value in (("bucket", "1MiB"), ("first_bucket", "1MiB"), ("overlap", False))],
        (zero(3, bucket="1MiB"), "data_parallel.bucket: only ddp"),
        ({"kind": "dataparallel", "overlap": True}, "data_parallel.overlap: only ddp"),
        (zero(2, bucket="1MiB", first_bucket="1MiB", overlap=True), ""),
        ({"bucket": "1MiB", "first_bucket": "1MiB", "overlap": False}, ""),
        # units ahead are of stage 3 and fsdp
        (zero(1, prefetch=0), "prefetch: 0: stages 1 and 2"), (zero(2, prefetch=2), "prefetch: 2"),
        (zero(1, prefetch=True), ""), (zero(2, prefetch=False), ""), (zero(3, prefetch=2), ""),
        ({"kind": "fsdp", "prefetch": 2}, ""),
    ],
)  # fmt: skip
def test_what_goes_with_a_kind_of_data_parallelism(data: dict[str, Any], said: str) -> None:
    found = refused(data, {"dp": 8})
    assert said in found
    assert bool(said) == bool(found)


@pytest.mark.parametrize(
    ("precision", "data", "said"),
    [
        ("bf16", zero(1), "whose products take none"), ("fp8", zero(1), ""), ("fp8", zero(2), ""),
        ("fp8", zero(3), "built for stages 1 and 2 without offload"),
        ("fp8", zero(2, offload="cpu"), "built for stages 1 and 2 without offload"),
    ],
)  # fmt: skip
def test_weights_in_a_byte(precision: str, data: dict[str, Any], said: str) -> None:
    found = refused({**data, "parameters": "fp8"}, {"dp": 8}, precision=precision)
    assert said in found
    assert bool(said) == bool(found)
    assert not refused(data, {"dp": 8}, precision="bf16")


NEEDS: dict[str, tuple[Any, dict[str, int]]] = {
    "tp_overlap": ("ring", {"tp": 2}),
    "virtual_stages": (2, {"pp": 2}),
    "scatter_gather": (True, {"tp": 2, "pp": 2}),
    "context": ("ulysses", {"cp": 2}),
    "dispatcher": ("deepep", {"ep": 2}),
    "etp": (2, {"tp": 2, "ep": 2}),
    "expert_skew": (1.5, {"ep": 2}),
    "expert_overlap": (True, {"ep": 2}),
    "shared_overlap": (True, {"ep": 2}),
}


@pytest.mark.parametrize("name", NEEDS)
def test_what_changes_nothing_is_refused_and_taken_where_its_axes_are_split(name: str) -> None:
    value, axes = NEEDS[name]
    degrees = {"dp": 8, **axes}
    assert not refused(parallel={**degrees, name: value})
    assert not refused(parallel={**dict.fromkeys(axes, 1), "dp": 8})
    for axis in axes:
        said = refused(parallel={**degrees, axis: 1, name: value})
        assert f"t.parallel.{name}: changes nothing where {axis} is 1" in said


@pytest.mark.parametrize(
    ("parallel", "said"),
    [
        ({"ep": 2, "expert_skew": 2}, ""),
        ({"ep": 2, "expert_skew": 2.1}, "Give at most 2"),
        ({"ep": 4, "expert_skew": 3}, ""),
        ({"ep": 2, "expert_skew": 1.5, "expert_capacity": 1.0}, "every expert takes the same"),
        ({"ep": 2, "expert_skew": 1, "expert_capacity": 1.0}, ""),
        ({"ep": 8}, ""), ({"ep": 3}, "ep=3 does not divide dp=8 × cp=1 = 8"),
        ({"ep": 16}, "ep=16 does not divide dp=8 × cp=1 = 8"), ({"ep": 16, "cp": 2}, ""),
        ({"ep": 2, "tp": 4, "etp": 4}, ""),
        ({"ep": 2, "tp": 4, "etp": 2}, "etp: 2 divides experts by neither 1 nor tp=4"),
        ({"ep": 2, "tp": 4, "etp": 1}, "add sequence_parallel: true"),
        ({"ep": 2, "tp": 4, "etp": 1, "sequence_parallel": True}, ""),
        ({"ep": 64, "tp": 4, "etp": 1, "cp": 2, "sequence_parallel": True}, ""),
        ({"ep": 3, "tp": 4, "etp": 1, "sequence_parallel": True},
         "ep=3 does not divide tp=4 × dp=8 × cp=1 = 32 ranks"),
        ({"ep": 2, "expert_overlap": True, "pp": 2}, ""),
        ({"ep": 2, "expert_overlap": True, "pp": 2, "virtual_stages": 2}, ""),
        ({"ep": 2, "expert_overlap": True, "pp": 2, "schedule": "gpipe"}, "not of gpipe"),
        ({"ep": 2, "expert_overlap": False, "pp": 2, "schedule": "gpipe"}, ""),
        ({"sequence_parallel": True}, "give tp above 1"),
        ({"sequence_parallel": True, "tp": 2}, ""),
        ({"schedule": "none"}, "no schedule 'none'"),
    ],
)  # fmt: skip
def test_what_goes_with_the_axes(parallel: dict[str, Any], said: str) -> None:
    found = refused(parallel={"dp": 8, **parallel})
    assert said in found
    assert bool(said) == bool(found)


@pytest.mark.parametrize(
    ("tp", "etp", "whole"), [(1, 1, False), (2, 1, True), (2, 2, False), (2, None, False)]
)
def test_experts_are_whole_where_tensor_parallelism_is_around_attention_alone(
    tp: int, etp: int | None, whole: bool
) -> None:
    assert whole_experts(ParallelSection(tp=tp, etp=etp)) == whole


@pytest.mark.parametrize("kind", ["dataparallel", "parameter_server"])
def test_who_copies_the_whole_model_has_replicas_alone(kind: str) -> None:
    assert not refused({"kind": kind}, {"dp": 8})
    for axis in ("tp", "pp", "cp", "ep"):
        said = refused({"kind": kind}, {"dp": 8, axis: 2})
        assert f"t.parallel.{axis}: {kind} copies the whole model" in said
    said = refused({"kind": kind}, {"dp": 8, "schedule": "gpipe"})
    assert f"schedule: gpipe changes nothing, as {kind} has no pipeline" in said
    assert not refused({}, {"dp": 8, "tp": 2, "schedule": "gpipe"})


@pytest.mark.parametrize(
    ("data", "parallel", "said"),
    [
        *[(data, {"schedule": "dualpipe"}, "dualpipe runs the two copies of a part in different")
          for data in ({"kind": "fsdp"}, HSDP, zero(3), {"no_sync": False})],
        *[(data, {"schedule": "dualpipe"}, "") for data in ({}, zero(1), {"no_sync": True})],
        ({"kind": "fsdp"}, {"schedule": "dualpipev"}, ""),
        ({"no_sync": False}, {"schedule": "dualpipev"}, ""),
        (HSDP, {"ep": 2}, "hsdp with ep=2"), (HSDP, {"ep": 1}, ""),
        ({"kind": "fsdp"}, {"ep": 2}, ""),
        ({"kind": "hsdp", "shard": 3}, {}, "shard: 3 does not divide dp=8 × cp=1 = 8 replicas"),
        ({"kind": "hsdp", "shard": 8}, {}, ""), ({"kind": "hsdp", "shard": 16}, {"cp": 2}, ""),
        ({"kind": "fsdp"}, {"ep": 2, "expert_overlap": True}, "units gathered one by one"),
        (zero(3), {"ep": 2, "expert_overlap": True}, "units gathered one by one"),
        (zero(1), {"ep": 2, "expert_overlap": True}, ""),
    ],
)  # fmt: skip
def test_what_goes_with_both(data: dict[str, Any], parallel: dict[str, Any], said: str) -> None:
    found = refused(data, {"dp": 8, "pp": 2, **parallel})
    assert said in found
    assert bool(said) == bool(found)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"recompute": ["mlp", "mlp"]}, "recompute: mlp, mlp: lists a module twice"),
        ({"recompute": []}, "recompute: no modules"),
        ({"recompute": ["mlp", "moe"]}, ""), ({"recompute": "full"}, ""),
        ({"recompute_every": 2}, "t.recompute_every: changes nothing, as recompute is none"),
        ({"recompute_first": 2}, "t.recompute_first: changes nothing, as recompute is none"),
        ({"recompute_every": 2, "recompute": "full"}, ""),
        ({"recompute_first": 2, "recompute": ["mlp"]}, ""),
        ({"recompute_every": 2, "recompute_first": 2, "recompute": "full"}, "give one of them"),
    ],
)  # fmt: skip
def test_what_runs_again_is_said_once(settings: dict[str, Any], said: str) -> None:
    found = refused(**settings)
    assert said in found
    assert bool(said) == bool(found)


def against_the_model(model: dict[str, Any], parallel: dict[str, Any], **compute: Any) -> str:
    """Return what is said against settings for a model of eight heads, "" if nothing is."""
    base = {
        "model": {**SMALL, "heads": 8, "hidden": 16, **model}, "parallel": parallel,
        "batch": {"global": 8, "micro": 1}, "compute": {"stack": "megatron", **compute},
    }  # fmt: skip
    section = decode(base, TrainingSection, "t")
    try:
        made = build_model(section.model, where="t")
        check_context(section, made, where="t")
        check_experts(section, made, where="t")
    except ScenarioError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("parallel", "said"),
    [
        ({"context": "ulysses", "cp": 4, "tp": 2}, ""), ({"context": "ulysses", "cp": 8}, ""),
        ({"context": "ulysses", "cp": 8, "tp": 2},
         "8 heads / tp=2 = 4 do not divide by cp=8. Take ring, or a divisor of 4"),
        ({"context": "ring", "cp": 8, "tp": 2}, ""),
        ({"scatter_gather": True, "sequence_parallel": True}, "a boundary is divided already"),
        ({"scatter_gather": True}, ""), ({"sequence_parallel": True}, ""),
        ({"expert_capacity": 1.0}, "expert_capacity: 1, but the model has no experts"),
        ({"shared_overlap": True}, "the model has no shared experts"),
    ],
)  # fmt: skip
def test_what_a_dense_model_takes(parallel: dict[str, Any], said: str) -> None:
    found = against_the_model({}, parallel)
    assert said in found
    assert bool(said) == bool(found)
    assert not against_the_model({}, {}, cuda_graph="full")


def test_what_a_model_with_experts_takes() -> None:
    routed = {"experts": EXPERTS}
    shared = {"experts": {**EXPERTS, "shared_expert_ffn": 4}}
    assert not against_the_model(routed, {"expert_capacity": 1.0})
    assert "no shared experts" in against_the_model(routed, {"shared_overlap": True})
    assert not against_the_model(shared, {"shared_overlap": True})
    assert "so a step is no one graph" in against_the_model(routed, {}, cuda_graph="full")
    assert not against_the_model(routed, {}, cuda_graph="experts")
    assert not against_the_model(routed, {"expert_capacity": 1.0}, cuda_graph="full")
    assert not against_the_model(routed, {}, cuda_graph="full", stack="nemo-26.06")
