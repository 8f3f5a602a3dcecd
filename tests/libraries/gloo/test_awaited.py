"""Whom members of Gloo wait for: against messages that leave when both ends are there."""

from __future__ import annotations

import random

import pytest

from commsim.libraries import awaited_members
from commsim.libraries.gloo import programs

PROGRAMS = {
    "broadcast": programs.broadcast,
    "scatter": programs.scatter,
    "gather": programs.gather,
}


def when_they_leave(kind: str, n: int, root: int, arrive: list[int]) -> list[int]:
    """Return when each member's last message is done, if data takes no time."""
    program = PROGRAMS[kind](n, root)
    has, leave = list(arrive), list(arrive)
    for source, target in zip(program.source.tolist(), program.target.tolist(), strict=True):
        done = max(has[source], arrive[target])
        leave[source], leave[target] = max(leave[source], done), max(leave[target], done)
        if kind != "gather":  # what the root of a gather has received it sends to nobody
            has[target] = max(has[target], done)
    return leave


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 13])
@pytest.mark.parametrize("kind", PROGRAMS)
def test_members_leave_when_the_last_of_those_has_come(kind: str, n: int) -> None:
    chance = random.Random(n)
    for root in range(n):
        awaited = awaited_members(kind, n, root)
        arrive = [chance.randrange(1000) for _ in range(n)]
        expected = [max(arrive[one] for one in each) for each in awaited]
        assert when_they_leave(kind, n, root, arrive) == expected


def test_a_leaf_of_the_tree_waits_for_its_branch_alone() -> None:
    assert awaited_members("broadcast", 4, 1)[0] == {0, 1, 2}  # 1 -> 2 -> 0, and 1 -> 3
    assert awaited_members("broadcast", 4, 1)[3] == {1, 3}


def test_in_other_ops_everybody_waits_for_everybody() -> None:
    assert awaited_members("all_reduce", 4, -1) == ()
