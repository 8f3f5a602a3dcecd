"""Bytes that a rank puts on the wire per step, for every way of splitting a model.

Measured on the links of a star, where a rank sends everything over one link; the ideal library
runs rings. P: parameters of a rank, N: replicas, n: bytes of a hidden state, as in the literature.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers.optional import present
from helpers.toy_cluster import SMALL, ToyCluster, training

from commsim.engine import simulate
from commsim.graph import CopyDirection, Graph, OpKind, Phase
from commsim.libraries import Ideal
from commsim.models import stack_names
from commsim.models.constants import stack_constants

P = 4 * 784 + 256 + 8 + 256
STEPS = 2


def sent(n: int, **settings: Any) -> list[Fraction]:
    """Return the bytes that each rank sends per step."""
    cluster = ToyCluster(n)
    timeline = simulate(training(n, cluster=cluster, **settings).graph, cluster, library=Ideal())
    out = timeline.links.link_bytes()[::2]
    return [Fraction(round(float(size) * 1000), 1000 * STEPS) for size in out]


def replicas(microbatches: int = 1, **data: Any) -> list[Fraction]:
    batch = {"global": 4 * microbatches, "micro": 1}
    return sent(4, batch=batch, data_parallel=data)


SHARE = Fraction(3, 4)  # (N - 1)/N
MODES: list[tuple[dict[str, Any], Fraction]] = [
    ({"kind": "ddp"}, 2 * SHARE * 2 * P),
    ({"kind": "ddp", "gradients": "fp32"}, 2 * SHARE * 4 * P),
    ({"kind": "zero", "stage": 1}, SHARE * (2 + 2) * P),
    ({"kind": "zero", "stage": 1, "prefetch": False}, SHARE * (2 + 2) * P),
    ({"kind": "zero", "stage": 1, "gradients": "fp32"}, SHARE * (4 + 2) * P),
    ({"kind": "zero", "stage": 2}, SHARE * (2 + 2) * P),
    ({"kind": "zero", "stage": 3}, SHARE * (2 + 2 + 2) * P),
    ({"kind": "fsdp"}, SHARE * (2 + 2 + 2) * P),
    ({"kind": "fsdp", "prefetch": 0}, SHARE * (2 + 2 + 2) * P),
    ({"kind": "fsdp", "gradients": "fp32"}, SHARE * (2 + 2 + 4) * P),
    ({"kind": "fsdp", "shard": "grad_op"}, SHARE * (2 + 2) * P),
    ({"kind": "hsdp", "shard": 2}, Fraction(1, 2) * 6 * P + 2 * Fraction(1, 2) * 2 * P / 2),
    ({"kind": "hsdp", "shard": 4}, SHARE * 6 * P),
    ({"kind": "hsdp", "shard": 1}, 2 * SHARE * 2 * P),
]


@pytest.mark.parametrize(("data", "expected"), MODES, ids=lambda value: str(value))
def test_replicas(data: dict[str, Any], expected: Fraction) -> None:
    assert replicas(**data) == [expected] * 4


def test_small_buckets_send_the_same() -> None:
    assert replicas(kind="ddp", bucket="1000B", first_bucket="600B") == [2 * SHARE * 2 * P] * 4


def test_who_reduces_in_every_microbatch() -> None:
    """DDP and ZeRO-1 wait for the last one; ZeRO-2 and 3 and FSDP do not keep whole gradients."""
    m = 3
    assert replicas(m, kind="ddp") == [2 * SHARE * 2 * P] * 4
    assert replicas(m, kind="ddp", no_sync=False) == [m * 2 * SHARE * 2 * P] * 4
    assert replicas(m, kind="zero", stage=1) == [SHARE * 4 * P] * 4
    assert replicas(m, kind="zero", stage=2) == [SHARE * (m * 2 + 2) * P] * 4
    assert replicas(m, kind="fsdp") == [SHARE * m * 6 * P] * 4


def test_offload_moves_a_share_down_and_up() -> None:
    """PCIe: 2P/N each way per rank, beside ZeRO-2's own bytes."""
    data = {"kind": "zero", "stage": 2, "offload": "cpu"}
    graph = training(4, batch={"global": 4, "micro": 1}, data_parallel=data).graph
    copies = (graph.kind == OpKind.COPY) & (graph.lane == 1) & (graph.step == 0)
    for way in (CopyDirection.TO_HOST, CopyDirection.FROM_HOST):
        assert graph.size[copies & (graph.item == way)].sum() == 2 * P // 4
    updates = (graph.phase == Phase.OPTIMIZER) & (graph.lane == 1) & (graph.step == 0)
    assert graph.duration[updates].sum() == pytest.approx(P / 4 * 4 / 4e9 * 1e12, rel=1e-3)


def copied(graph: Graph) -> list[int]:
    """Return the bytes that rank 0 copies to the host and back in the first step."""
    copies = (graph.kind == OpKind.COPY) & (graph.lane == 0) & (graph.step == 0)
    ways = (CopyDirection.TO_HOST, CopyDirection.FROM_HOST)
    return [int(graph.size[copies & (graph.item == way)].sum()) for way in ways]


def test_offload_on_one_gpu_moves_everything_and_reduces_nothing() -> None:
    data = {"kind": "zero", "stage": 2, "offload": "cpu", "gradients": "bf16"}
    workload = training(1, batch={"global": 1, "micro": 1}, data_parallel=data)
    assert copied(workload.graph) == [2 * P, 2 * P]
    assert not (workload.graph.kind == OpKind.COLLECTIVE).any()
    assert workload.training is not None
    assert workload.training.resident[0].optimizer == 0
    assert "the host, whose CPUs update" in "\n".join(workload.notes)


def test_offload_takes_experts_of_one_rank_along() -> None:
    """A quarter of what is shared, and all of the experts, which no other rank holds."""
    model = {**SMALL, "experts": {"experts": 4, "top_k": 2, "expert_ffn": 16}}
    data = {"kind": "zero", "stage": 2, "offload": "cpu"}
    batch = {"global": 4, "micro": 1}
    workload = training(
        4, model=model, batch=batch, parallel={"dp": 4, "ep": 4}, data_parallel=data
    )
    whole = training(4, model=model, batch=batch).training
    assert workload.training is not None
    assert whole is not None
    everything, own = whole.rank_parameters[0], workload.training.rank_parameters[0]
    experts = (everything - own) // 3  # of this rank
    for size in copied(workload.graph):
        assert size == pytest.approx(2 * ((own - experts) / 4 + experts), rel=0.01)


@pytest.mark.parametrize("overlap", [True, False])
def test_zero_2_reduces_in_every_microbatch_overlapped_or_not(overlap: bool) -> None:
    assert replicas(3, kind="zero", stage=2, overlap=overlap) == [SHARE * (3 * 2 + 2) * P] * 4


@pytest.mark.parametrize(("dp", "data"), [
    (1, {"kind": "ddp"}), (2, {"kind": "ddp"}), (2, {"kind": "zero", "stage": 1}),
    (2, {"kind": "zero", "stage": 2}),
])  # fmt: skip
def test_dualpipe_reduces_over_both_copies(dp: int, data: dict[str, Any]) -> None:
    """Each part stands on two devices, so 2 dp ranks share its gradient."""
    parallel = {"pp": 2, "dp": dp, "schedule": "dualpipe"}
    one = sent(2 * dp, batch={"global": 4 * dp, "micro": 1}, parallel=parallel, data_parallel=data)
    messages = 4 * 2 * 16 * 8  # microbatches of both directions, each way once per device
    n = 2 * dp
    padded = P if data["kind"] == "ddp" else sum(-(-p // n) * n for p in (1824, P - 1824))
    assert one == [Fraction(n - 1, n) * 2 * 2 * padded + messages] * n


TP_MODEL = {**SMALL, "hidden": 16, "heads": 4, "vocab": 64}
N_BYTES = 2 * 1 * 16 * 16  # 2 b s h
LOSS = 3 * 4 * 16  # three reductions of 4 bytes per token


def tensor(**settings: Any) -> Fraction:
    parallel = {"tp": 4, **settings.pop("parallel", {})}
    one = sent(4, model=TP_MODEL, parallel=parallel, batch={"global": 1, "micro": 1}, **settings)
    assert len(set(one)) == 1
    return one[0]


@pytest.mark.parametrize("overlap", ["none", "weight", "full"])
def test_tensor_parallel_all_reduces_twice_each_way(overlap: str) -> None:
    """Per layer 2 forward and 2 backward; embedding and logits one each; the cross entropy."""
    ring = 2 * SHARE
    assert tensor(parallel={"tp_overlap": overlap}) == ring * (4 * 4 + 2) * N_BYTES + ring * LOSS


def test_full_recompute_runs_the_forward_collectives_again() -> None:
    again = tensor(recompute="full") - tensor()
    assert again == 2 * SHARE * 4 * 2 * N_BYTES
    assert tensor(recompute="selective") == tensor()


def test_a_checkpoint_that_stops_early_skips_the_last_all_reduce() -> None:
    early = [name for name in stack_names() if stack_constants(name).early_stop]
    assert early
    settings: dict[str, Any] = {"compute": {"efficiency": 0.5, "stack": early[0]}}
    assert tensor(**settings) == tensor()
    again = tensor(recompute="full", **settings) - tensor(**settings)
    assert again == 2 * SHARE * 4 * 1 * N_BYTES


@pytest.mark.parametrize("overlap", ["none", "weight", "full"])
def test_sequence_parallel_gathers_and_scatters(overlap: str) -> None:
    """Forward 2 AG + 2 RS, backward 2 AG + 2 RS and 2 AG again; embedding 2, logits 3."""
    parallel = {"sequence_parallel": True, "tp_overlap": overlap}
    expected = SHARE * (4 * (4 + 4 + 2) + 2 + 3) * N_BYTES + 2 * SHARE * LOSS
    assert tensor(parallel=parallel) == expected


@pytest.mark.parametrize(("setting", "divisor"), [
    ({}, 1), ({"sequence_parallel": True}, 2), ({"scatter_gather": True}, 2),
])  # fmt: skip
@pytest.mark.parametrize(("schedule", "virtual", "crossings"), [
    ("1f1b", 1, 1), ("zb_h1", 1, 1), ("interleaved_1f1b", 2, 3), ("zb_v", 1, 2),
    ("dualpipev", 1, 2),
])  # fmt: skip
def test_pipeline_messages(
    setting: dict[str, Any], divisor: int, schedule: str, virtual: int, crossings: int
) -> None:
    """2 b s h per microbatch, boundary and direction; 1/t of it where the state is divided."""
    m = 4
    parallel = {"tp": 2, "pp": 2, "schedule": schedule, "virtual_stages": virtual, **setting}
    graph = training(4, parallel=parallel, model=TP_MODEL, batch={"global": m, "micro": 1}).graph
    sizes = graph.messages.size
    assert set(sizes.tolist()) == {N_BYTES // divisor}
    assert len(sizes) == STEPS * 2 * m * crossings * 2  # tensor ranks, both directions


def test_a_scattered_boundary_is_gathered_behind() -> None:
    """Each of the two tensor ranks gathers each of 4 microbatches' state and its gradient."""
    parallel = {"tp": 2, "pp": 2, "scatter_gather": True}
    graph = training(4, parallel=parallel, model=TP_MODEL, batch={"global": 4, "micro": 1}).graph
    gathers = [op for op in range(len(graph)) if graph.op_name(op) == "all_gather boundary"]
    assert len(gathers) == STEPS * 4 * 4
    assert set(graph.size[gathers].tolist()) == {N_BYTES}
    for op in gathers:
        before = graph.dep_op[graph.dep_ptr[op] : graph.dep_ptr[op + 1]]
        assert OpKind.RECV in graph.kind[before]


EXPERTS = {
    **SMALL,
    "experts": {"experts": 4, "top_k": 2, "expert_ffn": 16},
}


def test_experts_exchange_four_times_a_layer() -> None:
    """2 b s h k (E - 1)/E each; dense gradients over 4 ranks, those of experts over none."""
    alone = sent(4, model=EXPERTS, batch={"global": 4, "micro": 1})
    split = sent(4, model=EXPERTS, batch={"global": 4, "micro": 1}, parallel={"dp": 4, "ep": 4})
    graph = training(4, model=EXPERTS, parallel={"dp": 4, "ep": 4}).graph
    exchanges = Fraction(3, 4) * 4 * 4 * (2 * 16 * 8 * 2)
    expert = 4 * 4 * 2 * 8 * 16  # layers, experts, two matrices
    assert alone[0] - split[0] == 2 * SHARE * 2 * expert - exchanges
    assert {g.axis for g in graph.groups} == {"dp", "ep"}


def test_experts_are_reduced_among_those_that_hold_them() -> None:
    two = sent(4, model=EXPERTS, batch={"global": 4, "micro": 1}, parallel={"dp": 4, "ep": 2})
    four = sent(4, model=EXPERTS, batch={"global": 4, "micro": 1}, parallel={"dp": 4, "ep": 4})
    expert = 4 * 2 * 2 * 8 * 16  # per rank with ep 2
    exchanges = 4 * 4 * (2 * 16 * 8 * 2) * (Fraction(3, 4) - Fraction(1, 2))
    assert two[0] - four[0] == 2 * Fraction(1, 2) * 2 * expert - exchanges


def test_a_skew_sends_more_to_the_busiest() -> None:
    settings: dict[str, Any] = {"model": EXPERTS, "batch": {"global": 4, "micro": 1}}
    even = sent(4, parallel={"dp": 4, "ep": 4}, **settings)
    cluster = ToyCluster(4)
    workload = training(
        4, parallel={"dp": 4, "ep": 4, "expert_skew": 2}, cluster=cluster, **settings
    )
    timeline = simulate(workload.graph, cluster, library=Ideal())
    arrived = timeline.links.link_bytes()[1::2]
    assert arrived[0] > arrived[1] == pytest.approx(arrived[2])
    assert timeline.links.link_bytes()[::2][0] > float(even[0]) * STEPS
    experts = [op for op in range(len(workload.graph)) if "experts" in workload.graph.op_name(op)
               and workload.graph.kind[op] == OpKind.COMPUTE]  # fmt: skip
    times = {int(workload.graph.lane[op]): int(workload.graph.duration[op]) for op in experts}
    assert times[0] > times[1] == times[2]


def context(kind: str) -> Fraction:
    """Return what a rank sends beside gradients, which context ranks reduce as data ranks do."""
    one = sent(
        4, model={**TP_MODEL, "kv_heads": 4}, batch={"global": 1, "micro": 1},
        parallel={"cp": 4, "context": kind},
    )  # fmt: skip
    assert len(set(one)) == 1
    step = training(4, model=TP_MODEL, parallel={"cp": 4}, batch={"global": 1, "micro": 1})
    return one[0] - 2 * SHARE * 2 * present(step.training).rank_parameters[0]


def test_ring_attention_passes_keys_and_values_round() -> None:
    """d - 1 times 2 x 2 b (s/d) h forward, and twice that backward."""
    block = 2 * 2 * (16 // 4) * 16
    assert context("ring") == 4 * 3 * 3 * block


def test_ulysses_exchanges_eight_times_a_layer() -> None:
    """q, k, v and o, forward and backward: (d - 1)/d of 2 b (s/d) h each."""
    assert context("ulysses") == 4 * 8 * SHARE * 2 * (16 // 4) * 16


def test_dataparallel_in_its_eight_steps() -> None:
    """Scatter, broadcast, forward, gather, loss, scatter, backward, reduce: all by GPU 0."""
    graph = training(
        4, batch={"global": 8, "micro": 2}, data_parallel={"kind": "dataparallel"}
    ).graph
    ops = np.flatnonzero((graph.lane == 0) & (graph.step == 0))
    names = [graph.op_name(op) for op in ops.tolist()]
    collectives = [name for name in names if not name.startswith(("F ", "B "))]
    assert collectives == [
        "scatter inputs", "replicate", "gather outputs", "loss", "scatter gradients",
        "reduce gradients", "optimizer",
    ]  # fmt: skip
    sizes = dict(zip(names, graph.size[ops].tolist(), strict=True))
    tokens = 4 * 2 * 16
    assert sizes["scatter inputs"] == 8 * tokens
    assert sizes["replicate"] == sizes["reduce gradients"] == 2 * P
    assert sizes["gather outputs"] == sizes["scatter gradients"] == 2 * tokens * 32
    assert set(graph.collectives.root.tolist()) == {0}
    kinds = Counter(graph.collectives.kind)
    assert kinds == {"scatter": 4, "broadcast": 2, "gather": 2, "reduce": 2}


def test_dataparallel_overlaps_nothing() -> None:
    cluster = ToyCluster(4)
    workload = training(
        4, cluster=cluster, batch={"global": 8, "micro": 2}, data_parallel={"kind": "dataparallel"}
    )
    timeline = simulate(workload.graph, cluster, library=Ideal())
    for lane in range(4):
        mine = np.flatnonzero(timeline.lane == lane)
        mine = mine[np.argsort(timeline.start[mine], kind="stable")]
        assert (timeline.start[mine][1:] >= timeline.end[mine][:-1]).all()


@pytest.mark.parametrize(("servers", "sync"), [(1, True), (2, True), (1, False), (3, False)])
def test_a_parameter_server_is_an_incast(servers: int, sync: bool) -> None:
    """A worker sends its gradient once; each of K servers takes workers/K of it, and gives back."""
    workers = 4
    one = sent(
        workers + servers, batch={"global": workers, "micro": 1},
        data_parallel={"kind": "parameter_server", "servers": servers, "sync": sync},
        parallel={"dp": workers + servers},
    )  # fmt: skip
    part = 2 * -(-P // servers)
    assert one[:servers] == [workers * part] * servers
    assert one[servers:] == [servers * part] * workers
