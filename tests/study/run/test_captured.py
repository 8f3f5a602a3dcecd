"""What a capture says of the graph that it made."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.captured import recordings
from msgspec.structs import replace

import commsim as cs
from commsim.cluster.section import cluster_from
from commsim.errors import ScenarioError
from commsim.graph import Device, Graph, GraphBuilder
from commsim.models import MemoryUse
from commsim.study.run import captured_summary
from commsim.study.run.captured import _facts, _peak, graph_workload
from commsim.traces.capture.assemble import assemble


def test_a_collective_counts_once_however_many_of_its_members_were_captured() -> None:
    graph = assemble(recordings("ddp-4"))
    assert len(graph.lane_rank) == 4
    counts = [
        int(line.split(" x ")[0]) for line in captured_summary(graph) if " over world " in line
    ]
    assert sum(counts) == len(graph.collectives) > 0


@pytest.mark.parametrize(("half", "whole", "precision"), [(5, 4, "bf16"), (3, 4, "tf32")])
def test_the_peak_is_that_of_the_precision_of_most_work(
    half: int, whole: int, precision: str
) -> None:
    """Work of one precision adds up over its ops: 2 and 3 in bf16 are more than 4 in fp32."""
    build = GraphBuilder()
    lane = build.lane(0)
    for flops, name in ((2.0, "half"), (half - 2.0, "half"), (float(whole), "single")):
        build.compute(lane, 1, name=name, flops=flops)
    build.compute(lane, 1, name="not a product", flops=100.0)
    cluster = cs.Cluster.preset("dgx-h100")
    products = {
        "half": ["matmul", 1, 1, 1, 1, "bfloat16"], "single": ["matmul", 1, 1, 1, 1, "tf32"],
    }  # fmt: skip
    graph = replace(build.build(), meta={"capture": {"products": products}})
    assert _peak(graph, cluster) == cluster.gpu(0).tflops[precision] * 1e12


def graph(**capture: Any) -> Graph:
    """Two ranks that compute, one of them in a stage, and meet; rank 1 sends to rank 0."""
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in (0, 1)]
    world = build.group("world [0, 1]", (0, 1), axis="dp")
    for lane in lanes:
        build.compute(lane, 1, name="w")
        for size in (2**20, 3 * 2**20):
            build.collective(lane, world, "all_reduce", size, stream="c")
        build.collective(lane, world, "all_gather", 2**20, stream="c")
    build.send(lanes[1], 0, 512, group=world, stream="p")
    build.recv(lanes[0], 1, 512, group=world, stream="p")
    memory = {
        str(rank): {"parameters": 1, "gradients": 2, "optimizer": 4, "other": 8,
                    "peak": (rank + 1) * 2**30}
        for rank in (0, 1)
    }  # fmt: skip
    known = {"script": "x.py", "torch": "2.9", "hardware_flops": 3e12, "model_flops": 2e12,
             "role_of_rank": [0, 1], "memory": memory, "notes": ["mine"],
             "products": {}} | capture  # fmt: skip
    return replace(build.build(), meta={"capture": known})


def test_a_capture_in_lines() -> None:
    """3 TFLOP of two ranks; two all-reduces of 4 MiB in all; the fullest rank has 2 GiB."""
    assert captured_summary(graph()) == [
        "x.py: 2 ranks, 2 lanes, 10 ops",
        "compute: 1.5 TFLOP per rank (attention over all positions)",
        "2 x all_reduce over dp (2 ranks), 4 MiB",
        "1 x all_gather over dp (2 ranks), 1 MiB",
        "1 messages, 512 B",
        "memory: 2 GiB at the peak of the fullest rank",
    ]


def test_what_is_known_of_a_captured_training() -> None:
    """Ranks of one role have its memory; nobody says how many tokens or parameters there are."""
    cluster = cs.Cluster.preset("dgx-h100")
    many = graph(role_of_rank=[0, 1] * 5)
    facts = _facts(many, cluster)
    assert (facts.tokens, facts.parameters, facts.rank_parameters) == (0, 0, ())
    assert facts.device_of_rank == (0, 1) * 5
    assert facts.resident == (MemoryUse(1, 2, 4, 0, 8),) * 2
    assert facts.capacity_of_rank == (cluster.gpu(0).memory_bytes,) * 10
    assert (facts.model_flops, facts.hardware_flops, facts.staged) == (2e12, 3e12, False)
    for stage in (0, 1):
        staged = replace(many, stage=np.where(np.arange(len(many)) == 0, stage, -1))
        assert _facts(staged, cluster).staged


def test_work_without_a_cluster_needs_none_only_if_it_is_timed() -> None:
    with pytest.raises(ScenarioError, match="was captured from a script"):
        graph_workload(graph(), None, fold=True)
    timed = replace(graph(), meta={})
    assert graph_workload(timed, None, fold=True).graph is timed


def test_the_pace_of_python_is_of_a_capture_that_says_where_it_waits() -> None:
    """A recorded run holds what its host took; captures of before say nothing of their host."""
    timed, cluster = replace(graph(), meta={}), cs.Cluster.preset("dgx-h100")
    for where in (None, cluster):
        with pytest.raises(ScenarioError, match=r"host_overhead: the graph was not captured"):
            graph_workload(timed, where, fold=True, host_overhead=0)
    before = replace(assemble(recordings("ddp-2")), streams=("program", "compute", "collectives"))
    with pytest.raises(ScenarioError, match=r"host_overhead: the graph does not say where"):
        graph_workload(before, cluster, fold=True, host_overhead=0)
    assert not graph_workload(before, cluster, fold=True).graph.dep_delay.any()


def test_every_op_of_a_capture_is_issued_in_its_turn() -> None:
    """At 25 us each where nothing else is said, and the notes say so."""
    captured, cluster = assemble(recordings("ddp-2")), cs.Cluster.preset("dgx-h100")
    for overhead, told in ((None, "one each 25 us"), (3_000_000, "one each 3 us"), (0, "at once")):
        work = graph_workload(captured, cluster, fold=True, host_overhead=overhead)
        each = 25_000_000 if overhead is None else overhead
        delays = np.unique(work.graph.dep_delay[work.graph.dep_delay > 0])
        ops = int((captured.device[captured.lane == 0] == Device.CUDA).sum())
        assert delays.tolist() == [each * (at + 1) for at in range(ops)] * bool(each)
        assert f"Python issues {told}." in work.notes[0]


def test_a_product_without_work_says_no_precision() -> None:
    build = GraphBuilder()
    build.compute(build.lane(0), 1, name="none", flops=0.0)
    products = {"none": ["matmul", 1, 1, 1, 1, "tf32"]}
    made = replace(build.build(), meta={"capture": {"products": products}})
    cluster = cs.Cluster.preset("dgx-h100")
    assert _peak(made, cluster) == cluster.gpu(0).tflops["bf16"] * 1e12


H100 = cs.Cluster.preset("dgx-h100")
MIXED = cluster_from(
    {"nodes": [{"preset": "dgx-h100"}, {"preset": "dgx-a100"}],
     "fabric": {"kind": "single_switch"}}, "t",
)  # fmt: skip


@pytest.mark.parametrize(
    ("cluster", "ranks", "fold", "kinds"),
    [
        (H100, 8, True, None), (H100, 4, True, None), (MIXED, 8, True, None),
        (H100, 4, False, [0, 1, 2, 3]),
        (MIXED, 10, True, [0] * 8 + [1] * 2),
        (H100, 10, True, [0] * 8 + [1] * 2),  # what the cluster does not have is refused later
    ],
)  # fmt: skip
def test_ranks_on_gpus_of_one_kind_stay_folded(
    cluster: cs.Cluster, ranks: int, fold: bool, kinds: list[int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    module = sys.modules["commsim.study.run.captured"]
    asked: list[list[int]] = []

    def refold(graph: Any, kinds: Any) -> Any:
        asked.append(kinds.tolist())
        return graph

    monkeypatch.setattr(module, "refold", refold)
    monkeypatch.setattr(module, "resolve_durations", lambda graph, cluster: graph)
    one: Any = SimpleNamespace(folding=SimpleNamespace(lane_of=np.zeros(ranks)), meta={})
    assert graph_workload(one, cluster, fold=fold).graph is one
    assert asked == ([] if kinds is None else [kinds])
