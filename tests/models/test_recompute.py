"""Megatron's modules that run again: what they drop, what they cost, and against the words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.toy_cluster import SMALL, ToyCluster, training

from commsim.cluster.nodes.gpus import gpu_spec
from commsim.errors import ScenarioError
from commsim.models import (
    RECOMPUTE_MODULES,
    ComputeSection,
    Recompute,
    Split,
    compute_model,
    hardware_flops,
    layer_activation_bytes,
    layer_working_bytes,
    model_preset,
    training_flops,
)

LLAMA, QWEN, V3 = (
    model_preset(name).shape for name in ("llama3-8b", "qwen3-30b-a3b", "deepseek-v3")
)
SPLIT = Split(1, 4096)
TOKENS = 4096


def kept(shape: Any, recompute: Recompute, *, layer: int = 5, **how: Any) -> int:
    return layer_activation_bytes(shape, SPLIT, layer=layer, recompute=recompute, flash=True, **how)


def dropped(shape: Any, *modules: Any, layer: int = 5, **how: Any) -> int:
    return kept(shape, "none", layer=layer, **how) - kept(shape, modules, layer=layer, **how)


def test_norms_drop_what_the_first_products_took_in() -> None:
    assert dropped(LLAMA, "layernorm") == 2 * 2 * TOKENS * LLAMA.hidden
    cast = dropped(LLAMA, "layernorm", cast=1.0)
    assert cast == 2 * 1 * TOKENS * LLAMA.hidden


def test_experts_drop_the_activation_function_or_all() -> None:
    copies = 8 * TOKENS
    assert dropped(QWEN, "moe_act") == 2 * copies * 768
    assert dropped(QWEN, "moe") == 2 * copies * (3 * 768 + QWEN.hidden)
    assert dropped(LLAMA, "moe_act", "moe") == 0


def test_a_dense_mlp_drops_all_but_its_input() -> None:
    assert dropped(LLAMA, "mlp") == 3 * 2 * TOKENS * LLAMA.ffn
    assert dropped(V3, "mlp", layer=0) == 3 * 2 * TOKENS * V3.ffn
    assert dropped(V3, "mlp", layer=5) == 0


def test_products_out_of_latents_drop_queries_keys_and_values() -> None:
    assert V3.latent is not None
    wide = V3.latent.qk_nope_head_dim + V3.latent.qk_rope_head_dim
    entries = V3.heads * (2 * wide + V3.latent.v_head_dim)
    assert dropped(V3, "mla_up_proj") == 2 * TOKENS * entries
    assert dropped(LLAMA, "mla_up_proj") == 0


def test_fused_attention_has_nothing_to_drop_and_an_unfused_one_its_scores() -> None:
    assert dropped(LLAMA, "core_attn") == 0
    unfused = [
        layer_activation_bytes(LLAMA, SPLIT, recompute=how) for how in ("selective", ("core_attn",))
    ]
    assert unfused[0] == unfused[1] < layer_activation_bytes(LLAMA, SPLIT)


@pytest.mark.parametrize("shape", [LLAMA, QWEN, V3])
@pytest.mark.parametrize("module", RECOMPUTE_MODULES)
def test_what_is_dropped_comes_back_while_it_runs_again(shape: Any, module: Any) -> None:
    working = layer_working_bytes(shape, SPLIT, layer=5, recompute=(module,), flash=True)
    assert working == dropped(shape, module) >= 0


def seconds(shape: Any, recompute: Recompute) -> dict[str, float]:
    section = ComputeSection(stack="megatron")
    model = compute_model(gpu_spec("H100-SXM5-80GB"), precision="bf16", section=section)
    blocks = model.layer(shape, SPLIT, layer=5, recompute=recompute)
    return {block.name: block.recompute.seconds for block in blocks}


def test_each_module_costs_in_its_own_block() -> None:
    for module, names in {
        "core_attn": {"attention"}, "layernorm": {"attention", "router"}, "moe_act": {"experts"},
        "mla_up_proj": {"attention"}, "moe": {"router", "experts"}, "mlp": set(),
    }.items():  # fmt: skip
        found = seconds(V3, (module,))  # type: ignore[arg-type]
        assert {name for name, time in found.items() if time > 0} == names
    both = seconds(V3, ("moe_act", "layernorm"))
    alone = seconds(V3, ("moe_act",)), seconds(V3, ("layernorm",))
    assert sum(both.values()) == pytest.approx(sum(sum(one.values()) for one in alone))


def test_flops_that_run_again() -> None:
    plain = training_flops(LLAMA, batch=1, seq=TOKENS)
    again = 2 * TOKENS * LLAMA.layers * 3 * LLAMA.hidden * LLAMA.ffn
    assert hardware_flops(LLAMA, batch=1, seq=TOKENS, recompute=("mlp",)) == plain + again
    assert hardware_flops(LLAMA, batch=1, seq=TOKENS, recompute=("moe",)) == plain
    core = hardware_flops(LLAMA, batch=1, seq=TOKENS, recompute=("core_attn",))
    assert core == hardware_flops(LLAMA, batch=1, seq=TOKENS, recompute="selective")


def test_whole_experts_get_their_tokens_again() -> None:
    model = {**SMALL, "experts": {"experts": 4, "top_k": 1, "expert_ffn": 32}}
    counts = []
    for how in ("none", ["moe_act"], ["moe"]):
        workload = training(
            4, cluster=ToyCluster(4, speed=2e9, latency=1000), model=model, recompute=how,
            batch={"global": 4, "micro": 1}, parallel={"dp": 4, "ep": 4},
        )  # fmt: skip
        graph = workload.graph
        names = [graph.op_name(op) for op in np.flatnonzero(graph.lane == 0).tolist()]
        counts.append(sum(name.startswith("all_to_all") for name in names))
    assert counts[0] == counts[1]
    assert counts[2] == 1.5 * counts[0]


@pytest.mark.parametrize(
    ("given", "said"),
    [(["moe", "moe"], "lists a module twice"), ([], "no modules"), (["norm"], "core_attn")],
)
def test_lists_that_make_no_sense_are_refused(given: Any, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        training(2, cluster=ToyCluster(2, speed=1e9, latency=1000), recompute=given)
