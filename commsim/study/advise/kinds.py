"""
The best layout of each well-known kind, to compare with the winner.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from commsim.study.advise.layouts import Candidate
from commsim.study.advise.search import Search
from commsim.units import GIB

__all__ = ["LayoutKind", "best_of_kinds"]


class LayoutKind(msgspec.Struct, frozen=True):
    """A kind of layout, and how its best layout compares with the winner."""

    kind: str
    says: str


def best_of_kinds(found: Search, winner: Candidate) -> tuple[LayoutKind, ...]:
    """Return the best of each kind that has layouts, but for the winner's own."""
    step = found.ran[winner].metrics.step_time_s
    kinds = []
    for name, belongs in _KINDS.items():
        text = "" if belongs(winner) else _compared(found, belongs, step)
        if text:
            kinds.append(LayoutKind(name, text))
    return tuple(kinds)


def _compared(found: Search, belongs: Callable[[Candidate], bool], step: float) -> str:
    """Return how the best layout of a kind compares with a step; "" if none can run."""
    times = [
        (one.metrics.step_time_s, one.candidate)
        for one in found.ran.values()
        if belongs(one.candidate)
    ]
    rest = found.floor(belongs)
    if not times and rest == float("inf"):
        least = found.least(belongs)
        if least is None:
            return ""
        need, capacity = least.use.total / GIB, least.capacity / GIB
        return f"does not fit: at least {need:.3g} of {capacity:.3g} GiB"
    least_more = max(rest / step - 1, 0.0)
    if not times:
        return f"at least {least_more:+.1%}"
    took, candidate = min(times)
    more = took / step - 1
    text = f"{more:+.1%}" if took <= rest else f"{least_more:+.1%} to {more:+.1%}"
    return f"{text}: {candidate.name}"


def _pure(axis: str) -> Callable[[Candidate], bool]:
    """Return whether an axis is the only one that a layout has, without sharding."""

    def belongs(one: Candidate) -> bool:
        others = [degree for name, degree in one.degrees._asdict().items() if name != axis]
        return getattr(one.degrees, axis) > 1 and all(degree == 1 for degree in others)

    return belongs


def _replicated(one: Candidate) -> bool:
    return one.degrees.tp == one.degrees.pp == one.degrees.cp == one.degrees.ep == 1


def _three(one: Candidate) -> bool:
    return min(one.degrees.dp, one.degrees.tp, one.degrees.pp) > 1


_KINDS: dict[str, Callable[[Candidate], bool]] = {
    "data parallel (ddp)": lambda one: _replicated(one) and one.shard == "ddp",
    "zero-1 or zero-2 alone": lambda one: _replicated(one) and one.shard in ("zero-1", "zero-2"),
    "zero-3 (fsdp, hsdp) alone": lambda one: _replicated(one) and "sdp" in one.shard,
    "pipeline alone": _pure("pp"),
    "tensor alone": _pure("tp"),
    "dp + tp": lambda one: min(one.degrees.dp, one.degrees.tp) > 1 and one.degrees.pp == 1,
    "dp + pp": lambda one: min(one.degrees.dp, one.degrees.pp) > 1 and one.degrees.tp == 1,
    "dp + pp + tp": _three,
}
