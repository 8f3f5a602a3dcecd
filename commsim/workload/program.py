"""
A program: what each rank calls, in order, as with torch.distributed.

Blocking calls and compute stand in the rank's main stream; what returns at once runs alongside it
until a `wait` (see `issue`).
"""

from __future__ import annotations

from typing import Any

from commsim.errors import ScenarioError
from commsim.follow import Follow, followed, unfollowed
from commsim.limits import BYTES_PER_OP, check_size
from commsim.sections import Section
from commsim.workload.calls import WORLD, Batch, Call, MessageCall, NewGroup, read_call
from commsim.workload.issue import Issuer, Rank
from commsim.workload.program_groups import GroupSection, check_groups, group_of, made_groups
from commsim.workload.result import Workload

__all__ = ["GroupSection", "ProgramSection", "build_program"]

_MOST_RANKS = 2**31
_DIGITS = 20  # of a rank


class ProgramSection(Section, frozen=True, kw_only=True):
    """What a user writes under `program`.

    `ranks` maps a rank to its calls; "all" holds the calls of every rank that has no list of
    its own. The group "world" is all ranks.
    """

    ranks: dict[int | str, list[Any]]
    groups: dict[str, tuple[int, ...] | GroupSection] = {}


Calls = dict[int | str, list[tuple[str, Call]]]
Listed = list[tuple[int, int | str, list[tuple[str, Call]]]]
"""(rank, the key that it is listed under, its calls), by rank."""


def build_program(
    section: ProgramSection,
    *,
    world_size: int | None = None,
    library: str = "",
    where: str = "program",
    follow: Follow = unfollowed,
) -> Workload:
    """Return the graph of the program.

    `world_size` is the cluster's; without one it is the highest rank that the program names,
    plus one. `library` is that of the groups which name none. A program in which ranks wait for
    each other builds: it deadlocks when it runs.

    Raises:
        ScenarioError: an unknown call, group or handle, a rank outside the world, ranks that
            issue different collectives, ... with the path of the call.
    """
    calls = _read_ranks(section, where)
    groups = {
        name: group_of(entry, f"{where}.groups.{name}") for name, entry in section.groups.items()
    }
    world = world_size if world_size is not None else _highest_rank(calls, groups) + 1
    _check_world(world, len(calls.get("all", ())), where)
    listed = _programs(calls, world, where)
    made = made_groups(_new_groups(listed, where), world)
    for name in made:
        if name in groups or name == WORLD:
            raise ScenarioError(f"{where}: new_group {name!r}: there is a group of that name.")
    groups = {WORLD: GroupSection(ranks=tuple(range(world))), **groups, **made}
    check_groups(groups, world, where)
    issue = Issuer(groups, library)
    for rank, source, own in followed(listed, follow):
        state = Rank(rank, issue.build.lane(rank))
        for index, (name, call) in enumerate(own):
            issue.call(state, name, call, f"{where}.ranks.{source}.{index}.{name}")
    issue.finish()
    try:
        return Workload("program", issue.build.build())
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None


def _read_ranks(section: ProgramSection, where: str) -> Calls:
    """Return the typed calls of each rank, and those of "all"."""
    if not section.ranks:
        raise ScenarioError(f"{where}.ranks: no rank calls anything.")
    calls: Calls = {}
    for key, listed in section.ranks.items():
        path = f"{where}.ranks.{key}"
        number = isinstance(key, str) and key.isdecimal() and len(key) < _DIGITS
        rank = int(key) if number else key
        if (isinstance(rank, str) and rank != "all") or (isinstance(rank, int) and rank < 0):
            raise ScenarioError(f"{path}: {key!r} is not a rank. Write a number, or all.")
        if rank in calls:
            raise ScenarioError(f"{path}: rank {rank} is listed twice.")
        calls[rank] = [
            read_call(call, where=f"{path}.{index}") for index, call in enumerate(listed)
        ]
    return calls


def _programs(calls: Calls, world: int, where: str) -> Listed:
    """Return each rank with its calls."""
    outside = [rank for rank in calls if isinstance(rank, int) and rank >= world]
    if outside:
        raise ScenarioError(
            f"{where}.ranks.{outside[0]}: no such rank: there are {world} ranks (0..{world - 1})."
        )
    keys = [(rank, rank if rank in calls else "all") for rank in range(world)]
    return [(rank, key, calls[key]) for rank, key in keys if key in calls]


def _check_world(world: int, each: int, where: str) -> None:
    """Refuse more ranks, each with so many calls, than memory has room for."""
    if world > _MOST_RANKS:
        raise ScenarioError(f"{where}: there is a rank above {_MOST_RANKS:,}. Name lower ones.")
    what = f"{where}: {world:,} ranks (the highest that is named, plus one)"
    if each:
        what = f"{what}, of which each may make {each:,} calls,"
    check_size(world, BYTES_PER_OP * max(1, each), what, "Name lower ranks.")


def _new_groups(listed: Listed, where: str) -> dict[int, list[tuple[str, NewGroup]]]:
    """Return the new_group calls of each rank, with their paths."""
    return {
        rank: [
            (f"{where}.ranks.{source}.{index}.{name}", call)
            for index, (name, call) in enumerate(own)
            if isinstance(call, NewGroup)
        ]
        for rank, source, own in listed
    }


def _highest_rank(calls: Calls, groups: dict[str, GroupSection]) -> int:
    named = [rank for rank in calls if isinstance(rank, int)]
    named += [rank for group in groups.values() for rank in group.ranks]
    for call in [call for calls_of in calls.values() for _, call in calls_of]:
        if isinstance(call, MessageCall):
            named.append(call.peer)
        elif isinstance(call, Batch):
            named += [one.peer for one in call.calls]
        elif isinstance(call, NewGroup):
            named += call.ranks
    return max(named, default=0)
