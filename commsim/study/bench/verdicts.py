"""
Ring or tree where no size changes the answer: who is always the fastest, and who never is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from commsim.units import format_size

__all__ = ["Timed", "verdicts"]


class Timed(NamedTuple):
    """What ran, over how many bytes, by which algorithm, for how long (us)."""

    op: str
    size: int
    algo: str
    time_us: float


def verdicts(rows: Sequence[Timed]) -> list[str]:
    """Return a sentence per op on which one algorithm wins at all sizes, and one per algorithm that
    wins at none: where it comes nearest, and by how much it is slower there.
    """
    told: list[str] = []
    for op in dict.fromkeys(row.op for row in rows):
        times: dict[str, dict[int, float]] = {}
        for row in rows:
            if row.op == op:
                of_algo = times.setdefault(row.algo, {})
                of_algo[row.size] = min(row.time_us, of_algo.get(row.size, row.time_us))
        told += _of_op(op, times)
    return told


def _of_op(op: str, times: dict[str, dict[int, float]]) -> list[str]:
    if len(times) < 2:
        return []
    sizes = list(dict.fromkeys(size for of_algo in times.values() for size in of_algo))
    best = {size: min(times, key=lambda one: times[one].get(size, _NEVER)) for size in sizes}
    whole = f"{format_size(sizes[0])} to {format_size(sizes[-1])}"
    if len(sizes) == 1:
        whole = format_size(sizes[0])
    winners = set(best.values())
    if len(winners) == 1:
        return [f"{op}: {winners.pop()} is the fastest at every size asked for ({whole})"]
    return [
        f"{op}: {algo} is nowhere the fastest ({whole}); {_nearest(of_algo, best, times)}"
        for algo, of_algo in times.items()
        if algo not in winners
    ]


_NEVER = float("inf")


def _nearest(
    of_algo: dict[int, float], best: dict[int, str], times: dict[str, dict[int, float]]
) -> str:
    """Say where an algorithm comes nearest to the fastest."""
    slower = {size: time / times[best[size]][size] for size, time in of_algo.items()}
    size = min(slower, key=lambda one: slower[one])
    return f"nearest at {format_size(size)}, {slower[size]:.3g} times as long as {best[size]}"
