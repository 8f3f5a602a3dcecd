"""Lines of profilers' tables: which head is a table, and what a line of each kind says."""

from __future__ import annotations

import pytest
from helpers.profiler_csv import CALL_TRACE, GPU_TRACE, KERNEL_TRACE
from msgspec.structs import astuple

from commsim.errors import TraceError
from commsim.traces.formats.events import EventKind
from commsim.traces.formats.files import Document
from commsim.traces.formats.profiler_tables.rows import ProfilerTable, Row
from commsim.traces.formats.profiler_tables.tables import is_profiler_table, read_profiler_tables

RANGES = "name,start,end,duration,pid"
GPU = "start,duration,corrid,strm,device,name"


def table(text: str, *, name: str = "x.csv", cut: bool = False) -> ProfilerTable:
    (found,) = read_profiler_tables(Document(name, text.encode(), cut))
    return found


def test_what_a_line_does_not_say_is_unknown() -> None:
    assert astuple(Row(EventKind.KERNEL, "x", 1, 2)) == (
        EventKind.KERNEL, "x", 1, 2, -1, -1, -1, -1, "", -1, -1, False,
    )  # fmt: skip
    assert astuple(ProfilerTable("a", "b", ())) == ("a", "b", (), 0, False)


def test_a_table_may_follow_other_lines_and_counts_what_it_cannot_read() -> None:
    found = table(
        f"Processing [x] with [y], please wait...\n\n{RANGES}\na,1,9,8,7\n\nalone\n"
        f"b,x,9,8,7\n:c,2,9,7,7\n"
    )
    assert [(row.name, row.start, row.end) for row in found.rows] == [("a", 1, 9), ("c", 2, 9)]
    assert found.lost == 1
    assert not found.cut


def test_another_head_begins_another_table() -> None:
    found = table(f"{RANGES}\na,1,9,8,7\n{GPU}\n5,2,1,7,GPU 0,mm\n")
    assert [(row.kind, row.name) for row in found.rows] == [
        (EventKind.ANNOTATION, "a"),
        (EventKind.KERNEL, "mm"),
    ]


def test_a_table_begins_within_the_first_64_kib() -> None:
    """What nsys prints before is far less."""
    before = ("x" * 63 + "\n") * 1024
    assert is_profiler_table((before[64:] + GPU).encode())
    assert not is_profiler_table((before + GPU).encode())


def test_a_file_that_was_cut_loses_its_last_line() -> None:
    text = f"{RANGES}\na,1,9,8,7\nb,2,9,7,7"
    assert [row.name for row in table(text).rows] == ["a", "b"]
    assert [row.name for row in table(text, cut=True).rows] == ["a"]
    assert table(text, cut=True).cut
    assert table("", cut=True).rows == table("").rows == ()


def test_cells_may_be_quoted_after_a_space() -> None:
    (row,) = table(f'{RANGES}\n"a, b", 1, 9, 8, "7"\n').rows
    assert (row.name, row.start, row.pid) == ("a, b", 1, 7)


@pytest.mark.parametrize(
    "head",
    [
        GPU,
        "start,duration,name,result,corrid,pid,tid",
        RANGES,
        "projected start,projected duration,name,pid",
        "start_timestamp,end_timestamp,kernel_name,agent_id,queue_id",
        "start_timestamp,end_timestamp,direction,source_agent_id",
        "start_timestamp,end_timestamp,domain,function,process_id,thread_id",
        "kernelname,beginns,endns,gpu-id,queue-id",
    ],
)
def test_a_head_needs_all_columns_of_its_kind(head: str) -> None:
    names = head.split(",")
    assert is_profiler_table(f"what it printed\n{head.upper()},More (ns)\n".encode())
    assert is_profiler_table(head.encode())
    for left_out in range(len(names)):
        fewer = ",".join(names[:left_out] + names[left_out + 1 :])
        assert not is_profiler_table(fewer.encode())


def test_other_files_are_no_tables() -> None:
    assert not is_profiler_table(b"")
    assert not is_profiler_table(b"start\nduration\n")
    assert not is_profiler_table(GPU.encode() + b"\n\0")
    counters = "start_timestamp,end_timestamp,kernel_name,agent_id,queue_id,counter_name"
    assert not is_profiler_table(counters.encode())
    with pytest.raises(TraceError, match=r"x\.csv: not a readable table"):
        table(f'{RANGES}\n"{"a" * 200_000}')


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("d/rank0_cuda_gpu_trace.csv", "d/rank0"), ("rank0.csv.gz", "rank0"),
        ("a_results.csv", "a"), ("7_kernel_trace.csv", "7"), ("7_marker_api_trace.csv", "7"),
        ("a.gputrace.csv", "a."),
        ("a-cuda_api_trace.csv", "a"), ("a_other_trace.csv", "a_other_trace"),
    ],
)  # fmt: skip
def test_tables_of_a_run_have_one_name_before_that_of_the_report(name: str, run: str) -> None:
    assert table(RANGES, name=name).run == run


def test_a_kernel_of_nsys() -> None:
    """Its copies and fills get the names of torch.profiler's; sizes have their unit."""
    head = GPU_TRACE.replace("Start (ns)", "Start (us)")
    rows = table(
        f"{head}\n1.5,20,3,,,,,,,,,,,,,,H100 (0),1,,7,mm\n"
        "2,20,,,,,,,,,,,0.5,,Pinned,Device,H100 (0),1,,,[CUDA memcpy Host-to-Device]\n"
        "2,20,,,,,,,,,,,,,,,H100 (0),1,,,[CUDA memcpy Odd]\n"
        "2,20,,,,,,,,,,,8,,,,H100 (0),1,,,[CUDA memset]\n"
    ).rows
    assert rows[0] == Row(EventKind.KERNEL, "mm", 1500, 1520, correlation=3, stream=7,
                          device="H100 (0)")  # fmt: skip
    assert [(row.kind, row.name, row.size) for row in rows[1:]] == [
        (EventKind.MEMCPY, "Memcpy HtoD (Pinned -> Device)", 500_000),
        (EventKind.MEMCPY, "Memcpy odd (? -> ?)", -1),
        (EventKind.MEMSET, "Memset (Device)", 8_000_000),
    ]


def test_calls_and_ranges_of_nsys() -> None:
    (call,) = table("start,duration,name,result,corrid,pid,tid\n1,2,cudaMalloc_v3020,0,5,7,8").rows
    assert call == Row(EventKind.RUNTIME, "cudaMalloc", 1, 3, pid=7, thread=8, correlation=5)
    (one,) = table("start,end,duration,name,pid,starttid\n1,9,2,:step 3,7,8").rows
    assert one == Row(EventKind.ANNOTATION, "step 3", 1, 3, pid=7, thread=8)
    (one,) = table("projected start,projected duration,name,pid,start,duration\n1,2,:x,7,4,5").rows
    assert one == Row(EventKind.ANNOTATION, "x", 1, 3, pid=7, projected=True)


def test_kernels_and_copies_of_rocprofv3() -> None:
    (row,) = table(f"{KERNEL_TRACE}\nK,Agent 4,1,5,9,1,2,mm.kd,3,10,20,0").rows
    assert row == Row(EventKind.KERNEL, "mm", 10, 20, thread=9, correlation=3, stream=5,
                      device="Agent 4")  # fmt: skip
    rows = table(
        "direction,source_agent_id,destination_agent_id,correlation_id,start_timestamp,"
        "end_timestamp\n"
        "MEMORY_COPY_HOST_TO_DEVICE,0,4,1,10,20\nMEMORY_COPY_DEVICE_TO_HOST,4,0,2,10,20\n"
        "MEMORY_COPY_DEVICE_TO_DEVICE,4,4,3,10,20\nMEMORY_COPY_DEVICE_TO_DEVICE,4,5,3,10,20\n"
        "ODD,4,5,3,10,20\n"
    ).rows
    assert [(row.name, row.device) for row in rows] == [
        ("Memcpy HtoD (Host -> Device)", "4"),
        ("Memcpy DtoH (Device -> Host)", "4"),
        ("Memcpy DtoD (Device -> Device)", "4"),
        ("Memcpy PtoP (Device -> Device)", "4"),
        ("Memcpy odd", "5"),
    ]


def test_calls_of_hsa_and_controls_of_markers_are_passed_over() -> None:
    rows = table(
        f"{CALL_TRACE}\nHIP_RUNTIME_API,hipMalloc,7,8,1,10,20\nHSA_CORE_API,hsa_init,7,8,2,10,20\n"
        "MARKER_CONTROL_API,pause,7,8,3,10,20\nMARKER_NAME_API,name,7,8,3,10,20\n"
        "MARKER_CORE_API,roctxMarkA,7,8,3,10,20\nMARKER_CORE_RANGE_API,step 1,7,8,3,10,20\n"
    ).rows
    assert rows == (
        Row(EventKind.RUNTIME, "hipMalloc", 10, 20, pid=7, thread=8, correlation=1),
        Row(EventKind.ANNOTATION, "step 1", 10, 20, pid=7, thread=8, correlation=3),
    )


def test_a_kernel_of_rocprof() -> None:
    head = "index,kernelname,gpu-id,queue-id,pid,tid,dispatchns,beginns,endns"
    (row,) = table(f"{head}\n0,mm.kd [clone .kd],4,1,7,8,5,10,20\n").rows
    assert row == Row(EventKind.KERNEL, "mm", 10, 20, pid=7, thread=8, correlation=0, stream=1,
                      device="4", launched=5)  # fmt: skip
