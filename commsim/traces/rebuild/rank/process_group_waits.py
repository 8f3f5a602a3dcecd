"""
What GPU work waits for on other streams, by what ProcessGroupNCCL and its callers do.

- An NCCL kernel waits for what was launched last on the stream that is current where it is called,
  and for what that stream waits for since.
- After Work.wait(), the next work on the current stream waits for the NCCL kernel; the
  Execution Trace says which one, else it is the last of the group that had ended by then.
- After any other cudaStreamWaitEvent, the next work on the current stream waits for the last
  work on each other stream that was launched before, and had ended by then.

The current stream is the one where the thread launched last (the first time: launches next), unless
cuda_sync events say it. No
dependency contradicts the recording; if several were possible, the latest is taken.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from commsim.traces.formats import EventKind
from commsim.traces.rebuild.rank.activity import Activity
from commsim.traces.rebuild.rank.call_args import inside
from commsim.traces.rebuild.rank.calls import CollectiveCall, RankCollectives, ThreadCall
from commsim.traces.rebuild.rank.issue_order import NOTHING, IssueOrder, Queue, last_fit

__all__ = ["process_group_waits"]

_WAIT_EVENT = ("cudaStreamWaitEvent", "hipStreamWaitEvent", "cuStreamWaitEvent")


class _QueuedWait(msgspec.Struct, frozen=True):
    """A wait that `call` puts into a stream's queue: for the last that fits of each of `sources`.

    Of those, what was launched before `time` counts.
    """

    call: ThreadCall
    time: int
    sources: tuple[Queue, ...]


def process_group_waits(
    activity: Activity,
    issue: IssueOrder,
    collectives: RankCollectives,
    waiting: Mapping[int, int],
) -> Iterator[tuple[int, int]]:
    """Yield (source, target) of each dependency between streams.

    `waiting` is the stream that waits after a cudaStreamWaitEvent, by its correlation number, as
    far as cuda_sync events say so. Kineto tells of no wait of a stream without work.
    """
    waits = [*_of_work(activity, collectives), *_bare(activity, issue)]
    waits.sort(key=_time)
    of_stream: dict[int, list[_QueuedWait]] = {}
    for wait in waits:
        for stream in _streams(activity, issue, wait.call, waiting):
            of_stream.setdefault(stream, []).append(wait)
        for target in _next_work(activity, issue, wait.call, waiting):
            yield from _edges(activity, wait, target)
    yield from _into_collectives(activity, issue, of_stream)


def _time(wait: _QueuedWait) -> int:
    return wait.time


def _edges(activity: Activity, wait: _QueuedWait, target: int) -> Iterator[tuple[int, int]]:
    own = activity.gpu.streams[target]
    for queue in wait.sources:
        source = last_fit(activity, queue.before(wait.time), target)
        if source >= 0 and activity.gpu.streams[source] != own:
            yield source, target


def _into_collectives(
    activity: Activity, issue: IssueOrder, waits: Mapping[int, list[_QueuedWait]]
) -> Iterator[tuple[int, int]]:
    """Yield what each collective waits for on the stream that is current where it is called.

    That is where its thread launched last, and other threads may have launched there since: what a
    pipeline sends after its backward pass came from autograd's thread. The last collective on the
    same stream has waited for all that was to be waited for by then.
    """
    gpu = activity.gpu
    before: dict[tuple[int, int], int] = {}
    targets = np.flatnonzero(gpu.is_collective & gpu.has_launch)
    for target in targets[np.argsort(gpu.launched[targets], kind="stable")].tolist():
        thread, at = gpu.threads[gpu.thread[target]], int(gpu.launched[target])
        if (stream := _current(activity, issue, thread, at)) is None:
            continue
        since, latest = issue.compute_streams[stream].last_launch(at)
        own = issue.threads[thread].last_before(at)
        known = [op for op in (latest, own) if op >= 0]
        if (source := last_fit(activity, known, target)) >= 0:
            yield source, target
        streams = stream, gpu.streams[target]
        queued = waits.get(stream, [])
        first = bisect_right(queued, max(since, before.get(streams, -1)), key=_time)
        for wait in queued[first : bisect_right(queued, at, key=_time)]:
            yield from _edges(activity, wait, target)
        before[streams] = at


def _of_work(activity: Activity, collectives: RankCollectives) -> Iterator[_QueuedWait]:
    """Yield the waits of Work.wait()."""
    calls = collectives.calls
    of_group = {"": Queue([], [])}
    for call in calls:
        for group in {"", _group(call)}:
            queue = of_group.setdefault(group, Queue([], []))
            queue.times.append(call.launched)
            queue.ops.append(call.kernel)
    for wait in collectives.waits:
        event = activity.event(wait.at)
        queue = of_group.get(event.args.group, of_group[""])
        if wait.call >= 0:
            call = calls[wait.call]
            queue = Queue([call.launched], [call.kernel])
        yield _QueuedWait(wait.at, event.start, (queue,))


def _group(call: CollectiveCall) -> str:
    return call.messages[0].group if call.messages else call.group


def _bare(activity: Activity, issue: IssueOrder) -> Iterator[_QueuedWait]:
    """Yield the cudaStreamWaitEvents outside of a communication call, for all streams."""
    for thread in activity.threads.values():
        called = thread.events.named(_WAIT_EVENT.__contains__)
        for index in np.flatnonzero(called & (thread.events.kind == EventKind.RUNTIME)).tolist():
            if not any(_communicates(outer.name) for outer in thread.enclosing(index)):
                call = ThreadCall(thread.name, index)
                at = activity.event(call).start
                yield _QueuedWait(call, at, tuple(issue.streams.values()))


def _communicates(name: str) -> bool:
    return name == "record_param_comms" or name.startswith(("c10d::", "nccl:"))


def _streams(
    activity: Activity, issue: IssueOrder, call: ThreadCall, waiting: Mapping[int, int]
) -> list[int]:
    """Return the streams that wait after `call`: as told, else the thread's current one."""
    if waiting:
        events = activity.threads[call.thread].events
        made = (activity.event(call), *inside(events, call.index))
        told = (waiting[e.correlation] for e in made if e.correlation in waiting)
        return list(dict.fromkeys(told))
    current = _current(activity, issue, call.thread, activity.event(call).start)
    return [] if current is None else [current]


def _current(
    activity: Activity, issue: IssueOrder, thread: tuple[str, str], time: int
) -> int | None:
    """Return the stream where a thread launched last, or launches next; None if it never does."""
    queue = issue.threads.get(thread, NOTHING)
    launched = queue.last_before(time)
    op = launched if launched >= 0 else queue.next_after(time)
    return activity.gpu.streams[op] if op >= 0 else None


def _next_work(
    activity: Activity, issue: IssueOrder, call: ThreadCall, waiting: Mapping[int, int]
) -> list[int]:
    """Return what waits after `call`: the next work of the stream that is known to wait.

    Without that, what may wait: the thread's next launch, and its stream's. DDP waits at the end of
    the backward pass on the autograd thread, and the next work on that stream comes from the main
    thread.
    """
    at, streams = activity.event(call).start, _streams(activity, issue, call, waiting)
    if waiting:
        found = [issue.streams.get(stream, NOTHING).next_after(at) for stream in streams]
    else:
        found = [issue.threads.get(call.thread, NOTHING).next_after(at)]
        found += (issue.compute_streams[stream].next_after(at) for stream in streams)
    return [op for op in dict.fromkeys(found) if op >= 0]
