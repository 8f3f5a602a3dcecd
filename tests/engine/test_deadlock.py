"""The words of a deadlock: who waits for whom, the cycle, and how many more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.engine.deadlock import _cycle, _ranks, deadlock, sends_wait
from commsim.graph import GraphBuilder


@pytest.mark.parametrize(
    ("peers", "told"),
    [
        ([], "an earlier op of its group"), ([3], "rank 3"), ([3, 5], "ranks 3, 5"),
        ([*range(8)], "ranks 0, 1, 2, 3, 4, 5, 6, 7"),
        ([*range(9)], "ranks 0, 1, 2, 3, 4, 5, 6, 7, ..."),
    ],
)  # fmt: skip
def test_ranks_that_are_waited_for(peers: list[int], told: str) -> None:
    assert _ranks(peers) == told


@pytest.mark.parametrize(
    ("edges", "cycle"),
    [
        ({}, []), ({0: [1]}, []), ({0: [1], 1: [2]}, []),
        ({0: [1], 1: [0]}, [0, 1]), ({0: [1], 1: [2], 2: [0]}, [0, 1, 2]),
        # the shortest through the first rank that is on one
        ({0: [1, 3], 1: [2], 2: [0], 3: [0]}, [0, 3]),
        ({0: [1], 1: [2], 2: [1]}, [1, 2]), ({4: [4]}, [4]),
    ],
)  # fmt: skip
def test_a_shortest_cycle(edges: dict[int, list[int]], cycle: list[int]) -> None:
    assert _cycle(edges) == cycle


@dataclass(frozen=True)
class Met:
    """A collective or message, the ops that have arrived by member, and who has not."""

    ops: Mapping[int, int]
    absent: Sequence[int] = ()

    def missing(self) -> list[int]:
        return list(self.absent)


@pytest.mark.parametrize(
    ("key", "ops", "waits"),
    [
        ((1, 0), {0: 3}, True), ((1, 4), {0: 0}, True), ((1, 0), {1: 3}, False),
        ((1, 0), {0: 3, 1: 4}, False), ((1, 0), {}, False), ((0, 0), {0: 3}, False),
    ],
)  # fmt: skip
def test_a_send_waits_if_only_its_sender_has_come(
    key: tuple[int, int], ops: dict[int, int], waits: bool
) -> None:
    engine: Any = SimpleNamespace(rendezvous={(0, 9): Met({0: 1}), key: Met(ops)})
    assert sends_wait(engine) == waits


@pytest.mark.parametrize(("count", "more"), [(1, 0), (16, 0), (17, 1), (20, 4)])
def test_sixteen_ops_that_wait_are_listed_and_the_others_counted(count: int, more: int) -> None:
    """All but one rank of a group call; what has ended, at 0 ps too, waits no longer."""
    build = GraphBuilder()
    group = build.group("world", range(count + 1))
    lanes = [build.lane(rank) for rank in range(count + 1)]
    done = [build.collective(lane, group, "barrier", 0, stream="s") for lane in lanes]
    calls = [build.collective(lane, group, "all_reduce", 8, stream="s") for lane in lanes[:count]]
    end = [0] * len(done) + [-1] * len(calls)
    met = {(0, 0): Met(dict(enumerate(done))), (0, 1): Met(dict(enumerate(calls)), [count])}
    engine: Any = SimpleNamespace(
        graph=build.build(), recorder=SimpleNamespace(end=end), rendezvous=met
    )
    head, *lines, cycle, _ = str(deadlock(engine)).split("\n")
    assert head == f"deadlock: {count} ops wait and nothing can run."
    assert sum(line.endswith(f", waits for rank {count}") for line in lines) == count - more
    assert lines[-1].strip() == f"... and {more} more" if more else len(lines) == count
    assert cycle == "No cycle: a rank waits for an op that no rank issues."
    assert "by luck" in str(deadlock(engine, eager=True))
