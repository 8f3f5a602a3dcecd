"""
Collectives that all start together, each on a stream and in a group of its own.

Its own group, because one communicator runs its collectives one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from commsim.errors import ScenarioError
from commsim.follow import Follow, followed, unfollowed
from commsim.graph import Device, GraphBuilder
from commsim.sections import Section
from commsim.units import Size
from commsim.workload.collective_calls import check_call
from commsim.workload.result import Workload
from commsim.workload.torch_names import WORDS, check_dtype, check_redop

__all__ = ["CollectiveSection", "build_collectives"]


class CollectiveSection(Section, frozen=True, kw_only=True):
    """One collective: `bytes` is S of nccl-tests, `group` is all ranks unless given.

    `splits`, for all_to_all_v: one row per member of the group, with the bytes that it sends
    to each. `redop`: sum, avg, ... `device` cpu: the data is in host memory.
    """

    op: str
    bytes: Size | None = None
    group: tuple[int, ...] | None = None
    root: int | None = None
    splits: tuple[tuple[Size, ...], ...] | None = None
    dtype: str = ""
    redop: str = ""
    device: Literal["cuda", "cpu"] = "cuda"


def build_collectives(
    section: Sequence[CollectiveSection],
    *,
    world_size: int | None = None,
    where: str = "collectives",
    follow: Follow = unfollowed,
) -> Workload:
    """Return the graph in which every collective of `section` starts at once.

    `world_size` is the cluster's; without one it is the highest rank of all groups, plus one.

    Raises:
        ScenarioError: an unknown op, a rank outside the world, a missing size or root, ...
    """
    if not section:
        raise ScenarioError(f"{where}: the list is empty. Give at least one collective.")
    world = world_size if world_size is not None else _highest_rank(section, where) + 1
    members = [_members(call, world, f"{where}.{index}") for index, call in enumerate(section)]
    build = GraphBuilder()
    lanes = {rank: build.lane(rank) for rank in sorted({r for ranks in members for r in ranks})}
    calls = list(zip(section, members, strict=True))
    for index, (call, ranks) in enumerate(followed(calls, follow)):
        _check(call, ranks, f"{where}.{index}")
        label = f"{call.op} {index}"
        group = build.group(label, ranks)
        for at, rank in enumerate(ranks):
            row = call.splits[at] if call.splits else None
            build.collective(
                lanes[rank],
                group,
                call.op,
                sum(row) if row is not None else (call.bytes or 0),
                stream=label,
                root=-1 if call.root is None else call.root,
                dtype=call.dtype,
                redop=call.redop,
                splits=row,
                device=Device[call.device.upper()],
            )
    return Workload("collectives", build.build())


def _check(call: CollectiveSection, ranks: Sequence[int], where: str) -> None:
    check_call(
        call.op,
        size=call.bytes,
        root=call.root,
        has_splits=call.splits is not None,
        ranks=ranks,
        where=where,
    )
    reduces = call.op in WORDS and WORDS[call.op].reduces
    check_redop(call.redop, call.op, field="redop", reduces=reduces, where=where)
    check_dtype(call.dtype, call.bytes or 0, where)
    n = len(ranks)
    if call.splits is not None and [len(row) for row in call.splits] != [n] * n:
        raise ScenarioError(f"{where}.splits: give {n} rows of {n} sizes, one row per member.")


def _members(call: CollectiveSection, world: int, where: str) -> tuple[int, ...]:
    ranks = tuple(range(world)) if call.group is None else call.group
    outside = [rank for rank in ranks if not 0 <= rank < world]
    if outside:
        raise ScenarioError(f"{where}.group: no rank {outside[0]}: there are {world} ranks.")
    if not ranks or len(set(ranks)) < len(ranks):
        raise ScenarioError(f"{where}.group: give at least one rank, and each only once.")
    return ranks


def _highest_rank(section: Sequence[CollectiveSection], where: str) -> int:
    for index, call in enumerate(section):
        if call.group is None:
            raise ScenarioError(
                f"{where}.{index}: without a cluster the group must be given,"
                " like group: [0, 1, 2, 3]."
            )
    return max((rank for call in section for rank in call.group or ()), default=0)
