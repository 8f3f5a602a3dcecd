"""
The groups and pairs of a folded graph, by the names of their axes, while it is being built.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Ints
from commsim.errors import ScenarioError
from commsim.graph.fold import Fold
from commsim.graph.table import Folding, Group, Messages

__all__ = ["Orbits"]


class Orbits:
    """Hands out each orbit of a fold once, and remembers what it stands for."""

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self._multiplicity: list[int] = fold.multiplicities().tolist()
        self._stands: list[int] = fold.stands.tolist()
        self._groups: dict[tuple[str, int], int] = {}  # (axis, orbit) -> group of the graph
        self._group_of: dict[tuple[str, int], int] = {}  # (axis, rank) -> the same
        self._rows: list[Ints] = []
        self._row_of: dict[tuple[str, int], int] = {}  # (axis, orbit) -> place in `_rows`
        self._ends: dict[tuple[str, int, bool], tuple[int, int, int]] = {}
        self._pair: dict[tuple[int, int, int], int] = {}  # (group, source, target) -> the same

    def multiplicity(self, rank: int) -> int:
        """Return how many ranks the lane of `rank` stands for."""
        return self._multiplicity[rank]

    def group_of(self, axis: str, rank: int) -> int:
        """Return the graph's group of a representative on an axis; -1 if it is yet to be added."""
        return self._group_of.get((axis, rank), -1)

    def members(self, axis: str, rank: int) -> tuple[int, Ints]:
        """Return the orbit of a representative on an axis of groups, and its rows.

        Raises:
            ScenarioError: the rank is in no group of that axis.
        """
        orbit = self.fold.orbit_of(axis, rank)
        if orbit < 0:
            raise ScenarioError(f"rank {rank} is in no group of axis {axis!r}.")
        return orbit, self.fold.groups[axis].instances(orbit)

    def name_group(self, axis: str, orbit: int, rank: int, new: int) -> int:
        """Return the group of an orbit: `new` if it had none, which is then free to be added."""
        group = self._groups.setdefault((axis, orbit), new)
        self._group_of[axis, rank] = group
        return group

    def member(self, rank: int, ranks: tuple[int, ...]) -> int:
        """Return which of a group's `ranks` a representative stands for; itself if it is one."""
        if rank in ranks:
            return rank
        return next((member for member in ranks if self._stands[member] == rank), rank)

    def pair(self, axis: str, rank: int, group: int, *, sends: bool) -> tuple[int, int]:
        """Return the (source, target) that name the orbit of pairs in which a rank takes part.

        Raises:
            ScenarioError: the rank is on that side of no pair, or two axes share a pair in one
                group, so that their messages could not be told apart.
        """
        key = (axis, rank, sends)
        if key not in self._ends:
            self._ends[key] = self._find(axis, rank, sends=sends)
        source, target, row = self._ends[key]
        if self._pair.setdefault((group, source, target), row) != row:
            raise ScenarioError(
                f"ranks {source} and {target} are a pair on two axes of one group; use another"
                f" group for {axis!r}."
            )
        return source, target

    def _find(self, axis: str, rank: int, *, sends: bool) -> tuple[int, int, int]:
        orbit = self.fold.pair_of(axis, rank, sends=sends)
        if orbit < 0:
            verb = "sends" if sends else "receives"
            raise ScenarioError(f"rank {rank} {verb} nothing on axis {axis!r}.")
        if (axis, orbit) not in self._row_of:
            self._row_of[axis, orbit] = len(self._rows)
            self._rows.append(self.fold.pairs[axis].instances(orbit))
        row = self._row_of[axis, orbit]
        source, target = self._rows[row][0].tolist()
        return source, target, row

    def folding(self, groups: list[Group], lane_rank: Ints, messages: Messages) -> Folding | None:
        """Return what a built graph stands for, None if every lane is one rank."""
        if not self.fold.folded:
            return None
        lane = np.full(len(self.fold.stands), -1)
        lane[lane_rank] = np.arange(len(lane_rank))
        rows: list[Ints] = [np.array([group.ranks], dtype=np.int64) for group in groups]
        for (axis, orbit), group in self._groups.items():
            rows[group] = self.fold.groups[axis].instances(orbit)
        ends = zip(
            messages.group.tolist(), messages.source.tolist(), messages.target.tolist(), strict=True
        )
        pair = np.array([self._pair[key] for key in ends], dtype=np.int64)
        return Folding(lane[self.fold.stands], tuple(rows), tuple(self._rows), pair)
