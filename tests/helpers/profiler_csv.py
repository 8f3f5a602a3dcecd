"""
A recording as the CSV tables that `nsys stats`, rocprofv3 and rocprof make of it. The heads are
theirs (nsys 2026.1, ROCm 6.4 and 5.x); what they print around a table is too.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from helpers.kineto_writer import Recording

GPU_TRACE = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),"
    "DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name"
)
API_TRACE = "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name"
PUSH_POP = (
    "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl,NumChild,"
    "RangeId,ParentId,RangeStack,NameTree"
)
PROJECTED = (
    "Name,Projected Start (ns),Projected Duration (ns),Orig Start (ns),Orig Duration (ns),Style,"
    "PID,TID,NumGPUOps,Lvl,NumChild,RangeId,ParentId,RangeStack"
)
KERNEL_TRACE = (
    '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name",'
    '"Correlation_Id","Start_Timestamp","End_Timestamp","LDS_Block_Size"'
)
CALL_TRACE = (
    '"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp",'
    '"End_Timestamp"'
)
ROCPROF = (
    '"Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","wgr","lds","scr",'
    '"arch_vgpr","accum_vgpr","sgpr","wave_size","sig","obj","DispatchNs","BeginNs","EndNs",'
    '"CompleteNs","DurationNs"'
)


def table(head: str, rows: Iterable[Iterable[object]]) -> str:
    """Return rows in the order of time under a head."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return f"{head}\n{text.getvalue()}"


def times(event: dict[str, Any], zero: float) -> tuple[int, int]:
    """Return start and duration in ns."""
    return round((event["ts"] - zero) * 1000), round(event["dur"] * 1000)


def nsys_tables(record: Recording, *, pid: int = 4242, device: int | None = None) -> dict[str, str]:
    """Return the tables of `nsys stats` by report; NCCL's ranges are in a domain of their own."""
    zero = min(event["ts"] for event in record.events) - 5
    gpu, calls, ranges = [], [], []
    card = f"NVIDIA H100 80GB HBM3 ({record.rank if device is None else device})"
    for event in record.events:
        start, length = times(event, zero)
        args, name = event["args"], event["name"]
        if event["cat"] == "kernel":
            gpu.append([start, length, args["correlation"], *[""] * 13, card, 1, "",
                        args["stream"], name])  # fmt: skip
        elif event["cat"] == "cuda_runtime":
            calls.append([start, length, name, 0, args["correlation"], pid, pid, 20, "python3"])
        elif name == "nccl:all_reduce":
            ranges.append([start, start + length, length, 0, length, "NCCL:ncclAllReduce", pid,
                           pid, 1, 0, 1, "", ":1", ""])  # fmt: skip
        elif name != "record_param_comms":
            name = ":" + name.replace("ProfilerStep#", "step ")
            ranges.append([start, start + length, length, 0, length, name, pid, pid, 0, 0, 1, "",
                           ":1", name])  # fmt: skip
    return {
        "cuda_gpu_trace": table(GPU_TRACE, gpu),
        "cuda_api_trace": table(API_TRACE, calls),
        "nvtx_pushpop_trace": table(PUSH_POP, ranges),
    }


def save_nsys(record: Recording, folder: Path, *, reports: Iterable[str] = ()) -> None:
    """Write the tables as `nsys stats -f csv -o rank0` does, all of them without `reports`."""
    tables = nsys_tables(record)
    for report in reports or tables:
        path = folder / f"rank{record.rank}_{report}.csv"
        path.write_text(f"Processing [x.sqlite] with [{report}.py]... \n{tables[report]}")


def save_rocprofv3(record: Recording, folder: Path, *, calls: bool = True) -> None:
    """Write the files of one process, in a folder named for its rank."""
    zero, pid = 0.0, 7000 + record.rank
    kernels, hip, rccl, marks = [], [], [], []
    for event in record.events:
        start, length = times(event, zero)
        args, name, end = event["args"], event["name"], start + length
        if event["cat"] == "kernel":
            kernels.append(["KERNEL_DISPATCH", f"Agent {4 + record.rank}", 1, args["stream"], pid,
                            1, 9, name, args["correlation"], start, end, 0])  # fmt: skip
        elif event["cat"] == "cuda_runtime":
            name = name.replace("cuda", "hip").replace("WaitEvent", "WaitEvent")
            hip.append(["HIP_RUNTIME_API", name, pid, pid, args["correlation"], start, end])
        elif name == "nccl:all_reduce":
            rccl.append(["RCCL_API", "ncclAllReduce", pid, pid, 0, start, end])
        elif name != "record_param_comms":
            name = name.replace("ProfilerStep#", "step ")
            marks.append(["MARKER_CORE_RANGE_API", name, pid, pid, 0, start, end])
    where = folder / f"rank{record.rank}"
    where.mkdir()
    files = {"kernel": table(KERNEL_TRACE, kernels), "marker_api": table(CALL_TRACE, marks)}
    if calls:
        files |= {"hip_api": table(CALL_TRACE, hip), "rccl_api": table(CALL_TRACE, rccl)}
    for kind, text in files.items():
        (where / f"{pid}_{kind}_trace.csv").write_text(text)


def save_rocprof(record: Recording, folder: Path) -> None:
    """Write rocprof's results.csv: kernels with the time of their dispatch."""
    launched = {
        event["args"]["correlation"]: event["ts"]
        for event in record.events
        if event["cat"] == "cuda_runtime"
    }
    rows = []
    for index, event in enumerate(e for e in record.events if e["cat"] == "kernel"):
        start, length = times(event, 0.0)
        at = round(launched[event["args"]["correlation"]] * 1000)
        rows.append([index, f"{event['name']} [clone .kd]", record.rank, event["args"]["stream"],
                     index, 42, 42, 256, 256, 0, 0, 4, 4, 16, 64, "0x0", "0x7f", at, start,
                     start + length, start + length, length])  # fmt: skip
    (folder / f"rank{record.rank}_results.csv").write_text(table(ROCPROF, rows))
