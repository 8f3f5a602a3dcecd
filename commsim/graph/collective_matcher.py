"""
Match collectives: the k-th that a rank issues on a group with the k-th of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from commsim.errors import ScenarioError, did_you_mean
from commsim.graph.table import Collectives, Group
from commsim.ops import COLLECTIVES, ROOTED
from commsim.units import format_size

__all__ = ["CollectiveMatcher", "MemberCall"]


class MemberCall(NamedTuple):
    """One rank's part in a collective: `size` in bytes, `root` a global rank (-1: none)."""

    kind: str
    group: int
    size: int
    root: int
    dtype: str
    redop: str
    rank: int


class CollectiveMatcher:
    """Matches the calls of a graph, by group and position; `groups` are the builder's own.

    `stands[r]` is the rank that calls for rank r if ranks are folded.
    """

    def __init__(self, groups: list[Group], stands: Sequence[int] = ()) -> None:
        self._groups = groups
        self._stands = stands
        self._members: dict[int, frozenset[int]] = {}  # by group; a tuple of ranks is slow to ask
        self._rows: list[MemberCall] = []  # of each collective the call that came first
        self._recorded: dict[int, int] = {}
        self._splits: dict[int, dict[int, tuple[int, ...]]] = {}
        self._position: dict[tuple[int, int], int] = {}
        self._at_position: dict[tuple[int, int], int] = {}

    def add(
        self, call: MemberCall, member: int, *, splits: Sequence[int] | None, recorded: int
    ) -> int:
        """Add a call; return the row of its collective. `member` is the rank of the group that
        the caller stands for, `recorded` a measured transfer time in ps (-1: none).

        Raises:
            ScenarioError: unknown kind, a rank outside the group, or a call that differs from
                what another rank has at this position of the group.
        """
        self._check(call, member, splits)
        caller = (call.group, call.rank)
        position = self._position.get(caller, 0)
        self._position[caller] = position + 1
        row = self._at_position.get((call.group, position), -1)
        if row < 0:
            row = len(self._rows)
            self._at_position[call.group, position] = row
            self._rows.append(call)
        else:
            self._match(self._rows[row], call, position)
            if call.kind == "all_to_all_v" and call.size > self._rows[row].size:
                self._rows[row] = self._rows[row]._replace(size=call.size)
        if recorded >= 0:
            self._recorded[row] = recorded
        if splits is not None:
            self._splits.setdefault(row, {})[call.rank] = tuple(splits)
        return row

    def is_member(self, rank: int, group: int) -> bool:
        """Return whether a rank is in a group."""
        if group not in self._members:
            self._members[group] = frozenset(self._groups[group].ranks)
        return rank in self._members[group]

    def table(self) -> Collectives:
        """Return all collectives, in the order of their first calls."""
        rows = self._rows
        return Collectives(
            kind=tuple(row.kind for row in rows),
            group=np.array([row.group for row in rows], dtype=np.int64),
            size=np.array([row.size for row in rows], dtype=np.int64),
            root=np.array([row.root for row in rows], dtype=np.int64),
            recorded=np.array(
                [self._recorded.get(row, -1) for row in range(len(rows))], dtype=np.int64
            ),
            eager=np.zeros(len(rows), np.int64),
            dtype=tuple(row.dtype for row in rows),
            redop=tuple(row.redop for row in rows),
            splits=tuple(self._split_matrix(row) for row in range(len(rows))),
        )

    def _check(self, call: MemberCall, rank: int, splits: Sequence[int] | None) -> None:
        kind, ranks = call.kind, self._groups[call.group].ranks
        if kind not in COLLECTIVES:
            raise ScenarioError(
                f"{kind!r} is not a collective.{did_you_mean(kind, COLLECTIVES)}"
                f" Known: {', '.join(COLLECTIVES)}."
            )
        if not self.is_member(rank, call.group):
            name = self._groups[call.group].name
            raise ScenarioError(f"rank {rank}: {kind}: not in group {name!r} {list(ranks)}.")
        if (kind in ROOTED) != (call.root >= 0):
            needs = "needs a root" if kind in ROOTED else "has no root"
            raise ScenarioError(f"rank {rank}: {kind} {needs}.")
        if (kind == "all_to_all_v") != (splits is not None):
            needs = "needs splits" if kind == "all_to_all_v" else "has no splits"
            raise ScenarioError(f"rank {rank}: {kind} {needs}.")
        if splits is not None and len(splits) != len(ranks):
            raise ScenarioError(
                f"rank {rank}: {kind}: {len(splits)} splits for {len(ranks)} members."
            )

    def _match(self, first: MemberCall, call: MemberCall, position: int) -> None:
        same_size = first.size == call.size or call.kind == "all_to_all_v"
        same = (first.kind, first.root, first.dtype, first.redop)
        if same_size and same == (call.kind, call.root, call.dtype, call.redop):
            return
        raise ScenarioError(
            f"call {position} on group {self._groups[call.group].name!r} differs between ranks:\n"
            f"  rank {first.rank}: {_show(first)}\n"
            f"  rank {call.rank}: {_show(call)}\n"
            "Every rank of a group must issue the same collectives in the same order."
        )

    def _split_matrix(self, row: int) -> tuple[tuple[int, ...], ...] | None:
        if row not in self._splits:
            return None
        ranks = self._groups[self._rows[row].group].ranks
        nothing = (0,) * len(ranks)
        callers = [self._stands[rank] if self._stands else rank for rank in ranks]
        return tuple(self._splits[row].get(rank, nothing) for rank in callers)


def _show(call: MemberCall) -> str:
    root = f", root {call.root}" if call.root >= 0 else ""
    dtype = f", {call.dtype}" if call.dtype else ""
    redop = f", {call.redop}" if call.redop else ""
    return f"{call.kind} of {format_size(call.size)}{dtype}{redop}{root}"
