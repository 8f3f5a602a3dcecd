"""
Where the time of each lane goes.

Each instant of a lane's window is the first that holds of compute, exposed communication
(transfer or wait), exposed copy, idle; so the four add up to the window. Lengths are of unions
of intervals, never sums of durations, in integer picoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commsim.arrays import Bools, Floats, Ints
from commsim.graph import Device, OpKind
from commsim.metrics.intervals import Intervals, lengths, subtract, union
from commsim.metrics.window import Window, arrivals, clip, measured_window
from commsim.timeline import Timeline

__all__ = ["Breakdown", "breakdown", "compute_time", "computes"]


@dataclass(frozen=True, slots=True, eq=False)
class Breakdown:
    """Times per lane in ps; `compute + exposed_comm + exposed_copy + idle` is `window`.

    `comm` is all communication, `wait` the part of it before anything moved.
    """

    window: Ints
    compute: Ints
    exposed_comm: Ints
    exposed_copy: Ints
    idle: Ints
    comm: Ints
    wait: Ints

    def overlap(self) -> Floats:
        """Return the share of each lane's communication that hides under compute, NaN for none."""
        comm = np.where(self.comm > 0, self.comm, np.nan)
        return 1 - self.exposed_comm / comm


def breakdown(timeline: Timeline, *, window: Window | None = None) -> Breakdown:
    """Return what each lane of `timeline` spends its window on."""
    window = window or measured_window(timeline)
    lanes = len(timeline.graph.lane_rank)
    arrive, communicates = arrivals(timeline), timeline.communicates
    compute = _set(timeline, computes(timeline), timeline.start, timeline.end, window)
    comm = _set(timeline, communicates, arrive, timeline.end, window)
    wait = _set(timeline, communicates, arrive, timeline.start, window)
    copy = _set(timeline, timeline.kind == OpKind.COPY, timeline.start, timeline.end, window)
    total = lengths(window.on_lanes(), lanes)
    computing = lengths(compute, lanes)
    exposed_comm = lengths(subtract(comm, compute), lanes)
    exposed_copy = lengths(subtract(copy, union(compute, comm)), lanes)
    return Breakdown(
        window=total,
        compute=computing,
        exposed_comm=exposed_comm,
        exposed_copy=exposed_copy,
        idle=total - computing - exposed_comm - exposed_copy,
        comm=lengths(comm, lanes),
        wait=lengths(wait, lanes),
    )


def computes(timeline: Timeline) -> Bools:
    """Return which spans count as compute: those on the GPU, or on the CPU of a lane without."""
    compute: Bools = timeline.kind == OpKind.COMPUTE
    on_gpu: Bools = compute & (timeline.graph.device[timeline.op] == Device.CUDA)
    has_gpu = np.zeros(len(timeline.graph.lane_rank), dtype=np.bool_)
    has_gpu[timeline.lane[on_gpu]] = True
    return on_gpu | (compute & ~has_gpu[timeline.lane])


def compute_time(timeline: Timeline) -> Intervals:
    """Return when each lane computes, over the whole run."""
    chosen = computes(timeline)
    return union(Intervals(timeline.lane[chosen], timeline.start[chosen], timeline.end[chosen]))


def _set(timeline: Timeline, chosen: Bools, start: Ints, end: Ints, window: Window) -> Intervals:
    return union(clip(Intervals(timeline.lane[chosen], start[chosen], end[chosen]), window))
