"""
A recording's own account of a GPU's step: unions of its events, with nothing inferred.

It is taken from the events as they are read, before groups, waits and dependencies are made of
them, so that a replay can be checked against it.
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Bools
from commsim.traces.formats import EventKind
from commsim.traces.rebuild.rank.activity import Activity
from commsim.traces.rebuild.rank.host_account import HostAccount, host_account

__all__ = ["OwnAccount", "own_account", "window_of"]


class OwnAccount(msgspec.Struct, frozen=True):
    """Times in ps: `compute`, `communication` that no compute hides, and the rest of `copy`.

    Communication counts from the start of its kernel, waits included.
    """

    compute: int
    communication: int
    copy: int

    def bounds(self) -> dict[str, tuple[int, int]]:
        """Return what the recording allows for parts of the rank's time: (least, most)."""
        parts = {
            "compute": self.compute,
            "exposed communication": self.communication,
            "exposed copy": self.copy,
        }
        return {part: (time, time) for part, time in parts.items()}


def own_account(activity: Activity) -> OwnAccount | HostAccount | None:
    """Return the account of a rank's window, None for one without GPU work and without Gloo's."""
    begin, end = window_of(activity)
    gpu = activity.gpu
    if not (gpu.events.on_gpu & ~gpu.is_gloo).any():
        return host_account(activity.file, begin, end)
    computes = (gpu.events.kind == EventKind.KERNEL) & ~gpu.communicates
    compute, busy, whole = (
        _length(activity, kept, begin, end)
        for kept in (computes, computes | gpu.communicates, np.ones(len(gpu), bool))
    )
    return OwnAccount(compute, busy - compute, whole - busy)


def window_of(activity: Activity) -> tuple[int, int]:
    """Return the profiled step, else the whole recording of the main thread, in ps."""
    if activity.step:
        return activity.step.start, activity.step.end
    events = activity.threads[activity.main].events
    return int(events.start[0]), int(events.end.max())


def _length(activity: Activity, kept: Bools, begin: int, end: int) -> int:
    """Return how long at least one of the kept pieces of work runs in a window."""
    start = np.maximum(begin, activity.gpu.events.start[kept])
    until = np.minimum(end, activity.gpu.events.end[kept])
    start, until = start[start < until], until[start < until]
    if not start.size:
        return 0
    order = np.argsort(start, kind="stable")
    start, until = start[order], until[order]
    reach = np.concatenate((start[:1], np.maximum.accumulate(until)[:-1]))
    return int(np.maximum(0, until - np.maximum(start, reach)).sum())
