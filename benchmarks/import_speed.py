"""
How fast traces are imported: parsing of one file, and a whole run of many ranks.

    python benchmarks/import_speed.py [--ranks 64] [--megabytes 50] [--folder DIR]
    python benchmarks/import_speed.py --parts [--megabytes 20]

Files are generated: the mix of events of a torch 2.x trace of NCCL (CPU ops, launches, kernels,
the flows between them), one all-reduce for every 200 kernels. Prints MB/s of one core and the
memory for one file, and the seconds from files to a graph for all. With `--parts`: how fast each
part of parsing is by itself, and what other ways of decoding would be.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec

from commsim.traces import load_trace
from commsim.traces.formats.event_args import TieArgs
from commsim.traces.formats.files import documents
from commsim.traces.formats.kineto import read_kineto
from commsim.traces.formats.kineto_columns import KinetoColumns
from commsim.traces.formats.kineto_rows import KinetoFrame, KinetoRow, rows_in_pieces

_OP_US = 14.0
_BASE_NS, _BASE_US = 1_790_857_026_000_000_000, 4_393_289_180_634.914


def main() -> None:
    """Generate, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--megabytes", type=float, default=50.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--parts", action="store_true")
    options = parser.parse_args()
    if options.parts:
        with tempfile.TemporaryDirectory(dir=options.folder) as made:
            parts_of(generate(Path(made) / "rank0.json", 0, 1, options.megabytes).read_bytes())
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        folder = Path(made)
        files = [
            generate(folder / f"rank{rank}.json", rank, options.ranks, options.megabytes)
            for rank in range(options.ranks)
        ]
        parse_one(files[0])
        begin, used = time.perf_counter(), cpu_seconds()
        trace = load_trace(folder)
        graph = trace.graph()
        took, used = time.perf_counter() - begin, cpu_seconds() - used
        total = sum(file.stat().st_size for file in files) / 1e6
        print(f"{len(files)} ranks, {total:.0f} MB: {took:.1f} s ({used:.1f} s of CPU)"
              f" from files to {graph!r}")  # fmt: skip
        print(f"largest memory of this process: {peak():.0f} MB")


def peak() -> float:
    """Return the most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those that it started and that ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)


def parse_one(file: Path) -> None:
    """Print how fast one file parses, and in how much memory."""
    size, before = file.stat().st_size / 1e6, peak()
    begin = time.process_time()
    (document,) = documents(file)
    read_kineto(document)
    took = time.process_time() - begin
    print(f"one file of {size:.0f} MB: {size / took:.0f} MB/s on one core,"
          f" {(peak() - before) / size:.2f} times its size of memory")  # fmt: skip


class _Nothing(msgspec.Struct, gc=False):
    pass


class _Typed(KinetoRow, gc=False):
    args: TieArgs | None = None  # type: ignore[assignment]


def parts_of(text: bytes) -> None:
    """Print how fast one core does each part of parsing a text, and what else was tried."""
    pieces = list(rows_in_pieces(text, KinetoFrame()))
    events = text[text.index(b"[") :].rstrip(b"}\n")
    decoded = {
        "to whole rows": KinetoRow,
        "to rows with typed arguments": _Typed,
        "to structs without a field": _Nothing,
        "to texts": msgspec.Raw,
    }
    works: dict[str, Callable[[], object]] = {
        f"decode all at once {name}": partial(_decode, events, kind)
        for name, kind in decoded.items()
    }
    works["decode piece by piece to rows"] = lambda: sum(
        len(rows) for rows in rows_in_pieces(text, KinetoFrame())
    )
    works["rows to columns"] = lambda: columns_of(pieces)
    works["columns to events in order"] = partial(_in_order, columns_of(pieces))
    for name, work in works.items():
        took = min(cpu_time(work) for _ in range(5))
        print(f"{name:45} {len(text) / 1e6 / took:5.0f} MB/s")


def columns_of(pieces: list[list[KinetoRow]]) -> KinetoColumns:
    """Return what is kept of a file's rows."""
    columns = KinetoColumns()
    for rows in pieces:
        columns.add(rows)
    return columns


def _decode(text: bytes, kind: Any) -> object:
    return msgspec.json.decode(text, type=list[kind])


def _in_order(columns: KinetoColumns) -> object:
    return columns.events(columns.zero())


def cpu_time(work: Callable[[], object]) -> float:
    """Return the CPU seconds of this process that a work takes."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def generate(path: Path, rank: int, world: int, megabytes: float) -> Path:
    """Write one rank's trace of about `megabytes`."""
    head = {"backend": "nccl", "rank": rank, "world_size": world}
    with path.open("w", encoding="ascii") as out:
        out.write('{\n  "schemaVersion": 1,\n  "distributedInfo": ' + json.dumps(head))
        out.write(f',\n  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": {_BASE_NS}')
        out.write(',\n  "traceEvents": [\n')
        for count, launches in computes(megabytes):
            out.write(launches + text_of(all_reduce(count, rank, world)))
        step = event("user_annotation", "ProfilerStep#1", 0, (count + 2) * _OP_US, 1, 1)
        out.write(json.dumps(step) + "\n]}\n")
    return path


@cache
def computes(megabytes: float) -> list[tuple[int, str]]:
    """Return what all ranks do between all-reduces as text, with how many kernels ran by then."""
    found: list[tuple[int, str]] = []
    size = 0
    while size < megabytes * 1e6:
        count = 200 * len(found)
        text = text_of([row for k in range(count, count + 200) for row in launched(k)])
        found.append((count + 200, text))
        size += len(text)
    return found


def text_of(rows: list[dict[str, Any]]) -> str:
    """Return events as torch writes them, a comma after each."""
    return "".join(json.dumps(row, indent=1) + ",\n" for row in rows)


def event(
    cat: str, name: str, ts: float, dur: float, pid: int, tid: int, **args: Any
) -> dict[str, Any]:
    """Return a complete event; `ts` in us from the beginning, written as Kineto writes it."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid,
            "ts": round(_BASE_US + ts, 3), "dur": dur,
            "args": {"External id": int(ts), **args}}  # fmt: skip


def launched(k: int) -> list[dict[str, Any]]:
    """Return an op that launches a kernel, with its flow."""
    at = k * _OP_US
    kernel = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
    flow: dict[str, Any] = {"cat": "ac2g", "name": "ac2g", "id": k + 1, "pid": 1, "tid": 1}
    flow["ts"] = round(_BASE_US + at + 3, 3)
    return [
        event("cpu_op", "aten::linear", at, 12.0, 1, 1, **{"Sequence number": k, "Ev Idx": k}),
        event("cpu_op", "aten::addmm", at + 1, 10.0, 1, 1, **{"Record function id": 0}),
        event("cuda_runtime", "cudaLaunchKernel", at + 3, 5.0, 1, 1, correlation=k + 1, cbid=211),
        {"ph": "s", **flow},
        {"ph": "f", "bp": "e", **flow},
        event("kernel", kernel, at + 9, 11.0, 0, 7, device=0, context=1, stream=7,
              correlation=k + 1, grid=[128, 1, 1], block=[256, 1, 1], **{"warps per SM": 2}),
    ]  # fmt: skip


def all_reduce(k: int, rank: int, world: int) -> list[dict[str, Any]]:
    """Return a collective: the ranks come one after another, and leave together."""
    at = k * _OP_US
    args = {
        "Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20,
        "dtype": "BFloat16", "In split size": "[]", "Out split size": "[]", "Group size": world,
        "Process Group Name": "0", "Global rank start": 0, "Global rank stride": 1,
    }  # fmt: skip
    start = at + 4 + rank / world
    return [
        event("cpu_op", "c10d::allreduce_", at - 2, 1.9, 1, 1),
        event("cpu_op", "record_param_comms", at - 1.9, 1.7, 1, 1, **args),
        event("cuda_runtime", "cudaLaunchKernelExC", at - 1.5, 1, 1, 1, correlation=k + 2**40),
        event("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", start, at + 40 - start, 0, 20,
              stream=20, correlation=k + 2**40, **args),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
