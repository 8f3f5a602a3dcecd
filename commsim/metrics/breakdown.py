"""
The account of time of each lane.

Each instant of a lane's window is exactly one part, the first of these that holds; so the parts
add up to the window. Lengths are of unions of intervals, never sums of durations, in integer
picoseconds.

    compute            a kernel computes
    exposed transfer   bytes of a collective or message of this lane move, or what it needs next is
                       on its way from another lane, for a time that is given (a pipeline's p2p)
    exposed copy       a copy to or from host memory runs
    waiting            for a peer: in a collective or message that cannot move yet, or with
                       nothing to run until work of another lane ends (of a pipeline stage that
                       is done: until the last stage is)
    host               nothing to run until the lane's own CPU has launched or done something
    idle               nothing left to run, or a fixed delay of its own
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec
import numpy as np

from commsim.arrays import Bools, Floats, Ints, distinct
from commsim.graph import OpKind
from commsim.metrics.intervals import Intervals, lengths, subtract, union
from commsim.metrics.releases import Releases
from commsim.metrics.stages import lane_stages
from commsim.metrics.window import Window, arrivals, clip, measured_window
from commsim.timeline import Timeline

__all__ = [
    "PARTS",
    "Account",
    "Breakdown",
    "account",
    "breakdown",
    "communication_time",
    "compute_time",
    "computes",
]

PARTS: Mapping[str, str] = MappingProxyType(
    {
        "compute": "compute",
        "exposed_transfer": "exposed transfer",
        "exposed_copy": "exposed copy",
        "waiting": "waiting for a peer",
        "host": "waiting for the host",
        "idle": "idle",
    }
)
"""The parts of the account with their names for people, in the order in which they are tried."""


class Breakdown(msgspec.Struct, frozen=True, eq=False):
    """Times per lane in ps; the six of `PARTS` add up to `window`.

    `comm` is the time in which bytes of a collective or message move, under compute or not.
    """

    window: Ints
    compute: Ints
    exposed_transfer: Ints
    exposed_copy: Ints
    waiting: Ints
    host: Ints
    idle: Ints
    comm: Ints

    def overlap(self) -> Floats:
        """Return the share of each lane's communication that hides under compute, NaN for none."""
        comm = np.where(self.comm > 0, self.comm, np.nan)
        return 1 - self.exposed_transfer / comm


class Account(msgspec.Struct, frozen=True, eq=False):
    """When each lane does what: disjoint intervals per part; lines are lanes.

    `held` are the parts of `waiting` in which the lane is in no collective or message: they last
    until work of another lane ends.
    """

    compute: Intervals
    exposed_transfer: Intervals
    exposed_copy: Intervals
    waiting: Intervals
    host: Intervals
    idle: Intervals
    comm: Intervals
    held: Intervals


def breakdown(timeline: Timeline, *, window: Window | None = None) -> Breakdown:
    """Return how long each lane of `timeline` spends on each part of its window."""
    window = window or measured_window(timeline)
    found, lanes = account(timeline, window=window), len(timeline.graph.lane_rank)
    times = {part: lengths(getattr(found, part), lanes) for part in (*PARTS, "comm")}
    return Breakdown(window=lengths(window.on_lanes(), lanes), **times)


def account(timeline: Timeline, *, window: Window | None = None) -> Account:
    """Return when each lane of `timeline` does what in its window."""
    window = window or measured_window(timeline)
    communicates, begin = timeline.communicates, timeline.start
    compute = _set(timeline, computes(timeline), begin, timeline.end, window)
    comm = _set(timeline, communicates, begin, timeline.end, window)
    copy = _set(timeline, timeline.kind == OpKind.COPY, begin, timeline.end, window)
    wait = _set(timeline, communicates, arrivals(timeline), begin, window)
    at_work = union(compute, comm, copy)
    gaps = subtract(window.on_lanes(), union(at_work, wait))
    ended_by = _ended_by(timeline, gaps)
    held, travels = _travelling(timeline, gaps.take(ended_by == Releases.PEER))
    comm = union(comm, travels)
    return Account(
        compute=compute,
        exposed_transfer=subtract(comm, compute),
        exposed_copy=subtract(copy, union(compute, comm)),
        waiting=union(subtract(wait, at_work), held),
        host=gaps.take(ended_by == Releases.HOST),
        idle=gaps.take(ended_by == Releases.NOBODY),
        comm=comm,
        held=held,
    )


def _travelling(timeline: Timeline, held: Intervals) -> tuple[Intervals, Intervals]:
    """Part gaps that another lane ended: until its work was done, and while it was on its way."""
    releases = Releases(timeline, timeline.on_gpu)
    after = releases.next_span(held)
    delay = np.zeros(len(held), dtype=np.int64)
    some = after >= 0
    delay[some] = releases.with_delays(after[some])[1]
    left = np.maximum(held.start, held.end - delay)
    waits, moves = left > held.start, left < held.end
    return (
        Intervals(held.line[waits], held.start[waits], left[waits]),
        Intervals(held.line[moves], left[moves], held.end[moves]),
    )


def _ended_by(timeline: Timeline, gaps: Intervals) -> Ints:
    """Return what each gap lasted for; a pipeline stage that is done waits for the others."""
    releases = Releases(timeline, timeline.on_gpu)
    ended_by = releases.of_gaps(gaps)
    stage = lane_stages(timeline.graph)
    if len(distinct(stage[stage >= 0])) > 1:
        done = (releases.next_span(gaps) < 0) & (stage[gaps.line] >= 0)
        ended_by[done] = Releases.PEER
    return ended_by


def computes(timeline: Timeline) -> Bools:
    """Return which spans count as compute: those on the GPU, or on the CPU of a lane without."""
    compute: Bools = timeline.kind == OpKind.COMPUTE
    return compute & timeline.on_gpu


def compute_time(timeline: Timeline) -> Intervals:
    """Return when each lane computes, over the whole run."""
    chosen = computes(timeline)
    return union(Intervals(timeline.lane[chosen], timeline.start[chosen], timeline.end[chosen]))


def _set(timeline: Timeline, chosen: Bools, start: Ints, end: Ints, window: Window) -> Intervals:
    return union(clip(Intervals(timeline.lane[chosen], start[chosen], end[chosen]), window))


def communication_time(timeline: Timeline) -> Ints:
    """Return how long each lane is in a collective or message, waits and hidden ones included."""
    window, chosen = measured_window(timeline), timeline.communicates
    spans = _set(timeline, chosen, arrivals(timeline), timeline.end, window)
    return lengths(spans, len(timeline.graph.lane_rank))
