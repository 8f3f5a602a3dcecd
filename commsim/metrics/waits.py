"""
Waits by peer: which rank each rank waits for, its stage, and how long.

The time is that of "waiting" in the account (`metrics.breakdown`), each instant counted once. In a
collective or message it goes to the member that arrived last; outside of one to the lane whose work
the next op depended on; after a stage's last op to the lane that ends last.

    bubble    the peer works on another pipeline stage
    skew      it does the same as this rank, and is later
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.metrics.bandwidth import instance_numbers
from commsim.metrics.breakdown import Account, account
from commsim.metrics.intervals import before, union
from commsim.metrics.releases import Releases
from commsim.metrics.stages import lane_stages
from commsim.metrics.window import Window, arrivals, measured_window
from commsim.timeline import Timeline
from commsim.units import PS_PER_SECOND

__all__ = ["Wait", "waits"]

_LEAST = 1e-3  # of the step: shorter waits for one peer are left out


class Wait(msgspec.Struct, frozen=True):
    """How long `rank` waits for `peer` (of pipeline stage `stage`): bubble or skew."""

    rank: int
    peer: int
    stage: int | None
    kind: str
    seconds: float


def waits(timeline: Timeline, *, window: Window | None = None) -> tuple[Wait, ...]:
    """Return who waits for whom in the measured step, longest first."""
    window = window or measured_window(timeline)
    if window.step_time <= 0:
        return ()
    parts = account(timeline, window=window)
    both = _in_transfers(timeline, window, parts), _held(timeline, window, parts)
    lane, peer, time = (np.concatenate(columns) for columns in zip(*both, strict=True))
    graph, lanes = timeline.graph, len(timeline.graph.lane_rank)
    pair, row = np.unique(lane * lanes + peer, return_inverse=True)
    spent = np.bincount(row, weights=time, minlength=len(pair))
    stage = lane_stages(graph)
    found = []
    for key, seconds in zip(pair.tolist(), (spent / PS_PER_SECOND).tolist(), strict=True):
        mine, other = divmod(key, lanes)
        if mine == other or seconds * PS_PER_SECOND < _LEAST * window.step_time:
            continue
        apart = stage[mine] >= 0 and stage[other] >= 0 and stage[mine] != stage[other]
        found.append(
            Wait(
                rank=int(graph.lane_rank[mine]),
                peer=int(graph.lane_rank[other]),
                stage=int(stage[other]) if stage[other] >= 0 else None,
                kind="bubble" if apart else "skew",
                seconds=seconds,
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.seconds, one.rank, one.peer)))


def _in_transfers(timeline: Timeline, window: Window, parts: Account) -> tuple[Ints, Ints, Ints]:
    """Return (lane, peer, ps) of what each collective and message waited for its last member."""
    at_work = union(parts.compute, parts.comm, parts.exposed_copy)
    every = np.flatnonzero(timeline.communicates)
    arrive = arrivals(timeline)
    number = instance_numbers(timeline.graph, timeline.op[every])
    order = np.lexsort((arrive[every], number))
    last = np.zeros(int(number.max(initial=0)) + 1, dtype=np.int64)
    last[number[order]] = every[order]  # the member of each that arrived last
    peer = timeline.lane[last[number]] if len(every) else number
    lane = timeline.lane[every]
    begin = np.maximum(arrive[every], window.begin[lane])
    end = np.minimum(timeline.start[every], window.end[lane])
    # What waits at once on a lane counts once: each begins when the one before has ended.
    order = np.lexsort((end, lane))
    lane, peer, begin, end = lane[order], peer[order], begin[order], end[order]
    covered = np.concatenate(([0], end[:-1])) if len(end) else end
    same = np.concatenate(([False], lane[1:] == lane[:-1])) if len(end) else end.astype(np.bool_)
    begin = np.where(same, np.maximum(begin, covered), begin)
    some = end > begin
    lane, peer, begin, end = lane[some], peer[some], begin[some], end[some]
    return lane, peer, end - begin - before(at_work, lane, end) + before(at_work, lane, begin)


def _held(timeline: Timeline, window: Window, parts: Account) -> tuple[Ints, Ints, Ints]:
    """Return (lane, peer, ps) of the gaps that work of another lane ended."""
    gaps = parts.held
    releases = Releases(timeline, timeline.on_gpu)
    after = releases.next_span(gaps)
    by = np.full(len(gaps), window.last_span, dtype=np.int64)
    some = np.flatnonzero(after >= 0)
    by[some] = releases.of_spans(after[some])
    return gaps.line, timeline.lane[by], gaps.end - gaps.start
