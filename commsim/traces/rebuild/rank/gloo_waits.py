"""
Where a CPU thread waits for Gloo: Work.wait() leaves no event, only a gap.

A send or recv says itself when its wait was over: its annotation ends there. A collective that
ends inside a gap of its caller, or inside `wait_tensor`, was waited for in it: the time up to its
end is no work. What nobody was seen waiting for is waited for in the next such gap, at the
latest at the end of the step: data parallelism waits for all of its buckets before the
optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator

from commsim.traces.formats import EventKind
from commsim.traces.rebuild.rank.activity import Activity
from commsim.traces.rebuild.rank.calls import Thread

__all__ = ["gloo_waits"]

_SHORT = 20_000_000  # ps: calling Python between two ops takes less than 20 us
_WAIT_TENSOR = "_c10d_functional::wait_tensor"

Span = tuple[int, int]


def gloo_waits(activity: Activity, thread: Thread) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield (start, end, work): from start to end the thread waits for that work of Gloo."""
    mine = [
        (op.event.end, index)
        for index, op in enumerate(activity.gpu)
        if op.is_gloo and op.launch and op.launch.thread == thread.name
    ]
    if not mine:
        return
    waiting = sorted(mine)
    spans = sorted([*_gaps(thread), *_waits(thread)])
    for start, end in spans:
        over = [(e, i) for e, i in waiting if e <= end and _issued(activity, i) <= start]
        if not over or (over[-1][0] <= start and end - start < _SHORT):
            continue
        inside = [e for e, _ in over if e > start]
        if not inside:
            continue
        waiting = [item for item in waiting if item not in over]
        yield start, inside[-1], tuple(index for _, index in over)
    limit = activity.step.end if activity.step else thread.events[-1].end
    left = [(e, i) for e, i in waiting if e <= limit and _issued(activity, i) <= limit]
    if left:
        yield limit, limit, tuple(index for _, index in left)


def _issued(activity: Activity, index: int) -> int:
    launch = activity.gpu[index].launch
    return activity.event(launch).start if launch else 0


def _waits(thread: Thread) -> Iterator[Span]:
    """Yield the ops that wait for a functional collective."""
    for event in thread.events:
        if event.name == _WAIT_TENSOR:
            yield event.start, event.end


def _gaps(thread: Thread) -> Iterator[Span]:
    """Yield the times in which the thread is in no op: in Python, or in Work.wait()."""
    busy = [e for e in thread.events if e.kind not in (EventKind.ANNOTATION, EventKind.OTHER)]
    reach = -1
    for event in busy:
        if reach >= 0 and event.start > reach:
            yield reach, event.start
        reach = max(reach, event.end)
    end = max(event.end for event in thread.events)
    if 0 <= reach < end:
        yield reach, end
