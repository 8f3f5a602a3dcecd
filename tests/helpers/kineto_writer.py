"""Small Kineto traces, written by hand: what torch.profiler would record, in microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MAIN, COMPUTE, COMMS = 100, 7, 20
NEW = {"kernel": "kernel", "runtime": "cuda_runtime", "op": "cpu_op"}
OLD = {"kernel": "Kernel", "runtime": "Runtime", "op": "Operator"}


class Recording:
    """Collects the events of one rank; `save` writes them as its file."""

    def __init__(self, rank: int, *, world: int = 2, cats: dict[str, str] = NEW) -> None:
        self.rank, self.world, self.cats = rank, world, cats
        self.events: list[dict[str, Any]] = []
        self.base: int | None = None
        self._correlation = 0

    def event(self, cat: str, name: str, ts: float, dur: float, **more: Any) -> None:
        """Add a complete event on the main thread, or on `tid`."""
        tid = more.pop("tid", MAIN)
        pid = more.pop("pid", 4242)
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
             "args": more}
        )  # fmt: skip

    def op(self, name: str, ts: float, dur: float, **more: Any) -> None:
        self.event(self.cats["op"], name, ts, dur, **more)

    def note(self, name: str, ts: float, dur: float, **more: Any) -> None:
        self.event("user_annotation", name, ts, dur, **more)

    def call(self, name: str, ts: float, dur: float, *, tid: int = MAIN) -> int:
        """Add a CUDA runtime call; return its correlation."""
        self._correlation += 1
        self.event(self.cats["runtime"], name, ts, dur, tid=tid, correlation=self._correlation)
        return self._correlation

    def kernel(
        self,
        name: str,
        launched: float,
        ts: float,
        dur: float,
        *,
        stream: int = COMPUTE,
        tid: int = MAIN,
        cat: str = "",
        **args: Any,
    ) -> None:
        """Add a launch of 5 us at `launched`, and its kernel."""
        number = self.call("cudaLaunchKernel", launched, 5, tid=tid)
        self.event(
            cat or self.cats["kernel"], name, ts, dur, pid=0, tid=stream,
            stream=stream, device=0, correlation=number, **args,
        )  # fmt: skip

    def all_reduce(
        self,
        at: float,
        ts: float,
        end: float,
        *,
        elements: int = 1000,
        modern: bool = True,
        group: str = "0",
        ranks: str = "",
        tid: int = MAIN,
        stream: int = COMMS,
        name: str = "allreduce",
    ) -> None:
        """Add a collective issued over 30 us from `at`, its kernel from `ts` to `end`."""
        args: dict[str, Any] = {}
        if modern:
            args = {
                "Collective name": name, "In msg nelems": elements, "Out msg nelems": elements,
                "dtype": "Float", "In split size": "[]", "Process Group Name": group,
                "Process Group Ranks": ranks or str(list(range(self.world))),
            }  # fmt: skip
        self.op("c10d::allreduce_", at, 30, tid=tid)
        self.op("record_param_comms", at + 1, 28, tid=tid, **args)
        self.note("nccl:all_reduce", at + 2, 26, tid=tid)
        kernel = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"
        self.kernel(kernel, at + 10, ts, end - ts, stream=stream, tid=tid, **args)

    def content(self) -> dict[str, Any]:
        file: dict[str, Any] = {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": self.world},
            "traceEvents": [
                {"ph": "M", "name": "process_name", "pid": 4242, "tid": 0, "ts": 0, "args": {}},
                *self.events,
            ],
        }
        if self.base is not None:
            file["baseTimeNanoseconds"] = self.base
        return file

    def save(self, folder: Path, name: str = "") -> Path:
        path = folder / (name or f"rank{self.rank}.json")
        path.write_text(json.dumps(self.content()), encoding="utf-8")
        return path


def late_rank(
    rank: int,
    *,
    start: float = 1_700_000_000_000_000.0,
    clock: float = 0.0,
    cats: dict[str, str] = NEW,
    modern: bool = True,
) -> Recording:
    """One step of 1 ms of two ranks: a kernel, an all_reduce that takes 40 us, a sync.

    Rank 1 computes 300 us longer, so rank 0 waits 300 us inside its kernel. `clock` shifts
    the whole recording in us.
    """
    at = start + clock
    late = 300.0 * rank
    record = Recording(rank, cats=cats)
    record.note("ProfilerStep#3", at, 1000)
    record.op("aten::mm", at + 50, 20)
    record.kernel("volta_sgemm", at + 55, at + 65, 100 + late)
    arrive = at + 65 + 100 + late + 2
    record.all_reduce(at + 100, arrive, at + 65 + 400 + 2 + 40, modern=modern)
    record.call("cudaStreamWaitEvent", at + 140, 1)
    record.op("aten::add", at + 150, 20)
    record.kernel("add_kernel", at + 155, at + 65 + 400 + 2 + 40 + 3, 50)
    record.op("aten::item", at + 180, 390)
    record.call("cudaStreamSynchronize", at + 185, 380)  # the add ends at 560
    return record
