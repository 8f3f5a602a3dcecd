"""Orders of members: one channel for each NIC, nodes whole, and the fastest ring of a mesh."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise, permutations
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commsim.cluster.section import cluster_from
from commsim.libraries.routing.layout import _fast_order, _ring, channel_orders, neighbours
from commsim.libraries.routing.routes import Router


def nodes(count: int, nics: int = 4) -> Router:
    """Nodes of four GPUs behind an NVSwitch, each with the nearest of so many NICs."""
    node = {
        "gpu": {"count": 4, "spec": "A100-SXM4-80GB"},
        "nvlink": {"kind": "switch", "bandwidth": "300GB/s"},
        "pcie": {
            "generation": 4,
            "switches": [
                {"socket": 0, "gpus": list(range(s * 4 // nics, (s + 1) * 4 // nics)), "nics": [s]}
                for s in range(nics)
            ],
        },
        "cpu": {"sockets": 1, "vendor": "amd", "family": 23, "model_id": 49},
        "nic": {"count": nics, "bandwidth": "200Gbps", "medium": "infiniband", "gdr": True},
    }
    return Router(cluster_from({"nodes": count, "node": node}, "test"))


def orders(router: Router, ranks: tuple[int, ...], channels: int = 0) -> list[list[int]]:
    return channel_orders(router.cluster, router, ranks, channels=channels)


def test_a_channel_for_each_nic_with_the_members_of_each_node_turned() -> None:
    assert orders(nodes(2), tuple(range(8))) == [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [1, 2, 3, 0, 5, 6, 7, 4],
        [2, 3, 0, 1, 6, 7, 4, 5],
        [3, 0, 1, 2, 7, 4, 5, 6],
    ]
    # two NICs: half a turn
    assert orders(nodes(2, 2), tuple(range(8))) == [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [2, 3, 0, 1, 6, 7, 4, 5],
    ]


def test_channels_as_asked() -> None:
    assert len(orders(nodes(2), tuple(range(8)), channels=3)) == 3
    assert orders(nodes(2), tuple(range(8)), channels=2)[1] == [2, 3, 0, 1, 6, 7, 4, 5]
    assert len(orders(nodes(1), (0, 1, 2, 3), channels=3)) == 3


def test_within_a_node_no_nic_counts() -> None:
    assert orders(nodes(1), (0, 1, 2, 3)) == [[0, 1, 2, 3]]
    assert orders(nodes(2), (4, 6)) == [[0, 1]]


def test_members_of_one_node_stand_together_in_the_order_of_the_first() -> None:
    # ranks 4 and 0 are of nodes 1 and 0; two NICs for two members of each
    assert orders(nodes(2), (4, 0, 5, 1)) == [[0, 2, 1, 3], [2, 0, 3, 1]]


def test_the_smallest_node_says_how_many_and_turns_by_its_own_length() -> None:
    # node 0 has three members and three NICs, node 1 two of both
    assert orders(nodes(2), (0, 1, 2, 4, 5)) == [[0, 1, 2, 3, 4], [1, 2, 0, 4, 3]]


def test_the_closing_edge_is_the_last() -> None:
    assert neighbours([2, 0, 1]) == [(2, 0), (0, 1), (1, 2)]


def slowest(speed: Callable[[int, int], float], order: tuple[int, ...] | list[int]) -> float:
    """The slower way of the slowest edge of a ring."""
    return min(min(speed(a, b), speed(b, a)) for a, b in neighbours(list(order)))


class Speeds:
    """A router that knows speeds alone."""

    def __init__(self, table: list[list[int]]) -> None:
        self.table = table

    def speed(self, a: int, b: int) -> float:
        return float(self.table[a][b])


TABLES = st.integers(4, 6).flatmap(
    lambda n: st.lists(st.lists(st.integers(1, 4), min_size=n, max_size=n), min_size=n, max_size=n)
)


@given(table=TABLES)
def test_the_order_is_the_fastest_of_all(table: list[list[int]]) -> None:
    router, n = Speeds(table), len(table)
    order = _fast_order(router, tuple(range(n)), list(range(n)))  # type: ignore[arg-type]
    assert sorted(order) == list(range(n))
    best = max(slowest(router.speed, (0, *rest)) for rest in permutations(range(1, n)))
    assert slowest(router.speed, order) == best
    if slowest(router.speed, range(n)) == best:  # type: ignore[arg-type]
        assert order == list(range(n))


def test_of_many_speeds_the_fastest_ring_is_found() -> None:
    """The ways of five members have up to ten speeds: each of them may be the slowest of a ring."""
    found = set()
    for seed in range(60):
        speeds = Random(seed).sample(range(10), 10)
        table = [[0] * 5 for _ in range(5)]
        for (a, b), speed in zip(combinations(range(5), 2), speeds, strict=True):
            table[a][b] = table[b][a] = speed
        router = Speeds(table)
        order = _fast_order(router, tuple(range(5)), list(range(5)))  # type: ignore[arg-type]
        best = max(slowest(router.speed, (0, *rest)) for rest in permutations(range(1, 5)))
        assert slowest(router.speed, order) == best
        found.add(best)
    assert len(found) > 3


@given(n=st.integers(3, 6), bits=st.integers(0, 2**15 - 1))
def test_a_ring_is_found_where_there_is_one(n: int, bits: int) -> None:
    allowed = np.zeros((n, n), np.bool_)
    pairs = [(i, j) for i in range(n) for j in range(i)]
    for at, (i, j) in enumerate(pairs):
        allowed[i, j] = allowed[j, i] = bits >> at & 1
    there = any(
        all(allowed[edge] for edge in neighbours([0, *rest])) for rest in permutations(range(1, n))
    )
    ring = _ring(allowed)
    assert (ring is not None) is there
    if ring is not None:
        assert ring[0] == 0
        assert sorted(ring) == list(range(n))
        assert all(allowed[edge] for edge in neighbours(ring))


@pytest.mark.parametrize(("n", "searched"), [(3, False), (4, True), (12, True), (13, False)])
def test_few_members_are_searched(n: int, searched: bool) -> None:
    """Neighbours two apart, and the two that close the ring, are the fast ones."""
    fast = [*range(0, n, 2), *reversed(range(1, n, 2))]
    table = [[1] * n for _ in range(n)]
    for a, b in [*pairwise(fast), (fast[-1], fast[0])]:
        table[a][b] = table[b][a] = 2
    router = Speeds(table)
    order = _fast_order(router, tuple(range(n)), list(range(n)))  # type: ignore[arg-type]
    assert (order != list(range(n))) is searched
    assert slowest(router.speed, order) == (2 if searched or n == 3 else 1)
