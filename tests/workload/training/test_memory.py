"""Memory of training steps: activations over time, states at rest, and whether it fits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.optional import present
from helpers.toy_cluster import GPU, SMALL, ToyCluster, training
from msgspec.structs import replace

from commsim.cluster import GpuSpec
from commsim.engine import simulate
from commsim.libraries import Ideal
from commsim.models import layer_activation_bytes, state_bytes
from commsim.sections import decode
from commsim.study.run import run as run_scenario
from commsim.timeline import Timeline
from commsim.workload import peak_memory
from commsim.workload.schedules import SCHEDULES, make_schedule, peak_activations
from commsim.workload.training import memory, plan_training, step
from commsim.workload.training.memory import _counted, _place, _places, _swing, with_memory
from commsim.workload.training.section import TrainingSection
from commsim.workload.training.stage_compiler import StageOps
from commsim.workload.training.stages import Unit
from commsim.workload.training.work_items import WorkItem

P = 4 * 784 + 256 + 8 + 256
EIGHT = {**SMALL, "layers": 8}


def run(n: int, **settings: Any) -> Timeline:
    cluster = ToyCluster(n)
    return simulate(training(n, cluster=cluster, **settings).graph, cluster, library=Ideal())


def layer_bytes(**settings: Any) -> int:
    base = {"model": EIGHT, "batch": {"global": 8, "micro": 1}, "compute": {"efficiency": 0.5}}
    section = decode({**base, **settings}, TrainingSection, "x")
    plan = plan_training(section, ToyCluster(4), where="x")
    return layer_activation_bytes(
        plan.model.shape, plan.split, recompute=section.recompute, flash=True
    )


@pytest.mark.parametrize("schedule", list(SCHEDULES))
def test_activations_peak_where_the_schedule_says(schedule: str) -> None:
    """Layers only: a device without embedding and head holds its schedule's live microbatches."""
    v = 2 if schedule in ("interleaved_1f1b", "breadth_first") else 1
    parallel = {"pp": 4, "schedule": schedule, "virtual_stages": v}
    timeline = run(4, model=EIGHT, parallel=parallel)
    workload_schedule = make_schedule(schedule, 4, 8, where="x", virtual=v)
    if schedule in ("zb_1p", "zb_2p", "zb_v", "v_half", "v_min"):  # laid out for the real times
        section = decode(
            {"model": EIGHT, "batch": {"global": 8, "micro": 1}, "parallel": parallel,
             "compute": {"efficiency": 0.5}}, TrainingSection, "x",
        )  # fmt: skip
        workload_schedule = plan_training(section, ToyCluster(4), where="x").schedule
    live = peak_activations(workload_schedule)
    held = np.zeros(4, np.int64)
    np.maximum.at(held, timeline.memory.lane, timeline.memory.held)
    one = layer_bytes(parallel={"pp": 4}) * 2  # two layers per device
    for device in (1, 2):
        assert held[device] == live[device] * one


def test_everything_is_given_back() -> None:
    timeline = run(4, model=EIGHT, parallel={"pp": 4, "schedule": "zb_h2"}, recompute="full")
    for lane in range(4):
        assert timeline.memory.held[timeline.memory.lane == lane][-1] == 0
    assert timeline.memory.held.min() >= 0


def test_recompute_keeps_less_and_needs_one_layer_while_it_runs() -> None:
    peaks = {}
    for how in ("none", "full"):
        timeline = run(2, model=EIGHT, parallel={"pp": 2, "schedule": "gpipe"}, recompute=how)
        held = timeline.memory.held[timeline.memory.lane == 0]
        peaks[how] = int(held.max())
    kept, whole = (layer_bytes(parallel={"pp": 4}, recompute=how) for how in ("full", "none"))
    assert peaks["full"] == pytest.approx(8 * 4 * kept + (whole - kept), abs=8 * 16 * 8)
    assert peaks["none"] >= 8 * 4 * whole


STATES: list[tuple[dict[str, Any], tuple[float, float, float]]] = [
    ({"kind": "ddp"}, (2, 2, 12)),
    ({"kind": "ddp", "gradients": "fp32"}, (2, 4, 12)),
    ({"kind": "zero", "stage": 1}, (2, 2, 3)),
    ({"kind": "zero", "stage": 2}, (2, 0.5, 3)),
    ({"kind": "zero", "stage": 1, "offload": "cpu"}, (2, 2, 0)),
    ({"kind": "zero", "stage": 2, "offload": "cpu"}, (2, 0, 0)),
    ({"kind": "zero", "stage": 3}, (0.5, 0.5, 3)),
    ({"kind": "fsdp"}, (0.5, 0.5, 3)),
    ({"kind": "hsdp", "shard": 2}, (1, 1, 6)),
    ({"kind": "hsdp", "shard": 1}, (2, 2, 12)),
]


@pytest.mark.parametrize(("data", "per_parameter"), STATES)
def test_states_at_rest(data: dict[str, Any], per_parameter: tuple[float, float, float]) -> None:
    facts = training(4, data_parallel=data).training
    assert facts is not None
    use = facts.resident[0]
    assert (use.parameters, use.gradients, use.optimizer) == tuple(P * n for n in per_parameter)
    whole = data["kind"] in ("fsdp", "hsdp") and data.get("shard") != 1 or data.get("stage") == 3
    leaves = data.get("stage") == 2 and "offload" in data  # bucket by bucket
    assert (use.buffers > 0) == (whole or leaves)


def test_dualpipe_keeps_whole_gradients_until_both_ends_are_done() -> None:
    parallel = {"pp": 2, "dp": 2, "schedule": "dualpipe"}
    data = {"kind": "zero", "stage": 2}
    workload = training(4, parallel=parallel, data_parallel=data)
    facts = workload.training
    assert facts is not None
    assert facts.resident[0].gradients == 2 * P
    assert facts.resident[0].optimizer == 12 * P // 4
    assert any("after backward of the last microbatch (the two" in n for n in workload.notes)


@pytest.mark.parametrize(("data", "entries"), [
    ({"kind": "fsdp"}, 2 * 784), ({"kind": "fsdp", "prefetch": 0}, 784),
    ({"kind": "zero", "stage": 3, "prefetch": 3}, 4 * 784), ({"kind": "hsdp", "shard": 2}, 2 * 784),
    ({"kind": "fsdp", "shard": "grad_op"}, P),
])  # fmt: skip
def test_units_that_are_whole_at_once(data: dict[str, Any], entries: int) -> None:
    """Parameters of the units gathered ahead and of the one that runs, and one unit's gradient."""
    facts = training(4, data_parallel=data).training
    assert facts is not None
    assert facts.resident[0].buffers == 2 * entries + 2 * 784


def test_gpu_0_carries_dataparallel() -> None:
    settings: dict[str, Any] = {
        "batch": {"global": 8, "micro": 2}, "data_parallel": {"kind": "dataparallel"},
    }  # fmt: skip
    facts, timeline = training(4, **settings).training, run(4, **settings)
    assert facts is not None
    first, other = facts.resident
    assert first.optimizer == state_bytes(P).optimizer
    assert (first.activations, other.activations, other.optimizer) == (0, 0, 0)
    held = [timeline.memory.held[timeline.memory.lane == lane].max() for lane in (0, 1)]
    logits = 4 * 2 * 16 * 32 * 2
    assert held[0] - held[1] == 2 * logits
    use, size, sentence = peak_memory(facts, timeline)
    assert (use.optimizer, size) == (12 * P, GPU.memory_bytes)
    assert sentence.startswith("fits: ")
    assert "1.0 GiB on GPU 0, of which" in sentence


def test_the_loss_of_dataparallel_takes_what_gpu_0_takes() -> None:
    """Four GPUs, of which three read memory twice as fast; logits of 4 x 2 x 16 tokens of 32 words
    in two bytes, that is 8 KiB, are passed over four times."""

    class Mixed(ToyCluster):
        def gpu(self, rank: int) -> GpuSpec:
            return replace(GPU, memory_bandwidth=2e12) if rank else GPU

    settings = {"batch": {"global": 8, "micro": 2}, "data_parallel": {"kind": "dataparallel"}}
    graph = training(4, cluster=Mixed(4), **settings).graph
    losses = [op for op in range(len(graph)) if graph.op_name(op) == "loss"]
    assert {int(graph.lane[op]) for op in losses} == {0}
    assert {int(graph.duration[op]) for op in losses} == {4 * 8192}


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1", "zb_v"])
def test_layers_that_are_one_op_peak_like_layers_apart(
    recompute: str, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large layouts have one op per stage; what a layer holds while it runs again is not summed."""
    peaks, counts = [], []
    for most in (step.MERGED_ABOVE, 0):
        monkeypatch.setattr(step, "MERGED_ABOVE", most)
        timeline = run(
            4, model={**SMALL, "layers": 16}, recompute=recompute,
            parallel={"pp": 4, "schedule": schedule},
        )  # fmt: skip
        held = np.zeros(4, np.int64)
        np.maximum.at(held, timeline.memory.lane, timeline.memory.held)
        peaks.append(held.tolist())
        counts.append(len(timeline))
    assert counts[1] < counts[0]
    assert peaks[0] == peaks[1]


def test_gpus_that_are_alike_are_all_the_fullest() -> None:
    facts, timeline = training(4).training, run(4)
    assert facts is not None
    assert " GiB on every GPU, of which " in peak_memory(facts, timeline)[2]


def test_what_does_not_fit_says_by_how_much() -> None:
    workload = training(2, parallel={"pp": 2}, model={**EIGHT, "vocab": 320_000, "hidden": 256})
    facts = workload.training
    assert facts is not None
    timeline = simulate(workload.graph, ToyCluster(2), library=Ideal())
    use, capacity, sentence = peak_memory(facts, timeline)
    assert use.total > capacity
    assert sentence.startswith("does not fit: 2.0 GiB of 1.0 GiB on stage 1, of which optimizer")


def test_a_server_keeps_the_optimizer_and_a_worker_does_not() -> None:
    data = {"kind": "parameter_server", "servers": 2}
    facts = training(6, parallel={"dp": 6}, data_parallel=data).training
    assert facts is not None
    server, worker = facts.resident
    assert (server.parameters, server.optimizer) == (2 * P / 2, 12 * P / 2)
    assert (worker.parameters, worker.optimizer) == (2 * P, 0)
    assert worker.gradients == 2 * server.gradients > 0
    assert server.activations == worker.activations == 0  # not held all through a step
    assert facts.device_of_rank == (0, 0, 1, 1, 1, 1)


def test_selective_recompute_of_fused_attention_runs_nothing_again() -> None:
    facts = {}
    for how in ("none", "selective", "full"):
        result = run_scenario("zero-1", (f"workload.training.recompute={how}",))
        facts[how] = present(result.metrics.hfu)
        said = any("selective drops nothing" in note for note in result.notes)
        assert said == (how == "selective")
    assert facts["selective"] == facts["none"]
    assert facts["full"] > facts["none"]


def item(unit: int, alloc: int = 0, free: int = 0, kind: str = "compute") -> WorkItem:
    return WorkItem(unit, "x", -1, kind, alloc=alloc, free=free)


def test_a_work_list_rises_and_ends_as_often_as_its_units_are_repeated() -> None:
    """Three times a unit that takes 10 and leaves 6, then two that take 1 and give back 5."""
    grows, shrinks = item(0, 10, 4), item(1, 1, 5)
    assert _swing((grows,), (3,)) == (6 + 6 + 10, 18)
    assert _swing((grows, shrinks), (3, 2)) == (22, 10)
    assert _swing((grows, shrinks), (1, 1)) == (10, 2)
    assert _swing((item(0, 3), item(0, 4, 7)), (1,)) == (7, 0)
    assert _swing((item(0, 3, 3), item(0, 4, 4)), (1,)) == (4, 0)
    assert _swing((item(1, 2), item(0, 5)), (1, 1)) == (7, 7)
    assert _swing((), ()) == (0, 0)


def test_of_equal_units_in_a_row_the_second_stands_for_the_rest() -> None:
    units = tuple(Unit("layer", number, ()) for number in range(7))
    kinds = ("a", "b", "b", "b", "c", "c", "b")
    found, repeats = _counted(kinds, units)
    assert [unit.layer for unit in found] == [0, 1, 2, 4, 5, 6]
    assert repeats == (1, 1, 2, 1, 1, 1)


def test_a_unit_begins_with_its_first_compute_and_ends_with_its_last() -> None:
    moves = item(0, kind="all_reduce")
    assert _places([moves, item(0), moves, item(0), moves, item(1)]) == {0: (1, 3), 1: (5, 5)}
    assert _places([item(2), moves]) == {2: (0, 0)}
    assert _places([moves]) == {}


def test_a_unit_keeps_from_its_forward_until_its_weight_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each keeps 100 and takes 30 more as it runs again; unit 1 has no weight gradient apart."""
    monkeypatch.setattr(memory, "_activations", lambda *_: (100, 30))
    units = tuple(Unit("layer", number, ()) for number in range(3))
    made = StageOps(
        forward=(item(0), item(0, kind="all_reduce"), item(0), item(1)),
        backward=(item(1), item(0), item(0)),
        input_backward=(item(1), item(0)),
        weight=(item(0), item(2)),
    )
    anything: Any = None
    found = with_memory(made, anything, anything, units)
    held = [[(one.alloc, one.free) for one in row] for row in (found.forward, found.backward)]
    assert held == [[(100, 0), (0, 0), (0, 0), (100, 0)], [(30, 130), (30, 0), (0, 130)]]
    assert [(one.alloc, one.free) for one in found.input_backward] == [(30, 130), (30, 30)]
    assert [(one.alloc, one.free) for one in found.weight] == [(0, 100), (0, 0)]
    assert [one.kind for one in found.forward] == [one.kind for one in made.forward]


@pytest.mark.parametrize(
    ("devices", "staged", "rank", "full", "words"),
    [
        ((0,), False, 0, {0}, "on the GPU"),
        ((0, 0), False, 0, {0, 1}, "on every GPU"),
        ((0, 0), False, 1, {1}, "on GPU 1"),
        ((0, 0, 1, 1), True, 2, {2, 3}, "on stage 1"),
        ((0, 0, 1, 1), True, 2, {2}, "on stage 1 (GPU 2)"),
        ((0, 0, 1, 1), True, 0, {0, 1, 2, 3}, "on every GPU"),
    ],
)
def test_the_fullest_gpus_are_named(
    devices: tuple[int, ...], staged: bool, rank: int, full: set[int], words: str
) -> None:
    facts: Any = SimpleNamespace(device_of_rank=devices, staged=staged)
    assert _place(facts, rank, frozenset(full), list(range(len(devices)))) == words


def test_a_run_holds_its_context_and_a_buffer_per_group() -> None:
    """512 MiB, and 153.6 MB for each of tensor, pipeline and data parallelism."""
    for parallel, groups in (
        ({"dp": 8}, 1),
        ({"dp": 4, "tp": 2}, 2),
        ({"dp": 2, "tp": 2, "pp": 2}, 3),
    ):
        facts = training(8, parallel=parallel).training
        assert facts is not None
        assert facts.resident[0].runtime == 2**29 + groups * 153_600_000


def test_gradients_that_leave_by_buckets_hold_two_of_them_at_most() -> None:
    whole = 2 * P
    for bucket in (100, whole // 2, whole):
        data = {"kind": "zero", "stage": 2, "offload": "cpu", "bucket": f"{bucket}B"}
        facts = training(4, data_parallel=data).training
        assert facts is not None
        assert facts.resident[0].buffers == min(2 * bucket, whole // 4)


def test_what_trains_in_fp32_has_four_bytes_of_everything() -> None:
    """Parameter, gradient and two moments, without a copy; by 4 ranks under FSDP."""
    for data, shards in (({"gradients": "fp32"}, 1), ({"kind": "fsdp", "gradients": "fp32"}, 4)):
        facts = training(4, precision="fp32", data_parallel=data).training
        assert facts is not None
        use = facts.resident[0]
        held = (use.parameters, use.gradients, use.optimizer)
        assert held == (4 * P / shards, 4 * P / shards, 8 * P / shards)


def test_one_replica_is_whole_whatever_it_is_called() -> None:
    for data in ({"kind": "fsdp"}, {"kind": "zero", "stage": 3}, {"kind": "zero", "stage": 1}):
        facts = training(2, parallel={"tp": 2}, data_parallel=data).training
        plain = training(2, parallel={"tp": 2}).training
        assert facts is not None
        assert plain is not None
        assert facts.resident[0].parameters == plain.resident[0].parameters
        assert facts.resident[0].optimizer == plain.resident[0].optimizer
        assert facts.resident[0].buffers == 0
