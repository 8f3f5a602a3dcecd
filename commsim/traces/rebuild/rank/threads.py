"""
A CPU thread as pieces of work, cut at each launch, blocking call and hand-over.

A thread is cut at each launch (the kernel hangs on the piece that ends there), around each
blocking call, and where another thread takes over or hands back. Time between the cuts is
work, recorded gaps of Python included. Time inside a blocking call up to the end of the GPU
work it waits for is no work: the next piece hangs on that GPU work instead; so is the time in
which a thread waits for the backward pass on the autograd thread.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.traces.formats import Event, EventKind
from commsim.traces.rebuild.rank.activity import Activity
from commsim.traces.rebuild.rank.calls import Thread, ThreadCall
from commsim.traces.rebuild.rank.gloo_waits import gloo_waits
from commsim.traces.rebuild.rank.issue_order import SLACK, IssueOrder
from commsim.traces.rebuild.rank.thread_labels import thread_labels

__all__ = ["Pieces", "ThreadName", "pieces_of"]

ThreadName = tuple[str, str]

_STREAM_SYNC = frozenset({"cudaStreamSynchronize", "hipStreamSynchronize", "cuStreamSynchronize"})
_DEVICE_SYNC = frozenset({"cudaDeviceSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize"})
_EVENT_SYNC = frozenset({"cudaEventSynchronize", "hipEventSynchronize", "cuEventSynchronize"})
_BLOCKING_COPY = frozenset({"cudaMemcpy", "hipMemcpy", "hipMemcpyWithStream"})
_COPY = frozenset({"cudaMemcpyAsync", "hipMemcpyAsync"}) | _BLOCKING_COPY
_BLOCKS = _STREAM_SYNC | _DEVICE_SYNC | _EVENT_SYNC | _COPY
_HANDED_OVER = 100_000_000  # ps: a gap of 100 us in which the other thread is busy
_BUSY_SHARE = 0.5


class BlockedSpan(msgspec.Struct, frozen=True):
    """Time in which a thread is blocked: it waits for GPU work, or for another thread."""

    start: int
    end: int
    gpu: tuple[int, ...] = ()
    thread: ThreadName | None = None


class Pieces(msgspec.Struct, frozen=True, eq=False):
    """The work of a thread: pieces from `start` to `end`, in order.

    `gpu` and `after` say what a piece waits for, for the few that wait: GPU work, and other
    threads until some time. `name` are indices of `names`, `phase` values of `Phase`.
    """

    start: Ints
    end: Ints
    name: Ints
    phase: Ints
    names: tuple[str, ...]
    gpu: dict[int, list[int]]
    after: dict[int, list[tuple[ThreadName, int]]]

    def __len__(self) -> int:
        return len(self.start)

    def at(self, times: Ints) -> Ints:
        """Return, for each time, the last piece that ends then or before; else the first."""
        return np.maximum(0, np.searchsorted(self.end, times, side="right") - 1)


def pieces_of(
    activity: Activity, issue: IssueOrder, *, gaps_are_work: bool = False
) -> dict[ThreadName, Pieces]:
    """Cut the main thread, and each one that launches GPU work, into pieces.

    `gaps_are_work`: what may be waiting for Gloo or work counts as work.
    """
    names = [name for name in activity.threads if name == activity.main or name in issue.threads]
    gpu = activity.gpu
    used = dict.fromkeys(gpu.thread[gpu.has_launch].tolist())
    names += [gpu.threads[number] for number in used]
    kept = [activity.threads[name] for name in dict.fromkeys(names)]
    kept.sort(key=lambda thread: (int(thread.events.start[0]), thread.name != activity.main))
    blocked = {thread.name: list(_blocking(activity, issue, thread)) for thread in kept}
    for thread in kept:
        blocked[thread.name] += _hand_overs(activity, thread, kept)
        waits = gloo_waits(activity, thread, gaps_are_work=gaps_are_work)
        blocked[thread.name] += (BlockedSpan(*wait) for wait in waits)
    begins = {thread.name: int(thread.events.start[0]) for thread in kept}
    for thread in kept[1:]:
        before = _starter(activity, kept, thread)
        handed = _last_mark(before, begins[thread.name])
        blocked[thread.name].append(BlockedSpan(handed, handed, thread=before.name))
        begins[thread.name] = handed
    cuts = _cuts(activity, kept, blocked, begins)
    return {t.name: _cut(activity, t, cuts[t.name], blocked[t.name]) for t in kept}


def _starter(activity: Activity, kept: list[Thread], thread: Thread) -> Thread:
    """Return the thread that set `thread` to work: the main one, if it ran by then."""
    main = activity.threads[activity.main]
    earlier = main.name != thread.name and main.events.start[0] <= thread.events.start[0]
    return main if earlier else kept[0]


def _last_mark(thread: Thread, time: int) -> int:
    """Return the last start or end of an event of `thread` up to `time`."""
    at = int(np.searchsorted(thread.marks, time, side="right"))
    return int(thread.marks[max(0, at - 1)])


def _blocking(activity: Activity, issue: IssueOrder, thread: Thread) -> Iterator[BlockedSpan]:
    """Yield a span for each call that waits for GPU work."""
    gpu, events, of_file = activity.gpu, thread.events, activity.file.events
    blocks = events.named(_BLOCKS.__contains__) & (events.kind == EventKind.RUNTIME)
    if not blocks.any():
        return
    waits = ~of_file.named("Stream Wait Event".__eq__) & (of_file.kind == EventKind.CUDA_SYNC)
    syncs = {event.correlation: event for event in of_file.take(waits)}
    copied = np.flatnonzero(gpu.has_launch & (gpu.events.kind == EventKind.MEMCPY))
    copies = dict(zip(gpu.events.correlation[copied].tolist(), copied.tolist(), strict=True))
    for index in np.flatnonzero(blocks).tolist():
        event = events[index]
        awaited = _awaited(activity, issue, ThreadCall(thread.name, index), syncs, copies)
        ended = [op for op in awaited if gpu.ends[op] <= event.end + SLACK]
        if ended:
            release = max(gpu.ends[op] for op in ended)
            yield BlockedSpan(
                event.start, min(max(event.start, release), event.end), gpu=tuple(ended)
            )


def _awaited(
    activity: Activity,
    issue: IssueOrder,
    call: ThreadCall,
    syncs: dict[int, Event],
    copies: dict[int, int],
) -> list[int]:
    """Return the GPU work that a runtime call waits for; none if it does not block."""
    event = activity.event(call)
    if event.name in _COPY:
        copy = copies.get(event.correlation, -1)
        blocks = event.name in _BLOCKING_COPY or _to_pageable(activity, copy)
        return [copy] if copy >= 0 and blocks else []
    if event.name in _DEVICE_SYNC:
        return _last_of_each(issue, event.start)
    sync = syncs.get(event.correlation)
    if event.name in _STREAM_SYNC:
        stream = sync.stream if sync else _current_stream(activity, issue, call)
        return _last(issue, stream, event.start)
    if event.name in _EVENT_SYNC:
        record = activity.calls.get(sync.args.waits_for) if sync else None
        if sync and record:
            return _last(issue, sync.args.waits_for_stream, activity.event(record).start)
        return _ended_inside(activity, event)
    return []


def _to_pageable(activity: Activity, copy: int) -> bool:
    """A copy to pageable memory returns when it is done, though it is called Async."""
    return copy >= 0 and "DtoH" in (name := activity.gpu.events[copy].name) and "Pageable" in name


def _last(issue: IssueOrder, stream: int, time: int) -> list[int]:
    queue = issue.streams.get(stream)
    last = queue.last_before(time) if queue else -1
    return [last] if last >= 0 else []


def _last_of_each(issue: IssueOrder, time: int) -> list[int]:
    return [op for stream in issue.streams for op in _last(issue, stream, time)]


def _current_stream(activity: Activity, issue: IssueOrder, call: ThreadCall) -> int:
    """The call does not say its stream: take that of the thread's last launch."""
    queue = issue.threads.get(call.thread)
    launched = queue.last_before(activity.event(call).start) if queue else -1
    return activity.gpu.streams[launched] if launched >= 0 else -1


def _ended_inside(activity: Activity, event: Event) -> list[int]:
    """The event is not known: take the work that ended last while the call waited."""
    ends = activity.gpu.events.end
    inside = np.flatnonzero((event.start < ends) & (ends <= event.end))
    return [int(inside[ends[inside] == ends[inside].max()][-1])] if inside.size else []


def _hand_overs(activity: Activity, thread: Thread, others: list[Thread]) -> Iterator[BlockedSpan]:
    """Yield the gaps in which `thread` waits for the backward pass, or it for `thread`."""
    backward = thread.name in activity.backward
    partners = [
        (other.name, other.marks)
        for other in others
        if (other.name in activity.backward) != backward
    ]
    for start, end in _gaps(thread) if partners else ():
        for name, marks in partners:
            inside = marks[np.searchsorted(marks, start) : np.searchsorted(marks, end, "right")]
            if inside.size and inside[-1] - inside[0] >= _BUSY_SHARE * (end - start):
                yield BlockedSpan(start, int(inside[-1]), thread=name)
                break


def _gaps(thread: Thread) -> Iterator[tuple[int, int]]:
    """Yield long times without an event, other than inside an op or a call."""
    marks, events = thread.marks, thread.events
    for at in np.flatnonzero(np.diff(marks) >= _HANDED_OVER).tolist():
        start, end = int(marks[at]), int(marks[at + 1])
        index = int(np.searchsorted(events.start, start, side="right")) - 1
        around = [events[index], *thread.enclosing(index)]
        inner = next((event for event in around if event.end >= end), None)
        if inner is None or inner.kind == EventKind.ANNOTATION:
            yield start, end


def _cuts(
    activity: Activity,
    kept: list[Thread],
    blocked: dict[ThreadName, list[BlockedSpan]],
    begins: dict[ThreadName, int],
) -> dict[ThreadName, Ints]:
    """Return the times at which each thread is cut, from its begin to its end."""
    cuts = {t.name: [begins[t.name], int(t.events.end.max())] for t in kept}
    if activity.step:
        cuts[activity.main] += [activity.step.start, activity.step.end]
    for name, of_thread in blocked.items():
        for span in of_thread:
            cuts[name] += [span.start, span.end]
            if span.thread:
                cuts[span.thread].append(span.end)
    gpu = activity.gpu
    launches = {name: gpu.launched[gpu.thread == n] for n, name in enumerate(gpu.threads)}
    return {
        name: np.unique(np.concatenate((launches[name], np.array(times, np.int64))))
        for name, times in cuts.items()
    }


def _cut(activity: Activity, thread: Thread, cuts: Ints, blocked: list[BlockedSpan]) -> Pieces:
    """Return the pieces between the cuts, without the blocked time.

    The begin and the end of each blocked span are pieces of no length, for others to depend on.
    """
    blocked = sorted(blocked, key=lambda span: (span.start, span.end))
    opened = np.array([span.start for span in blocked], np.int64)
    reach = np.maximum.accumulate([0, *(span.end for span in blocked)])
    points = np.unique([cuts[0], *(span.end for span in blocked)])
    start, end = np.concatenate((cuts[:-1], points)), np.concatenate((cuts[1:], points))
    until = reach[np.searchsorted(opened, start, side="right")]
    free = (start == end) | (until < end)
    start, end = start[free], end[free]
    order = np.lexsort((end, start))
    start, end = start[order], end[order]
    name, phase, names = thread_labels(thread, end, backward=thread.name in activity.backward)
    gpu: dict[int, list[int]] = {}
    after: dict[int, list[tuple[ThreadName, int]]] = {}
    for span in blocked:
        piece = int(np.searchsorted(start, span.end))
        gpu.setdefault(piece, []).extend(span.gpu)
        if span.thread:
            after.setdefault(piece, []).append((span.thread, span.end))
    return Pieces(start, end, name, phase, names, gpu, after)
