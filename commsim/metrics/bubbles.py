"""
Pipeline bubbles: how much of the span of a step the stages are not at work.

    span            the largest over stages of (end of its last op - start of its first)
    bubble fraction b = 1 - busy/span       [zero-bubble paper, Qi et al. 2023]
    bubble ratio    r = b/(1 - b)           [Megatron-LM, Narayanan et al. 2021: (p-1)/m]

Ops are the forward, backward and weight work of the measured step; busy is the time with any
of them, or with a tensor, context or expert collective of theirs. A device that holds several
stages (virtual stages) counts once, under the smallest of them.
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Bools, Floats, Ints
from commsim.graph import OpKind, Phase
from commsim.metrics.breakdown import computes
from commsim.metrics.intervals import Intervals, lengths, union
from commsim.metrics.stages import lane_stages
from commsim.metrics.window import Window, arrivals, measured_window
from commsim.timeline import Timeline

__all__ = ["Bubbles", "bubbles"]


_INSIDE = ("tp", "cp", "ep")  # axes whose collectives are part of a stage's own work


class Bubbles(msgspec.Struct, frozen=True, eq=False):
    """Per stage: its number and its bubble fraction and ratio; `span` in ps.

    `fraction` and `ratio` are those of the mean stage: `ratio = fraction / (1 - fraction)`.
    """

    stage: Ints
    stage_fraction: Floats
    stage_ratio: Floats
    fraction: float
    ratio: float
    span: float


def bubbles(timeline: Timeline, *, window: Window | None = None) -> Bubbles | None:
    """Return the bubbles of `timeline`, None if it has no pipeline stages.

    Replicas of a stage (lanes of the same stage) count with their mean, by multiplicity.
    """
    graph = timeline.graph
    work = _work(timeline, window or measured_window(timeline))
    stage_of_lane = lane_stages(graph)
    work &= stage_of_lane[timeline.lane] >= 0
    if not work.any():
        return None
    busy, span = _busy_and_span(timeline, work)
    lanes = np.flatnonzero(np.bincount(timeline.lane[work], minlength=len(stage_of_lane)))
    stage, row = np.unique(stage_of_lane[lanes], return_inverse=True)
    ranks = graph.multiplicity[lanes].astype(np.float64)  # 64 bits may not hold times of many
    stage_busy = np.bincount(row, weights=busy[lanes] * ranks) / np.bincount(row, weights=ranks)
    stage_span = np.bincount(row, weights=span[lanes] * ranks) / np.bincount(row, weights=ranks)
    longest = float(stage_span.max())
    if longest == 0 or stage_busy.min() == 0:
        return None  # work that takes no time has no share of anything
    mean = float(stage_busy.mean())
    return Bubbles(
        stage=stage,
        stage_fraction=1 - stage_busy / longest,
        stage_ratio=(longest - stage_busy) / stage_busy,
        fraction=1 - mean / longest,
        ratio=(longest - mean) / mean,
        span=longest,
    )


def _work(timeline: Timeline, window: Window) -> Bools:
    """Return which spans are the stages' own work in the measured step."""
    graph = timeline.graph
    phase = graph.phase[timeline.op]
    tagged = (phase >= Phase.FORWARD) & (phase <= Phase.WEIGHT)
    if window.step >= 0:
        tagged &= graph.step[timeline.op] == window.step
    return tagged & (computes(timeline) | _collective_inside(timeline))


def _collective_inside(timeline: Timeline) -> Bools:
    graph = timeline.graph
    inside = np.array([group.axis in _INSIDE for group in graph.groups], dtype=np.bool_)
    chosen = np.flatnonzero(timeline.kind == OpKind.COLLECTIVE)
    flags = np.zeros(len(timeline), dtype=np.bool_)
    flags[chosen] = inside[graph.collectives.group[graph.item[timeline.op[chosen]]]]
    return flags


def _busy_and_span(timeline: Timeline, work: Bools) -> tuple[Ints, Ints]:
    """Return, per lane, the time with any work, and the time from its first to its last."""
    lanes = len(timeline.graph.lane_rank)
    begins = np.where(timeline.communicates, arrivals(timeline), timeline.start)
    lane, start, end = timeline.lane[work], begins[work], timeline.end[work]
    busy = lengths(union(Intervals(lane, start, end)), lanes)
    first = np.full(lanes, np.iinfo(np.int64).max)
    last = np.zeros(lanes, dtype=np.int64)
    np.minimum.at(first, lane, start)
    np.maximum.at(last, lane, end)
    return busy, np.maximum(last - np.minimum(first, last), 0)
