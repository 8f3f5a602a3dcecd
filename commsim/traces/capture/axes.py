"""
The groups of a captured program as axes: which groups exist next to each other, and who is who.

A program makes all groups of a kind on every rank, one after another: a mesh of 2 x 4 makes four
groups of two and two of four. Those that follow each other, share no rank and have one size are
an axis. What a rank does depends on where it stands in the groups that it sends messages in
(its pipeline stage); along all other axes ranks are taken to do the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.traces.capture.records import CapturedMessage, GroupMade, Recording

__all__ = ["FoundAxes", "message_axes"]


class FoundAxes(msgspec.Struct, frozen=True, eq=False):
    """All axes of a program: `rows[name]` has the ranks of its groups, one group per row."""

    world: int
    rows: dict[str, Ints]
    name_of: dict[tuple[int, ...], str]

    @staticmethod
    def of(groups: Sequence[GroupMade], world: int) -> FoundAxes:
        """Sort the groups that a program made into axes."""
        runs: list[tuple[str, list[tuple[int, ...]]]] = []
        for made in groups:
            if len(made.ranks) < 2:
                continue
            label = made.description.removeprefix("mesh_") or "group"
            if runs and _continues(runs[-1], label, made.ranks):
                runs[-1][1].append(made.ranks)
            elif not any(made.ranks in members for _, members in runs):
                runs.append((label, [made.ranks]))
        rows: dict[str, Ints] = {}
        name_of: dict[tuple[int, ...], str] = {}
        for label, members in runs:
            name = label
            while name in rows:
                name += "'"
            rows[name] = np.array(members, dtype=np.int64)
            name_of.update(dict.fromkeys(members, name))
        return FoundAxes(world, rows, name_of)

    def row(self, name: str, rank: int) -> list[int]:
        """Return the group of `rank` on an axis; nothing if it is in none."""
        rows = self.rows[name]
        found = np.flatnonzero((rows == rank).any(axis=1))
        members: list[int] = rows[found[0]].tolist() if found.size else []
        return members

    def position(self, name: str, rank: int) -> int:
        """Return where `rank` stands in its group on an axis; -1 if it is in none."""
        row = self.row(name, rank)
        return row.index(rank) if rank in row else -1

    def positions(self, name: str) -> Ints:
        """Return the position of every rank on an axis, -1 if it is in no group of it."""
        rows = self.rows[name]
        found = np.full(self.world, -1)
        found[rows] = np.arange(rows.shape[1])[None, :]
        return found


def message_axes(recording: Recording, axes: FoundAxes) -> list[str]:
    """Return the axes on which a rank sends or receives messages, by first use."""
    used: dict[str, None] = {}
    for record in recording.records:
        if isinstance(record, CapturedMessage):
            used[axes.name_of[recording.groups[record.group].ranks]] = None
    return list(used)


def _continues(run: tuple[str, list[tuple[int, ...]]], label: str, ranks: tuple[int, ...]) -> bool:
    known, members = run
    taken = {rank for member in members for rank in member}
    return known == label and len(members[0]) == len(ranks) and not taken & set(ranks)
