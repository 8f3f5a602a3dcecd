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
    sizes = (99_999, 100_000, 100_001)
    edge = Unit(LAYER, 0, tuple(Tensor(str(entries), entries) for entries in sizes))
    assert gathered(edge, ZERO, expert=False) == sizes[1:]


def test_what_is_needed_again_soon_is_not_gathered_again() -> None:
    """Behind qkv lie 9 h², out 8, up 4, down none; twice that beyond 1e9 entries is given up."""
    h2 = 12288**2
    assert gathered_again(UNIT, LISTS, expert=False) == (3 * h2, h2, 4 * h2)
    small = Unit(LAYER, 0, tuple(Tensor(name, entries // 16) for name, entries, _ in GPT3))
    assert not gathered_again(small, LISTS, expert=False)


def test_a_list_costs_a_copy_for_each_rank_and_a_time_by_its_bytes() -> None:
    """What makes the ZeRO-3 of 2021 collapse: its copies grow with the group, or stay."""
    few, many = built(1, "megatron-deepspeed-2021"), built(4, "megatron-deepspeed-2021")
    for name, lists in (("copy in layer 0", 1), ("copy out layer 0", 4)):
        shorter, longer = (sorted(set(seconds(graph, name))) for graph in (few, many))
        more = LISTS.list_copy_us * 1e-6 * (32 - 8) * lists
        assert [late - early for early, late in zip(shorter, longer, strict=True)] == (
            pytest.approx([more] * len(shorter), rel=1e-6)
        )
    tensors = 6  # qkv, out, up and down; SMALL has no biases, and two norms
    assert len(seconds(few, "copy in layer 0")) % tensors == 0
    assert not seconds(built(1, "deepspeed"), "copy ")


def test_copies_of_lists_move_their_bytes() -> None:
    """A layer's four matrices of 12 h² entries, through memory at its rate."""
    gpu = Cluster.preset("dgx-a100", nodes=1).gpu(0)
    model = compute_model(
        gpu, precision="bf16", section=ComputeSection(stack="megatron-deepspeed-2021")
    )
    (out,) = set(seconds(built(1, "megatron-deepspeed-2021"), "copy out layer 0"))
    moved = 12 * 1024**2 * LISTS.gather_copy_bytes / (gpu.memory_bandwidth * 0.92)
    assert out - model.list_copies(8).seconds * 4 == pytest.approx(moved, rel=1e-6)


def test_copies_of_lists_follow_the_scale_and_vanish_at_a_flat_efficiency() -> None:
    gpu = Cluster.preset("dgx-a100", nodes=1).gpu(0)
    section = ComputeSection(stack="megatron-deepspeed-2021", scale=2.0)
    scaled = compute_model(gpu, precision="bf16", section=section)
    assert scaled.list_copies(100).seconds == pytest.approx(200 * LISTS.list_copy_us * 1e-6)
    flat = ComputeSection(stack="megatron-deepspeed-2021", efficiency=0.5)
    assert compute_model(gpu, precision="bf16", section=flat).list_copies(100).seconds == 0


def test_lists_hold_a_tensor_and_its_flat_buffer() -> None:
    """Not the whole layer: twice its largest matrix in bf16, and its gradient twice."""
    settings: dict[str, Any] = {"model": {**SMALL, "vocab": 1024, "hidden": 1024, "heads": 8}}
    cluster = Cluster.preset("dgx-a100", nodes=1)
    base = {
        "batch": {"global": 8, "micro": 1}, "parallel": {"dp": 8}, "recompute": "full",
        "data_parallel": {"kind": "zero", "stage": 3}, "precision": "bf16", **settings,
    }  # fmt: skip
    held = {}
    for stack in ("megatron-deepspeed-2021", "deepspeed"):
        section = decode({**base, "compute": {"stack": stack}}, TrainingSection, "x")
        facts = build_training(section, cluster).training
        assert facts is not None
        held[stack] = facts.resident[0].buffers
    largest, layer = 4 * 1024**2, 12 * 1024**2
    kept = layer  # all of it is needed again within 1e9 entries
    assert held["megatron-deepspeed-2021"] == (
        (kept + largest) * 2 + 2 * largest * LISTS.gradient_width
    )
    assert held["deepspeed"] > held["megatron-deepspeed-2021"]
