"""
Hold what each rank says it gets from an all-to-all against what the others say they send.
"""

from __future__ import annotations

from collections.abc import Mapping

from commsim.errors import ScenarioError
from commsim.workload.collective_calls import Meaning
from commsim.workload.program_groups import GroupSection

__all__ = ["SplitCheck"]


class SplitCheck:
    """Collects the splits of all ranks, by group and by place among the group's collectives."""

    def __init__(self, groups: Mapping[str, GroupSection]) -> None:
        self._groups = groups
        self._issued: dict[tuple[str, int], int] = {}
        self._calls: dict[tuple[str, int], dict[int, tuple[str, Meaning]]] = {}

    def add(self, group: str, rank: int, one: Meaning, where: str) -> None:
        """Take note of a collective that a rank issues."""
        position = self._issued.get((group, rank), 0)
        self._issued[group, rank] = position + 1
        if one.splits is not None:
            self._calls.setdefault((group, position), {})[rank] = (where, one)

    def finish(self) -> None:
        """Raise ScenarioError if a rank expects other bytes than it is sent."""
        for (group, _), calls in self._calls.items():
            ranks = self._groups[group].ranks
            for rank, (where, one) in calls.items():
                for at, expected in enumerate(one.output_splits or ()):
                    if ranks[at] in calls:
                        self._compare(calls[ranks[at]][1], ranks, rank, ranks[at], expected, where)

    @staticmethod
    def _compare(
        theirs: Meaning, ranks: tuple[int, ...], rank: int, peer: int, expected: int, where: str
    ) -> None:
        assert theirs.splits is not None
        sent = theirs.splits[ranks.index(rank)]
        if sent != expected:
            raise ScenarioError(
                f"{where}.output_splits: rank {rank} expects {expected} bytes from rank {peer},"
                f" whose splits send it {sent}."
            )
