"""
Tables that belong together, joined to recordings: a `KinetoFile` per process that used a GPU.

Tables of one run have one name before that of the report. A table of GPU work names the GPU and
not the process: each GPU is the process's most of whose calls its work fits, by correlation and
time. Where no table has the calls, the work of a step is taken as one launch, like a CUDA graph:
each kernel waits for the one that ended last before it began, on whatever stream, and the step
for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from commsim.errors import TraceError
from commsim.traces.formats.event_args import EventArgs
from commsim.traces.formats.events import EventKind
from commsim.traces.formats.kineto import KinetoFile, rank_in_name
from commsim.traces.formats.process_events import ProcessEvents, is_step
from commsim.traces.formats.profiler_tables.rows import ProfilerTable, Row
from commsim.units import PS_PER_NS

__all__ = ["recordings_of"]

_NUMBER = re.compile(r"(\d+)\)?$")  # "NVIDIA H100 (3)", "Agent 4", "GPU 3", "2"
_WITHOUT_CALLS = (
    "no table has the calls that launched the work: what waited for what is taken from times."
    " Export them as well (nsys stats -r cuda_gpu_trace,cuda_api_trace,nvtx_pushpop_trace;"
    " rocprofv3 --hip-trace)."
)


class _Run(msgspec.Struct, frozen=True):
    """The rows of all tables of one run."""

    tables: tuple[ProfilerTable, ...]
    work: tuple[Row, ...]
    calls: tuple[Row, ...]
    ranges: tuple[Row, ...]

    @property
    def name(self) -> str:
        return self.tables[0].document


def recordings_of(tables: Sequence[ProfilerTable]) -> list[KinetoFile]:
    """Return a recording of each process of each run.

    Raises:
        TraceError: a run has no table of GPU work.
    """
    by_run: dict[str, list[ProfilerTable]] = {}
    for table in tables:
        by_run.setdefault(table.run, []).append(table)
    found = [file for name, of_run in by_run.items() for file in _recordings(name, _run(of_run))]
    return _by_gpu(found) if len(found) > 1 else [file for _, file in found]


def _run(tables: list[ProfilerTable]) -> _Run:
    rows = [row for table in tables for row in table.rows]
    ranges = [row for row in rows if row.kind == EventKind.ANNOTATION]
    launched = [row for row in rows if row.kind == EventKind.RUNTIME]
    work = [row for row in rows if row.kind not in (EventKind.ANNOTATION, EventKind.RUNTIME)]
    if not work:
        raise TraceError(
            f"{tables[0].document}: calls and ranges, and no work of a GPU. Give the table of"
            " kernels of the same run as well (cuda_gpu_trace of nsys stats, *_kernel_trace.csv of"
            " rocprofv3), named like this one."
        )
    # What a range's GPU work took stands for the range only where no table says the range itself.
    hosts = [row for row in ranges if not row.projected]
    return _Run(tuple(tables), tuple(work), tuple(launched), tuple(hosts or ranges))


def _recordings(name: str, run: _Run) -> list[tuple[int, KinetoFile]]:
    """Return (its first GPU, recording) of each process, in order of their GPUs."""
    owners, sure = _owners(run)
    processes: dict[int, ProcessEvents] = {}
    for row in run.work:
        pid = row.pid if row.pid >= 0 else owners[row.device]
        user = processes.setdefault(pid, ProcessEvents(pid))
        user.devices[_number(row.device)] += 1
        _add_work(user, row)
    for row in run.calls:
        if (process := processes.get(_of(row, processes))) is not None:
            process.add(row.kind, row.name, row.thread, row.start, row.end, max(0, row.correlation))
    for row in run.ranges:
        if (owner := processes.get(_of(row, processes))) is not None:
            owner.add_range(row.name, max(0, row.thread), row.start, row.end)
    direct = any(row.launched >= 0 for row in run.work)
    if not run.calls and not direct:
        for process in processes.values():
            _launch_by_steps(process, run)
    order = sorted(processes.values(), key=lambda process: (min(process.devices), process.pid))
    rank = next((r for r in (rank_in_name(run.name), rank_in_name(name)) if r >= 0), -1)
    first = rank if len(order) == 1 else max(0, rank) * len(order)
    notes = list(_notes(run, calls=bool(run.calls) or direct, sure=sure))
    return [
        (
            min(process.devices),
            process.file(
                f"{run.name} (process {process.pid})" if len(order) > 1 else run.name,
                first if len(order) == 1 else first + at,
                (*notes, *_taken(run, process, first + at, len(order))),
                cut=any(table.cut for table in run.tables),
            ),
        )
        for at, process in enumerate(order)
        if process.events
    ]


def _of(row: Row, processes: dict[int, ProcessEvents]) -> int:
    """Return the process of a row: the only one where no table says it."""
    return row.pid if row.pid in processes or len(processes) != 1 else next(iter(processes))


def _owners(run: _Run) -> tuple[dict[str, int], bool]:
    """Return the process of each GPU, and whether calls and work leave no doubt."""
    devices = sorted({row.device for row in run.work}, key=lambda d: (_number(d), d))
    pids = sorted({row.pid for row in run.calls or run.ranges if row.pid >= 0})
    if len(pids) <= 1:
        alone = pids[0] if pids else -1
        return {d: alone if pids else at for at, d in enumerate(devices)}, True
    called = {(row.pid, row.correlation): row.start for row in run.calls}
    fits = dict.fromkeys(((device, pid) for device in devices for pid in pids), 0)
    for row in run.work:
        for pid in pids:
            at = called.get((pid, row.correlation))
            fits[row.device, pid] += at is not None and at <= row.start
    places = {pid: at for at, pid in enumerate(pids)}
    order = sorted(
        fits, key=lambda pair: (-fits[pair], abs(places[pair[1]] - devices.index(pair[0])))
    )
    owners: dict[str, int] = {}
    for device, pid in order:  # one GPU for each process that has calls of any
        if fits[device, pid] and device not in owners and pid not in owners.values():
            owners[device] = pid
    for device, pid in order:
        spare = pid not in owners.values() or set(owners.values()) == set(pids)
        if device not in owners and (fits[device, pid] or spare):
            owners[device] = pid
    sure = all(
        fits[device, owners[device]] > fits[device, pid]
        for device, pid in fits
        if pid != owners[device]
    )
    return owners, sure


def _number(device: str) -> int:
    found = _NUMBER.search(device)
    return int(found[1][:9]) if found else 0


def _add_work(process: ProcessEvents, row: Row) -> None:
    correlation = row.correlation
    if row.launched >= 0:
        correlation += 1  # rocprof counts from 0, which says "no launch" elsewhere
        process.add(
            EventKind.RUNTIME, "hipLaunchKernel", row.thread, row.launched, row.launched,
            correlation,
        )  # fmt: skip
    args = EventArgs(bytes=row.size)
    process.add(
        row.kind, row.name, max(0, row.stream), row.start, row.end, correlation,
        max(0, row.stream), args,
    )  # fmt: skip


def _launch_by_steps(process: ProcessEvents, run: _Run) -> None:
    """Give the work of each step, or of the whole recording, one launch and one wait."""
    work = [event for event in process.events if event.on_gpu]
    steps = sorted({(row.start, row.end) for row in run.ranges if is_step(row.name)})
    if not work:
        return
    begin = min(e.start for e in work) // PS_PER_NS
    end = -(-max(e.end for e in work) // PS_PER_NS)
    steps = steps or [(begin, end)]
    thread = next((row.thread for row in run.ranges if is_step(row.name)), 0)
    process.launch_at([start for start, _ in steps])
    for number, (start, last) in enumerate(steps, start=1):
        process.add(EventKind.RUNTIME, "cudaDeviceSynchronize", thread, start, last)
        process.add(EventKind.RUNTIME, "cudaGraphLaunch", thread, start, start, number)


def _notes(run: _Run, *, calls: bool, sure: bool) -> Iterable[str]:
    lost = sum(table.lost for table in run.tables)
    if lost:
        yield f"{run.name}: {lost} lines cannot be read and are left out."
    if not calls:
        yield f"{run.name}: {_WITHOUT_CALLS}"
    if not sure:
        yield (
            f"{run.name}: the tables do not tell which process used which GPU; they are taken in"
            " order. Export each process's report by itself to be sure."
        )


def _taken(run: _Run, process: ProcessEvents, rank: int, count: int) -> Iterable[str]:
    if count > 1:
        yield f"{run.name}: process {process.pid} is taken as rank {rank} (in order of their GPUs)."


def _by_gpu(found: list[tuple[int, KinetoFile]]) -> list[KinetoFile]:
    """Return the recordings; runs whose names say no rank get it in order of their GPUs."""
    gpus = [gpu for gpu, _ in found]
    if any(file.rank >= 0 for _, file in found) or len(set(gpus)) < len(gpus):
        return [file for _, file in found]
    return [
        replace(
            file,
            rank=rank,
            notes=(*file.notes, f"{file.name}: taken as rank {rank} (in order of their GPUs)."),
        )
        for rank, (_, file) in enumerate(sorted(found, key=lambda pair: pair[0]))
    ]
