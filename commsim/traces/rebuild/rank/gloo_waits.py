"""
Waits of CPU threads for Gloo, and the evidence for each.

- A call that blocks holds its c10d op until it has ended: that is waiting.
- Python frames (with_stack=True) show each Work.wait().
- Without them Work.wait() leaves only a gap. A gap that ends right after a collective of its
  thread does is taken for waiting; one that goes on longer was work, and the wait at its end
  returned at once. A note gives the total, because what-ifs of host work depend on it: they are
  run the other way too (`gaps_are_work`).

The recorded end of a message is that of the Work.wait() for it, however long before that it was
done. A short wait, long after the message was posted, found it done (`found_done`).

Work without an observed wait is waited for at the latest at the end of the step: data
parallelism waits for all of its buckets before the optimizer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from commsim.traces.formats import EventKind
from commsim.traces.rebuild.rank.activity import Activity
from commsim.traces.rebuild.rank.calls import Thread
from commsim.traces.rebuild.rank.gloo_work import gloo_op

__all__ = ["found_done", "gloo_waits", "unsure_waits"]

_RESUMED = 1_000_000_000  # ps: a thread that waited goes on within a millisecond
_AT_ONCE = 200_000_000  # ps: a wait for what is done takes less, the profiler's frames included
_WAIT_TENSOR = "_c10d_functional::wait_tensor"

Span = tuple[int, int]
Wait = tuple[int, int, tuple[int, ...]]


def gloo_waits(activity: Activity, thread: Thread, *, gaps_are_work: bool) -> Iterator[Wait]:
    """Yield (start, end, work): from start to end the thread waits for that work of Gloo."""
    for (start, end, work), sure in _all_waits(activity, thread):
        yield (end if gaps_are_work and not sure else start), end, work


def unsure_waits(activity: Activity) -> int:
    """Return how long the threads were in gaps that are taken for waiting on no other evidence."""
    return sum(
        end - start
        for thread in activity.threads.values()
        for (start, end, _), sure in _all_waits(activity, thread)
        if not sure
    )


def found_done(activity: Activity, index: int, *, gaps_are_work: bool) -> int:
    """Return how long the wait took that found a message done, in ps; -1 if one waited for it.

    Of a thread without Python frames that is not known: `gaps_are_work` says that none waited.
    """
    work = activity.gpu[index]
    if not work.launch or gloo_op(work.event) not in ("send", "recv"):
        return -1
    start, end = work.event.start, work.event.end
    waits = activity.waits.get(work.launch.thread, ())
    if not waits:
        return 0 if gaps_are_work and end > activity.event(work.launch).end else -1
    at = bisect_right(waits, end, key=lambda event: event.start) - 1
    if at < 0 or waits[at].end < end:
        return -1
    took = end - waits[at].start
    return took if took <= min(_AT_ONCE, waits[at].start - start) else -1


def _is_done(activity: Activity, index: int) -> bool:
    return found_done(activity, index, gaps_are_work=False) >= 0


def _all_waits(activity: Activity, thread: Thread) -> Iterator[tuple[Wait, bool]]:
    mine = sorted(
        (activity.gpu.ends[index], index)
        for index in np.flatnonzero(activity.gpu.is_gloo).tolist()
        if (launch := activity.gpu.launch(index)) and launch.thread == thread.name
    )
    if not mine:
        return
    left: list[tuple[int, int]] = []
    for end, index in mine:
        call = _call(activity, index)
        if call[0] <= end <= call[1]:
            yield (call[0], end, (index,)), True
        else:
            left.append((end, index))
    frames = [(event.start, event.end) for event in activity.waits.get(thread.name, ())]
    spans = [(start, end, True) for start, end in (*frames, *_functional(thread))]
    if not frames:
        spans += [(start, end, False) for start, end in _gaps(thread)]
    for start, end, sure in sorted(spans):
        over = [(e, i) for e, i in left if e <= end and _call(activity, i)[0] <= start]
        inside = [e for e, _ in over if e > start]
        if not inside:
            continue
        left = [item for item in left if item not in over]
        work = tuple(index for _, index in over)
        if sure and all(_is_done(activity, index) for e, index in over if e > start):
            yield (inside[-1], inside[-1], work), True
        elif sure or end - inside[-1] <= _RESUMED:
            yield (start, inside[-1], work), sure
        else:
            yield (end, end, work), sure
    limit = activity.step.end if activity.step else int(thread.events.end[-1])
    last = tuple(i for e, i in left if e <= limit and _call(activity, i)[0] <= limit)
    if last:
        yield (limit, limit, last), True


def _call(activity: Activity, index: int) -> Span:
    """Return when the c10d op that issued a piece of work began and ended."""
    launch = activity.gpu[index].launch
    return (activity.event(launch).start, activity.event(launch).end) if launch else (0, 0)


def _functional(thread: Thread) -> Iterator[Span]:
    """Yield the ops that wait for a functional collective."""
    for event in thread.events.take(thread.events.named(_WAIT_TENSOR.__eq__)):
        yield event.start, event.end


def _gaps(thread: Thread) -> Iterator[Span]:
    """Yield the times in which the thread is in no op: in Python, or in Work.wait()."""
    events = thread.events
    busy = events.take(~np.isin(events.kind, (EventKind.ANNOTATION, EventKind.OTHER)))
    reach = -1
    for start, until in zip(busy.start.tolist(), busy.end.tolist(), strict=True):
        if reach >= 0 and start > reach:
            yield reach, start
        reach = max(reach, until)
    end = int(events.end.max())
    if 0 <= reach < end:
        yield reach, end
