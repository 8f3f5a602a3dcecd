"""
The activity of one rank: CPU threads, GPU work, and which call launched which kernel.

A launch and its kernel share a correlation number. What a call is part of (the aten op, the
c10d op, the annotation) is what encloses it on its thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from commsim.errors import TraceError
from commsim.traces.formats import Event, EventKind, KinetoFile
from commsim.traces.rebuild.rank.calls import Thread, ThreadCall
from commsim.traces.rebuild.rank.communication_kernels import (
    KernelFamily,
    family_of,
    is_nccl,
    looks_like_communication,
)
from commsim.traces.rebuild.rank.gloo_work import GLOO, gloo_work

__all__ = ["AUTOGRAD", "Activity", "GpuOp", "Thread", "ThreadCall", "activity_of"]

AUTOGRAD = "autograd::engine"
_STEP = "ProfilerStep"
_BESIDE = (EventKind.CUDA_SYNC, EventKind.WAIT)
_SHOWN, _NAME_LENGTH = 4, 100
_POLLING = frozenset({"cudaEventQuery", "hipEventQuery", "cudaStreamQuery"})


@dataclass(frozen=True, slots=True)
class GpuOp:
    """A kernel, copy or fill, with the call that launched it (None if not recorded)."""

    event: Event
    launch: ThreadCall | None

    @property
    def is_collective(self) -> bool:
        """Whether this communicates: a kernel of NCCL or RCCL, or what Gloo does on the CPU."""
        return is_nccl(self.event.name) or self.is_gloo

    @property
    def family(self) -> KernelFamily | None:
        """The library outside torch.distributed whose kernel this is, None for all others."""
        return None if self.is_collective else family_of(self.event.name)

    @property
    def communicates(self) -> bool:
        """Whether this moves data between ranks, by whatever library."""
        return self.is_collective or family_of(self.event.name) is not None

    @property
    def is_gloo(self) -> bool:
        """Whether Gloo does this, on threads of its own."""
        return self.event.name.startswith(GLOO)


@dataclass(frozen=True, slots=True)
class Activity:
    """A rank's recording. `gpu` is in order of start; `step` is the profiled step, or None.

    `backward` are autograd's own threads; the main thread runs a few of its nodes too. `waits` are
    the Python frames of Work.wait() by thread, in order of start.
    """

    rank: int
    file: KinetoFile
    threads: dict[tuple[str, str], Thread]
    gpu: tuple[GpuOp, ...]
    main: tuple[str, str]
    backward: frozenset[tuple[str, str]]
    waits: dict[tuple[str, str], tuple[Event, ...]]
    step: Event | None
    steps: tuple[Event, ...]
    calls: dict[int, ThreadCall]
    notes: tuple[str, ...]

    def event(self, call: ThreadCall) -> Event:
        """Return the event of a call."""
        return self.threads[call.thread].events[call.index]

    def enclosing(self, call: ThreadCall) -> Iterator[Event]:
        """Yield what encloses a call, innermost first."""
        return self.threads[call.thread].enclosing(call.index)


def activity_of(file: KinetoFile, rank: int) -> Activity:
    """Sort a rank's events into threads and GPU work.

    Raises:
        TraceError: the trace has no CPU events, so nothing says what caused what.
    """
    cpu: dict[tuple[str, str], list[Event]] = {}
    for event in file.events:
        if event.on_gpu or event.kind in _BESIDE or event.name in _POLLING:
            continue
        if not event.name.startswith(GLOO):
            cpu.setdefault(event.thread, []).append(event)
    if not cpu and file.cut:
        raise TraceError(
            f"{file.name}: cut off before its first CPU event: nothing says what launched what is"
            " left. Copy it again, or leave it out: the other ranks replay without it."
        )
    if not cpu:
        raise TraceError(
            f"{file.name}: no CPU events. Record with ProfilerActivity.CPU as well as CUDA:"
            " a replay needs to know what launched each kernel."
        )
    threads = {name: Thread(name, tuple(es), _parents(es)) for name, es in cpu.items()}
    calls = _calls(threads)
    gpu = [GpuOp(e, calls.get(e.correlation)) for e in file.events if e.on_gpu]
    gpu += [GpuOp(event, call) for event, call in gloo_work(file.events, threads)]
    gpu.sort(key=lambda op: op.event.start)
    steps = _steps(threads)
    main = steps[-1].thread if steps else _busiest(threads, gpu)
    return Activity(
        rank=rank,
        file=file,
        threads=threads,
        gpu=tuple(gpu),
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


def _waits(file: KinetoFile) -> dict[tuple[str, str], tuple[Event, ...]]:
    found: dict[tuple[str, str], list[Event]] = {}
    for event in file.events:
        if event.kind == EventKind.WAIT:
            found.setdefault(event.thread, []).append(event)
    return {
        name: tuple(sorted(events, key=lambda event: event.start)) for name, events in found.items()
    }


def _runs_autograd(thread: Thread) -> bool:
    return any(event.name.startswith(AUTOGRAD) for event in thread.events)


def _parents(events: list[Event]) -> tuple[int, ...]:
    parents, open_events = [], list[int]()
    for index, event in enumerate(events):
        while open_events and events[open_events[-1]].end < max(event.end, event.start + 1):
            open_events.pop()
        parents.append(open_events[-1] if open_events else -1)
        open_events.append(index)
    return tuple(parents)


def _calls(threads: dict[tuple[str, str], Thread]) -> dict[int, ThreadCall]:
    """Return the runtime call of each correlation number."""
    return {
        event.correlation: ThreadCall(thread.name, index)
        for thread in threads.values()
        for index, event in enumerate(thread.events)
        if event.kind == EventKind.RUNTIME and event.correlation > 0
    }


def _steps(threads: dict[tuple[str, str], Thread]) -> list[Event]:
    """Return the profiled steps, by start."""
    steps = [
        event
        for thread in threads.values()
        for event in thread.events
        if event.name.startswith(_STEP)
    ]
    return sorted(steps, key=lambda event: event.start)


def _busiest(threads: dict[tuple[str, str], Thread], gpu: list[GpuOp]) -> tuple[str, str]:
    """Return the thread that launched most, else the one with most events."""
    launches = Counter(op.launch.thread for op in gpu if op.launch)
    return max(threads, key=lambda name: (launches[name], len(threads[name].events), name))


def _strange_kernels(gpu: list[GpuOp]) -> Iterator[str]:
    """Yield notes on kernels that communicate, or seem to, by other means than NCCL."""
    found = Counter(op.family.library for op in gpu if op.family is not None)
    for library, count in sorted(found.items()):
        yield (
            f"{count} kernels of {library} communicate outside torch.distributed: they keep the"
            " time that was recorded, waits included."
        )
    suspicious = Counter(
        op.event.name
        for op in gpu
        if not op.is_collective and looks_like_communication(op.event.name)
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
