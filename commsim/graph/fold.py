"""
Folding: ranks that do the same thing at the same time are simulated once.

A *class* is a set of ranks that one lane stands for; an *orbit* is a set of groups (or of
ordered pairs) that one group of the graph stands for. Classes start from roles, ranks that run
the same program, and are refined until every class takes part in exactly one orbit per axis.
Whether the hardware is as symmetric as the program is for the engine to find out.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from commsim.arrays import Ints, distinct
from commsim.errors import ScenarioError

__all__ = ["Axis", "Fold"]


class Axis(msgspec.Struct, frozen=True, eq=False):
    """The groups (or ordered pairs) of one parallel axis: rows of ranks, and the orbit of each.

    `rows` has shape (groups, members); `orbit[i]` numbers the orbit of row i from 0.
    """

    rows: Ints
    orbit: Ints

    def instances(self, orbit: int) -> Ints:
        """Return the rows of one orbit; the first is the one that names it."""
        chosen: Ints = self.rows[self.orbit == orbit]
        return chosen


class Fold(msgspec.Struct, frozen=True, eq=False):
    """Which rank stands for which: `stands[r]` is the lowest rank of r's class.

    `groups` and `pairs` are the axes by name; `folded`: some rank stands for others.
    """

    stands: Ints
    groups: Mapping[str, Axis]
    pairs: Mapping[str, Axis]
    folded: bool

    @staticmethod
    def of(roles: Ints, groups: Mapping[str, Ints], pairs: Mapping[str, Ints]) -> Fold:
        """Return the coarsest fold in which ranks of different `roles` stay apart.

        `groups[axis]` holds all groups of an axis as rows, in group order, a rank in at most one;
        `pairs[axis]` ordered pairs (source, target), a rank at most once per column.

        Raises:
            ScenarioError: a rank twice in an axis, or two axes of one name.
        """
        _check(len(roles), groups, pairs)
        color = _dense(np.asarray(roles, dtype=np.int64)[:, None])
        while True:
            finer = _refined(color, groups, pairs)
            if finer.max(initial=-1) == color.max(initial=-1):
                break
            color = finer
        first = np.unique(color, return_index=True)[1]
        stands = first[color].astype(np.int64)
        return Fold(
            stands,
            {name: Axis(rows, _orbits(stands, rows)) for name, rows in groups.items()},
            {name: Axis(rows, _orbits(stands, rows)) for name, rows in pairs.items()},
            folded=len(first) < len(roles),
        )

    @staticmethod
    def none(world: int, groups: Mapping[str, Ints], pairs: Mapping[str, Ints]) -> Fold:
        """Return the fold in which every rank stands for itself."""
        return Fold.of(np.arange(world), groups, pairs)

    @property
    def representatives(self) -> list[int]:
        """The ranks to build lanes for, ascending."""
        ranks: list[int] = distinct(self.stands).tolist()
        return ranks

    def multiplicities(self) -> Ints:
        """Return how many ranks each rank stands for, 0 for those that are stood for."""
        counts: Ints = np.bincount(self.stands, minlength=len(self.stands))
        return counts

    def orbit_of(self, axis: str, rank: int) -> int:
        """Return the orbit of a group axis that a representative takes part in; -1 for none."""
        return _find(self.groups[axis], rank, slice(None))

    def pair_of(self, axis: str, rank: int, *, sends: bool) -> int:
        """Return the orbit of pairs in which a representative sends (or receives); -1 for none."""
        return _find(self.pairs[axis], rank, slice(0, 1) if sends else slice(1, 2))


def _find(axis: Axis, rank: int, columns: slice) -> int:
    row = np.flatnonzero((axis.rows[:, columns] == rank).any(axis=1))
    return int(axis.orbit[row[0]]) if row.size else -1


def _refined(color: Ints, groups: Mapping[str, Ints], pairs: Mapping[str, Ints]) -> Ints:
    """Return colors that also tell apart ranks whose groups differ in the colors they hold."""
    columns = [color]
    for rows in groups.values():
        seen = np.full(len(color), -1)
        seen[rows] = _orbits(color, rows)[:, None]
        columns.append(seen)
    for rows in pairs.values():
        for end in (0, 1):
            seen = np.full(len(color), -1)
            seen[rows[:, end]] = _orbits(color, rows)
            columns.append(seen)
    return _dense(np.stack(columns, axis=1))


def _orbits(color: Ints, rows: Ints) -> Ints:
    """Return for each row the number of its sequence of colors, by first appearance."""
    if not rows.size:
        return np.zeros(len(rows), np.int64)
    return _dense(color[rows])


def _dense(keys: Ints) -> Ints:
    """Number rows by first appearance; equal rows get equal numbers."""
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    dense: Ints = rank[inverse.reshape(-1)]
    return dense


def _check(world: int, groups: Mapping[str, Ints], pairs: Mapping[str, Ints]) -> None:
    both = sorted(groups.keys() & pairs.keys())
    if both:
        raise ScenarioError(f"fold: {both[0]!r} names an axis of groups and one of pairs.")
    members = [(name, rows.reshape(-1)) for name, rows in groups.items()]
    members += [(name, rows[:, end]) for name, rows in pairs.items() for end in (0, 1)]
    for name, ranks in members:
        if ranks.size and (ranks.min() < 0 or ranks.max() >= world):
            raise ScenarioError(f"fold: axis {name!r} has a rank outside 0..{world - 1}.")
        if len(distinct(ranks)) != len(ranks):
            raise ScenarioError(f"fold: axis {name!r} has a rank twice.")
