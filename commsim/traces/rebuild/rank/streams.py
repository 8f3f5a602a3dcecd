"""
What GPU work waits for on other streams.

Where the trace has cuda_sync events they say so: a Stream Wait Event says which stream waits, and
mostly names the record it waits for (recordings by CUDA 13 leave that out). Where it does not, and
where there are no such events (the default), the rule of ProcessGroupNCCL is taken
(`process_group_waits`).

Kernels of one communicator run in the order of issue, whatever their streams: NCCL sees to that
(a collective that is not async runs on the current stream).

The kernels of a CUDA graph have one launch and no calls between them: each waits for the one of
the same launch that ended last before it began, on whatever stream.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping

import msgspec
import numpy as np

from commsim.traces.formats import Event, EventKind, Events
from commsim.traces.rebuild.rank.activity import Activity
from commsim.traces.rebuild.rank.calls import RankCollectives
from commsim.traces.rebuild.rank.issue_order import NOTHING, IssueOrder, Queue, fits
from commsim.traces.rebuild.rank.process_group_waits import process_group_waits

__all__ = ["cross_stream"]


class _Waited(msgspec.Struct, frozen=True):
    """What a stream was told to wait for, by time: work by its stream, since the last launch."""

    times: list[int]
    sources: list[Mapping[int, int]]

    def since(self, launched: int, time: int) -> Mapping[int, int]:
        at = bisect_right(self.times, time)
        return self.sources[at - 1] if at and self.times[at - 1] > launched else {}

    def add(self, time: int, sources: Mapping[int, int]) -> None:
        self.times.append(time)
        self.sources.append(sources)


def cross_stream(
    activity: Activity, issue: IssueOrder, collectives: RankCollectives
) -> tuple[dict[int, list[int]], str]:
    """Return, for each GPU op, the ops on other streams it waits for; and a note on how."""
    always = [*_inside_graphs(activity), *_inside_communicators(activity, collectives)]
    recorded = list(_recorded(activity, issue))
    if recorded:
        return _gather(
            [*recorded, *always]
        ), "streams wait for each other as the cuda_sync events say."
    waiting = {event.correlation: event.stream for event in _stream_waits(activity)}
    known = (
        "cuda_sync events say which stream waits, not for what"
        if waiting
        else "the trace has no cuda_sync events"
    )
    edges = [*always, *process_group_waits(activity, issue, collectives, waiting)]
    return _gather(edges), f"{known}: streams wait for each other by the rule of ProcessGroupNCCL."


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


def _inside_communicators(
    activity: Activity, collectives: RankCollectives
) -> Iterator[tuple[int, int]]:
    """Yield each kernel of a communicator with the one that it issued before, on another stream."""
    last: dict[str, int] = {}
    for call in collectives.calls:
        if call.library != "nccl" or not call.group or call.op == "messages":
            continue  # sends and receives may have a communicator of their own
        source, target = last.get(call.group, -1), call.kernel
        last[call.group] = target
        streams = activity.gpu.streams
        if source >= 0 and streams[source] != streams[target] and fits(activity, source, target):
            yield source, target


def _gather(edges: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    waits: dict[int, list[int]] = {}
    for source, target in edges:
        known = waits.setdefault(target, [])
        if source not in known:
            known.append(source)
    return waits


def _recorded(activity: Activity, issue: IssueOrder) -> Iterable[tuple[int, int]]:
    """Yield (source, target) of each Stream Wait Event that names its record.

    A record stands for the last work on its stream, and for what the stream waits for since.
    """
    waited: dict[int, _Waited] = {}
    for until, at, event in _with_records(activity):
        sources = dict(_pending(issue, waited, event.args.waits_for_stream, at))
        if (last := _queue(issue, event.args.waits_for_stream).last_before(at)) >= 0:
            sources[event.args.waits_for_stream] = last
        own = _pending(issue, waited, event.stream, until)
        waited.setdefault(event.stream, _Waited([], [])).add(until, _later(activity, own, sources))
        target = _queue(issue, event.stream).next_after(until)
        for source in sources.values():
            if target >= 0 and fits(activity, source, target):
                yield source, target


def _with_records(activity: Activity) -> list[tuple[int, int, Event]]:
    """Return the Stream Wait Events whose calls are known: when it and its record were called."""
    found = []
    for event in _stream_waits(activity):
        record = activity.calls.get(event.args.waits_for)
        wait = activity.calls.get(event.correlation)
        if record is not None and wait is not None:
            found.append((activity.event(wait).start, activity.event(record).start, event))
    return sorted(found, key=lambda one: one[0])


def _queue(issue: IssueOrder, stream: int) -> Queue:
    return issue.streams.get(stream, NOTHING)


def _pending(
    issue: IssueOrder, waited: Mapping[int, _Waited], stream: int, time: int
) -> Mapping[int, int]:
    """Return what a stream waits for at `time` without having launched anything since."""
    launched, _ = _queue(issue, stream).last_launch(time)
    return waited[stream].since(launched, time) if stream in waited else {}


def _later(activity: Activity, one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    """Return the work of each stream that was launched last: it stands for all before it."""
    launched = activity.gpu.launched
    both = sorted((*one.items(), *other.items()), key=lambda item: launched[item[1]])
    return dict(both)


def _stream_waits(activity: Activity) -> Events:
    events = activity.file.events
    return events.take(
        (events.kind == EventKind.CUDA_SYNC) & events.named("Stream Wait Event".__eq__)
    )
