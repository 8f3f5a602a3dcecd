"""Training that cannot be is refused with its setting, and what was assumed is noted."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from helpers.toy_cluster import GPU, SMALL, ToyCluster, training
from msgspec.structs import replace

from commsim.cluster.nodes.gpus import GpuSpec
from commsim.errors import ScenarioError

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"parallel": {"dp": 2}}, "parallel: dp=2 = 2 ranks, the cluster has 4 GPUs"),
    ({"parallel": {"dp": 1}}, "parallel: dp=1 = 1 rank, the cluster has 4 GPUs"),
    ({"parallel": {"dp": 2, "tp": 4, "pp": 2}}, "tp=4 × pp=2 × dp=2 = 16 ranks, the cluster has 4"),
    ({"parallel": {"tp": 4}}, "parallel.tp: 2 heads do not divide by tp = 4"),
    ({"parallel": {"dp": 4, "ep": 2}}, "parallel.ep: 2, but the model has no experts"),
    ({"parallel": {"dp": 4, "ep": 3}}, "ep=3 does not divide dp=4 × cp=1 = 4 replicas"),
    ({"parallel": {"cp": 4, "context": "ulysses"}}, "2 heads / tp=1 = 2 do not divide by cp=4"),
    ({"parallel": {"cp": 4, "context": "rings"}}, "'rings' is not one of: ring, ulysses"),
    ({"parallel": {"dp": 4, "virtual_stages": 2}}, "virtual_stages: changes nothing where pp is 1"),
    (
        {"parallel": {"pp": 2, "dp": 2, "schedule": "1f1b", "virtual_stages": 2}},
        "1f1b has 1 stage per device",
    ),
    ({"parallel": {"dp": 4, "sequence_parallel": True}}, "give tp above 1"),
    (
        {"parallel": {"tp": 2, "pp": 2, "sequence_parallel": True, "scatter_gather": True}},
        "parallel.scatter_gather: with sequence_parallel a boundary is divided already",
    ),
    ({"parallel": {"pp": 4, "schedule": "zb_h9"}}, "parallel.schedule: no schedule 'zb_h9'"),
    ({"parallel": {"pp": 4, "schedule": "none.csv"}}, "none.csv: there is no such file"),
    (
        {"parallel": {"pp": 4, "layers_per_stage": [1, 1, 1]}},
        "parallel.layers_per_stage: 1 + 1 + 1 = 3 layers on 3 stages, the model has 4 layers",
    ),
    (
        {
            "parallel": {
                "dp": 2,
                "pp": 2,
                "layers_per_stage": [1, 1, 1],
                "schedule": "interleaved_1f1b",
                "virtual_stages": 2,
            }
        },
        "= 3 layers on 3 stages, the model has 4 layers and pp is 2 × 2 virtual stages",
    ),
    (
        {"parallel": {"pp": 4, "layers_per_stage": [2, 0, 1, 1]}},
        "parallel.layers_per_stage: stage 1 has no layer. Only the first",
    ),
    (
        {"parallel": {"pp": 4}, "model": {**SMALL, "layers": 1}},
        "parallel.pp: 1 layers are too few for 4 stages: only the first",
    ),
    (
        {
            "parallel": {"pp": 4, "schedule": "interleaved_1f1b", "virtual_stages": 3},
            "model": {**SMALL, "layers": 9},
        },
        "9 layers are too few for 4 stages × 3 virtual stages",
    ),
    ({"data_parallel": {"kind": "zero"}}, "data_parallel.stage is missing"),
    ({"data_parallel": {"kind": "zero", "stage": 4}}, "data_parallel.stage"),
    ({"data_parallel": {"kind": "hsdp"}}, "data_parallel.shard: kind hsdp needs the number"),
    ({"data_parallel": {"kind": "hsdp", "shard": 3}}, "shard: 3 does not divide dp=4 × cp=1 = 4"),
    ({"data_parallel": {"kind": "fsdp", "shard": 2}}, "use kind: hsdp"),
    ({"data_parallel": {"kind": "fsdp", "stage": 3}}, "stage: not a setting of kind fsdp"),
    ({"data_parallel": {"kind": "dpp"}}, "'dpp' is not one of: ddp"),
    ({"data_parallel": {"prefetch": 2}}, "data_parallel.prefetch: not a setting of kind ddp"),
    ({"data_parallel": {"kind": "dataparallel"}, "parallel": {"dp": 2, "tp": 2}}, "leave tp at 1"),
    (
        {"data_parallel": {"kind": "parameter_server", "servers": 4}},
        "4 servers of dp=4 ranks leave no worker",
    ),
    ({"parallel": {"dp": 4, "context": "ulysses"}}, "context: changes nothing where cp is 1"),
    ({"parallel": {"dp": 4, "tp_overlap": "full"}}, "tp_overlap: changes nothing where tp is 1"),
    ({"parallel": {"dp": 2, "tp": 2, "scatter_gather": True}}, "nothing where pp is 1"),
    ({"parallel": {"dp": 4, "expert_skew": 2}}, "expert_skew: changes nothing where ep is 1"),
    (
        {
            "parallel": {"dp": 4, "ep": 2, "expert_skew": 3},
            "model": {**SMALL, "experts": {"experts": 4, "top_k": 2, "expert_ffn": 16}},
        },
        "expert_skew: 3 times the mean, but with ep=2 a rank that gets every token has 2 times",
    ),
    ({"data_parallel": {"kind": "fsdp", "overlap": False}}, "overlap: only ddp and zero stages"),
    ({"data_parallel": {"kind": "zero", "stage": 3, "bucket": "1MiB"}}, "bucket: only ddp and"),
    ({"data_parallel": {"kind": "zero", "stage": 1, "prefetch": 2}}, "prefetch: 2: stages 1 and 2"),
    (
        {"parallel": {"pp": 2, "dp": 2, "schedule": "dualpipe"}, "data_parallel": {"kind": "fsdp"}},
        "dualpipe runs the two copies of a part in different orders",
    ),
    (
        {
            "parallel": {"pp": 2, "dp": 2, "schedule": "dualpipe"},
            "data_parallel": {"no_sync": False},
        },
        "data_parallel.no_sync: dualpipe runs the two copies of a part in different orders",
    ),
    (
        {"data_parallel": {"kind": "zero", "stage": 2, "no_sync": True}},
        "data_parallel.no_sync: ZeRO-2 keeps no whole gradient",
    ),
    (
        {"parallel": {"dp": 4, "schedule": "zb_h1"}, "data_parallel": {"kind": "parameter_server"}},
        "parallel.schedule: zb_h1 changes nothing, as parameter_server has no pipeline",
    ),
    (
        {"recompute": "fully"},
        "'fully' is not one of: none, selective, selective_op, full. Did you mean 'full'",
    ),
    ({"precision": "fp7"}, "'fp7' is not one of"),
    ({"precision": "fp16"}, "precision: toy has no fp16; it has bf16, fp32"),
    ({"compute": {"efficiency": 0}}, "compute.efficiency"),
    ({"compute": {"efficiency": 1.1}}, "compute.efficiency"),
    (
        {"batch": {"global": 9, "micro": 1}},
        "batch: global 9 does not divide by dp=4 × micro=1 = 4 sequences",
    ),
    ({"steps": 1}, "steps"),
    ({"data_parallel": {"bucket": 25}}, "data_parallel.bucket: 25 has no unit"),
]


@pytest.mark.parametrize(("wrong", "words"), WRONG, ids=lambda value: str(value)[:40])
def test_what_cannot_be_is_refused_with_its_path(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        training(4, **wrong)
    assert words in str(caught.value)


def test_the_notes_name_defaults_and_what_is_left_out() -> None:
    notes = "\n".join(training(2).notes)
    for words in ("precision bf16", "gradients of 2 bytes", "25 MiB", "not causal", "left out"):
        assert words in notes
    assert "precision" not in "\n".join(
        note for note in training(2, precision="fp32").notes if note.startswith("defaults")
    )


class Mixed(ToyCluster):
    """A GPU with fp16 beside one without."""

    def gpu(self, rank: int) -> GpuSpec:
        return (
            replace(GPU, name="new", tflops=MappingProxyType({"bf16": 1.0, "fp16": 1.0}))
            if rank == 0
            else GPU
        )


def test_a_precision_must_be_there_on_every_kind_of_gpu() -> None:
    with pytest.raises(ScenarioError, match="precision: toy has no fp16; it has bf16, fp32"):
        training(2, cluster=Mixed(2), precision="fp16")


def test_settings_of_one_replica_are_said_to_change_nothing() -> None:
    for data, said in (({"bucket": "1MiB"}, True), ({"kind": "fsdp"}, True), ({}, False)):
        notes = "\n".join(training(1, data_parallel=data).notes)
        assert ("one replica, so there is nothing to shard or to reduce" in notes) == said
