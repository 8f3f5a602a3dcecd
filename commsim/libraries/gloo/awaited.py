"""
Whom a member of one of Gloo's collectives waits for, where that is not everybody.

A message of Gloo leaves once both ends have posted it and the sender has the data. So a member of
a broadcast waits for those before it in the tree and those right behind it; in a scatter or a
gather everybody waits for the root, and the root for all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from commsim.collectives import Program
from commsim.libraries.gloo import programs

__all__ = ["awaited_members"]

_PROGRAMS: dict[str, Callable[[int, int], Program]] = {
    "broadcast": programs.broadcast,
    "scatter": programs.scatter,
    "gather": programs.gather,
}


@lru_cache(maxsize=256)
def awaited_members(kind: str, n: int, root: int) -> tuple[frozenset[int], ...]:
    """Return, per member, the members (itself included) without which it cannot leave.

    () for an op in which every member waits for every other.
    """
    if kind not in _PROGRAMS:
        return ()
    program = _PROGRAMS[kind](n, root)
    holds = [frozenset({member}) for member in range(n)]  # what it has received rests on
    leaves = list(holds)
    ends = zip(program.source.tolist(), program.target.tolist(), strict=True)
    for source, target in ends:
        met = holds[source] | {source, target}
        leaves[source] |= met
        leaves[target] |= met
        holds[target] |= met
    return tuple(leaves)
