"""Exports of Nsight Systems: the same run as torch.profiler's, by another recorder."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from helpers.kineto_writer import COMMS, COMPUTE, late_rank
from helpers.nsight_writer import Export

from commsim.errors import TraceError
from commsim.graph import Device
from commsim.study.replay import replay
from commsim.traces import load_trace

KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
WORLD = 0xCAFE
MIB = 2**20


def rank(export: Export, pid: int, number: int, late: float = 0.0) -> None:
    """One step of 1 ms: a kernel, an all_reduce that takes 40 us, a sync; rank 1 is late."""
    export.communicator(pid, WORLD, number, 2)
    export.note(pid, "step 3", 100, 1000)
    export.note(pid, "aten::mm, seq = 7", 110, 30)
    export.kernel(pid, "sgemm", 120, 150, 200 + late)
    export.collective(pid, "ncclAllReduce", 170, WORLD, 4 * MIB)
    end = 150 + 200 + 300 + 10 + 40
    start = 150 + 200 + late + 10
    export.kernel(pid, KERNEL, 180, start, end - start, stream=COMMS)
    export.sync(pid, "cudaStreamSynchronize", 220, end - 220 + 5, 3, COMMS)


def both(tmp_path: Path) -> Path:
    export = Export(tmp_path / "node.sqlite")
    rank(export, 4000, 0)
    rank(export, 4001, 1, late=300)
    return export.save()


def test_two_ranks_of_one_file_with_communicator_bytes_and_waits(tmp_path: Path) -> None:
    trace = load_trace(both(tmp_path))
    assert trace.ranks == (0, 1)
    (row,) = trace.collectives
    assert (row.op, row.ranks, row.size) == ("all_reduce", (0, 1), 4 * MIB)
    assert not row.inferred
    assert row.last_arriver == 1
    assert {r: w // 10**6 for r, w in row.waits.items()} == {0: 300, 1: 0}
    assert row.transfer == 40 * 10**6
    assert any("rank in the largest communicator" in note for note in trace.notes)


def test_the_replay_meets_the_recording(tmp_path: Path) -> None:
    found = replay(both(tmp_path))
    assert found.result.extra["self_check"]["account"]["misses"] == []
    assert found.result.metrics.step_time_s == pytest.approx(1e-3, abs=1e-8)


def test_the_graph_is_that_of_the_same_run_under_torch_profiler(tmp_path: Path) -> None:
    kineto = tmp_path / "kineto"
    kineto.mkdir()
    export = Export(tmp_path / "same.sqlite")
    for number in (0, 1):
        recording = late_rank(number)
        recording.save(kineto)
        zero = recording.events[0]["ts"]
        pid = 4000 + number
        export.communicator(pid, WORLD, number, 2)
        for event in recording.events:
            at, length = event["ts"] - zero + 5, event["dur"]
            if event["cat"] == "kernel":
                stream = event["args"]["stream"]
                text = export.string(event["name"])
                ends = (round(at * 1000), round((at + length) * 1000))
                shared = (pid % 8, 1, stream, event["args"]["correlation"], pid << 24)
                export._add("CUPTI_ACTIVITY_KIND_KERNEL", *ends, *shared, text, text, 1)
            elif event["cat"] == "cuda_runtime":
                ends = (round(at * 1000), round((at + length) * 1000))
                thread = (pid << 24) + pid
                name = export.string(event["name"] + "_v3020")
                row = (*ends, 0, thread, event["args"]["correlation"], name, 0)
                export._add("CUPTI_ACTIVITY_KIND_RUNTIME", *row)
            elif event["name"] == "record_param_comms":
                size = 4 * event["args"]["In msg nelems"]
                export.collective(pid, "ncclAllReduce", at, WORLD, size)
            else:
                export.note(pid, event["name"].replace("ProfilerStep#", "step "), at, length)
    one, other = load_trace(kineto), load_trace(export.save())
    assert [r.size for r in one.collectives] == [r.size for r in other.collectives]
    assert [r.transfer for r in one.collectives] == [r.transfer for r in other.collectives]
    before, after = one.graph(), other.graph()
    work = [graph.duration[graph.device == Device.CUDA] for graph in (before, after)]
    assert len(work[0]) == 6
    assert np.array_equal(*work)


def test_sends_and_receives_have_their_peers(tmp_path: Path) -> None:
    export = Export(tmp_path / "p2p.sqlite")
    for number in (0, 1):
        pid = 4000 + number
        export.communicator(pid, WORLD, number, 2)
        export.note(pid, "iteration", 50, 500)
        export.kernel(pid, "sgemm", 60, 70, 30)
        way = "ncclSend" if number == 0 else "ncclRecv"
        export.message(pid, way, 100, WORLD, MIB, 1 - number)
        name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
        export.kernel(pid, name, 110, 120, 80, stream=COMMS)
    trace = load_trace(export.save())
    (message,) = trace.messages
    assert (message.source, message.target, message.size) == (0, 1, MIB)


def test_without_payloads_the_rank_is_the_gpus(tmp_path: Path) -> None:
    """NCCL before 2.17, or nsys without --trace nvtx."""
    export = Export(tmp_path / "x.sqlite")
    for pid in (4001, 4000):
        export.kernel(pid, "sgemm", 10, 20, 30, stream=COMPUTE)
        export.kernel(pid, KERNEL, 40, 50, 30, stream=COMMS)
    trace = load_trace(export.save())
    assert trace.ranks == (0, 1)
    assert any("in order of their GPUs" in note for note in trace.notes)
    (row,) = trace.collectives
    assert (row.op, row.size) == ("all_reduce", -1)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.97])
def test_a_file_that_is_cut_is_refused_in_one_sentence(tmp_path: Path, keep: float) -> None:
    path = both(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data))])
    with pytest.raises(TraceError, match="Export it again"):
        load_trace(path)


def test_another_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE people (name TEXT)")
    with pytest.raises(TraceError, match="without CUDA kernels"):
        load_trace(path)


def test_a_database_of_rocprofv3_says_how_to_make_tables_of_it(tmp_path: Path) -> None:
    path = tmp_path / "714789_results.db"  # what ROCm 7 writes, its tables named for the run
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE rocpd_kernel_dispatch_000064 (id INTEGER, start INTEGER)")
    for given in (path, tmp_path):
        with pytest.raises(TraceError, match=r"rocpd convert --output-format csv -i .*\.db"):
            load_trace(given)


def test_a_table_that_never_ends_is_no_table(tmp_path: Path) -> None:
    """A view that counts without end stands where a table should: only tables are read."""
    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(start) AS"
            " (SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT start FROM n"
        )
    with pytest.raises(TraceError, match="without CUDA kernels"):
        load_trace(path)


def test_impossible_times_and_odd_values_are_left_out(tmp_path: Path) -> None:
    export = Export(tmp_path / "x.sqlite")
    rank(export, 4000, 0)
    rank(export, 4001, 1, late=300)
    where = (0, 1, 7, 1, 4000 << 24, "no id", None, 1)
    export._add("CUPTI_ACTIVITY_KIND_KERNEL", -5, 2**60, *where)
    export._add("CUPTI_ACTIVITY_KIND_KERNEL", "soon", None, *where)
    export._add("NVTX_EVENTS", 1, 2, 59, None, 4000 << 24, 99, 1, b"\x01\x02")
    trace = load_trace(export.save())
    assert len(trace.collectives) == 1
    assert any("2 events have no possible time" in note for note in trace.notes)
