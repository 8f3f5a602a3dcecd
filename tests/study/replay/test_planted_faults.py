"""Faults planted in a recording or in what was read of it are told in the headline's line."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.captured import DATA
from helpers.kineto_writer import Recording
from msgspec.structs import replace

from commsim.engine import simulate
from commsim.graph import Graph, OpKind
from commsim.libraries import Recorded
from commsim.study.replay import replay
from commsim.study.replay.self_check import check_account
from commsim.traces import Trace, load_trace


def save_pairs(folder: Path, fault: str = "") -> None:
    """Record four ranks: one all-reduce of all, then one of each pair, under 500 us of compute.

    The second pair is 1 ms later, which nobody of the first waits for.
    """
    for rank in range(4):
        pair = rank // 2
        group, ranks = f"{pair + 1}", str([2 * pair, 2 * pair + 1])
        if fault == "groups":
            group, ranks = "0", "[0, 1, 2, 3]"
        record = Recording(rank, world=4)
        record.note("ProfilerStep#1", -250, 3250)
        record.all_reduce(-200, -150, -50)
        record.op("aten::mm", 50, 20)
        record.kernel("early_gemm", 55, 65, 200 + 1000 * pair)
        begun = 265.0 + 1000 * pair
        record.all_reduce(100, begun + 2, begun + 602, group=group, ranks=ranks)
        record.op("aten::mm", 140, 20)
        stream = 20 if fault == "stream" and rank == 1 else 7
        record.kernel("hidden_gemm", 145, begun, 500, stream=stream)
        if not (fault == "wait" and rank == 1):
            record.call("cudaStreamWaitEvent", 170, 1)
        record.op("aten::add", 180, 20)
        record.kernel("last_add", 185, begun + 605, 100)
        record.op("aten::item", 250, begun + 470)
        record.call("cudaStreamSynchronize", 255, begun + 455)
        if fault == "clock" and rank == 3:
            for event in record.events:
                event["ts"] += 5000
        record.save(folder)


@pytest.mark.parametrize(
    ("fault", "told"),
    [("groups", "rank 2: communication 1.1 ms for 700 us"), ("stream", "rank 0: step 3.748 ms")],
)
def test_the_headline_tells_a_fault_of_the_recording(fault: str, told: str, tmp_path: Path) -> None:
    """Two groups taken for one: the second pair comes when the first has left, by clocks that move.

    A kernel that ran beside an all-reduce, and is said to be of its stream, runs before it: 500 us.
    """
    save_pairs(tmp_path)
    assert "DO NOT TRUST" not in replay(tmp_path).headline
    save_pairs(tmp_path, fault)
    headline = replay(tmp_path).headline
    assert "DO NOT TRUST" in headline
    assert told in headline


def test_a_shifted_clock_is_aligned_by_nccl(tmp_path: Path) -> None:
    save_pairs(tmp_path)
    right = replay(tmp_path).result.extra["measured"]["ranks"]
    save_pairs(tmp_path, "clock")
    found = replay(tmp_path)
    assert "DO NOT TRUST" not in found.headline
    for was, now in zip(right, found.result.extra["measured"]["ranks"], strict=True):
        assert now["waiting_s"] == pytest.approx(was["waiting_s"], abs=5e-6)


def test_a_shifted_clock_of_gloo_is_told(tmp_path: Path) -> None:
    """Nothing aligns it: rank 2, 30 ms late by its clock, is seen to be late by its own work."""
    shutil.copytree(DATA / "gloo_runs/ddp-4", tmp_path, dirs_exist_ok=True)
    path = tmp_path / "rank2.json.gz"
    file = json.loads(gzip.decompress(path.read_bytes()))
    for event in file["traceEvents"]:
        event["ts"] = event.get("ts", 0) + 30_000
    path.write_bytes(gzip.compress(json.dumps(file).encode()))
    found = replay(tmp_path)
    assert "DO NOT TRUST" in found.headline
    assert "communication" in found.headline


def test_a_wait_that_was_not_recorded_is_counted(tmp_path: Path) -> None:
    """What waits 605 us for no recorded cause keeps its time: 105 us after the kernel before it."""
    save_pairs(tmp_path, "wait")
    found = replay(tmp_path)
    assert "DO NOT TRUST" not in found.headline
    (note,) = [n for n in found.result.notes if "than anything recorded explains" in n]
    assert "1 ops" in note
    assert "105 us in all" in note


def misses(trace: Trace, graph: Graph) -> str:
    again = simulate(graph, None, library=Recorded(), overlap_slowdown=False)
    return check_account(trace, trace.timeline(), again).verdict()


def op_of(graph: Graph, name: str, rank: int) -> int:
    (found,) = (
        op
        for op in range(len(graph))
        if graph.op_name(op) == name and graph.lane_rank[graph.lane[op]] == rank
    )
    return found


def without_causes(graph: Graph, op: int, kind: OpKind) -> Graph:
    """Drop what an op waits for, of one kind."""
    owner = np.repeat(np.arange(len(graph)), np.diff(graph.dep_ptr))
    kept = (owner != op) | (graph.kind[graph.dep_op] != kind)
    counts = np.bincount(owner[kept], minlength=len(graph))
    pointers = np.concatenate([[0], np.cumsum(counts)])
    return replace(
        graph, dep_ptr=pointers, dep_op=graph.dep_op[kept], dep_delay=graph.dep_delay[kept]
    )


def test_a_longer_kernel_of_the_graph_is_told(tmp_path: Path) -> None:
    save_pairs(tmp_path)
    trace = load_trace(tmp_path)
    graph = trace.graph()
    longer = graph.duration.copy()
    longer[op_of(graph, "early_gemm", 2)] += 100_000_000
    told = misses(trace, replace(graph, duration=longer))
    assert "rank 2: compute 1.9 ms for 1.8 ms" in told
    assert misses(trace, graph).startswith("every rank's")


def test_a_wait_that_the_graph_lost_is_told(tmp_path: Path) -> None:
    """The last kernel then runs under the all-reduce that it waited for."""
    save_pairs(tmp_path)
    trace = load_trace(tmp_path)
    graph = trace.graph()
    lost = without_causes(graph, op_of(graph, "last_add", 1), OpKind.COLLECTIVE)
    assert len(lost.dep_op) == len(graph.dep_op) - 1
    told = misses(trace, lost)
    assert "rank 1: exposed communication 102 us for 202 us" in told
