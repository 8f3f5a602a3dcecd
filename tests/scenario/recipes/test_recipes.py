"""Recipes that people have become scenarios with the same layout; what has no place is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from commsim.cli.main import call
from commsim.errors import ScenarioError
from commsim.scenario import read_recipe, scenario_from

TITAN = """
[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "8B"
[optimizer]
lr = 3e-4
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 4
tensor_parallel_degree = 2
enable_async_tensor_parallel = true
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
"""
SCRIPT = """#!/bin/bash
TP=${TP:-8}
PP=4
ARGS=(
    --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64
    --group-query-attention --num-query-groups 8   # as Llama has it
    --seq-length 4096 --position-embedding-type rope --swiglu
    --untie-embeddings-and-output-weights --disable-bias-linear --vocab-size 32000
)
# --micro-batch-size 16 is not read: a comment
torchrun --nproc_per_node 8 pretrain_gpt.py ${ARGS[@]} \\
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} \\
    --num-layers-per-virtual-pipeline-stage 5 --sequence-parallel --use-distributed-optimizer \\
    --micro-batch-size 1 --global-batch-size=128 --recompute-granularity full --lr 1e-4
"""
NEMO = """
trainer: {num_nodes: 4, devices: 8, max_steps: 100}
model:
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 1
  context_parallel_size: 2
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  num_query_groups: 8
  vocab_size: 128256
  encoder_seq_length: 8192
  gated_linear_unit: true
  share_embeddings_and_output_weights: false
  position_embedding_type: rope
  sequence_parallel: true
train: {micro_batch_size: 1, global_batch_size: 128}
ddp: {use_distributed_optimizer: true}
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_torchtitan_toml(tmp_path: Path) -> None:
    found = read_recipe(write(tmp_path, "r.toml", TITAN), cluster="dgx-h100", nodes=2)
    training = found.data["workload"]["training"]
    assert training["model"] == {"preset": "llama3-8b", "seq_len": 8192}
    assert training["parallel"] == {
        "dp": 8, "tp": 2, "sequence_parallel": True, "tp_overlap": "ring",
    }  # fmt: skip
    assert training["data_parallel"] == {"kind": "hsdp", "shard": 4}
    assert training["batch"] == {"global": 16, "micro": 2}
    assert (training["recompute"], training["compute"]) == (
        "selective_op",
        {"stack": "torchtitan-eager"},
    )
    assert found.unmapped == ("job.dump_folder", "optimizer.lr")


def test_a_script_of_megatron(tmp_path: Path) -> None:
    found = read_recipe(write(tmp_path, "r.sh", SCRIPT), cluster="dgx-h100", nodes=8)
    training = found.data["workload"]["training"]
    assert training["parallel"] == {
        "dp": 2, "tp": 8, "pp": 4, "sequence_parallel": True, "schedule": "interleaved_1f1b",
        "virtual_stages": 4,
    }  # fmt: skip
    assert training["batch"] == {"global": 128, "micro": 1}
    assert training["data_parallel"] == {
        "kind": "zero", "stage": 1, "overlap": False, "prefetch": False,
    }  # fmt: skip
    assert training["recompute"] == "full"
    model = training["model"]
    assert (model["layers"], model["kv_heads"], model["ffn"]) == (80, 8, 28672)
    assert (model["gated"], model["tied_embeddings"], model["linear_bias"]) == (True, False, False)
    assert found.unmapped == ("--nproc-per-node", "--lr")


def test_a_yaml_of_nemo(tmp_path: Path) -> None:
    found = read_recipe(write(tmp_path, "r.yaml", NEMO), cluster="dgx-h100")
    assert found.data["cluster"] == {"preset": "dgx-h100", "nodes": 4}
    training = found.data["workload"]["training"]
    assert training["parallel"] == {"dp": 4, "tp": 4, "cp": 2, "sequence_parallel": True}
    assert training["model"]["kv_heads"] == 8
    assert set(found.unmapped) == {"devices", "max_steps"}


def training_of(path: Path, **given: Any) -> dict[str, Any]:
    found = read_recipe(path, cluster="dgx-h100", **given)
    training: dict[str, Any] = found.data["workload"]["training"]
    return training


@pytest.mark.parametrize("last", ["--sequence-parallel", "--tp-comm-overlap"])
def test_a_switch_that_ends_an_array_is_no_name_of_the_next_command(
    tmp_path: Path, last: str
) -> None:
    """What stands behind it is the script's next line, and no value of the switch."""
    other = {"--sequence-parallel", "--tp-comm-overlap"} - {last}
    text = SCRIPT.replace("--sequence-parallel", "").replace(
        "torchrun", f"MORE=(\n    {other.pop()}\n    {last}\n)\ntorchrun"
    )
    parallel = training_of(write(tmp_path, "r.sh", text), nodes=8)["parallel"]
    assert parallel["sequence_parallel"] is True
    assert parallel["tp_overlap"] == "ring"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--overlap-grad-reduce", {"overlap": True, "prefetch": False}),
        ("--overlap-grad-reduce --overlap-param-gather", {"overlap": True, "prefetch": True}),
        ("--grad-reduce-in-bf16", {"overlap": False, "prefetch": False, "gradients": "bf16"}),
        (
            "--accumulate-allreduce-grads-in-fp32",
            {"overlap": False, "prefetch": False, "gradients": "fp32"},
        ),
    ],
)
def test_what_a_script_says_of_gradients(
    tmp_path: Path, words: str, expected: dict[str, Any]
) -> None:
    text = SCRIPT.replace("--lr 1e-4", words)
    found = training_of(write(tmp_path, "r.sh", text), nodes=8)["data_parallel"]
    assert found == {"kind": "zero", "stage": 1} | expected


def test_a_yaml_of_nemo_1(tmp_path: Path) -> None:
    """Its optimizer is what divides the state, its activation's name says whether it is gated."""
    text = NEMO.replace(
        "  gated_linear_unit: true\n",
        "  activation: fast-swiglu\n  bias: false\n  ub_tp_comm_overlap: true\n"
        "  activations_checkpoint_granularity: full\n"
        "  optim: {name: distributed_fused_adam, overlap_grad_sync: true,"
        " overlap_param_sync: false, grad_sync_dtype: bf16}\n",
    ).replace("ddp: {use_distributed_optimizer: true}", "")
    path = write(tmp_path, "r.yaml", text)
    training = training_of(path)
    assert training["model"]["gated"] is True
    assert training["model"]["linear_bias"] is False
    assert training["parallel"]["tp_overlap"] == "ring"
    assert training["data_parallel"] == {
        "kind": "zero", "stage": 1, "overlap": True, "prefetch": False, "gradients": "bf16",
    }  # fmt: skip
    assert training["recompute"] == "full"
    assert training["compute"] == {"stack": "nemo"}
    assert set(read_recipe(path, cluster="dgx-h100").unmapped) == {"devices", "max_steps"}


def test_a_yaml_that_reduces_in_bf16(tmp_path: Path) -> None:
    text = NEMO.replace("true}", "true, grad_reduce_in_fp32: false, overlap_grad_reduce: false}")
    found = training_of(write(tmp_path, "r.yaml", text))["data_parallel"]
    assert found == {"kind": "zero", "stage": 1, "overlap": False, "gradients": "bf16"}


@pytest.mark.parametrize(
    ("text", "stack"),
    [
        ("[compile]\nenable = true", "torchtitan"),
        ("[compile]\nenable = false", "torchtitan-eager"),
        ("", "torchtitan-eager"),
    ],
)
def test_torchtitan_compiles_if_it_is_told_to(tmp_path: Path, text: str, stack: str) -> None:
    path = write(tmp_path, "r.toml", f"{TITAN}\n{text}\n")
    assert training_of(path, nodes=2)["compute"] == {"stack": stack}


def test_a_vocabulary_that_only_the_tokenizer_knows_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, "r.yaml", NEMO.replace("  vocab_size: 128256\n", ""))
    with pytest.raises(ScenarioError, match=r"--set workload.training.model.vocab=N, or --model"):
        read_recipe(path, cluster="dgx-h100")
    sets = ["workload.training.model.vocab=128256"]
    assert training_of(path, sets=sets)["model"]["vocab"] == 128256


EXPERTS = SCRIPT.replace(
    "--recompute-granularity full",
    "--num-experts 64 --moe-router-topk 8 --moe-ffn-hidden-size 1024"
    " --expert-model-parallel-size 16"
    " --expert-tensor-parallel-size 1 --overlap-moe-expert-parallel-comm"
    " --moe-shared-expert-intermediate-size 1024 --moe-shared-expert-overlap"
    " --moe-token-dispatcher-type flex"
    " --recompute-granularity selective --recompute-modules moe_act layernorm",
)


def test_experts_and_modules_of_megatron(tmp_path: Path) -> None:
    found = read_recipe(write(tmp_path, "r.sh", EXPERTS), cluster="dgx-h100", nodes=8)
    training = found.data["workload"]["training"]
    assert training["recompute"] == ["moe_act", "layernorm"]
    parallel = training["parallel"]
    assert {key: parallel[key] for key in parallel if "e" in key and "p" in key} == {
        "ep": 16, "etp": 1, "dispatcher": "deepep", "shared_overlap": True, "expert_overlap": True,
        "sequence_parallel": True,
    }  # fmt: skip
    assert found.unmapped == ("--nproc-per-node", "--lr")
    dropping = EXPERTS.replace("flex", "alltoall --moe-expert-capacity-factor 1.5")
    found = read_recipe(write(tmp_path, "r.sh", dropping), cluster="dgx-h100", nodes=8)
    parallel = found.data["workload"]["training"]["parallel"]
    assert (parallel["dispatcher"], parallel["expert_capacity"]) == ("alltoall", 1.5)


def test_recompute_of_some_layers(tmp_path: Path) -> None:
    block = SCRIPT.replace("full", "full --recompute-method block --recompute-num-layers 3")
    found = read_recipe(write(tmp_path, "r.sh", block), cluster="dgx-h100", nodes=8)
    training = found.data["workload"]["training"]
    assert (training["recompute"], training["recompute_first"]) == ("full", 3)
    uniform = block.replace("block", "uniform")
    found = read_recipe(write(tmp_path, "r.sh", uniform), cluster="dgx-h100", nodes=8)
    assert "recompute_first" not in found.data["workload"]["training"]
    second = TITAN.replace('"op"', '"2"')
    found = read_recipe(write(tmp_path, "r.toml", second), cluster="dgx-h100", nodes=2)
    training = found.data["workload"]["training"]
    assert (training["recompute"], training["recompute_every"]) == ("full", 2)


def test_weights_in_fp8(tmp_path: Path) -> None:
    text = SCRIPT.replace(
        "--lr", "--fp8-format hybrid --fp8-recipe tensorwise --fp8-param-gather --lr"
    )
    training = read_recipe(write(tmp_path, "r.sh", text), cluster="dgx-h100", nodes=8).data[
        "workload"
    ]["training"]
    assert training["precision"] == "fp8-cs"
    assert training["data_parallel"]["parameters"] == "fp8"


def test_a_list_of_modules_in_yaml(tmp_path: Path) -> None:
    text = NEMO + "recompute: {recompute_granularity: selective, recompute_modules: [layernorm]}\n"
    found = read_recipe(write(tmp_path, "r.yaml", text), cluster="dgx-h100")
    assert found.data["workload"]["training"]["recompute"] == ["layernorm"]
    text = text.replace("[layernorm]", "[core_attn]")  # Megatron's own default
    found = read_recipe(write(tmp_path, "r.yaml", text), cluster="dgx-h100")
    assert found.data["workload"]["training"]["recompute"] == "selective"


def test_experts_of_torchtitan_stay_whole_if_not_told(tmp_path: Path) -> None:
    text = TITAN.replace('"llama3"', '"deepseek_v3"').replace('"8B"', '"671B"')
    degree = "tensor_parallel_degree = 2"
    text = text.replace(degree, f"{degree}\nexpert_parallel_degree = 8")
    text = text.replace("data_parallel_replicate_degree = 2", "data_parallel_replicate_degree = 1")
    text = text.replace("shard_degree = 4", "shard_degree = 8")
    found = read_recipe(write(tmp_path, "r.toml", text), cluster="dgx-h100", nodes=2)
    parallel = found.data["workload"]["training"]["parallel"]
    assert (parallel["ep"], parallel["etp"]) == (8, 1)


def test_the_command_writes_a_scenario_that_can_be_read(tmp_path: Path) -> None:
    recipe, target = write(tmp_path, "r.toml", TITAN), tmp_path / "out.yaml"
    words = ["convert", str(recipe), "-o", str(target), "--cluster", "dgx-h100", "--nodes", "2"]
    assert call(words) == 0
    text = target.read_text()
    assert "# No place here have: job.dump_folder, optimizer.lr." in text
    scenario_from(yaml.safe_load(text), "out.yaml")
    assert call(["convert", str(recipe), str(target), "-o", str(target)]) == 2
    assert call(["convert", str(recipe), "-o", str(target)]) == 2  # no cluster


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("r.toml", "= 1", "is not TOML"),
        ("r.toml", "[job]\nx = 1", "no recipe"),
        ("r.toml", TITAN.replace("tensor_parallel_degree = 2", "tensor_parallel_degree = 0"),
         "is not a degree"),
        ("r.toml", TITAN.replace('"8B"', '"debugmodel"'), "is no preset"),
        ("r.toml", TITAN.replace("shard_degree = 4", "shard_degree = 8"), "which are 32"),
        ("r.sh", "echo hello", "none of Megatron's arguments"),
        ("r.sh", SCRIPT.replace("PP=4", "PP=$(nproc)"), "is no number"),
        ("r.sh", SCRIPT.replace("PP=4", "PP=3"), "does not divide"),
        ("r.sh", EXPERTS.replace("moe_act", "moe_magic"), "'moe_magic' is none of core_attn"),
        ("r.yaml", "a: 1", "none of Megatron's names"),
        ("r.yaml", "[1, 2]", "is a mapping"),
    ],
)  # fmt: skip
def test_what_is_no_recipe_is_refused(tmp_path: Path, name: str, text: str, told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        read_recipe(write(tmp_path, name, text), cluster="dgx-h100", nodes=2)
