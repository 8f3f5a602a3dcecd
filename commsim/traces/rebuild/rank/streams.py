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
from collections.abc import Iterable, Iterator

import numpy as np

from commsim.traces.formats import EventKind, Events
from commsim.traces.rebuild.rank.activity import Activity
from commsim.traces.rebuild.rank.calls import RankCollectives
from commsim.traces.rebuild.rank.issue_order import NOTHING, IssueOrder, fits
from commsim.traces.rebuild.rank.process_group_waits import process_group_waits

__all__ = ["cross_stream"]


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
    waited: dict[int, list[tuple[int, list[int]]]] = {}
    for event in _stream_waits(activity):
        record = activity.calls.get(event.args.waits_for)
        wait = activity.calls.get(event.correlation)
        if record is None or wait is None:
            continue
        stream, at = event.args.waits_for_stream, activity.event(record).start
        queue, until = issue.streams.get(stream, NOTHING), activity.event(wait).start
        since, last = queue.last_launch(at)
        sources = [last] if last >= 0 else []
        sources += (op for time, ops in waited.get(stream, ()) if since < time <= at for op in ops)
        waited.setdefault(event.stream, []).append((until, sources))
        target = issue.streams.get(event.stream, NOTHING).next_after(until)
        yield from (
            (source, target) for source in sources if target >= 0 and fits(activity, source, target)
        )


def _stream_waits(activity: Activity) -> Events:
    events = activity.file.events
    return events.take(
        (events.kind == EventKind.CUDA_SYNC) & events.named("Stream Wait Event".__eq__)
    )
