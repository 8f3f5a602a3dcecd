"""
Faults that come and go, as extensions of the engine.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeAlias

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


_Span: TypeAlias = tuple[int, int, float]
"""From when to when, in ps, which share of the speed is left."""
_Fault: TypeAlias = tuple[tuple[int, ...], list[_Span]]
"""Ranks, or links, and when each of them is slow."""


def in_windows(
    faults: DrawnFaults, begin: int, lane_of: Mapping[int, int], like: Ints
) -> list[TimedChanges]:
    """Return extensions for what happens in windows, which count from `begin` ps of the run.

    `lane_of` gives the lane of each rank that does anything, `like` the link that each link's
    traffic is put on (empty: its own).
    """
    gpus: list[_Fault] = [
        ((gpu.rank,), [(gpu.start, gpu.end, 1 / gpu.factor)])
        for gpu in faults.slow_gpus
        if gpu.start is not None and gpu.rank in lane_of
    ]
    links: list[_Fault] = [
        (link.links, [(start, end, link.left) for start, end in link.windows])
        for link in faults.slow_links
        if link.windows is not None
    ]
    found = []
    for ranks, spans in _by_place(gpus):
        lanes = tuple(lane_of[rank] for rank in ranks)
        found.append(_changes(Target.GPU, lanes, begin, spans))
    for slow, spans in _by_place(links):
        ids = tuple(int(like[one]) if len(like) else one for one in slow)
        found.append(_changes(Target.LINK, ids, begin, spans))
    return found


def _by_place(faults: Sequence[_Fault]) -> Iterator[_Fault]:
    """Yield places with all that happens to them: those of one fault together, others alone."""
    times = Counter(place for places, _ in faults for place in places)
    several: dict[int, list[_Span]] = defaultdict(list)
    for places, spans in faults:
        if once := tuple(place for place in places if times[place] == 1):
            yield once, spans
        for place in places:
            if times[place] > 1:
                several[place] += spans
    for place, every in several.items():
        yield (place,), every


def _changes(
    target: Target, places: tuple[int, ...], begin: int, spans: Sequence[_Span]
) -> TimedChanges:
    """Return the changes where a span begins or ends: spans at one time multiply."""
    edges: dict[int, Counter[float]] = defaultdict(Counter)
    for start, end, left in spans:
        edges[begin + start][left] += 1
        edges[begin + end][left] -= 1
    changes: list[TimedChange] = []
    slow: Counter[float] = Counter()
    now = 0
    for at in sorted(edges):
        slow.update(edges[at])
        changes.append(TimedChange(at - now, target, places, math.prod(slow.elements())))
        now = at
    return TimedChanges(tuple(changes))
