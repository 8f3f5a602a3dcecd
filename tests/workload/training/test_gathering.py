"""What the collectives of sharded parameters hold: a unit or a tensor, and what a list costs."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.toy_cluster import SMALL

from commsim.cluster import Cluster
from commsim.graph import Graph
from commsim.models import compute_model, stack_constants
from commsim.models.compute_section import ComputeSection
from commsim.models.parameters import Tensor
from commsim.sections import decode
from commsim.units import PS_PER_SECOND
from commsim.workload import TrainingSection, build_training
from commsim.workload.training.gathering import gathered, gathered_again, reduced
from commsim.workload.training.stages import LAYER, Unit

FSDP, ZERO, LISTS = map(stack_constants, ("torchtitan", "deepspeed", "megatron-deepspeed-2021"))
GPT3 = tuple(  # a layer of 175B: qkv, out, up, down and their biases
    Tensor(name, entries)
    for name, entries in (
        ("qkv", 3 * 12288**2), ("qkv.bias", 3 * 12288), ("out", 12288**2), ("out.bias", 12288),
        ("up", 4 * 12288**2), ("up.bias", 4 * 12288), ("down", 4 * 12288**2), ("down.bias", 12288),
    )
)  # fmt: skip
UNIT = Unit(LAYER, 0, (*GPT3, Tensor("expert", 7_000_000, expert=True)))


def built(nodes: int, stack: str, **settings: Any) -> Graph:
    base: dict[str, Any] = {
        "model": {**SMALL, "hidden": 1024, "heads": 8, "seq_len": 512},
        "batch": {"global": 8 * nodes, "micro": 1}, "parallel": {"dp": 8 * nodes},
        "data_parallel": {"kind": "zero", "stage": 3}, "compute": {"stack": stack},
    }  # fmt: skip
    section = decode({**base, **settings}, TrainingSection, "x")
    return build_training(section, Cluster.preset("dgx-a100", nodes=nodes)).graph


def seconds(graph: Graph, words: str) -> list[float]:
    durations = graph.duration.tolist()
    return [
        durations[op] / PS_PER_SECOND
        for op in range(len(graph))
        if words in graph.names[graph.name[op]]
    ]


def test_fsdp_gathers_a_unit_at_once() -> None:
    whole = sum(tensor.entries for tensor in GPT3)
    assert gathered(UNIT, FSDP, expert=False) == reduced(UNIT, FSDP, expert=False) == (whole,)
    assert gathered(UNIT, FSDP, expert=True) == (7_000_000,)
    assert not gathered_again(UNIT, FSDP, expert=False)


def test_deepspeed_gathers_large_tensors_one_by_one_and_leaves_small_ones_whole() -> None:
    matrices = tuple(entries for _, entries, _ in GPT3 if entries >= 100_000)
    assert gathered(UNIT, ZERO, expert=False) == matrices
    assert len(reduced(UNIT, LISTS, expert=False)) == len(GPT3)


def test_what_is_needed_again_soon_is_not_gathered_again() -> None:
    """Behind qkv lie 9 h², out 8, up 4, down none; twice that beyond 1e9 entries is given up."""
    h2 = 12288**2
    assert gathered_again(UNIT, LISTS, expert=False) == (3 * h2, h2, 4 * h2)
    small = Unit(LAYER, 0, tuple(Tensor(name, entries // 16) for name, entries, _ in GPT3))
    assert not gathered_again(small, LISTS, expert=False)


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_list_costs_a_copy_for_each_rank(nodes: int) -> None:
    """What makes the ZeRO-3 of 2021 collapse: its copies grow with the group."""
    graph = built(nodes, "megatron-deepspeed-2021")
    each = LISTS.list_copy_us * 1e-6 * 8 * nodes
    layer = seconds(graph, "copy in layer 0")
    assert [min(layer), max(layer)] == pytest.approx([each, each])
    tensors = 6  # qkv, out, up and down; SMALL has no biases, and two norms
    assert len(layer) % tensors == 0
    out = seconds(graph, "copy out layer 0")
    assert [min(out), max(out)] == pytest.approx([4 * each, 4 * each])
    assert not seconds(built(1, "deepspeed"), "copy ")


def test_copies_of_lists_follow_the_scale_and_vanish_at_a_flat_efficiency() -> None:
    gpu = Cluster.preset("dgx-a100", nodes=1).gpu(0)
    section = ComputeSection(stack="megatron-deepspeed-2021", scale=2.0)
    scaled = compute_model(gpu, precision="bf16", section=section)
    assert scaled.list_copies(100).seconds == pytest.approx(200 * LISTS.list_copy_us * 1e-6)
    flat = ComputeSection(stack="megatron-deepspeed-2021", efficiency=0.5)
    assert compute_model(gpu, precision="bf16", section=flat).list_copies(100).seconds == 0
