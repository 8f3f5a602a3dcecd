"""
Put things after what they depend on, as near to the given order as that allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

__all__ = ["in_order"]


def in_order(needs: Sequence[Iterable[int]]) -> list[int]:
    """Return indices so that each follows its `needs` (indices); those in a cycle are left out."""
    if all(need < at for at, of in enumerate(needs) for need in of):
        return list(range(len(needs)))
    unique = [dict.fromkeys(of) for of in needs]
    waiting = [len(of) for of in unique]
    following: list[list[int]] = [[] for _ in needs]
    for at, of in enumerate(unique):
        for need in of:
            following[need].append(at)
    ready = [at for at, count in enumerate(waiting) if not count]
    heapify(ready)
    ordered: list[int] = []
    while ready:
        at = heappop(ready)
        ordered.append(at)
        for later in following[at]:
            waiting[later] -= 1
            if not waiting[later]:
                heappush(ready, later)
    return ordered
