"""What overlaps in the steady state of a training step, and what may not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.toy_cluster import SMALL, ToyCluster, training

from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.graph import Graph, OpKind, Phase
from commsim.libraries import Ideal
from commsim.metrics import measure
from commsim.models import ComputeModel, GpuWork
from commsim.sections import decode
from commsim.timeline import Timeline
from commsim.workload import TrainingSection, Workload, build_training
from commsim.workload.training.parameter_server import paces, staleness

TINY = {"bucket": "1000B", "first_bucket": "600B"}


def run(n: int, *, speed: float = 2e9, **settings: Any) -> tuple[Workload, Timeline]:
    cluster = ToyCluster(n, speed=speed, latency=1000)
    workload = training(n, cluster=cluster, **settings)
    return workload, simulate(workload.graph, cluster, library=Ideal())


def step_time(n: int, **settings: Any) -> float:
    return measure(run(n, **settings)[1]).step_time_s


def named(graph: Graph, name: str, step: int, lane: int = 0) -> np.ndarray:
    ops = np.flatnonzero((graph.step == step) & (graph.lane == lane))
    return np.array([op for op in ops.tolist() if graph.op_name(op).startswith(name)])


def test_zero_1_gathers_beside_the_next_forward() -> None:
    data = {"kind": "zero", "stage": 1, **TINY}
    workload, timeline = run(4, data_parallel=data)
    graph = workload.graph
    gathers = named(graph, "all_gather", 0)
    forward = named(graph, "F layer 0", 1)[0]
    assert len(gathers) == 7
    assert timeline.start[forward] < timeline.end[gathers[-1]]
    assert timeline.start[forward] >= timeline.end[gathers[0]]
    late = {**data, "prefetch": False}
    _, held = run(4, data_parallel=late)
    assert held.start[forward] >= held.end[gathers[-1]]
    assert step_time(4, data_parallel=data) < step_time(4, data_parallel=late)


@pytest.mark.parametrize("kind", ["ddp", "zero"])
def test_the_optimizer_waits_for_every_bucket_and_no_longer(kind: str) -> None:
    data = {"kind": kind, **TINY, **({"stage": 2} if kind == "zero" else {})}
    workload, timeline = run(4, data_parallel=data)
    graph = workload.graph
    verb = "all_reduce" if kind == "ddp" else "reduce_scatter"
    buckets, optimizer = named(graph, verb, 0), named(graph, "optimizer", 0)[0]
    assert timeline.start[optimizer] == timeline.end[buckets].max()
    last = named(graph, "B layer 0", 0)[-1]
    assert timeline.start[buckets[0]] < timeline.end[last] <= timeline.arrive[buckets[-1]]


def test_units_are_gathered_as_far_ahead_as_told() -> None:
    """A unit is whole from its gather to its end: prefetch + 1 at once, and the one that ends."""
    times = []
    for ahead in (0, 1, 2):
        settings: dict[str, Any] = {"data_parallel": {"kind": "fsdp", "prefetch": ahead}}
        workload, timeline = run(4, batch={"global": 4, "micro": 1}, **settings)
        graph = workload.graph
        names = [f"F layer {n}" for n in range(4)]
        runs = [named(graph, name, 0)[0] for name in names]
        gathers = [named(graph, f"all_gather layer {n}", 0)[0] for n in range(4)]
        for n in range(ahead + 1, 4):
            assert timeline.start[gathers[n]] >= timeline.end[runs[n - ahead - 1]]
        for n in range(4):
            assert timeline.start[runs[n]] >= timeline.end[gathers[n]]
        times.append(measure(timeline).step_time_s)
    assert times[0] > times[1] >= times[2]


def test_tensor_parallel_overlap_only_helps() -> None:
    model = {**SMALL, "hidden": 64, "heads": 4, "vocab": 64}
    parallel = {"tp": 4, "sequence_parallel": True}
    times = [
        step_time(4, model=model, speed=1e11, parallel={**parallel, "tp_overlap": how})
        for how in ("none", "weight", "ring", "full")
    ]
    assert times[0] > times[1] > times[2] > times[3]


def test_a_ring_exposes_the_last_part_of_a_forward_s_reductions_and_nothing_else() -> None:
    """Where a block's product outlasts its collectives: a quarter of each reduction, not more."""
    model = {**SMALL, "hidden": 64, "heads": 4, "vocab": 64}
    exposed = []
    for how in ("none", "ring"):
        parallel = {"tp": 4, "sequence_parallel": True, "tp_overlap": how}
        workload, timeline = run(
            4, model=model, speed=1e13, parallel=parallel, batch={"global": 1, "micro": 1}
        )
        graph = workload.graph
        first = named(graph, "F layer 1 attention", 1)[0]
        after = named(graph, "F layer 1 mlp", 1)[0]
        gap = timeline.start[after] - timeline.end[first]
        exposed.append(int(gap))
    reduced = named(graph, "reduce_scatter F layer 1", 1)[1]
    last = timeline.end[reduced] - timeline.start[reduced]
    assert exposed[1] == last < exposed[0]


def test_the_backward_all_reduce_runs_beside_weight_gradients() -> None:
    model = {**SMALL, "hidden": 64, "heads": 4, "vocab": 64}
    settings: dict[str, Any] = {"parallel": {"tp": 2, "tp_overlap": "weight"}, "model": model,
                                "batch": {"global": 1, "micro": 1}}  # fmt: skip
    workload, timeline = run(2, speed=1e11, **settings)
    graph = workload.graph
    ops = named(graph, "all_reduce B layer 2", 0)
    first = ops[0]
    beside = [
        op for op in np.flatnonzero((graph.kind == OpKind.COMPUTE) & (graph.lane == 0)).tolist()
        if timeline.start[op] < timeline.end[first] and timeline.end[op] > timeline.start[first]
    ]  # fmt: skip
    assert [graph.op_name(op) for op in beside] == ["B layer 2 mlp"]


def test_ring_attention_hides_its_exchange() -> None:
    """Fast links: the exchange is under the attention of the block before; slow ones: exposed."""
    model = {**SMALL, "seq_len": 64}
    exposed = []
    for speed in (1e12, 1e8):
        _, timeline = run(4, speed=speed, model=model, parallel={"cp": 4})
        metrics = measure(timeline)
        exposed.append(metrics.breakdown.exposed_transfer_s / metrics.step_time_s)
    assert exposed[0] < exposed[1]


def test_each_block_of_the_ring_waits_for_its_keys_and_values() -> None:
    workload, timeline = run(4, speed=1e8, parallel={"cp": 4}, batch={"global": 1, "micro": 1})
    graph = workload.graph
    parts = named(graph, "F layer 1", 0)[2:]  # behind projections and its own; the last: and MLP
    ops = np.flatnonzero((graph.kind == OpKind.RECV) & (graph.lane == 0) & (graph.step == 0))
    came = [op for op in ops.tolist() if graph.op_name(op) == "exchange F layer 1"]
    assert len(came) == 3
    for part, exchange in zip(parts, came, strict=True):
        assert timeline.start[part] >= timeline.end[exchange]
    assert timeline.start[came[1]] < timeline.end[parts[0]]


def test_a_ring_hides_behind_scores_not_behind_projections() -> None:
    """Four tokens per rank: most of the attention block is its projections."""
    model = {**SMALL, "seq_len": 16}
    workload, timeline = run(4, speed=1e12, model=model, parallel={"cp": 4})
    graph = workload.graph
    whole = named(graph, "F layer 1 attention projections", 0)[0]
    first = named(graph, "exchange F layer 1", 0)[0]
    assert timeline.start[first] >= timeline.end[whole]
    part = named(graph, "F layer 1 attention 1", 0)[0]
    projections = timeline.end[whole] - timeline.start[whole]
    assert timeline.end[part] - timeline.start[part] < projections / 2


@pytest.mark.parametrize("how", ["weight", "full"])
def test_what_runs_beside_is_waited_for(how: str) -> None:
    """However slow its links, a block's all-reduce ends before the next block begins."""
    model = {**SMALL, "hidden": 64, "heads": 4, "vocab": 64}
    workload, timeline = run(
        2, speed=1e8, parallel={"tp": 2, "tp_overlap": how}, model=model,
        batch={"global": 1, "micro": 1},
    )  # fmt: skip
    graph = workload.graph
    for name, after in (("B layer 2", "B layer 1 mlp"), ("F layer 1", "F layer 2 attention")):
        reduced = named(graph, f"all_reduce {name}", 0)
        begun = named(graph, after, 0)[0]
        assert timeline.start[begun] >= timeline.end[reduced].max()


def test_an_action_ends_when_all_that_ran_beside_it_has() -> None:
    """On the last stage of two, the all-reduce of the gradient that is sent back."""
    model = {**SMALL, "hidden": 64, "heads": 4, "vocab": 64}
    workload, timeline = run(
        4, speed=1e8, parallel={"tp": 2, "pp": 2, "tp_overlap": "weight"}, model=model,
        batch={"global": 4, "micro": 1},
    )  # fmt: skip
    graph = workload.graph
    reduced = named(graph, "all_reduce B layer 2", 0, lane=2)[1::2]
    sends = [op for op in np.flatnonzero((graph.kind == OpKind.SEND) & (graph.lane == 2))
             if graph.step[op] == 0]  # fmt: skip
    forwards = named(graph, "F layer 2 attention", 0, lane=2)
    assert len(reduced) == len(sends) == len(forwards) == 4
    for k in range(4):
        assert timeline.arrive[sends[k]] >= timeline.end[reduced[k]]
        if k < 3:
            assert timeline.start[forwards[k + 1]] >= timeline.end[reduced[k]]


def test_the_next_microbatch_waits_for_the_last_all_reduce_of_this_one() -> None:
    workload, timeline = run(
        4, speed=1e8, parallel={"tp": 2, "pp": 2, "schedule": "gpipe"},
        batch={"global": 4, "micro": 1},
    )  # fmt: skip
    graph = workload.graph
    last, first = named(graph, "all_reduce F layer 1", 0)[1::2], named(graph, "F layer 0", 0)[::2]
    assert len(last) == len(first) == 4
    assert (timeline.start[first[1:]] >= timeline.end[last[:-1]]).all()


def test_a_pair_takes_turns() -> None:
    """DualPipe: while the tokens of one direction travel, the other computes."""
    experts = {**SMALL, "layers": 4, "experts": {"experts": 2, "top_k": 1, "expert_ffn": 32}}
    parallel = {"pp": 2, "dp": 2, "ep": 2}
    shares = []
    for schedule in ("1f1b", "dualpipe"):
        _, timeline = run(
            4, model=experts, batch={"global": 32, "micro": 1},
            parallel={**parallel, "schedule": schedule},
        )  # fmt: skip
        parts = measure(timeline).breakdown
        shares.append(1 - parts.exposed_transfer_s / parts.comm_s)
    assert shares[1] > shares[0]


def offloaded(**data: Any) -> tuple[Workload, Timeline]:
    cluster = Cluster.preset("dgx-a100", nodes=1)
    section = decode(
        {
            "model": {"preset": "gpt2-355m", "seq_len": 1024},
            "batch": {"global": 16, "micro": 2},
            "parallel": {"dp": 8},
            "data_parallel": {"kind": "zero", "stage": 2, "bucket": "25MiB", **data},
        },
        TrainingSection, "x",
    )  # fmt: skip
    workload = build_training(section, cluster)
    return workload, simulate(workload.graph, cluster, library=Ideal())


def test_offload_overlaps_backward_and_the_cpu_sets_the_pace() -> None:
    workload, timeline = offloaded(offload="cpu")
    graph = workload.graph
    down, last = named(graph, "offload gradients", 1), named(graph, "B layer 0", 1)[-1]
    assert timeline.start[down[0]] < timeline.end[last]
    up, updates = named(graph, "load parameters", 1), named(graph, "optimizer", 1)[1:]
    assert timeline.start[up[0]] < timeline.end[updates[-1]]
    assert (timeline.start[updates] >= timeline.end[down].max()).all()
    _, on_gpu = offloaded()
    assert measure(timeline).step_time_s > measure(on_gpu).step_time_s


def test_stale_parameters() -> None:
    """Alike workers take turns: between a worker's pull and its push, all others have updated."""
    for workers in (2, 5):
        settings: dict[str, Any] = {
            "batch": {"global": workers, "micro": 1}, "steps": 5, "parallel": {"dp": workers + 1},
            "data_parallel": {"kind": "parameter_server", "sync": False},
        }  # fmt: skip
        workload, timeline = run(workers + 1, **settings)
        assert staleness(timeline) == workers - 1
        assert workload.afterwards is not None
        assert f"mean staleness {workers - 1:.2f} updates" in workload.afterwards(timeline)[0]


def test_a_synchronous_server_updates_once_a_step_after_all() -> None:
    settings: dict[str, Any] = {
        "batch": {"global": 4, "micro": 1}, "parallel": {"dp": 5},
        "data_parallel": {"kind": "parameter_server"},
    }  # fmt: skip
    workload, timeline = run(5, **settings)
    graph = workload.graph
    updates = np.flatnonzero(graph.phase == Phase.OPTIMIZER)
    assert len(updates) == 2
    pushes = named(graph, "push", 0)
    for worker in range(1, 5):
        backward = named(graph, "B layer 0", 0, lane=worker)[-1]
        assert timeline.arrive[named(graph, "push", 0, lane=worker)[0]] == timeline.end[backward]
        forward = named(graph, "F layer 0", 1, lane=worker)[0]
        assert timeline.start[forward] == timeline.end[named(graph, "pull", 0, lane=worker)[0]]
    assert timeline.start[updates[0]] == timeline.end[pushes].max()
    assert workload.afterwards is None


def test_dataparallel_stays_on_one_node() -> None:
    section = decode(
        {"model": SMALL, "batch": {"global": 16, "micro": 1}, "parallel": {"dp": 16},
         "data_parallel": {"kind": "dataparallel"}}, TrainingSection, "x",
    )  # fmt: skip
    with pytest.raises(
        Exception, match="reaches the GPUs of one node; the cluster has 2. Use kind"
    ):
        build_training(section, Cluster.preset("dgx-a100", nodes=2))


def test_a_step_that_begins_with_a_collective_waits_for_the_one_before() -> None:
    """Without a time for the embedding, a forward begins with its all-reduce."""
    workload, timeline = run(2, parallel={"tp": 2})
    graph = workload.graph
    first = np.flatnonzero((graph.kind == OpKind.COLLECTIVE) & (graph.step == 1))[0]
    assert graph.op_name(first) == "all_reduce F embedding"
    optimizer = named(graph, "optimizer", 0)[0]
    assert timeline.arrive[first] >= timeline.end[optimizer]


def test_overlap_with_weight_gradients_that_run_apart_is_said_to_do_nothing() -> None:
    for schedule, said in (("zb_h1", True), ("1f1b", False)):
        parallel = {"tp": 2, "pp": 2, "tp_overlap": "weight", "schedule": schedule}
        notes = "\n".join(run(4, parallel=parallel)[0].notes)
        assert ("tp_overlap weight finds none to run beside" in notes) == said


def test_workers_that_differ_in_pace_are_said_to() -> None:
    """A worker beside the server is done before one whose link is slow."""
    data = {"kind": "parameter_server", "sync": False}
    batch = {"global": 2, "micro": 1}
    section = decode(
        {"model": SMALL, "batch": batch, "parallel": {"dp": 3}, "data_parallel": data,
         "compute": {"efficiency": 0.5}}, TrainingSection, "x",
    )  # fmt: skip
    speeds = [1e9, 1e9, 1e9, 1e9, 1e7, 1e7]
    for links, said in ((speeds, True), ([1e9] * 6, False)):
        cluster = ToyCluster(3, speed=links, latency=1000)
        workload = build_training(section, cluster, where="x")
        timeline = simulate(workload.graph, cluster, library=Ideal())
        assert workload.afterwards is not None
        assert ("tokens per second together" in workload.afterwards(timeline)[0]) == said
        fast, slow = paces(timeline)
        assert slow > 5 * fast if said else slow == pytest.approx(fast, rel=0.05)


def test_each_step_of_a_ring_adds_to_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs pass memory three times per step, three quarters of them behind the first step."""
    shape = {"layers": 1, "hidden": 4096, "heads": 32, "kv_heads": 8, "vocab": 32000,
             "seq_len": 8192}  # fmt: skip
    cluster = Cluster.preset("dgx-h100", nodes=1)

    def phase(cp: int, letter: str) -> int:
        section = decode(
            {"model": shape, "batch": {"global": 8 // cp, "micro": 1},
             "parallel": {"dp": 8 // cp, "cp": cp}}, TrainingSection, "x.yaml",
        )  # fmt: skip
        graph = build_training(section, cluster).graph
        ops = np.flatnonzero((graph.lane == 0) & (graph.step == 0))
        mine = [op for op in ops.tolist() if graph.op_name(op).startswith(f"{letter} layer 0")]
        return int(graph.duration[mine][graph.kind[mine] == OpKind.COMPUTE].sum())

    with_merging = {(cp, letter): phase(cp, letter) for cp in (2, 8) for letter in "FB"}
    monkeypatch.setattr(ComputeModel, "merging", lambda *_, **__: GpuWork(0.0))
    extra = {key: time - phase(*key) for key, time in with_merging.items()}
    assert extra[2, "F"] / extra[8, "F"] == pytest.approx(1.75 / 2 / (6.25 / 8), rel=1e-4)
    # backward: the gradients of q, and of k and v of a quarter of the heads
    assert extra[8, "B"] / extra[8, "F"] == pytest.approx(1 + 2 / 4, rel=1e-4)
    least = 3 * 2 * 8192 / 8 * 4096 * 6.25 / cluster.gpu(0).memory_bandwidth * 1e12
    assert least < extra[8, "F"] < 5 * least


@pytest.mark.parametrize(("servers", "said"), [(None, 1), (2, 2)])
def test_a_note_counts_servers_and_workers(servers: int | None, said: int) -> None:
    data = {"kind": "parameter_server"} | ({"servers": servers} if servers else {})
    settings: dict[str, Any] = {
        "batch": {"global": 5 - said, "micro": 1}, "parallel": {"dp": 5}, "data_parallel": data,
    }  # fmt: skip
    workload, _ = run(5, **settings)
    (note,) = [note for note in workload.notes if "parameter server" in note]
    assert f"servers: {said}, the first ranks; workers: {5 - said};" in note
