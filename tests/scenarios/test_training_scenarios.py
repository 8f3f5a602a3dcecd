"""What the training scenarios say is to be seen, is there."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from commsim.metrics import Metrics
from commsim.models import MemoryUse
from commsim.scenario import load_scenario
from commsim.study.run import Result, run

GIB = 2**30


@cache
def result(name: str) -> Result:
    return run(name)


def metrics(name: str) -> Metrics:
    return result(name).metrics


def held(name: str) -> MemoryUse:
    """Return what the fullest rank holds all the time."""
    known = result(name).training
    assert known is not None
    return max(known.resident, key=lambda use: use.total)


def parameters(name: str) -> int:
    known = result(name).training
    assert known is not None
    return known.parameters


def carried(name: str, part: str) -> float:
    """Return the bytes of a step on the links whose name has `part`, the most of one."""
    return max((one.bytes for one in metrics(name).links if part in one.name), default=0.0)


def test_gpu_0_is_the_bottleneck_of_dataparallel() -> None:
    alone, ddp = metrics("dataparallel-on-gpu0"), metrics("ddp")
    as_efficient = run("ddp", sets=["workload.training.compute.efficiency=0.45"]).metrics
    assert alone.step_time_s > 1.3 * as_efficient.step_time_s
    first, *others = alone.ranks
    assert first.compute_s > max(rank.compute_s for rank in others)
    assert alone.memory_gib is not None
    assert ddp.memory_gib is not None
    assert alone.memory_gib["activations"] > 1.3 * ddp.memory_gib["activations"]


def test_four_small_gpus_hold_what_one_large_one_does_and_are_slower() -> None:
    one, four = metrics("one-24gb-gpu"), metrics("four-6gb-gpus")
    assert one.memory_gib is not None
    assert four.memory_gib is not None
    assert one.memory_gib["fits"]
    assert four.memory_gib["fits"]
    assert one.memory_gib["peak"] * GIB > 6e9
    assert four.step_time_s > one.step_time_s
    assert four.bubble_fraction == pytest.approx(3 / 4, abs=0.02)


def test_zero_divides_one_thing_more_per_stage() -> None:
    """P = 6.74e9 on 8 GPUs: 12, 2 and 2 bytes of optimizer, gradients and parameters."""
    whole = parameters("zero-1")
    for stage, parts in ((1, (2, 2, 12 / 8)), (2, (2, 2 / 8, 12 / 8)), (3, (2 / 8, 2 / 8, 12 / 8))):
        use = held(f"zero-{stage}")
        found = (use.parameters, use.gradients, use.optimizer)
        assert found == pytest.approx([whole * part for part in parts], rel=1e-6), stage


def test_zero_pays_in_bytes() -> None:
    """Of 7/8 P: (2 + 2) once; 2 per microbatch and 2 once; 6 per microbatch. Two microbatches."""
    port = 7 / 8 * parameters("zero-1")
    for stage, times in ((1, 4), (2, 6), (3, 12)):
        found = carried(f"zero-{stage}", "gpu0->nvswitch")
        assert found == pytest.approx(times * port, rel=0.01), stage


def test_three_layers_are_gathered_one_after_another() -> None:
    """Each unit's gather starts before the compute of the one before has ended."""
    name = "zero-3-three-layers"
    graph, timeline = result(name).timeline.graph, result(name).timeline
    mine = np.flatnonzero((timeline.lane == 0) & (graph.step[timeline.op] == 1))
    spans: dict[str, int] = {}  # by name, the first of each: the forward's gather
    for row in mine[np.argsort(timeline.start[mine])].tolist():
        spans.setdefault(graph.op_name(int(timeline.op[row])), row)
    for layer in range(3):
        gathered, ran = spans[f"all_gather layer {layer}"], spans[f"F layer {layer}"]
        assert timeline.end[gathered] <= timeline.start[ran]
        if layer:
            assert timeline.start[gathered] < timeline.end[spans[f"F layer {layer - 1}"]]
    use = held(name)
    assert use.optimizer == pytest.approx(12 / 3 * parameters(name), rel=1e-3)


def test_offload_keeps_the_optimizer_off_the_gpus_and_waits_for_the_cpus() -> None:
    use, parts = held("zero-offload"), metrics("zero-offload").breakdown
    assert use.optimizer == 0
    assert 16 * parameters("zero-offload") > 40e9  # no GPU of the box would hold it
    assert parts.exposed_copy_s + parts.host_s > 0.1 * metrics("zero-offload").step_time_s


def test_tensor_parallel_reduces_twice_per_layer_each_way() -> None:
    """32 layers; the embedding, its gradient, and three of the cross entropy besides."""
    reduced = [one for one in metrics("tensor-parallel").collectives if one.op == "all_reduce"]
    layers = [one for one in reduced if one.count >= 4 * 32]
    assert sum(one.count for one in reduced) == 4 * 32 + 2 + 3
    assert sum(one.exposed_s for one in layers) == pytest.approx(
        metrics("tensor-parallel").breakdown.exposed_transfer_s, rel=0.02
    )


def test_gradients_of_a_stage_are_reduced_in_its_own_group() -> None:
    graph = result("dp-pp").timeline.graph
    reduced = {graph.groups[group].ranks for group in graph.collectives.group.tolist()}
    assert {(0, 2), (1, 3)} <= reduced


def test_three_axes_wait_longest_for_replicas_over_nics_then_for_tensor_parallelism() -> None:
    """Gradients cross nodes once, activations stay on NVLink but come with each layer."""
    found = metrics("dp-pp-tp")
    exposed: dict[str, float] = {}
    for one in found.collectives:
        axis = one.group.rstrip("0123456789")
        exposed[axis] = exposed.get(axis, 0.0) + one.exposed_s
    assert sorted(exposed, key=exposed.__getitem__)[-2:] == ["tp", "dp"]
    assert exposed["dp"] < 1.25 * exposed["tp"]
    assert "on dp over the NICs" in result("dp-pp-tp").headline
    section = load_scenario("dp-pp-tp").file.workload.training
    assert section is not None
    assert (section.parallel.dp, section.parallel.pp, section.parallel.tp) == (4, 2, 4)


def test_a_server_carries_what_all_workers_send() -> None:
    """Three workers push and pull 2P each."""
    name = "parameter-server"
    whole = 2 * parameters(name)
    assert carried(name, "gpu0->nvswitch") == pytest.approx(3 * whole, rel=0.01)
    assert carried(name, "gpu1->nvswitch") == pytest.approx(whole, rel=0.01)
    assert metrics(name).step_time_s > metrics("ddp").step_time_s


def test_asynchronous_workers_compute_with_stale_parameters() -> None:
    assert any("mean staleness 2.00 updates" in n for n in result("parameter-server-async").notes)
    async_step = metrics("parameter-server-async").step_time_s
    assert async_step < metrics("parameter-server").step_time_s
