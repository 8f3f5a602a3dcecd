"""
GPU work in the order of issue: what was launched when, by stream and by thread.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.traces.rebuild.rank.activity import Activity

__all__ = ["NOTHING", "SLACK", "IssueOrder", "Queue", "fits", "issue_order", "last_fit"]

SLACK = 2_000_000  # ps: old traces have whole microseconds, so an end may seem 1 us late


class Queue(msgspec.Struct, frozen=True):
    """Indices of GPU work by the time of launch, with those times."""

    times: list[int]
    ops: list[int]

    def last_before(self, time: int) -> int:
        """Return what was launched last up to `time`, -1 for nothing."""
        at = bisect_right(self.times, time)
        return self.ops[at - 1] if at else -1

    def last_launch(self, time: int) -> tuple[int, int]:
        """Return when that was, and what; (-1, -1) for nothing."""
        at = bisect_right(self.times, time)
        return (self.times[at - 1], self.ops[at - 1]) if at else (-1, -1)

    def before(self, time: int) -> Iterator[int]:
        """Yield what was launched up to `time`, the last first."""
        for at in range(bisect_right(self.times, time) - 1, -1, -1):
            yield self.ops[at]

    def next_after(self, time: int) -> int:
        """Return the first one launched after `time`, -1 without one."""
        at = bisect_left(self.times, time)
        return self.ops[at] if at < len(self.ops) else -1


NOTHING = Queue([], [])


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


def fits(activity: Activity, source: int, target: int) -> bool:
    """Say whether the recording allows that `target` waited for `source`."""
    return activity.gpu.ends[source] <= activity.gpu.starts[target] + SLACK


def last_fit(activity: Activity, sources: Iterable[int], target: int) -> int:
    """Return the first of some sources that fits, -1 if none does."""
    return next((source for source in sources if fits(activity, source, target)), -1)
