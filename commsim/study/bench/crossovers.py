"""
Where the fastest algorithm changes over the sizes of a bench, and where the library's choice does.

A change is reported where a user would see it: the new range is at least one step of the sizes
long, and the algorithm that takes over gains 3 % somewhere in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

__all__ = ["Crossover", "choice_changes", "fastest_changes"]

_PRECISION = 1.01  # sizes are located to 1 %
_GAIN = 1.03  # less is within what measured tables differ by from run to run


class Crossover(msgspec.Struct, frozen=True):
    """From `size` bytes on, `to` takes the place of `before`."""

    op: str
    size: int
    before: str
    to: str

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the JSON."""
        return {"op": self.op, "size": self.size, "from": self.before, "to": self.to}


def fastest_changes(
    op: str, sizes: Sequence[int], names: Sequence[str], time: Callable[[str, int], float]
) -> list[Crossover]:
    """Return where the fastest of `names` changes; `time(name, size)` is what one takes."""
    best = [min(names, key=lambda name: time(name, size)) for size in sizes]
    found: list[Crossover] = []
    for at, name, start, end in _ranges(
        best, sizes, lambda a, b: lambda s: time(b, s) < time(a, s)
    ):
        before = found[-1].to if found else best[0]
        gains = (
            time(before, size) / time(name, size)
            for size, fastest in zip(sizes[at:], best[at:], strict=True)
            if fastest == name and time(name, size)
        )
        if name != before and end >= start * _step(sizes, at) and max(gains, default=1.0) >= _GAIN:
            found.append(Crossover(op, start, before, name))
    return found


def choice_changes(op: str, sizes: Sequence[int], choice: Callable[[int], str]) -> list[Crossover]:
    """Return where the library's own choice changes; `choice(size)` is what it takes."""
    chosen = [choice(size) for size in sizes]
    found: list[Crossover] = []
    for at, name, start, end in _ranges(chosen, sizes, lambda a, b: lambda s: choice(s) == b):
        before = found[-1].to if found else chosen[0]
        if name != before and end >= start * _step(sizes, at):
            found.append(Crossover(op, start, before, name))
    return found


_Test = Callable[[str, str], Callable[[int], bool]]


def _ranges(
    names: Sequence[str], sizes: Sequence[int], taken: _Test
) -> list[tuple[int, str, int, float]]:
    """Return each run of one name but the first: its first place, name, first size and end.

    `taken(a, b)(size)`: b has taken over from a at a size. The last run has no end.
    """
    starts = [at for at in range(1, len(names)) if names[at] != names[at - 1]]
    edges = [_edge(sizes[at - 1], sizes[at], taken(names[at - 1], names[at])) for at in starts]
    ends = [*edges[1:], float("inf")]
    return [(at, names[at], edge, end) for at, edge, end in zip(starts, edges, ends, strict=False)]


def _edge(low: int, high: int, taken: Callable[[int], bool]) -> int:
    """Return a size above `low`, to 1 %, from which on `taken` holds up to `high`."""
    while high > low * _PRECISION and high - low > 1:
        middle = min(max(round((low * high) ** 0.5), low + 1), high - 1)
        if taken(middle):
            high = middle
        else:
            low = middle
    return high


def _step(sizes: Sequence[int], at: int) -> float:
    """Return the factor between the sizes at a place and the one before, less the precision."""
    return sizes[at] / max(sizes[at - 1], 1) / _PRECISION
