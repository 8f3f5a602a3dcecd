"""
Kernels of no known library that span and wait like communication.

Whether a kernel waited, only several ranks show: what communicates ends together on its members
however far apart they came to it, and is short on the one that came last. So each rank keeps the
times of the kernels that matter (`Suspect`), and they are compared afterwards: the differences of
two ranks' times are held against their own middle, so clocks need not agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.traces.formats import EventKind
from commsim.traces.rebuild.rank.activity import Activity
from commsim.units import format_time

__all__ = ["Suspect", "suspects_of", "waiting_like_communication"]

_LEAST_CALLS, _MOST_CALLS, _MOST_NAMES = 4, 512, 16
_LEAST_SHARE = 0.005  # of the recording: less changes no conclusion
_TOGETHER, _APART = 10_000_000, 20_000_000  # ps: ends of one collective; starts that tell it
_NAME_LENGTH = 100


class Suspect(msgspec.Struct, frozen=True, eq=False):
    """The calls of one kernel on one rank, in order; times in ps on its file's clock."""

    name: str
    starts: Ints
    ends: Ints


def suspects_of(activity: Activity) -> tuple[Suspect, ...]:
    """Return the kernels, of no known library, that take the most of a rank's time."""
    gpu = activity.gpu
    kernels = np.flatnonzero((gpu.events.kind == EventKind.KERNEL) & ~gpu.communicates)
    if not kernels.size:
        return ()
    starts, ends = gpu.events.start[kernels], gpu.events.end[kernels]
    found, number = np.unique(gpu.events.name[kernels], return_inverse=True)
    order = np.argsort(number, kind="stable")
    calls = np.split(order, np.cumsum(np.bincount(number))[:-1])
    whole = int(gpu.events.end.max() - gpu.events.start[0])
    spent = [
        (total, gpu.events.names[name], of_name)
        for name, of_name in zip(found, calls, strict=True)
        if len(of_name) >= _LEAST_CALLS
        and (total := int((ends[of_name] - starts[of_name]).sum())) > _LEAST_SHARE * whole
    ]
    most = sorted(spent, key=lambda row: (-row[0], row[1]))[:_MOST_NAMES]
    return tuple(
        Suspect(name, starts[of_name[:_MOST_CALLS]], ends[of_name[:_MOST_CALLS]])
        for _, name, of_name in most
    )


def waiting_like_communication(ranks: Mapping[int, Sequence[Suspect]]) -> Iterator[str]:
    """Yield a note on each kernel that ends together on two ranks and does not start so."""
    by_name: dict[str, dict[int, Suspect]] = {}
    for rank, suspects in ranks.items():
        for suspect in suspects:
            by_name.setdefault(suspect.name, {})[rank] = suspect
    for name, of_name in by_name.items():
        members, apart = _together(of_name)
        if members:
            listed = ", ".join(map(str, members[:4])) + (" ..." if len(members) > 4 else "")
            yield (
                f"the {len(of_name[members[0]].ends)} kernels {name[:_NAME_LENGTH]!r} end together"
                f" on ranks {listed} and begin up to {format_time(apart)} apart, like"
                " communication, of no library that is known: they count as compute."
            )


def _together(suspects: Mapping[int, Suspect]) -> tuple[list[int], int]:
    """Return the ranks on which a kernel ends together, and how far apart it began."""
    first, *others = sorted(suspects)
    members, apart = [first], 0
    for other in others:
        one, two = suspects[first], suspects[other]
        if len(one.ends) != len(two.ends):
            continue
        ends, starts = _scatter(one.ends, two.ends), _scatter(one.starts, two.starts)
        if np.median(ends) <= _TOGETHER and np.mean(starts) > _APART + 4 * np.mean(ends):
            members.append(other)
            apart = max(apart, int(starts.max()))
    return (members, apart) if len(members) > 1 else ([], 0)


def _scatter(one: Ints, two: Ints) -> Ints:
    """Return how far the differences of two ranks' times are from their own middle."""
    apart = one - two
    distance: Ints = np.abs(apart - int(np.median(apart)))
    return distance
