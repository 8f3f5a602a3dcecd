"""
What trace viewers draw as curves: the use of links, the memory that lanes hold.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from commsim.metrics import busiest, use_over_time, utilization
from commsim.timeline import Timeline

__all__ = ["Counter", "link_counters", "memory_counters"]

_LINKS = 16  # links that get a counter
_POINTS = 2_000


class Counter(msgspec.Struct, frozen=True):
    """Values from times on (ps); `lane` is -1 for what belongs to no rank."""

    name: str
    lane: int
    time: list[int]
    value: list[float]


def link_counters(timeline: Timeline) -> Iterator[Counter]:
    """Yield the use of the busiest links in GB/s over the measured step."""
    for link in busiest(timeline, utilization(timeline))[:_LINKS].tolist():
        use = use_over_time(timeline, np.array([link]), points=_POINTS)
        speed = float(timeline.links.bandwidth[link]) * 1e-9
        values = np.append(use.share * speed, 0.0)
        kept = np.append(True, values[1:] != values[:-1])
        name = timeline.links.names[link]
        yield Counter(name, -1, use.time[kept].tolist(), values[kept].tolist())


def memory_counters(timeline: Timeline) -> Iterator[Counter]:
    """Yield the bytes that each lane holds; where two changes share an instant, the last."""
    held = timeline.memory
    for lane in np.unique(held.lane).tolist():
        mine = np.flatnonzero(held.lane == lane)
        last = np.append(held.time[mine][1:] != held.time[mine][:-1], True)
        rows = mine[last]
        values = held.held[rows].astype(np.float64).tolist()
        yield Counter("memory", lane, held.time[rows].tolist(), values)
