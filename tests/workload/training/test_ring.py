"""Rings of context: what Transformer Engine passes on, and what torch does."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.toy_cluster import SMALL

from commsim.cluster import Cluster
from commsim.cluster.nodes.gpus import gpu_spec
from commsim.engine import simulate
from commsim.graph import Graph
from commsim.libraries import Ideal
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


def moved(graph: Graph, words: str) -> list[int]:
    """Return the sizes of rank 0's ops of that name in the first training step, in order."""
    sizes = [
        int(graph.size[op])
        for op in range(len(graph))
        if graph.lane[op] == 0 and graph.names[graph.name[op]] == words
    ]
    return sizes[: len(sizes) // 2]


GROUPED = 2 * 2 * TOKENS * KV_HEADS * WIDTH  # keys and values, two bytes
REPEATED = GROUPED * HEADS // KV_HEADS


def test_grouped_keys_go_round_as_they_are_or_are_gathered_for_every_head() -> None:
    """Three steps of a ring, each sent and received; or one gather of four parts."""
    microbatches = 1
    assert moved(built("megatron"), "exchange F layer 0") == [GROUPED] * 2 * 3 * microbatches
    torch = built("torchtitan")
    assert moved(torch, "exchange F layer 0") == []
    gathers = moved(torch, "all_gather F layer 0")
    assert gathers == [4 * REPEATED] * microbatches


def test_gradients_travel_with_the_keys_or_behind_them() -> None:
    """With them as wide; torch's during the next step, in fp32, and home after the last."""
    assert set(moved(built("megatron"), "exchange B layer 0")) == {2 * GROUPED}
    torch = built("torchtitan")
    assert moved(torch, "exchange B layer 0") == [2 * REPEATED] * 2 * 4
    assert 4 * REPEATED in moved(torch, "all_gather B layer 0")


@pytest.mark.parametrize(
    ("stack", "messages", "late"),
    [("megatron", 3, 0), ("torchtitan-eager", 4, 1), ("torchtitan", 4, 4)],
)
def test_what_travels_has_a_step_of_the_core_beside_it(
    stack: str, messages: int, late: int
) -> None:
    """All but torch's last gradients: they start where the last step of the core has ended; under
    torch.compile nothing has."""
    graph = built(stack)
    timeline = simulate(graph, Cluster.preset("dgx-h100", nodes=1), library=Ideal())
    named = [(op, graph.names[graph.name[op]]) for op in range(len(graph)) if graph.lane[op] == 0]
    sends = [
        op for op, name in named
        if name == "exchange B layer 0" and graph.streams[graph.stream[op]] == "cp send"
    ]  # fmt: skip
    starts = {
        int(timeline.start[op]) for op, name in named
        if "B layer 0 attention " in name and name[-1].isdigit()
    }  # fmt: skip
    steps = 2
    assert len(sends) == steps * messages
    assert sum(int(timeline.start[op]) not in starts for op in sends) == steps * late


@pytest.mark.parametrize(
    ("stack", "backward", "each"),
    [("torchtitan-eager", False, 38), ("torchtitan-eager", True, 26),
     ("torchtitan", False, 10), ("torchtitan", True, 18)],
)  # fmt: skip
def test_torch_adds_up_in_fp32_by_kernels_of_their_own(
    stack: str, backward: bool, each: int
) -> None:
    gpu = gpu_spec("H100-SXM5-80GB")
    torch, fused = (
        compute_model(gpu, precision="bf16", section=ComputeSection(stack=name))
        for name in (stack, "megatron")
    )
    moved = torch.merging(1e9, backward=backward).traffic
    assert moved == each * 1e9
    assert fused.merging(1e9, backward=backward).traffic == 3 * 2e9 * fused.stack.stream
