"""FSDP's copies, its rate limit, fp8 gathers, and rings of chunks, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.toy_cluster import SMALL, training

from commsim.cluster import Cluster
from commsim.graph import Graph
from commsim.models import ComputeSection, ModelShape, Split, compute_model, stack_constants
from commsim.sections import decode
from commsim.units import PS_PER_SECOND
from commsim.workload import TrainingSection, build_training
from commsim.workload.training import plan_training


def built(gpus: int = 8, **settings: Any) -> Graph:
    base: dict[str, Any] = {
        "model": {**SMALL, "hidden": 1024, "heads": 8, "seq_len": 512},
        "batch": {"global": 8, "micro": 1}, "parallel": {"dp": gpus},
    }  # fmt: skip
    section = decode({**base, **settings}, TrainingSection, "x")
    return build_training(section, Cluster.preset("dgx-h100", nodes=1)).graph


def named(graph: Graph, words: str) -> list[int]:
    return [op for op in range(len(graph)) if words in graph.names[graph.name[op]]]


def test_a_unit_is_copied_out_of_its_buffer_and_its_gradient_into_one() -> None:
    """FSDP2: 4 bytes per parameter out of the gather, 6 into the reduction; per pass and unit."""
    graph = built(data_parallel={"kind": "fsdp"})
    model = compute_model(Cluster.preset("dgx-h100", nodes=1).gpu(0), precision="bf16")
    stack = stack_constants("torchtitan")
    layer = 12 * 1024**2 + 2 * 1024
    bandwidth = model.kernels.bandwidth
    out, into = named(graph, "copy out layer 0"), named(graph, "copy in layer 0")
    assert len(out) == 2 * len(into) > 0
    expected = stack.gather_copy_bytes * layer / bandwidth * PS_PER_SECOND
    assert graph.duration[out[0]] == pytest.approx(expected, rel=1e-6)
    expected = stack.scatter_copy_bytes * layer / bandwidth * PS_PER_SECOND
    assert graph.duration[into[0]] == pytest.approx(expected, rel=1e-6)


def test_flat_parameters_are_not_copied_but_their_gradients_are() -> None:
    """FSDP1 computes on views of its flat buffer, and puts their gradients together."""
    graph = built(data_parallel={"kind": "fsdp"}, compute={"stack": "llm-foundry"})
    assert not named(graph, "copy out")
    assert named(graph, "copy in")


@pytest.mark.parametrize(("precision", "width"), [("bf16", 2), ("fp8", 1), ("mxfp8", 2)])
def test_parameters_of_layers_are_gathered_as_cast(precision: str, width: int) -> None:
    """One scale per tensor lets shards be cast first; blocks of 32 and the ends stay in bf16."""
    graph = built(data_parallel={"kind": "fsdp"}, precision=precision)
    layer = 12 * 1024**2 + 2 * 1024
    sizes = {int(graph.size[op]) for op in named(graph, "all_gather layer 1")}
    assert sizes == {width * layer}
    ends = {int(graph.size[op]) for op in named(graph, "all_gather head")}
    assert ends == {2 * (32 * 1024 + 1024)}


def test_a_ring_leaves_the_last_part_of_a_reduction_behind_its_product() -> None:
    """A gather runs beside its product whole, a forward's reduction but for a quarter of it."""
    parallel = {"dp": 2, "tp": 4, "sequence_parallel": True}
    full, ring = (built(parallel={**parallel, "tp_overlap": how}) for how in ("full", "ring"))
    for name in ("all_gather F layer 0", "all_gather B layer 0", "reduce_scatter B layer 0"):
        sizes = [[int(graph.size[op]) for op in named(graph, name)] for graph in (full, ring)]
        assert sizes[0]
        assert sizes[0] == sizes[1]
    parts = [int(ring.size[op]) for op in named(ring, "reduce_scatter F layer 0")]
    whole = int(full.size[named(full, "reduce_scatter F layer 0")[0]])
    assert parts
    assert parts == [3 * whole // 4, whole // 4] * (len(parts) // 2)


def test_async_tp_adds_up_the_parts_of_a_reduction_after_its_product() -> None:
    parallel = {"dp": 2, "tp": 4, "sequence_parallel": True, "tp_overlap": "ring"}
    torch, fused = (
        built(parallel=parallel, compute={"stack": stack}) for stack in ("torchtitan", "megatron")
    )
    assert not named(fused, "sum")
    parts = [int(torch.size[op]) for op in named(torch, "reduce_scatter F layer 0")]
    assert set(parts) == {parts[0]}
    gpu = Cluster.preset("dgx-h100", nodes=1).gpu(0)
    model = compute_model(gpu, precision="bf16", section=ComputeSection(stack="torchtitan"))
    took = round(model.adding_up(parts[0], 4).seconds * 1e12)
    sums = [int(torch.duration[op]) for op in named(torch, "F layer 0 sum")]
    assert sums
    assert set(sums) == {took}
    assert took >= parts[0] * 1.25 / gpu.memory_bandwidth * 1e12


def test_async_tp_hides_a_gather_behind_its_own_product_alone() -> None:
    """Gather, first product, the rest, reduction, last product; a collective beside one of them."""
    parallel = {"dp": 2, "tp": 4, "sequence_parallel": True, "tp_overlap": "ring"}
    graph = built(parallel=parallel, compute={"stack": "torchtitan"})
    gpu = Cluster.preset("dgx-h100", nodes=1).gpu(0)
    titan = ComputeSection(stack="torchtitan")
    model = compute_model(gpu, precision="bf16", section=titan, gpus=8)
    shape = ModelShape(
        layers=1, hidden=1024, heads=8, kv_heads=8, head_dim=128, ffn=4096, vocab=32, max_seq=512,
        norm_has_bias=False, linear_bias=False, qkv_bias=False,
    )  # fmt: skip
    split = Split(1, 512, tp=4, sequence_parallel=True)
    block = model.layer(shape, split)[1]
    whole = block.forward.seconds * PS_PER_SECOND
    first, last = block.ends
    parts = [int(graph.duration[op]) for op in named(graph, "F layer 0 mlp")][:3]
    assert parts == pytest.approx([first * whole, (1 - first - last) * whole, last * whole], abs=2)
    assert 0 < first < 1
    assert 0 < last < 1 - first
    backward = [int(graph.duration[op]) for op in named(graph, "B layer 0 mlp")][:3]
    both = (block.backward + block.weight).seconds * PS_PER_SECOND
    assert backward[0] == pytest.approx(block.ends_backward[0] * both, abs=2)
    gathers, again = named(graph, "all_gather B layer 0"), named(graph, "all_gather F layer 0")
    assert len(gathers) == len(again)  # gradients, and no input once more


def test_gathered_logits_where_the_loss_is_not_parallel() -> None:
    parallel = {"dp": 4, "tp": 2}
    graph = built(parallel=parallel, compute={"stack": "kempnerforge"})
    sizes = {int(graph.size[op]) for op in named(graph, "all_gather F head")}
    assert sizes == {2 * 512 * 32}
    assert not named(built(parallel=parallel), "all_gather F head")


def test_what_torchtitan_s_list_of_ops_runs_again() -> None:
    """k, out and up of the products; nothing of attention, which is kept."""
    split = Split(1, 4096)
    shape = ModelShape(
        layers=1, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, vocab=32,
        max_seq=4096, gated=True,
    )  # fmt: skip
    model = compute_model(Cluster.preset("dgx-h100", nodes=1).gpu(0), precision="bf16")
    attention, mlp = model.layer(shape, split, recompute="selective_op")
    assert attention.recompute.flops == 2 * 4096 * (4096 * 1024 + 4096 * 4096)
    assert mlp.recompute.flops == 2 * 4096 * 4096 * 14336
    full = model.layer(shape, split, recompute="full")
    assert attention.recompute.seconds < full[0].recompute.seconds


def test_runtime_and_slack_are_parts_of_memory() -> None:
    compute = {"efficiency": 0.5, "stack": "torchtitan"}
    facts = training(4, data_parallel={"kind": "fsdp"}, compute=compute).training
    assert facts is not None
    use = facts.resident[0]
    assert use.runtime == 512 * 2**20 + 16 * 9_600_000
    assert use.slack == round(0.07 * use.used)
    assert use.total == use.used + use.slack + use.runtime
    section = decode(
        {"model": SMALL, "batch": {"global": 8, "micro": 1}, "parallel": {"dp": 8},
         "data_parallel": {"kind": "fsdp"}}, TrainingSection, "x",
    )  # fmt: skip
    plan = plan_training(section, Cluster.preset("dgx-h100", nodes=1), where="x")
    assert plan.communicators == 1
