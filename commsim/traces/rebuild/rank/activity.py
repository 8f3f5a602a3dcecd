"""
The activity of one rank: CPU threads, GPU work, and which call launched which kernel.

A launch and its kernel share a correlation number. What a call is part of (the aten op, the
c10d op, the annotation) is what encloses it on its thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

import msgspec
import numpy as np

from commsim.errors import TraceError
from commsim.traces.formats import Event, EventKind, Events, KinetoFile, RankRecord
from commsim.traces.rebuild.rank.calls import Thread, ThreadCall
from commsim.traces.rebuild.rank.communication_kernels import (
    family_of,
    is_nccl,
    looks_like_communication,
)
from commsim.traces.rebuild.rank.gloo_groups import gloo_groups
from commsim.traces.rebuild.rank.gloo_work import GLOO
from commsim.traces.rebuild.rank.gpu_ops import GpuOp, GpuOps, LaunchCalls, gpu_ops

__all__ = ["AUTOGRAD", "Activity", "GpuOp", "GpuOps", "Thread", "ThreadCall", "activity_of"]

AUTOGRAD = "autograd::engine"
_STEP = "ProfilerStep"
_BESIDE = (EventKind.CUDA_SYNC, EventKind.WAIT)
_SHOWN, _NAME_LENGTH = 4, 100
_POLLING = frozenset({"cudaEventQuery", "hipEventQuery", "cudaStreamQuery"})


class Activity(msgspec.Struct, frozen=True):
    """A rank's recording. `gpu` is in order of start; `step` is the profiled step, or None.

    `backward` are autograd's own threads; the main thread runs a few of its nodes too. `waits` are
    the Python frames of Work.wait() by thread, in order of start.
    """

    rank: int
    file: KinetoFile
    threads: dict[tuple[str, str], Thread]
    gpu: GpuOps
    main: tuple[str, str]
    backward: frozenset[tuple[str, str]]
    waits: dict[tuple[str, str], tuple[Event, ...]]
    step: Event | None
    steps: tuple[Event, ...]
    calls: LaunchCalls
    notes: tuple[str, ...]

    def event(self, call: ThreadCall) -> Event:
        """Return the event of a call."""
        return self.threads[call.thread].events[call.index]

    def enclosing(self, call: ThreadCall) -> Iterator[Event]:
        """Yield what encloses a call, innermost first."""
        return self.threads[call.thread].enclosing(call.index)


def activity_of(file: KinetoFile, rank: int, dump: RankRecord | None = None) -> Activity:
    """Sort a rank's events into threads and GPU work; `dump` is its flight recorder's.

    Raises:
        TraceError: the trace has no CPU events, so nothing says what caused what.
    """
    threads = _threads(file.events)
    if not threads and file.cut:
        raise TraceError(
            f"{file.name}: cut off before its first CPU event: nothing says what launched what is"
            " left. Copy it again, or leave it out: the other ranks replay without it."
        )
    if not threads:
        raise TraceError(
            f"{file.name}: no CPU events. Record with ProfilerActivity.CPU as well as CUDA:"
            " a replay needs to know what launched each kernel."
        )
    calls = LaunchCalls(threads)
    gpu = gpu_ops(
        file.events, threads, calls, partial(gloo_groups, zero_ns=file.zero_ns, dump=dump)
    )
    steps = _steps(threads)
    main = steps[-1].thread if steps else _busiest(threads, gpu)
    return Activity(
        rank=rank,
        file=file,
        threads=threads,
        gpu=gpu,
        main=main,
        backward=frozenset(
            name for name, thread in threads.items() if name != main and _runs_autograd(thread)
        ),
        waits=_waits(file),
        step=steps[-1] if steps else None,
        steps=tuple(steps),
        calls=calls,
        notes=(*_step_notes(rank, steps), *_strange_kernels(gpu)),
    )


def _threads(events: Events) -> dict[tuple[str, str], Thread]:
    """Return the threads of the CPU, in the order of their first events."""
    beside = events.named(lambda name: name in _POLLING or name.startswith(GLOO))
    cpu = events.take(~(events.on_gpu | np.isin(events.kind, _BESIDE) | beside))
    numbers, first = np.unique(cpu.thread, return_index=True)
    names = [cpu.threads[number] for number in numbers]
    return {
        names[at]: Thread(names[at], cpu.take(cpu.thread == numbers[at]))
        for at in np.argsort(first)
    }


def _waits(file: KinetoFile) -> dict[tuple[str, str], tuple[Event, ...]]:
    found: dict[tuple[str, str], list[Event]] = {}
    for event in file.events.take(file.events.kind == EventKind.WAIT):
        found.setdefault(event.thread, []).append(event)
    return {name: tuple(events) for name, events in found.items()}


def _runs_autograd(thread: Thread) -> bool:
    return bool(thread.events.named(lambda name: name.startswith(AUTOGRAD)).any())


def _steps(threads: dict[tuple[str, str], Thread]) -> list[Event]:
    """Return the profiled steps, by start."""
    steps = [
        event
        for thread in threads.values()
        for event in thread.events.take(thread.events.named(lambda name: name.startswith(_STEP)))
    ]
    return sorted(steps, key=lambda event: event.start)


def _busiest(threads: dict[tuple[str, str], Thread], gpu: GpuOps) -> tuple[str, str]:
    """Return the thread that launched most, else the one with most events."""
    launches = np.bincount(gpu.thread[gpu.has_launch], minlength=len(threads)).tolist()
    most = zip(launches, (len(thread.events) for thread in threads.values()), threads, strict=True)
    return max(most)[2]


def _strange_kernels(gpu: GpuOps) -> Iterator[str]:
    """Yield notes on kernels that communicate, or seem to, by other means than NCCL."""
    others = gpu.counts(lambda name: not (is_nccl(name) or name.startswith(GLOO)))
    found: Counter[str] = Counter()
    for name, count in others.items():
        if (family := family_of(name)) is not None:
            found[family.library] += count
    for library, count in sorted(found.items()):
        yield (
            f"{count} kernels of {library} communicate outside torch.distributed: they keep the"
            " time that was recorded, waits included."
        )
    suspicious = Counter(
        {name: count for name, count in others.items() if looks_like_communication(name)}
    )
    for name, count in suspicious.most_common(_SHOWN):
        yield (
            f"{count} kernels {name[:_NAME_LENGTH]!r} have a name like communication, of no library"
            " that is known: they count as compute."
        )


def _step_notes(rank: int, steps: list[Event]) -> tuple[str, ...]:
    if not steps:
        return (f"rank {rank}: no ProfilerStep is marked; the whole recording is its window.",)
    if len(steps) > 1:
        return (
            f"rank {rank}: {len(steps)} steps are recorded;"
            f" the last, {steps[-1].name}, is its window.",
        )
    return ()
