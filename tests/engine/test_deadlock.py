"""The words of a deadlock: who waits for whom, the cycle, and how many more."""

from __future__ import annotations

import pytest

from commsim.engine.deadlock import _cycle, _ranks


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
