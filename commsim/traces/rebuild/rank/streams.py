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
from collections.abc import Iterable
from dataclasses import dataclass

from commsim.traces.formats import EventKind
from commsim.traces.rebuild.rank.activity import Activity
from commsim.traces.rebuild.rank.calls import RankCollectives, ThreadCall

__all__ = ["IssueOrder", "Queue", "cross_stream", "issue_order"]

SLACK = 2_000_000  # ps: old traces have whole microseconds, so an end may seem 1 us late
_WAIT_EVENT = ("cudaStreamWaitEvent", "hipStreamWaitEvent", "cuStreamWaitEvent")


@dataclass(frozen=True, slots=True)
class Queue:
    """Indices of GPU work by the time of launch, with those times."""

    times: list[int]
    ops: list[int]

    def before(self, time: int) -> list[int]:
        """Return what was launched up to `time`, the last one last."""
        return self.ops[: bisect_right(self.times, time)]

    def next_after(self, time: int) -> int:
        """Return the first one launched after `time`, -1 without one."""
        at = bisect_left(self.times, time)
        return self.ops[at] if at < len(self.ops) else -1


@dataclass(frozen=True, slots=True)
class IssueOrder:
    """GPU work by stream, and by the thread that launched it (collectives apart)."""

    streams: dict[int, Queue]
    threads: dict[tuple[str, str], Queue]
    compute_streams: dict[int, Queue]


def issue_order(activity: Activity) -> IssueOrder:
    """Sort the GPU work of a rank by when it was launched."""
    order = sorted(
        (launch_time(activity, index), index)
        for index, op in enumerate(activity.gpu)
        if op.launch is not None
    )
    streams: dict[int, Queue] = {}
    threads: dict[tuple[str, str], Queue] = {}
    compute: dict[int, Queue] = {}
    for time, index in order:
        op = activity.gpu[index]
        assert op.launch is not None
        _append(streams.setdefault(op.event.stream, Queue([], [])), time, index)
        if not op.is_collective:
            _append(threads.setdefault(op.launch.thread, Queue([], [])), time, index)
            _append(compute.setdefault(op.event.stream, Queue([], [])), time, index)
    return IssueOrder(streams, threads, compute)


def _append(queue: Queue, time: int, index: int) -> None:
    queue.times.append(time)
    queue.ops.append(index)


def launch_time(activity: Activity, index: int) -> int:
    """Return when GPU work was launched; its own start if that is not recorded."""
    op = activity.gpu[index]
    return activity.event(op.launch).start if op.launch else op.event.start


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
    graphs: dict[ThreadCall, list[int]] = {}
    for index, op in enumerate(activity.gpu):
        if op.launch and "GraphLaunch" in activity.event(op.launch).name:
            graphs.setdefault(op.launch, []).append(index)
    for ops in graphs.values():
        ended: list[tuple[int, int]] = []
        for target in ops:
            start = activity.gpu[target].event.start
            at = bisect_right(ended, (start, len(activity.gpu)))
            if at and activity.gpu[ended[at - 1][1]].event.stream != _stream_of(activity, target):
                yield ended[at - 1][1], target
            insort(ended, (activity.gpu[target].event.end, target))


def _stream_of(activity: Activity, index: int) -> int:
    return activity.gpu[index].event.stream


def _gather(edges: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    waits: dict[int, list[int]] = {}
    for source, target in edges:
        known = waits.setdefault(target, [])
        if source not in known:
            known.append(source)
    return waits


def _recorded(activity: Activity, issue: IssueOrder) -> Iterable[tuple[int, int]]:
    """Yield (source, target) of each Stream Wait Event that names its record."""
    for event in activity.file.events:
        if event.kind != EventKind.CUDA_SYNC or event.name != "Stream Wait Event":
            continue
        record = activity.calls.get(event.args.waits_for)
        wait = activity.calls.get(event.correlation)
        source_stream = issue.streams.get(event.args.waits_for_stream)
        if record is None or wait is None or source_stream is None:
            continue
        sources = source_stream.before(activity.event(record).start)
        target = issue.streams.get(event.stream, Queue([], [])).next_after(
            activity.event(wait).start
        )
        if sources and target >= 0 and _fits(activity, sources[-1], target):
            yield sources[-1], target


def _fits(activity: Activity, source: int, target: int) -> bool:
    """Say whether the recording allows that `target` waited for `source`."""
    return activity.gpu[source].event.end <= activity.gpu[target].event.start + SLACK


def _last_fit(activity: Activity, sources: list[int], target: int) -> int:
    for source in reversed(sources):
        if _fits(activity, source, target):
            return source
    return -1


def _into_collectives(activity: Activity, issue: IssueOrder) -> Iterable[tuple[int, int]]:
    for target, op in enumerate(activity.gpu):
        if op.is_collective and op.launch is not None:
            launched = issue.threads.get(op.launch.thread, Queue([], []))
            sources = launched.before(activity.event(op.launch).start)
            if sources and _fits(activity, sources[-1], target):
                yield sources[-1], target


def _after_waits(
    activity: Activity, issue: IssueOrder, collectives: RankCollectives
) -> Iterable[tuple[int, int]]:
    for wait in collectives.waits:
        at = activity.event(wait.at).start
        for target in _next_work(activity, issue, wait.at):
            sources = [c.kernel for c in collectives.calls if c.launched <= at]
            if wait.call >= 0:
                sources = [collectives.calls[wait.call].kernel]
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
            own = activity.gpu[target].event.stream
            for stream, queue in issue.streams.items():
                source = _last_fit(activity, queue.before(at), target) if stream != own else -1
                if source >= 0:
                    yield source, target


def _bare_wait_events(activity: Activity) -> Iterable[ThreadCall]:
    for thread in activity.threads.values():
        for index, event in enumerate(thread.events):
            if event.kind == EventKind.RUNTIME and event.name in _WAIT_EVENT:
                names = [outer.name for outer in thread.enclosing(index)]
                if not any(_communicates(name) for name in names):
                    yield ThreadCall(thread.name, index)


def _communicates(name: str) -> bool:
    return name == "record_param_comms" or name.startswith(("c10d::", "nccl:"))


def _next_work(activity: Activity, issue: IssueOrder, call: ThreadCall) -> list[int]:
    """Return what may wait after `call`: the thread's next launch, and its stream's.

    The current stream is not recorded. DDP waits at the end of the backward pass on the
    autograd thread, and the next work on that stream comes from the main thread.
    """
    at = activity.event(call).start
    of_thread = issue.threads.get(call.thread, Queue([], []))
    found = [of_thread.next_after(at)]
    launched = of_thread.before(at)
    if launched:
        stream = activity.gpu[launched[-1]].event.stream
        found.append(issue.compute_streams[stream].next_after(at))
    return [op for op in dict.fromkeys(found) if op >= 0]
