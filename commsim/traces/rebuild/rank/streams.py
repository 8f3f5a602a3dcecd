"""
GPU work in the order of issue, and its waits for work on other streams.

Where the trace has cuda_sync events they say so: a Stream Wait Event names the record it waits
for. Where it has none (the default), what ProcessGroupNCCL does is taken:
- an NCCL kernel waits for what its thread launched last on a compute stream;
- after Work.wait(), the next work on the current stream waits for the NCCL kernel; the
  Execution Trace says which one, else it is the last that had ended by then;
- after any other cudaStreamWaitEvent, the next work on the current stream waits for the last
  work on each other stream that was launched before, and had ended by then.
So no dependency contradicts the recording; if several were possible, the latest is taken.

The kernels of a CUDA graph have one launch and no calls between them: each waits for the one of
the same launch that ended last before it began, on whatever stream.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.traces.formats import EventKind
from commsim.traces.rebuild.rank.activity import Activity
from commsim.traces.rebuild.rank.calls import RankCollectives, ThreadCall

__all__ = ["IssueOrder", "Queue", "cross_stream", "issue_order"]

SLACK = 2_000_000  # ps: old traces have whole microseconds, so an end may seem 1 us late
_WAIT_EVENT = ("cudaStreamWaitEvent", "hipStreamWaitEvent", "cuStreamWaitEvent")


class Queue(msgspec.Struct, frozen=True):
    """Indices of GPU work by the time of launch, with those times."""

    times: list[int]
    ops: list[int]

    def last_before(self, time: int) -> int:
        """Return what was launched last up to `time`, -1 for nothing."""
        at = bisect_right(self.times, time)
        return self.ops[at - 1] if at else -1

    def before(self, time: int) -> Iterator[int]:
        """Yield what was launched up to `time`, the last first."""
        for at in range(bisect_right(self.times, time) - 1, -1, -1):
            yield self.ops[at]

    def next_after(self, time: int) -> int:
        """Return the first one launched after `time`, -1 without one."""
        at = bisect_left(self.times, time)
        return self.ops[at] if at < len(self.ops) else -1


_NOTHING = Queue([], [])


class IssueOrder(msgspec.Struct, frozen=True):
    """GPU work by stream, and by the thread that launched it (collectives apart)."""

    streams: dict[int, Queue]
    threads: dict[tuple[str, str], Queue]
    compute_streams: dict[int, Queue]


def issue_order(activity: Activity) -> IssueOrder:
    """Sort the GPU work of a rank by when it was launched."""
    gpu = activity.gpu
    order = np.argsort(gpu.launched, kind="stable")
    order = order[gpu.has_launch[order]]
    compute = order[~gpu.is_collective[order]]
    streams, threads = gpu.events.stream, gpu.thread
    return IssueOrder(
        _queues(gpu.launched, streams, order),
        {gpu.threads[n]: queue for n, queue in _queues(gpu.launched, threads, compute).items()},
        _queues(gpu.launched, streams, compute),
    )


def _queues(launched: Ints, keys: Ints, order: Ints) -> dict[int, Queue]:
    """Return the work of each key, keys in the order of their first work."""
    found, first = np.unique(keys[order], return_index=True)
    queues: dict[int, Queue] = {}
    for key in found[np.argsort(first)].tolist():
        ops = order[keys[order] == key]
        queues[key] = Queue(launched[ops].tolist(), ops.tolist())
    return queues


def cross_stream(
    activity: Activity, issue: IssueOrder, collectives: RankCollectives
) -> tuple[dict[int, list[int]], str]:
    """Return, for each GPU op, the ops on other streams it waits for; and a note on how."""
    inside = list(_inside_graphs(activity))
    recorded = list(_recorded(activity, issue))
    if recorded:
        return _gather(
            [*recorded, *inside]
        ), "streams wait for each other as the cuda_sync events say."
    edges = [
        *inside,
        *_into_collectives(activity, issue),
        *_after_waits(activity, issue, collectives),
    ]
    edges += _after_wait_events(activity, issue, collectives)
    return _gather(edges), (
        "the trace has no cuda_sync events: streams wait for each other by the rule of"
        " ProcessGroupNCCL."
    )


def _inside_graphs(activity: Activity) -> Iterable[tuple[int, int]]:
    graphs: dict[tuple[int, int], list[int]] = {}
    gpu = activity.gpu
    for number, thread in enumerate(activity.threads.values()):
        launches = thread.events.named(lambda name: "GraphLaunch" in name)
        if launches.any():
            own = np.flatnonzero(gpu.thread == number)
            for op in own[launches[gpu.place[own]]].tolist():
                graphs.setdefault((number, int(gpu.place[op])), []).append(op)
    for ops in sorted(graphs.values()):
        ended: list[tuple[int, int]] = []
        for target in ops:
            at = bisect_right(ended, (gpu.starts[target], len(gpu)))
            if at and gpu.streams[ended[at - 1][1]] != gpu.streams[target]:
                yield ended[at - 1][1], target
            insort(ended, (gpu.ends[target], target))


def _gather(edges: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    waits: dict[int, list[int]] = {}
    for source, target in edges:
        known = waits.setdefault(target, [])
        if source not in known:
            known.append(source)
    return waits


def _recorded(activity: Activity, issue: IssueOrder) -> Iterable[tuple[int, int]]:
    """Yield (source, target) of each Stream Wait Event that names its record."""
    events = activity.file.events
    stream_waits = (events.kind == EventKind.CUDA_SYNC) & events.named("Stream Wait Event".__eq__)
    for event in events.take(stream_waits):
        record = activity.calls.get(event.args.waits_for)
        wait = activity.calls.get(event.correlation)
        source_stream = issue.streams.get(event.args.waits_for_stream)
        if record is None or wait is None or source_stream is None:
            continue
        source = source_stream.last_before(activity.event(record).start)
        target = issue.streams.get(event.stream, _NOTHING).next_after(activity.event(wait).start)
        if source >= 0 and target >= 0 and _fits(activity, source, target):
            yield source, target


def _fits(activity: Activity, source: int, target: int) -> bool:
    """Say whether the recording allows that `target` waited for `source`."""
    return activity.gpu.ends[source] <= activity.gpu.starts[target] + SLACK


def _last_fit(activity: Activity, sources: Iterable[int], target: int) -> int:
    """Return the first of some sources that fits, -1 if none does."""
    return next((source for source in sources if _fits(activity, source, target)), -1)


def _into_collectives(activity: Activity, issue: IssueOrder) -> Iterable[tuple[int, int]]:
    gpu = activity.gpu
    for target in np.flatnonzero(gpu.is_collective & gpu.has_launch).tolist():
        thread = gpu.threads[gpu.thread[target]]
        source = issue.threads.get(thread, _NOTHING).last_before(int(gpu.launched[target]))
        if source >= 0 and _fits(activity, source, target):
            yield source, target


def _after_waits(
    activity: Activity, issue: IssueOrder, collectives: RankCollectives
) -> Iterable[tuple[int, int]]:
    calls = collectives.calls
    launched = Queue([call.launched for call in calls], [call.kernel for call in calls])
    for wait in collectives.waits:
        at = activity.event(wait.at).start
        for target in _next_work(activity, issue, wait.at):
            known = wait.call >= 0
            sources = [calls[wait.call].kernel] if known else launched.before(at)
            source = _last_fit(activity, sources, target)
            if source >= 0:
                yield source, target


def _after_wait_events(
    activity: Activity, issue: IssueOrder, collectives: RankCollectives
) -> Iterable[tuple[int, int]]:
    """Yield what the bare cudaStreamWaitEvents say: those outside of a communication call."""
    for call in _bare_wait_events(activity):
        at = activity.event(call).start
        for target in _next_work(activity, issue, call):
            own = activity.gpu.streams[target]
            for stream, queue in issue.streams.items():
                source = _last_fit(activity, queue.before(at), target) if stream != own else -1
                if source >= 0:
                    yield source, target


def _bare_wait_events(activity: Activity) -> Iterable[ThreadCall]:
    for thread in activity.threads.values():
        called = thread.events.named(_WAIT_EVENT.__contains__)
        for index in np.flatnonzero(called & (thread.events.kind == EventKind.RUNTIME)).tolist():
            if not any(_communicates(outer.name) for outer in thread.enclosing(index)):
                yield ThreadCall(thread.name, index)


def _communicates(name: str) -> bool:
    return name == "record_param_comms" or name.startswith(("c10d::", "nccl:"))


def _next_work(activity: Activity, issue: IssueOrder, call: ThreadCall) -> list[int]:
    """Return what may wait after `call`: the thread's next launch, and its stream's.

    The current stream is not recorded. DDP waits at the end of the backward pass on the
    autograd thread, and the next work on that stream comes from the main thread.
    """
    at = activity.event(call).start
    of_thread = issue.threads.get(call.thread, _NOTHING)
    found = [of_thread.next_after(at)]
    if (launched := of_thread.last_before(at)) >= 0:
        stream = activity.gpu.streams[launched]
        found.append(issue.compute_streams[stream].next_after(at))
    return [op for op in dict.fromkeys(found) if op >= 0]
