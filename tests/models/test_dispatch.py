"""Tokens on their way to experts: copies sent, capacity, and what the host waits for."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from commsim.cluster.nodes.gpus import gpu_spec
from commsim.models import Split, compute_model, model_preset
from commsim.models.compute_section import ComputeSection
from commsim.models.operations import layer_ops
from commsim.models.shape import Experts
from commsim.models.split import expert_all_to_all_bytes, token_copies

QWEN = model_preset("qwen3-30b-a3b").shape
SPLIT = Split(1, 4096, ep=8)


def met(experts: int, parts: int, top_k: int) -> float:
    """Count, over all choices of `top_k` experts, the parts that they lie in."""
    own = experts // parts
    choices = list(itertools.combinations(range(experts), top_k))
    return sum(len({chosen // own for chosen in choice}) for choice in choices) / len(choices)


@pytest.mark.parametrize(("experts", "ranks", "top_k"), [(8, 4, 2), (8, 8, 3), (12, 3, 4)])
def test_a_token_goes_once_to_each_rank_that_has_an_expert_of_it(
    experts: int, ranks: int, top_k: int
) -> None:
    made = Experts(experts=experts, top_k=top_k, expert_ffn=64)
    split = Split(1, 4096, ep=ranks, dispatcher="deepep")
    assert token_copies(made, split) == pytest.approx(met(experts, ranks, top_k))


def test_over_nodes_it_goes_once_to_each_node() -> None:
    made = Experts(experts=16, top_k=4, expert_ffn=64)
    split = Split(1, 4096, ep=16, dispatcher="deepep", ep_nodes=2)
    assert token_copies(made, split) == pytest.approx(met(16, 2, 4))
    assert token_copies(made, replace(split, ep_nodes=1)) > token_copies(made, split)


def test_node_limited_routing_meets_fewer_nodes() -> None:
    """DeepSeek-V3: experts in 4 of 8 groups, so at most 4 nodes of 8."""
    free = Experts(experts=256, top_k=8, expert_ffn=2048)
    limited = Experts(experts=256, top_k=8, expert_ffn=2048, groups=8, top_groups=4)
    split = Split(1, 4096, ep=64, dispatcher="deepep", ep_nodes=8)
    assert token_copies(limited, split) < 4 < token_copies(free, split) < 8
    with pytest.raises(ValueError, match="top_groups 9 is more than the 8 groups"):
        Experts(experts=256, top_k=8, expert_ffn=2048, groups=8, top_groups=9)


def test_bytes_of_the_dispatch_and_of_the_way_back() -> None:
    every = expert_all_to_all_bytes(QWEN, SPLIT, width=2)
    assert every == 8 * 2 * 4096 * QWEN.hidden
    dropped = replace(SPLIT, capacity=1.5)
    assert expert_all_to_all_bytes(QWEN, dropped, width=2) == 1.5 * every
    once = replace(SPLIT, dispatcher="deepep-fp8")
    back = expert_all_to_all_bytes(QWEN, once, width=2)
    assert expert_all_to_all_bytes(QWEN, once, width=2, dispatch=True) == pytest.approx(back / 2)
    assert 0.6 < back / every < 0.7  # 16 of 128 experts on a rank: 5.3 ranks instead of 8 copies


def test_a_capacity_fills_every_expert_up_and_nothing_waits_for_the_host() -> None:
    free, filled = (
        {op.name: op for op in layer_ops(QWEN, split)}["experts"]
        for split in (SPLIT, replace(SPLIT, capacity=1.25))
    )
    assert filled.matmuls[0].m == pytest.approx(1.25 * free.matmuls[0].m)
    assert (free.waits, filled.waits) == (True, False)


def seconds(graph: str, split: Split = SPLIT) -> dict[str, float]:
    section = ComputeSection(stack="nemo", cuda_graph=graph)  # type: ignore[arg-type]
    model = compute_model(gpu_spec("B200-SXM-180GB"), precision="mxfp8", section=section)
    return {block.name: block.forward.seconds for block in model.layer(QWEN, split)}


def test_graphs_take_the_host_out_of_what_they_hold() -> None:
    """Of a layer with experts attention and router; a whole step only where counts are known."""
    none, partial = seconds("none"), seconds("experts")
    assert partial["attention"] < none["attention"]
    assert partial["experts"] == none["experts"]
    filled = replace(SPLIT, capacity=1.0)
    assert seconds("full", filled)["experts"] < 0.5 * seconds("none", filled)["experts"]


def test_fused_experts_move_less_and_cast_only_what_comes_from_outside() -> None:
    """The activation function's passes go, and the casts of what lies between the products."""
    plain, fused = (
        {op.name: op for op in layer_ops(QWEN, SPLIT, fused_experts=how)}["experts"]
        for how in (False, True)
    )
    between = 2 * 4096 * 8 * 768  # bytes of one matrix of width ffn, over all copies
    assert plain.forward_bytes - fused.forward_bytes == 3 * between
    assert plain.backward_bytes - fused.backward_bytes == 5 * between
    moved = []
    for stack in ("nemo", "nemo-26.06"):
        section = ComputeSection(stack=stack)
        model = compute_model(gpu_spec("B200-SXM-180GB"), precision="mxfp8", section=section)
        blocks = {block.name: block for block in model.layer(QWEN, SPLIT)}
        moved.append(blocks["experts"].forward.traffic)
        assert blocks["attention"].forward.flops > 0
    cast = (2 + 2 * 33 / 32) * 4096 * 8 * 768  # of the second product's input
    stream = model.stack.stream
    assert moved[0] - moved[1] == pytest.approx(3 * between * stream + cast, rel=1e-6)


def test_attention_in_fp8_is_faster_in_quantised_training_alone() -> None:
    for precision, faster in (("mxfp8", True), ("bf16", False)):
        cores = []
        for stack in ("nemo", "nemo-26.06"):
            section = ComputeSection(stack=stack, cuda_graph="experts")
            model = compute_model(gpu_spec("B200-SXM-180GB"), precision=precision, section=section)
            cores.append(model.layer(QWEN, SPLIT)[0].forward.seconds)
        assert (cores[1] < cores[0]) == faster


def test_a_partial_graph_changes_nothing_in_dense_layers() -> None:
    shape, split = model_preset("llama3-8b").shape, Split(1, 256)
    found = set()
    for graph in ("none", "experts"):
        section = ComputeSection(stack="nemo", cuda_graph=graph)
        model = compute_model(gpu_spec("H100-SXM5-80GB"), precision="bf16", section=section)
        found.add(sum(block.forward.seconds for block in model.layer(shape, split)))
    assert len(found) == 1
