"""
A CPU thread as pieces of work, cut at each launch, blocking call and hand-over.

A thread is cut at each launch (the kernel hangs on the piece that ends there), around each
blocking call, and where another thread takes over or hands back. Time between the cuts is
work, recorded gaps of Python included. Time inside a blocking call up to the end of the GPU
work it waits for is no work: the next piece hangs on that GPU work instead; so is the time in
which a thread waits for the backward pass on the autograd thread.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from commsim.graph import Phase
from commsim.traces.formats import Event, EventKind
from commsim.traces.rebuild.rank.activity import AUTOGRAD, Activity
from commsim.traces.rebuild.rank.calls import Thread, ThreadCall
from commsim.traces.rebuild.rank.gloo_waits import gloo_waits
from commsim.traces.rebuild.rank.streams import SLACK, IssueOrder

__all__ = ["Piece", "ThreadName", "pieces_of"]

ThreadName = tuple[str, str]

_STREAM_SYNC = frozenset({"cudaStreamSynchronize", "hipStreamSynchronize", "cuStreamSynchronize"})
_DEVICE_SYNC = frozenset({"cudaDeviceSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize"})
_EVENT_SYNC = frozenset({"cudaEventSynchronize", "hipEventSynchronize", "cuEventSynchronize"})
_BLOCKING_COPY = frozenset({"cudaMemcpy", "hipMemcpy", "hipMemcpyWithStream"})
_COPY = frozenset({"cudaMemcpyAsync", "hipMemcpyAsync"}) | _BLOCKING_COPY
_HANDED_OVER = 100_000_000  # ps: a gap of 100 us in which the other thread is busy
_BUSY_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class BlockedSpan:
    """Time in which a thread is blocked: it waits for GPU work, or for another thread."""

    start: int
    end: int
    gpu: tuple[int, ...] = ()
    thread: ThreadName | None = None


@dataclass(slots=True)
class Piece:
    """Work of a thread from `start` to `end`. It waits for GPU work and for other pieces."""

    thread: ThreadName
    start: int
    end: int
    name: str
    phase: Phase
    gpu: list[int] = field(default_factory=list)
    after: list[tuple[ThreadName, int]] = field(default_factory=list)


def pieces_of(
    activity: Activity, issue: IssueOrder, *, gaps_are_work: bool = False
) -> dict[ThreadName, list[Piece]]:
    """Cut the main thread, and each one that launches GPU work, into pieces.

    `gaps_are_work`: what may be waiting for Gloo or work counts as work.
    """
    names = [name for name in activity.threads if name == activity.main or name in issue.threads]
    names += [c.launch.thread for c in activity.gpu if c.launch and c.launch.thread not in names]
    kept = [activity.threads[name] for name in dict.fromkeys(names)]
    kept.sort(key=lambda thread: (thread.events[0].start, thread.name != activity.main))
    blocked = {thread.name: list(_blocking(activity, issue, thread)) for thread in kept}
    for thread in kept:
        blocked[thread.name] += _hand_overs(activity, thread, kept)
        waits = gloo_waits(activity, thread, gaps_are_work=gaps_are_work)
        blocked[thread.name] += (BlockedSpan(*wait) for wait in waits)
    begins = {thread.name: thread.events[0].start for thread in kept}
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
    earlier = main.name != thread.name and main.events[0].start <= thread.events[0].start
    return main if earlier else kept[0]


def _last_mark(thread: Thread, time: int) -> int:
    """Return the last start or end of an event of `thread` up to `time`."""
    marks = _marks(thread)
    return marks[max(0, bisect_right(marks, time) - 1)]


def _marks(thread: Thread) -> list[int]:
    return sorted({time for event in thread.events for time in (event.start, event.end)})


def _blocking(activity: Activity, issue: IssueOrder, thread: Thread) -> Iterator[BlockedSpan]:
    """Yield a span for each call that waits for GPU work."""
    syncs = {
        event.correlation: event
        for event in activity.file.events
        if event.kind == EventKind.CUDA_SYNC and event.name != "Stream Wait Event"
    }
    copies = {
        activity.event(op.launch).correlation: index
        for index, op in enumerate(activity.gpu)
        if op.launch and op.event.kind == EventKind.MEMCPY
    }
    for index, event in enumerate(thread.events):
        if event.kind != EventKind.RUNTIME:
            continue
        awaited = _awaited(activity, issue, ThreadCall(thread.name, index), syncs, copies)
        ended = [op for op in awaited if activity.gpu[op].event.end <= event.end + SLACK]
        if ended:
            release = max(activity.gpu[op].event.end for op in ended)
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
    return copy >= 0 and "DtoH" in (name := activity.gpu[copy].event.name) and "Pageable" in name


def _last(issue: IssueOrder, stream: int, time: int) -> list[int]:
    queue = issue.streams.get(stream)
    return queue.before(time)[-1:] if queue else []


def _last_of_each(issue: IssueOrder, time: int) -> list[int]:
    return [op for stream in issue.streams for op in _last(issue, stream, time)]


def _current_stream(activity: Activity, issue: IssueOrder, call: ThreadCall) -> int:
    """The call does not say its stream: take that of the thread's last launch."""
    queue = issue.threads.get(call.thread)
    launched = queue.before(activity.event(call).start) if queue else []
    return activity.gpu[launched[-1]].event.stream if launched else -1


def _ended_inside(activity: Activity, event: Event) -> list[int]:
    """The event is not known: take the work that ended last while the call waited."""
    inside = [
        (op.event.end, index)
        for index, op in enumerate(activity.gpu)
        if event.start < op.event.end <= event.end
    ]
    return [max(inside)[1]] if inside else []


def _hand_overs(activity: Activity, thread: Thread, others: list[Thread]) -> Iterator[BlockedSpan]:
    """Yield the gaps in which `thread` waits for the backward pass, or it for `thread`."""
    backward = thread.name in activity.backward
    partners = [
        (other.name, _marks(other))
        for other in others
        if (other.name in activity.backward) != backward
    ]
    for start, end in _gaps(thread) if partners else ():
        for name, marks in partners:
            inside = marks[bisect_left(marks, start) : bisect_right(marks, end)]
            if inside and inside[-1] - inside[0] >= _BUSY_SHARE * (end - start):
                yield BlockedSpan(start, inside[-1], thread=name)
                break


def _gaps(thread: Thread) -> Iterator[tuple[int, int]]:
    """Yield long times without an event, other than inside an op or a call."""
    marks = _marks(thread)
    starts = [event.start for event in thread.events]
    for start, end in zip(marks, marks[1:], strict=False):
        if end - start < _HANDED_OVER:
            continue
        index = bisect_right(starts, start) - 1
        around = [thread.events[index], *thread.enclosing(index)]
        inner = next((event for event in around if event.end >= end), None)
        if inner is None or inner.kind == EventKind.ANNOTATION:
            yield start, end


def _cuts(
    activity: Activity,
    kept: list[Thread],
    blocked: dict[ThreadName, list[BlockedSpan]],
    begins: dict[ThreadName, int],
) -> dict[ThreadName, list[int]]:
    """Return the times at which each thread is cut, from its begin to its end."""
    cuts = {t.name: {begins[t.name], max(event.end for event in t.events)} for t in kept}
    for op in activity.gpu:
        if op.launch:
            cuts[op.launch.thread].add(activity.event(op.launch).start)
    if activity.step:
        cuts[activity.main] |= {activity.step.start, activity.step.end}
    for name, of_thread in blocked.items():
        for span in of_thread:
            cuts[name] |= {span.start, span.end}
            if span.thread:
                cuts[span.thread].add(span.end)
    return {name: sorted(times) for name, times in cuts.items()}


def _cut(
    activity: Activity, thread: Thread, cuts: list[int], blocked: list[BlockedSpan]
) -> list[Piece]:
    """Return the pieces between the cuts, without the blocked time.

    The begin and the end of each blocked span are pieces of no length, for others to depend on.
    """
    points = {cuts[0], *(span.end for span in blocked)}
    spans = sorted([*zip(cuts, cuts[1:], strict=False), *((time, time) for time in points)])
    blocked = sorted(blocked, key=lambda span: (span.start, span.end))
    opened = [span.start for span in blocked]
    reach = list(accumulate((span.end for span in blocked), max))
    pieces = [
        Piece(thread.name, start, end, *_label(activity, thread, end))
        for start, end in spans
        if start == end or not (at := bisect_right(opened, start)) or reach[at - 1] < end
    ]
    starts = [piece.start for piece in pieces]
    for span in blocked:
        piece = pieces[bisect_left(starts, span.end)]
        piece.gpu += span.gpu
        if span.thread:
            piece.after.append((span.thread, span.end))
    return pieces


def _label(activity: Activity, thread: Thread, time: int) -> tuple[str, Phase]:
    """Return what a thread was doing at `time`: its outermost op, else the annotation."""
    index = bisect_right(thread.events, time, key=lambda event: event.start) - 1
    around = [e for e in _chain(thread, index) if e.end >= time]
    ops = [event.name for event in around if event.kind == EventKind.CPU_OP]
    notes = [e.name for e in around if e.kind == EventKind.ANNOTATION]
    named = [name for name in notes if not name.startswith("ProfilerStep")]
    name = ops[-1] if ops else named[0] if named else "cpu"
    if thread.name in activity.backward or name.startswith(AUTOGRAD):
        return name, Phase.BACKWARD
    optimizes = any(note.startswith("Optimizer.step") for note in notes)
    return name, Phase.OPTIMIZER if optimizes else Phase.NONE


def _chain(thread: Thread, index: int) -> Iterable[Event]:
    return [thread.events[index], *thread.enclosing(index)] if index >= 0 else []
