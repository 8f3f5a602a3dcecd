"""CSV of nsys stats, rocprofv3 and rocprof: the same run as torch.profiler's, as tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.kineto_writer import COMMS, Recording, late_rank
from helpers.profiler_csv import (
    API_TRACE,
    GPU_TRACE,
    KERNEL_TRACE,
    nsys_tables,
    save_nsys,
    save_rocprof,
    save_rocprofv3,
)
from helpers.profiler_csv import table as csv_table

from commsim.errors import TraceError
from commsim.graph import Device
from commsim.study.replay import replay, split_sets
from commsim.traces import Trace, load_trace

US = 10**6
START = 1_000_000.0  # us since boot, which is what AMD's clock counts


def account(trace: Trace) -> list[tuple[object, ...]]:
    return [(r.op, r.transfer, r.last_arriver, dict(r.waits)) for r in trace.collectives]


def kernels(trace: Trace) -> list[int]:
    graph = trace.graph()
    return [int(time) for time in graph.duration[graph.device == Device.CUDA]]


@pytest.fixture
def kineto(tmp_path: Path) -> Trace:
    folder = tmp_path / "kineto"
    folder.mkdir()
    for rank in (0, 1):
        late_rank(rank, start=START).save(folder)
    return load_trace(folder)


@pytest.mark.parametrize("save", [save_nsys, save_rocprofv3])
def test_tables_tell_what_torch_profiler_tells(kineto: Trace, tmp_path: Path, save) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    for rank in (0, 1):
        save(late_rank(rank, start=START), folder)
    trace = load_trace(folder)
    assert account(trace) == account(kineto)
    assert kernels(trace) == kernels(kineto)
    found = replay(folder)
    assert found.result.extra["self_check"]["account"]["misses"] == []
    assert found.result.metrics.step_time_s == pytest.approx(1e-3, abs=1e-8)


def test_all_reports_in_one_file(kineto: Trace, tmp_path: Path) -> None:
    """`nsys stats -f csv REPORT > rank0.csv`: several tables, and nsys's own lines between."""
    folder = tmp_path / "one"
    folder.mkdir()
    for rank in (0, 1):
        text = "Generating SQLite file rank.sqlite from rank.nsys-rep\n"
        for name, table in nsys_tables(late_rank(rank)).items():
            text += f"Processing [rank.sqlite] with [{name}.py]... \n{table}\n"
        (folder / f"rank{rank}.csv").write_text(text)
    assert account(load_trace(folder)) == account(kineto)


def test_other_units_of_time(kineto: Trace, tmp_path: Path) -> None:
    folder = tmp_path / "us"
    folder.mkdir()
    for rank in (0, 1):
        for name, table in nsys_tables(late_rank(rank)).items():
            head, *rows = table.splitlines()
            times = 3 if name.startswith("nvtx") else 2
            lines = [head.replace("(ns)", "(us)")]
            for row in rows:
                cells = row.split(",", times)
                cells[:times] = [f"{int(cell) / 1000:.3f}" for cell in cells[:times]]
                lines.append(",".join(cells))
            (folder / f"rank{rank}_{name}.csv").write_text("\n".join(lines) + "\n")
    assert account(load_trace(folder)) == account(kineto)


def test_processes_of_one_report_are_told_by_their_calls(kineto: Trace, tmp_path: Path) -> None:
    """Process 11 used GPU 1 and process 12 GPU 0: the correlations say so."""
    one = nsys_tables(late_rank(0), pid=12, device=0)
    record = late_rank(1)
    for event in record.events:
        if "correlation" in event["args"]:
            event["args"]["correlation"] += 50
    other = nsys_tables(record, pid=11, device=1)
    for name in one:
        rows = other[name].split("\n", 1)[1]
        (tmp_path / f"node_{name}.csv").write_text(one[name] + rows)
    trace = load_trace([*tmp_path.glob("node_*.csv")])
    assert account(trace) == account(kineto)
    assert any("process 12 is taken as rank 0" in note for note in trace.notes)
    assert not any("do not tell which process" in note for note in trace.notes)


def test_processes_that_cannot_be_told_apart_are_said(tmp_path: Path) -> None:
    tables = [nsys_tables(late_rank(rank), pid=11 + rank) for rank in (0, 1)]
    for name in tables[0]:
        rows = tables[1][name].split("\n", 1)[1]
        (tmp_path / f"node_{name}.csv").write_text(tables[0][name] + rows)
    trace = load_trace(tmp_path)
    assert trace.ranks == (0, 1)
    assert any("do not tell which process" in note for note in trace.notes)


def test_gpu_work_alone_keeps_its_account_and_says_what_is_missing(tmp_path: Path) -> None:
    for rank in (0, 1):
        save_nsys(late_rank(rank), tmp_path, reports=["cuda_gpu_trace"])
    found = replay(tmp_path)
    assert found.trace is not None
    (row,) = found.trace.collectives
    assert (row.transfer, row.last_arriver) == (40 * US, 1)
    assert row.waits == {0: 300 * US, 1: 0}
    assert any("no table has the calls" in note for note in found.trace.notes)
    # From the first kernel's start to the last one's end, on either rank.
    assert found.result.metrics.step_time_s == pytest.approx(495e-6, abs=1e-8)


def test_gpu_work_alone_moves_when_its_communication_gets_faster(tmp_path: Path) -> None:
    """The add waits for the all-reduce, by their times; compute at half its time moves both."""
    for rank in (0, 1):
        save_nsys(late_rank(rank), tmp_path, reports=["cuda_gpu_trace"])
    found = replay(tmp_path, what_if=split_sets(["compute.scale=0.5"])[0])
    halved = 200 + 2 + 40 + 3 + 25  # mm of rank 1, gap, all-reduce, gap, add
    assert found.result.metrics.step_time_s == pytest.approx(halved * 1e-6, rel=0.01)


def test_rocprof_launches_where_it_was_dispatched(kineto: Trace, tmp_path: Path) -> None:
    folder = tmp_path / "rocprof"
    folder.mkdir()
    for rank in (0, 1):
        save_rocprof(late_rank(rank, start=START), folder)
    trace = load_trace(folder)
    assert account(trace) == account(kineto)
    assert not any("no table has the calls" in note for note in trace.notes)


def test_copies_and_fills_have_their_direction_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "rank0_cuda_gpu_trace.csv").write_text(
        f"{GPU_TRACE}\n"
        "100,50,1,,,,,,,,,,4.194,6337,Pinned,Device,H100 (0),1,,7,[CUDA memcpy Host-to-Device]\n"
        "200,50,2,,,,,,,,,,8.000,1,Device,Device,H100 (0),1,,9,[CUDA memcpy Peer-to-Peer]\n"
        "300,10,3,,,,,,,,,,0.001,,Device,,H100 (0),1,,7,[CUDA memset]\n"
        "400,10,4,1,1,1,1,1,1,8,0,0,,,,,H100 (0),1,,7,add_kernel\n"
    )
    (tmp_path / "rank0_cuda_api_trace.csv").write_text(
        f"{API_TRACE}\n"
        + "".join(f"{at},5,cudaLaunchKernel,0,{n},9,9,20,x\n" for n, at in enumerate((50, 60), 1))
    )
    trace = load_trace(tmp_path)
    assert any("copy engine" in note for note in trace.notes)
    (row,) = trace.collectives
    assert (row.op, row.size) == ("copy", 8_000_000)
    graph = trace.graph()
    names = {graph.op_name(op) for op in range(len(graph))}
    assert {"Memcpy HtoD (Pinned -> Device)", "Memset (Device)", "add_kernel"} <= names


def test_rccl_kernels_get_their_op_from_the_call_around_their_launch(tmp_path: Path) -> None:
    """RCCL's one kernel has no op in its name."""
    record = Recording(0)
    record.note("ProfilerStep#1", 1000, 500)
    record.note("nccl:all_reduce", 1010, 20)
    record.kernel(
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", 1015, 1040, 60, stream=COMMS
    )
    record.kernel("void mscclKernel_Sum_half_Simple_false", 1035, 1120, 60, stream=COMMS)
    save_rocprofv3(record, tmp_path)
    trace = load_trace(tmp_path)
    assert [row.op for row in trace.collectives] == ["all_reduce", "unknown"]


@pytest.mark.parametrize("report", ["cuda_api_trace", "nvtx_pushpop_trace"])
def test_calls_alone_are_refused_in_one_sentence(tmp_path: Path, report: str) -> None:
    save_nsys(late_rank(0), tmp_path, reports=[report])
    with pytest.raises(TraceError, match="no work of a GPU. Give the table of"):
        load_trace(tmp_path)


def test_broken_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    save_nsys(late_rank(0), tmp_path)
    path = tmp_path / "rank0_cuda_gpu_trace.csv"
    bad = "soon,1,2\n1,2\n,,,,,,,,,,,,,,,,,,,,\n" + "9" * 400 + ",1" + "," * 19 + "x\n"
    path.write_text(path.read_text() + bad)
    trace = load_trace(tmp_path)
    assert any("2 lines cannot be read" in note for note in trace.notes)
    assert len(trace.collectives) == 1


def test_a_quote_that_never_closes_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "rank0_cuda_gpu_trace.csv"
    path.write_text(GPU_TRACE + '\n1,"' + "x" * 200_000)
    with pytest.raises(TraceError, match="not a readable table"):
        load_trace(tmp_path)


def test_counters_per_kernel_are_no_timeline(tmp_path: Path) -> None:
    """rocprofv3's counter_collection.csv repeats a kernel per counter."""
    path = tmp_path / "rank0_counter_collection.csv"
    path.write_text(
        '"Agent_Id","Queue_Id","Kernel_Name","Counter_Name","Start_Timestamp","End_Timestamp"\n'
        '4,1,"k","SQ_WAVES",1,2\n'
    )
    with pytest.raises(TraceError, match="not a format that is read"):
        load_trace(tmp_path)


def test_tables_of_rocpd_and_of_the_first_rocprofv3(tmp_path: Path) -> None:
    """A run's id before all columns (ROCm 7), and no stream or thread (ROCm 6.2): as documented."""
    first = (
        '"Kind","Agent_Id","Queue_Id","Kernel_Id","Kernel_Name","Correlation_Id",'
        '"Start_Timestamp","End_Timestamp","Private_Segment_Size"'
    )
    rows = (
        ("0000-1111", "KERNEL_DISPATCH", "Agent 4", 1, 0, 789, 1, 3, "jacobi", 1, 1000, 4000, 0),
        ("0000-1111", "KERNEL_DISPATCH", "Agent 4", 1, 0, 789, 2, 3, "norm", 2, 5000, 7000, 0),
    )
    heads = {"rocpd": f'"Guid",{KERNEL_TRACE}', "first": first}
    old = [("KERNEL_DISPATCH", 4, 1, 3, row[8], row[9], row[10], row[11], 0) for row in rows]
    for name, written in (("rocpd", rows), ("first", old)):
        file = tmp_path / f"{name}_kernel_trace.csv"
        file.write_text(csv_table(heads[name], written))
        timeline = load_trace(file).timeline()
        gpu = timeline.graph.device == Device.CUDA
        assert ((timeline.end - timeline.start)[gpu] / 1000).tolist() == [3000, 2000]
