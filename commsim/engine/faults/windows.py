"""
Faults that come and go, as extensions of the engine.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from enum import IntEnum
from typing import Any

import msgspec

from commsim.arrays import Ints
from commsim.engine.core import Engine
from commsim.engine.faults.draw import DrawnFaults

__all__ = ["Target", "TimedChange", "TimedChanges", "in_windows"]


class Target(IntEnum):
    """What a change is of."""

    LINK = 0
    GPU = 1


class TimedChange(msgspec.Struct, frozen=True):
    """`after` ps, each of `places` (links, or lanes) goes at the share `left` of its speed."""

    after: int
    target: Target
    places: tuple[int, ...]
    left: float


class TimedChanges(msgspec.Struct, frozen=True):
    """Changes of a cluster, one after another: an extension of the engine."""

    changes: tuple[TimedChange, ...]

    def __call__(self, engine: Engine) -> Generator[Any, Any, None]:
        """Make the changes."""
        for change in self.changes:
            yield engine.env.timeout(change.after)
            for place in change.places:
                if change.target == Target.LINK:
                    engine.set_link(place, change.left)
                else:
                    engine.set_pace(place, change.left)


def in_windows(
    faults: DrawnFaults, begin: int, lane_of: Mapping[int, int], like: Ints
) -> list[TimedChanges]:
    """Return extensions for what happens in windows, which count from `begin` ps of the run.

    `lane_of` gives the lane of each rank that does anything, `like` the link that each link's
    traffic is put on (empty: its own).
    """
    found: list[TimedChanges] = []
    for gpu in faults.slow_gpus:
        if gpu.start is not None and gpu.rank in lane_of:
            window = (begin + gpu.start, begin + gpu.end)
            found.append(_changes(Target.GPU, (lane_of[gpu.rank],), 1 / gpu.factor, [window]))
    for link in faults.slow_links:
        if link.windows is not None:
            ids = tuple(int(like[one]) if len(like) else one for one in link.links)
            windows = [(begin + start, begin + end) for start, end in link.windows]
            found.append(_changes(Target.LINK, ids, link.left, windows))
    return found


def _changes(
    target: Target, places: tuple[int, ...], left: float, windows: list[tuple[int, int]]
) -> TimedChanges:
    """Return the changes at the begin and end of each window, which follow on each other."""
    changes, now = [], 0
    for start, end in windows:
        changes.append(TimedChange(start - now, target, places, left))
        changes.append(TimedChange(end - start, target, places, 1.0))
        now = end
    return TimedChanges(tuple(changes))
