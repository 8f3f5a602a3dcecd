"""
How much of each link is used: over the measured step, and over time.

    utilization = bytes / (bandwidth * window)
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Floats, Ints
from commsim.metrics.window import Window, measured_window
from commsim.timeline import LinkUse, Timeline

__all__ = [
    "UseOverTime",
    "Utilization",
    "busiest",
    "peak_use",
    "use_of_kinds",
    "use_over_time",
    "utilization",
]

_MOST_PIECES = 4_000_000  # of traffic on links that are sorted at a time


class Utilization(msgspec.Struct, frozen=True, eq=False):
    """Per link of the timeline: bytes in the measured step, and their share of what could be."""

    bytes: Floats
    share: Floats


class UseOverTime(msgspec.Struct, frozen=True, eq=False):
    """Use as a step function: from `time[i]` to `time[i + 1]` (ps) it was `share[i]`."""

    time: Ints
    share: Floats


def utilization(timeline: Timeline, *, window: Window | None = None) -> Utilization:
    """Return how much each link of `timeline` was used in the measured step."""
    window = window or measured_window(timeline)
    links = timeline.links
    flows = len(links.load_ptr) - 1
    moved = np.minimum(links.end, window.last) - np.maximum(links.start, window.first)
    progress = np.bincount(links.flow, weights=np.maximum(moved, 0) * links.rate, minlength=flows)
    entries = np.repeat(progress, np.diff(links.load_ptr)) * links.load_bytes
    carried = np.bincount(links.load_link, weights=entries, minlength=len(links.names))
    possible = links.bandwidth * (window.step_time * 1e-12)
    share = np.divide(carried, possible, out=np.zeros(len(possible)), where=possible > 0)
    return Utilization(carried.astype(np.float64), share)


def peak_use(timeline: Timeline, *, window: Window | None = None) -> Floats:
    """Return the highest use of each link at any moment of the measured step, as a share."""
    window = window or measured_window(timeline)
    links = timeline.links
    flows, many = len(links.load_ptr) - 1, len(links.names)
    start = np.maximum(links.start, window.first)
    end = np.minimum(links.end, window.last)
    moves = np.flatnonzero(end > start)
    loads = np.diff(links.load_ptr)
    pieces = int(loads[links.flow[moves]].sum()) if flows else 0
    top = np.zeros(many)
    for part in range(-(-pieces // _MOST_PIECES)):  # by links, so that memory stays bounded
        mine = links.load_link % -(-pieces // _MOST_PIECES) == part
        before = np.concatenate(([0], np.cumsum(mine)))
        first, last = before[links.load_ptr[:-1]], before[links.load_ptr[1:]]
        count = (last - first)[links.flow[moves]]
        piece = np.repeat(moves, count)
        at = np.arange(len(piece)) - np.repeat(np.cumsum(count) - count, count)
        load = np.flatnonzero(mine)[first[links.flow[piece]] + at]
        rate = links.rate[piece] * links.load_bytes[load]
        _raise_to_peak(top, links.load_link[load], start[piece], end[piece], rate)
    possible = links.bandwidth * 1e-12
    return np.divide(top, possible, out=np.zeros(many), where=possible > 0)


def _raise_to_peak(top: Floats, link: Ints, start: Ints, end: Ints, rate: Floats) -> None:
    """Raise `top` (bytes/ps per link) to the most that pieces carry at the same time."""
    links, times = np.concatenate((link, link)), np.concatenate((start, end))
    change = np.concatenate((rate, -rate))
    order = np.lexsort((change, times, links))  # what ends leaves before what begins
    links, level = links[order], np.cumsum(change[order])
    if len(links):
        new = np.flatnonzero(np.concatenate(([True], links[1:] != links[:-1])))
        np.maximum.at(top, links[new], np.maximum.reduceat(level, new))


def busiest(timeline: Timeline, use: Utilization) -> Ints:
    """Return the links that carried anything, busiest first; equal ones by name."""
    chosen = np.flatnonzero(use.bytes > 0)
    names = np.array([timeline.links.names[link] for link in chosen.tolist()], dtype=np.str_)
    # Equal links should not be told apart by the last bit of a sum of floats.
    rounded = np.round(use.share[chosen], 12)
    return chosen[np.lexsort((names, -rounded))]


def use_over_time(
    timeline: Timeline, links: Ints, *, points: int = 1000, window: Window | None = None
) -> UseOverTime:
    """Return the use of `links` taken together, over the measured step.

    The share is of the sum of their bandwidths. It is the exact step function if that has at
    most `points` steps; else the means over `points` equal parts of the window, rounded to ps,
    which keep the area.
    """
    window = window or measured_window(timeline)
    start, end, rate = _pieces(timeline.links, links)
    start, end = np.maximum(start, window.first), np.minimum(end, window.last)
    inside = end > start
    limits = (window.first, window.last)
    time, carried = _integral(start[inside], end[inside], rate[inside], limits)
    if len(time) > points + 1:
        edges = np.linspace(0, window.step_time, points + 1).round().astype(np.int64)
        edges = np.unique(edges) + window.first
        time, carried = edges, np.interp(edges, time, carried)
    possible = timeline.links.bandwidth[links].sum() * 1e-12 * np.diff(time)
    share = np.divide(np.diff(carried), possible, out=np.zeros(len(possible)), where=possible > 0)
    return UseOverTime(time, share)


def use_of_kinds(
    timeline: Timeline, *, points: int = 1000, window: Window | None = None
) -> dict[str, UseOverTime]:
    """Return the use over time of all links of each kind that carried anything, by name of kind."""
    used = np.zeros(len(timeline.links.names), dtype=np.bool_)
    used[timeline.links.load_link] = True
    kinds = np.array(timeline.links.kinds, dtype=np.str_)
    return {
        kind: use_over_time(timeline, np.flatnonzero(kinds == kind), points=points, window=window)
        for kind in np.unique(kinds[used]).tolist()
    }


def _pieces(links: LinkUse, chosen: Ints) -> tuple[Ints, Ints, Floats]:
    """Return (start, end, bytes/ps) of all traffic on the `chosen` links; pieces may overlap."""
    among = np.zeros(len(links.names), dtype=np.bool_)
    among[chosen] = True
    flows = len(links.load_ptr) - 1
    owner = np.repeat(np.arange(flows), np.diff(links.load_ptr))
    load = np.bincount(owner, weights=links.load_bytes * among[links.load_link], minlength=flows)
    moves = np.flatnonzero(load[links.flow] > 0)
    return links.start[moves], links.end[moves], load[links.flow[moves]] * links.rate[moves]


def _integral(start: Ints, end: Ints, rate: Floats, limits: tuple[int, int]) -> tuple[Ints, Floats]:
    """Return (times, bytes until then), linear between, from one of `limits` to the other."""
    ends = np.concatenate((start, end, np.array(limits, dtype=np.int64)))
    change = np.concatenate((rate, -rate, [0.0, 0.0]))
    time, row = np.unique(ends, return_inverse=True)
    level = np.cumsum(np.bincount(row, weights=change, minlength=len(time)))[:-1]
    # What remains of +rate -rate in floats is not traffic.
    level[level < 1e-12 * level.max(initial=0.0)] = 0.0
    return time, np.concatenate(([0.0], np.cumsum(level * np.diff(time))))
