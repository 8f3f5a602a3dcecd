"""Training steps: what the graph holds, and how long it takes where that is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.share import examples
from helpers.toy_cluster import GPU, SMALL, ToyCluster, training
from hypothesis import given
from hypothesis import strategies as st

from commsim.engine import simulate
from commsim.graph import Graph, OpKind, Phase
from commsim.libraries import LibrarySection, make_library
from commsim.metrics import measure
from commsim.models import ModelSection, build_model, compute_model, head_flops, layer_flops
from commsim.sections import decode
from commsim.timeline import Timeline
from commsim.workload import PipelineSection, Workload, build_pipeline
from commsim.workload.schedules import SCHEDULES
from commsim.workload.training import TrainingSection, plan_training

MODEL = build_model(decode(SMALL, ModelSection, "x"))
LAYER = layer_flops(MODEL.shape, batch=1, seq=16)
HEAD = head_flops(MODEL.shape, batch=1, seq=16)
EFFICIENCY = 0.5
TINY_BUCKETS = {"bucket": "1000B", "first_bucket": "600B"}


def run(workload: Workload, cluster: ToyCluster) -> Timeline:
    return simulate(workload.graph, cluster, library=make_library(LibrarySection()))


def ops_of(graph: Graph, rank: int, step: int) -> list[str]:
    """Return the names of a rank's compute ops in one step."""
    chosen = (graph.lane == rank) & (graph.step == step) & (graph.kind == OpKind.COMPUTE)
    return [graph.op_name(op) for op in np.flatnonzero(chosen).tolist()]


def test_one_gpu_takes_its_flops_and_its_optimizer() -> None:
    workload = training(1)
    facts = workload.training
    assert facts is not None
    assert facts.model_flops == 8 * 3 * (4 * LAYER + HEAD)
    assert facts.tokens == 8 * 16
    assert facts.peak_flops == 1e12
    model = compute_model(GPU, precision="bf16")
    optimizer = model.optimizer(facts.parameters).seconds
    expected = facts.model_flops / (EFFICIENCY * 1e12) + optimizer
    metrics = measure(run(workload, ToyCluster(1)))
    assert metrics.step_time_s == pytest.approx(expected, rel=1e-9)
    assert metrics.breakdown.idle_s == 0


def test_backward_mirrors_forward_with_the_head_on_the_last_stage() -> None:
    graph = training(2, parallel={"pp": 2}, batch={"global": 1, "micro": 1}).graph
    assert ops_of(graph, 0, 0) == [
        "F layer 0", "F layer 1", "B layer 1", "B layer 0", "optimizer",
    ]  # fmt: skip
    assert ops_of(graph, 1, 1) == [
        "F layer 2", "F layer 3", "F head", "B head", "B layer 3", "B layer 2", "optimizer",
    ]  # fmt: skip
    backward = graph.phase == Phase.BACKWARD
    forward = graph.phase == Phase.FORWARD
    compute = graph.kind == OpKind.COMPUTE
    assert graph.flops[backward & compute].sum() == 2 * graph.flops[forward & compute].sum()


def test_the_next_step_starts_after_the_optimizer() -> None:
    timeline = run(training(2, parallel={"pp": 2}), ToyCluster(2))
    graph = timeline.graph
    step, phase, lane = (c[timeline.op] for c in (graph.step, graph.phase, graph.lane))
    work = timeline.kind == OpKind.COMPUTE
    for rank in range(2):
        done = timeline.end[(lane == rank) & (step == 0) & (phase == Phase.OPTIMIZER)]
        begun = timeline.start[(lane == rank) & (step == 1) & work]
        assert done.size == 1
        assert begun.min() >= done[0]
        if rank == 0:  # the first stage waits for nobody
            assert begun.min() == done[0]


def test_the_optimizer_waits_for_the_last_bucket() -> None:
    timeline = run(training(4, data_parallel=TINY_BUCKETS), ToyCluster(4))
    graph = timeline.graph
    step, phase = graph.step[timeline.op], graph.phase[timeline.op]
    reduced = timeline.end[timeline.communicates & (step == 0)].max()
    assert timeline.start[(phase == Phase.OPTIMIZER) & (step == 0)].min() == reduced


def test_overlap_hides_reduction_and_never_costs_time() -> None:
    cluster = ToyCluster(4, speed=1e11, latency=0)
    on = run(training(4, cluster=cluster, data_parallel=TINY_BUCKETS), cluster)
    off = run(
        training(4, cluster=cluster, data_parallel={**TINY_BUCKETS, "overlap": False}), cluster
    )
    hidden, exposed = measure(on), measure(off)
    assert exposed.breakdown.exposed_transfer_s == pytest.approx(exposed.breakdown.comm_s)
    assert hidden.breakdown.exposed_transfer_s < hidden.breakdown.comm_s
    assert hidden.step_time_s < exposed.step_time_s


VIRTUAL = {"interleaved_1f1b": 2, "breadth_first": 2}


def stated_times(cluster: ToyCluster, **given: Any) -> dict[str, Any]:
    """Return the pipeline whose stages take what those of a training layout compute."""
    base = {"batch": {"global": 8, "micro": 1}, "compute": {"efficiency": EFFICIENCY}}
    section = decode({**base, **given}, TrainingSection, "x")
    plan = plan_training(section, cluster, where="x")
    compiler = plan.compiler(compute_model(GPU, precision="bf16", section=section.compute))
    stage_ops = [compiler.compile(stage.units) for stage in plan.stages[: plan.schedule.parts]]
    times = {
        name: [f"{sum(item.duration for item in getattr(one, work_list))}ps" for one in stage_ops]
        for name, work_list in (
            ("forward", "forward"), ("backward", "input_backward"), ("weight", "weight")
        )
    }  # fmt: skip
    parallel = section.parallel
    return {
        "stages": parallel.pp, "microbatches": 8, "schedule": parallel.schedule,
        "virtual_stages": parallel.virtual_stages, **times,
    }  # fmt: skip


@pytest.mark.share(0.4)
@pytest.mark.parametrize("schedule", list(SCHEDULES))
@pytest.mark.parametrize("pp", [2, 4])
def test_its_pipeline_is_the_one_of_stated_times(schedule: str, pp: int) -> None:
    """Links that take no time make the step as long as a pipeline without delays: first step."""
    cluster = ToyCluster(pp, speed=1e30, latency=0)
    given: dict[str, Any] = {
        "model": {**SMALL, "layers": 8},
        "parallel": {
            "pp": pp, "schedule": schedule, "virtual_stages": VIRTUAL.get(schedule, 1)
        },
    }  # fmt: skip
    assert_as_stated(cluster, given, stated_times(cluster, **given))


@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1"])
def test_a_latency_is_the_delay_of_stated_times(schedule: str) -> None:
    c, pp = 10_000, 4  # ps, less than any stage's action: the receive is posted early enough
    cluster = ToyCluster(pp, speed=1e24, latency=c // 2)
    given = {"model": SMALL, "parallel": {"pp": pp, "schedule": schedule}}
    assert_as_stated(cluster, given, {**stated_times(cluster, **given), "p2p": f"{c}ps"})


def assert_as_stated(cluster: ToyCluster, given: dict[str, Any], stated: dict[str, Any]) -> None:
    """Check that the first step ends when a pipeline of stated times does."""
    workload = training(cluster.world_size, cluster=cluster, **given)
    timeline = run(workload, cluster)
    step, phase = (column[timeline.op] for column in (workload.graph.step, workload.graph.phase))
    work = (step == 0) & (phase != Phase.OPTIMIZER) & ~timeline.communicates
    section = decode(stated, PipelineSection, "x")
    delayed = simulate(build_pipeline(section).graph, None, library=make_library(LibrarySection()))
    messages = len(workload.graph.messages)  # each may round up by a picosecond or two
    assert timeline.end[work].max() == pytest.approx(delayed.end_time, abs=2 * messages)


def test_a_stages_layers_are_shared_by_its_virtual_stages() -> None:
    """2 and 6 layers on two devices of two virtual stages: 1, 3, 1, 3."""
    parallel = {"pp": 2, "schedule": "interleaved_1f1b", "virtual_stages": 2}
    for listed in ([2, 6], [1, 3, 1, 3]):
        graph = training(
            2, model={**SMALL, "layers": 8}, parallel={**parallel, "layers_per_stage": listed}
        ).graph
        assert ops_of(graph, 0, 0)[:4] == ["F layer 0"] * 2 + ["F layer 4"] * 2
        forward = (graph.phase == Phase.FORWARD) & (graph.kind == OpKind.COMPUTE)
        layers = [sorted(set(graph.layer[forward & (graph.stage == s)].tolist())) for s in range(4)]
        assert layers == [[0], [1, 2, 3], [4], [-1, 5, 6, 7]]


@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1"])
def test_a_stage_may_hold_no_layer(schedule: str) -> None:
    """The embedding alone takes no time here, but passes everything on."""
    parallel = {"pp": 3, "schedule": schedule, "layers_per_stage": [0, 2, 2]}
    workload = training(3, parallel=parallel)
    assert run(workload, ToyCluster(3)).end_time > 0
    assert len(workload.graph.messages) == 2 * 2 * 2 * 8


def test_messages_are_posted_in_the_order_in_which_they_are_sent() -> None:
    """In a V one neighbour sends forwards and gradients; each is taken for what it is."""
    for schedule in ("zb_v", "v_min", "dualpipe", "interleaved_1f1b"):
        parallel = {"pp": 4, "schedule": schedule, "virtual_stages": VIRTUAL.get(schedule, 1)}
        graph = training(4, model={**SMALL, "layers": 8}, parallel=parallel).graph
        table = graph.messages
        assert (table.send_op >= 0).all()
        assert (table.recv_op >= 0).all()
        for column in (graph.phase, graph.step):
            sent, received = column[table.send_op], column[table.recv_op]
            assert (sent == received).all()


def test_a_pipeline_sends_the_boundary_each_way() -> None:
    graph = training(4, parallel={"dp": 2, "pp": 2}).graph
    messages = graph.messages
    assert len(messages) == 2 * 2 * 4 * 2  # steps, directions, microbatches, replicas
    assert set(messages.size.tolist()) == {2 * 1 * 16 * 8}
    assert (messages.send_op >= 0).all()
    assert (messages.recv_op >= 0).all()
    assert sorted((g.axis, g.ranks) for g in graph.groups) == [
        ("dp", (0, 1)),
        ("dp", (2, 3)),
        ("pp", (0, 2)),
        ("pp", (1, 3)),
    ]
    pairs = zip(messages.source.tolist(), messages.target.tolist(), strict=True)
    assert set(pairs) == {(0, 2), (2, 0), (1, 3), (3, 1)}


def test_the_order_moves_the_groups() -> None:
    parallel = {"dp": 2, "pp": 2, "order": ["pp", "tp", "cp", "dp"]}
    graph = training(4, parallel=parallel).graph
    assert sorted(g.ranks for g in graph.groups if g.axis == "dp") == [(0, 2), (1, 3)]
    assert sorted(g.ranks for g in graph.groups if g.axis == "pp") == [(0, 1), (2, 3)]


def test_a_tied_embedding_is_reduced_between_the_ends() -> None:
    tied = {**SMALL, "tied_embeddings": True}
    workload = training(3, parallel={"pp": 3, "layers_per_stage": [1, 1, 2]}, model=tied)
    graph, facts = workload.graph, workload.training
    assert facts is not None
    assert facts.rank_parameters == (784 + 256, 784, 2 * 784 + 8 + 256)
    assert facts.parameters == 4 * 784 + 8 + 256
    assert sorted((g.axis, g.ranks) for g in graph.groups) == [
        ("embedding", (0, 2)), ("pp", (0, 1, 2)),
    ]  # fmt: skip
    assert graph.collectives.size.tolist() == [512, 512]
    run(workload, ToyCluster(3))
    alone = training(2, model=tied).training
    assert alone is not None
    assert alone.rank_parameters == (facts.parameters, facts.parameters)


@pytest.mark.parametrize("schedule", ["zb_v", "dualpipev", "dualpipe"])
def test_a_table_whose_two_ends_share_a_device_is_there_once(schedule: str) -> None:
    tied = {**SMALL, "layers": 8, "tied_embeddings": True}
    workload = training(2, parallel={"pp": 2, "schedule": schedule}, model=tied)
    facts = workload.training
    assert facts is not None
    assert "embedding" not in {group.axis for group in workload.graph.groups}
    copies = 2 if schedule == "dualpipe" else 1
    assert sum(facts.rank_parameters) == copies * facts.parameters


def test_stages_are_tagged_only_where_there_is_a_pipeline() -> None:
    assert set(training(2).graph.stage.tolist()) == {-1}
    graph = training(2, parallel={"pp": 2}).graph
    assert (graph.stage == graph.lane).all()
    assert set(graph.step.tolist()) == {0, 1}


@examples(40)
@given(
    schedule=st.sampled_from(["naive", "gpipe", "1f1b"]),
    dp=st.integers(1, 3), pp=st.sampled_from([1, 2, 4]), m=st.integers(1, 6),
    steps=st.integers(2, 3), latency=st.sampled_from([0, 10**4, 10**8]),
    tied=st.booleans(), overlap=st.booleans(),
)  # fmt: skip
def test_every_layout_runs_to_its_end(
    schedule: str, dp: int, pp: int, m: int, steps: int, latency: int, tied: bool, overlap: bool
) -> None:
    cluster = ToyCluster(dp * pp, latency=latency)
    workload = training(
        dp * pp, cluster=cluster, steps=steps,
        parallel={"dp": dp, "pp": pp, "schedule": schedule},
        batch={"global": dp * m, "micro": 1},
        model={**SMALL, "tied_embeddings": tied},
        data_parallel={**TINY_BUCKETS, "overlap": overlap},
    )  # fmt: skip
    graph = workload.graph
    timeline = run(workload, cluster)
    assert len(timeline) == len(graph)
    work = (graph.kind == OpKind.COMPUTE) & (graph.phase != Phase.OPTIMIZER)
    facts = workload.training
    assert facts is not None
    assert graph.flops[work].sum() == steps * facts.model_flops
    assert (graph.phase == Phase.OPTIMIZER).sum() == steps * dp * pp


@pytest.mark.parametrize(("dp", "before"), [(1, "B layer 0"), (2, "all_reduce bucket 0")])
def test_the_tied_embedding_follows_the_last_bucket(dp: int, before: str) -> None:
    tied = {**SMALL, "tied_embeddings": True}
    graph = training(2 * dp, parallel={"dp": dp, "pp": 2}, model=tied).graph
    op = next(op for op in range(len(graph)) if graph.op_name(op) == "all_reduce embedding")
    waits = graph.dep_op[graph.dep_ptr[op] : graph.dep_ptr[op + 1]]
    stage = int(graph.lane[op]) // dp
    assert [graph.op_name(d) for d in waits] == [before if stage == 0 or dp > 1 else "B layer 2"]
