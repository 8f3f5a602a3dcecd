"""Gradient buckets: the rule by hand and in general, and what a training step makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.toy_cluster import training
from hypothesis import given
from hypothesis import strategies as st

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.graph import Graph, OpKind, Phase
from commsim.models import tensor_total
from commsim.sections import decode
from commsim.workload import TrainingSection, build_training
from commsim.workload.buckets import assign_buckets
from commsim.workload.training import LAYER, plan_training


def test_a_bucket_closes_when_it_reaches_its_cap() -> None:
    sizes = [4, 3, 9, 2, 5, 1, 1]
    assert assign_buckets(sizes, first=5, cap=8) == ((0, 1), (2,), (3, 4, 5), (6,))
    assert assign_buckets(sizes, first=4, cap=100) == ((0,), (1, 2, 3, 4, 5, 6))
    assert assign_buckets([], first=1, cap=1) == ()


@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 20), st.integers(1, 60))
def test_buckets_keep_the_order_and_are_as_small_as_their_cap_lets_them(
    sizes: list[int], first: int, cap: int
) -> None:
    buckets = assign_buckets(sizes, first=first, cap=cap)
    assert [at for bucket in buckets for at in bucket] == list(range(len(sizes)))
    for index, bucket in enumerate(buckets):
        limit = cap if index else first
        assert sum(sizes[at] for at in bucket[:-1]) < limit
        if index < len(buckets) - 1:
            assert sum(sizes[at] for at in bucket) >= limit


def reductions(graph: Graph, rank: int, step: int) -> list[tuple[int, list[str]]]:
    """Return (bytes, names of the ops it waits for) of each all-reduce of a rank."""
    ops = np.flatnonzero(
        (graph.kind == OpKind.COLLECTIVE) & (graph.lane == rank) & (graph.step == step)
    )
    return [
        (
            int(graph.size[op]),
            [graph.op_name(d) for d in graph.dep_op[graph.dep_ptr[op] : graph.dep_ptr[op + 1]]],
        )
        for op in ops
    ]


def small_buckets(**settings: Any) -> Graph:
    """Buckets of 1 kB, the first of 600 bytes, for two ranks."""
    data = {"bucket": "1000B", "first_bucket": "600B", **settings}
    return training(2, data_parallel=data).graph


def test_the_buckets_of_the_small_model_by_hand() -> None:
    """Ready order, bytes: head 512, final norm 16, then per layer from the last:
    down 512, up 512, norm 16, out 128, qkv 384, norm 16; the embedding 512 at the end.
    """
    assert reductions(small_buckets(), rank=0, step=0) == [
        (512 + 16 + 512, ["B layer 3"]),
        (512 + 16 + 128 + 384, ["B layer 3"]),
        (16 + 512 + 512, ["B layer 2"]),
        (16 + 128 + 384 + 16 + 512, ["B layer 1"]),
        (512 + 16 + 128 + 384, ["B layer 1"]),
        (16 + 512 + 512, ["B layer 0"]),
        (16 + 128 + 384 + 16 + 512, ["B layer 0"]),
    ]


def test_without_overlap_every_bucket_waits_for_the_end_of_backward() -> None:
    waits = [after for _, after in reductions(small_buckets(overlap=False), rank=1, step=1)]
    assert waits == [["B layer 0"]] * 7


def test_all_buckets_together_are_all_gradients() -> None:
    parameters = 4 * 784 + 256 + 8 + 256
    for precision, width in (("bf16", 2), ("fp32", 4)):
        workload = training(4, precision=precision, data_parallel={"gradients": precision})
        assert workload.training is not None
        assert workload.training.parameters == parameters
        assert sum(size for size, _ in reductions(workload.graph, 3, 0)) == width * parameters


def test_only_the_last_microbatch_reduces() -> None:
    data = {"bucket": "1000B", "first_bucket": "600B"}
    many = training(2, batch={"global": 12, "micro": 1}, data_parallel=data).graph
    assert len(many.collectives) == 2 * 7  # 2 steps of 7 buckets
    collectives = np.flatnonzero(many.kind == OpKind.COLLECTIVE)
    for op in collectives:
        for before in many.dep_op[many.dep_ptr[op] : many.dep_ptr[op + 1]]:
            assert many.phase[before] == Phase.BACKWARD
            assert many.microbatch[before] == 5


def test_one_replica_reduces_nothing() -> None:
    assert len(training(1).graph.collectives) == 0


FP8 = {
    "model": {"layers": 4, "hidden": 256, "heads": 8, "vocab": 1000, "seq_len": 256},
    "batch": {"global": 8, "micro": 1}, "parallel": {"dp": 8}, "precision": "fp8",
}  # fmt: skip


def gathered(bucket: str, **data: Any) -> int:
    """Return the bytes that rank 0 gathers after a step, of parameters in buckets."""
    sharing = {"kind": "zero", "stage": 1, "bucket": bucket, "first_bucket": bucket, **data}
    section = decode({**FP8, "data_parallel": sharing}, TrainingSection, "x")
    graph = build_training(section, Cluster.preset("dgx-h100")).graph
    own = np.flatnonzero((graph.lane == 0) & (graph.step == 0))
    names = {int(op): graph.op_name(int(op)) for op in own}
    return sum(int(graph.size[op]) for op, name in names.items() if name == "all_gather parameters")


@pytest.mark.parametrize("bucket", ["64KiB", "700KiB", "1GiB"])
def test_weights_of_layers_are_gathered_in_a_byte(bucket: str) -> None:
    """Those of the embedding and the head stay in two; padding is a rank's part at most."""
    section = decode(FP8, TrainingSection, "x")
    (stage,) = plan_training(section, Cluster.preset("dgx-h100"), where="x").stages
    layers, ends = (
        sum(tensor_total(unit.tensors) for unit in stage.units if (unit.kind == LAYER) == layer)
        for layer in (True, False)
    )
    assert gathered(bucket) == pytest.approx(2 * (layers + ends), rel=1e-3)
    assert gathered(bucket, parameters="fp8") == pytest.approx(layers + 2 * ends, rel=1e-3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"precision": "bf16"}, "parameters: fp8, but precision is bf16"),
        ({"data_parallel": {"kind": "zero", "stage": 3, "parameters": "fp8"}}, "stages 1 and 2"),
        ({"data_parallel": {"kind": "fsdp", "parameters": "fp8"}}, "not a setting of kind fsdp"),
    ],
)
def test_weights_in_a_byte_that_nothing_takes(settings: dict[str, Any], words: str) -> None:
    given_data = {"data_parallel": {"kind": "zero", "stage": 1, "parameters": "fp8"}}
    section = decode({**FP8, **given_data, **settings}, TrainingSection, "x")
    with pytest.raises(ScenarioError, match=words):
        plan_training(section, Cluster.preset("dgx-h100"), where="x")
