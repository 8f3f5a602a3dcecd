"""Rings of context: what Transformer Engine passes on, and what torch does."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.toy_cluster import SMALL

from commsim.cluster import Cluster
from commsim.cluster.nodes.gpus import gpu_spec
from commsim.graph import Graph
from commsim.models import compute_model
from commsim.models.compute_section import ComputeSection
from commsim.sections import decode
from commsim.workload import TrainingSection, build_training

HEADS, KV_HEADS, WIDTH, TOKENS = 8, 2, 64, 512 // 4
MODEL = {**SMALL, "hidden": 512, "heads": HEADS, "kv_heads": KV_HEADS, "seq_len": 512}


def built(stack: str) -> Graph:
    base: dict[str, Any] = {
        "model": MODEL, "batch": {"global": 2, "micro": 1}, "parallel": {"dp": 2, "cp": 4},
        "data_parallel": {"kind": "fsdp"}, "compute": {"stack": stack},
    }  # fmt: skip
    section = decode(base, TrainingSection, "x")
    return build_training(section, Cluster.preset("dgx-h100", nodes=1)).graph


def exchanged(graph: Graph, words: str) -> list[int]:
    """Return what rank 0 sends of a layer in its ring, step by step, in the first training step."""
    sizes = [
        int(graph.size[op])
        for op in range(len(graph))
        if graph.lane[op] == 0 and graph.names[graph.name[op]] == words
    ]
    return sizes[: len(sizes) // 2]


def test_grouped_keys_go_round_as_they_are_or_for_every_head() -> None:
    grouped = 2 * 2 * TOKENS * KV_HEADS * WIDTH  # keys and values, two bytes, sent and received
    fused = exchanged(built("megatron"), "exchange F layer 0")
    assert set(fused) == {grouped}
    repeated = exchanged(built("torchtitan"), "exchange F layer 0")
    assert set(repeated) == {grouped * HEADS // KV_HEADS}
    assert len(fused) == len(repeated)


def test_gradients_go_beside_or_behind_a_step() -> None:
    """Beside it as wide as keys and values; behind it in fp32."""
    grouped = 2 * 2 * TOKENS * KV_HEADS * WIDTH
    assert set(exchanged(built("megatron"), "exchange B layer 0")) == {2 * grouped}
    whole = grouped * HEADS // KV_HEADS
    sizes = exchanged(built("torchtitan"), "exchange B layer 0")
    assert sorted(set(sizes)) == [whole, 2 * whole]
    steps, home = 4 - 1, 4  # keys and values stop at the last step, gradients go home
    assert home * sizes.count(whole) == steps * sizes.count(2 * whole)


@pytest.mark.parametrize(("backward", "each"), [(False, 38), (True, 26)])
def test_torch_adds_up_in_fp32_by_kernels_of_their_own(backward: bool, each: int) -> None:
    gpu = gpu_spec("H100-SXM5-80GB")
    torch, fused = (
        compute_model(gpu, precision="bf16", section=ComputeSection(stack=stack))
        for stack in ("torchtitan", "megatron")
    )
    moved = torch.merging(1e9, backward=backward).traffic
    assert moved == each * 1e9
    assert fused.merging(1e9, backward=backward).traffic < moved
