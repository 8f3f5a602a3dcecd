"""
The groups of a program: those of its `groups` section, and those that new_group makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from commsim.errors import ScenarioError, did_you_mean
from commsim.libraries import LIBRARIES
from commsim.sections import Section
from commsim.workload.calls import NewGroup

__all__ = [
    "GroupSection",
    "Made",
    "check_groups",
    "group_of",
    "made_groups",
    "ranks_text",
]


Made = Mapping[int, Sequence[tuple[str, NewGroup]]]
"""The new_group calls of each rank in their order, with their paths."""


class GroupSection(Section, frozen=True, kw_only=True):
    """A group and its library (or, as torch says, its backend); "" is the scenario's."""

    ranks: tuple[int, ...]
    library: str = ""
    backend: str = ""


def group_of(entry: Sequence[int] | GroupSection, where: str) -> GroupSection:
    """Return the group that an entry of `groups` describes, `library` filled in.

    Raises:
        ScenarioError: a library that there is not, or two of them.
    """
    if not isinstance(entry, GroupSection):
        return GroupSection(ranks=tuple(entry))
    if entry.library and entry.backend:
        raise ScenarioError(f"{where}.backend: is the same as library. Give one of them.")
    field = "backend" if entry.backend else "library"
    library = entry.library or entry.backend
    if library and library not in LIBRARIES:
        raise ScenarioError(
            f"{where}.{field}: unknown library {library!r}.{did_you_mean(library, LIBRARIES)}"
            f" Known: {', '.join(LIBRARIES)}."
        )
    return GroupSection(ranks=entry.ranks, library=library)


def made_groups(calls: Made, world: int) -> dict[str, GroupSection]:
    """Return the groups that new_group makes.

    Raises:
        ScenarioError: a rank of the world does not make what the others make, in their order.
    """
    if not any(calls.values()):
        return {}
    first = min(rank for rank, made in calls.items() if made)
    for rank in range(world):
        _check_same(calls.get(rank, ()), rank, calls[first], first)
    found: dict[str, GroupSection] = {}
    for where, call in calls[first]:
        if call.name in found:
            raise ScenarioError(f"{where}.name: group {call.name!r} is made twice.")
        entry = GroupSection(ranks=call.ranks, backend=call.backend)
        found[call.name] = group_of(entry, where)
    return found


def _check_same(
    mine: Sequence[tuple[str, NewGroup]],
    rank: int,
    theirs: Sequence[tuple[str, NewGroup]],
    other: int,
) -> None:
    """Hold a rank's new_group calls against those of the first rank that makes any."""
    for at, (where, call) in enumerate(theirs):
        if at >= len(mine):
            raise ScenarioError(
                f"{where}: rank {rank} does not make group {call.name!r}. Every rank of the world"
                " calls new_group, in the same order, members or not."
            )
        if mine[at][1] != call:
            raise ScenarioError(
                f"{mine[at][0]}: rank {rank} makes {_say(mine[at][1])}, where rank {other} makes"
                f" {_say(call)}. Every rank of the world makes the same groups in the same order."
            )
    if len(mine) > len(theirs):
        where, call = mine[len(theirs)]
        raise ScenarioError(
            f"{where}: rank {other} does not make group {call.name!r}. Every rank of the world"
            " calls new_group, in the same order, members or not."
        )


def check_groups(groups: Mapping[str, GroupSection], world: int, where: str) -> None:
    """Raise ScenarioError for a group without ranks, with one twice, or with one there is not."""
    for name, group in groups.items():
        outside = [rank for rank in group.ranks if not 0 <= rank < world]
        if outside:
            raise ScenarioError(
                f"{where}.groups.{name}: no rank {outside[0]}: there are {world} ranks"
                f" (0..{world - 1})."
            )
        if not group.ranks or len(dict.fromkeys(group.ranks)) < len(group.ranks):
            raise ScenarioError(
                f"{where}.groups.{name}: give at least one rank, and each only once."
            )


def ranks_text(ranks: Sequence[int]) -> str:
    """Return a list of ranks for a message; only the first of many."""
    shown = ", ".join(str(rank) for rank in ranks[:16])
    return f"[{shown}{', ...' if len(ranks) > 16 else ''}]"


def _say(call: NewGroup) -> str:
    backend = f" by {call.backend}" if call.backend else ""
    return f"{call.name!r} of {ranks_text(call.ranks)}{backend}"
