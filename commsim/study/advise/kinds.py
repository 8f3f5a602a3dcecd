"""
The best of each kind of layout that people name: what the winner is weighed against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from commsim.study.advise.judge import Judged
from commsim.study.advise.layouts import Candidate
from commsim.study.advise.simulate import Ran
from commsim.units import GIB

__all__ = ["Kind", "best_of_kinds"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of layout, and how its best one compares with the winner."""

    kind: str
    says: str


def best_of_kinds(
    judged: Sequence[Judged], ran: Mapping[Candidate, Ran], winner: Candidate
) -> tuple[Kind, ...]:
    """Return the best of each kind that has layouts, but for the winner's own."""
    step = ran[winner].metrics.step_time_s
    found = []
    for name, belongs in _KINDS.items():
        members = [one for one in judged if belongs(one.candidate)]
        if members and not belongs(winner):
            found.append(Kind(name, _says(members, ran, step)))
    return tuple(found)


def _says(members: Sequence[Judged], ran: Mapping[Candidate, Ran], step: float) -> str:
    fitting = [one for one in members if one.fits]
    if not fitting:
        least = min(members, key=lambda one: (one.use.total, one.candidate))
        need, capacity = least.use.total / GIB, least.capacity / GIB
        return f"does not fit: at least {need:.3g} of {capacity:.3g} GiB"
    rest = min((one.floor for one in fitting if one.candidate not in ran), default=float("inf"))
    times = [
        (ran[one.candidate].metrics.step_time_s, one.candidate)
        for one in fitting if one.candidate in ran
    ]  # fmt: skip
    least_more = max(rest / step - 1, 0.0)
    if not times:
        return f"at least {least_more:+.1%}"
    took, candidate = min(times)
    more = took / step - 1
    said = f"{more:+.1%}" if took <= rest else f"{least_more:+.1%} to {more:+.1%}"
    return f"{said}: {candidate.name}"


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
