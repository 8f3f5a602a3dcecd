"""
How fast a rank's GPU and host were, step by step: what its kernels took, and how long launches do.

Kernels belong to the step in which they were launched; on the GPU they may run after its end.
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.traces.formats import EventKind
from commsim.traces.rebuild.rank.activity import Activity

__all__ = ["RankPace", "StepPace", "pace_of"]


class StepPace(msgspec.Struct, frozen=True):
    """The compute of one profiled step, in ps.

    `compute` is how long at least one kernel that does not communicate ran; `kernels` are their
    count and whole time by name.
    """

    name: str
    compute: int
    kernels: dict[str, tuple[int, int]]


class RankPace(msgspec.Struct, frozen=True):
    """The steps of a rank that have compute; `launch` is the median time in ps from a launch's
    call to the start of its kernel on a GPU that had nothing to do, -1 if there was none.
    """

    steps: tuple[StepPace, ...]
    launch: int


def pace_of(activity: Activity) -> RankPace:
    """Return what a recording says of its GPU's pace."""
    gpu = activity.gpu
    computes = (gpu.events.kind == EventKind.KERNEL) & ~gpu.communicates
    first = np.array([step.start for step in activity.steps], dtype=np.int64)
    at = np.searchsorted(first, gpu.launched, side="right") - 1
    steps = []
    for place, step in enumerate(activity.steps):
        mine = np.flatnonzero(computes & (at == place) & (gpu.launched < step.end))
        if mine.size:
            steps.append(_step(activity, step.name, mine))
    return RankPace(tuple(steps), _launch(activity))


def _step(activity: Activity, name: str, mine: Ints) -> StepPace:
    events = activity.gpu.events
    start, until = events.start[mine], events.end[mine]
    reach = np.concatenate((start[:1], np.maximum.accumulate(until)[:-1]))
    compute = int(np.maximum(0, until - np.maximum(start, reach)).sum())
    names, counts = np.unique(events.name[mine], return_counts=True)
    spent = np.bincount(events.name[mine], weights=until - start)
    kernels = {
        events.names[number]: (count, int(spent[number]))
        for number, count in zip(names.tolist(), counts.tolist(), strict=True)
    }
    return StepPace(name, compute, kernels)


def _launch(activity: Activity) -> int:
    """Return the median launch on an idle GPU; kernels that communicate may wait for others."""
    gpu = activity.gpu
    if not len(gpu):
        return -1
    ends = np.maximum.accumulate(gpu.events.end)
    idle = np.concatenate(([True], ends[:-1] <= gpu.launched[1:]))
    kernels = (gpu.events.kind == EventKind.KERNEL) & ~gpu.communicates & gpu.has_launch
    took = (gpu.events.start - gpu.launched)[idle & kernels]
    return int(np.median(took[took >= 0])) if (took >= 0).any() else -1
