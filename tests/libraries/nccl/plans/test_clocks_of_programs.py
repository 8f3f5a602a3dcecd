"""How laid-out programs are held to the timing model: their clock, and the factors found by it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from commsim.cluster import NOWHERE, Cluster
from commsim.libraries.nccl.plans import laid_messages
from commsim.libraries.nccl.plans.group import NcclGroup, Site
from commsim.libraries.nccl.plans.idle_clocks import ProgramClock, TreeClock, factor_at
from commsim.libraries.nccl.plans.laid_messages import (
    _pieces,
    _software,
    has_program,
)
from commsim.libraries.nccl.plans.library import Nccl
from commsim.libraries.nccl.plans.network_sums import chains_over_nodes
from commsim.libraries.nccl.shapes import Algorithm, Choice, Protocol
from commsim.libraries.nccl.timing import default_terms, hop_latency, reach_latency
from commsim.libraries.plan import RoutedProgram


def messages(ends: list[tuple[int, int]], needs: list[list[int]], size: float) -> RoutedProgram:
    source, target = np.array(ends).T
    count = len(ends)
    return RoutedProgram(
        source, target, np.full(count, size), np.zeros(count, np.int64), (NOWHERE,),
        np.concatenate(([0], np.cumsum([len(some) for some in needs]))),
        np.array([one for some in needs for one in some], np.int64),
    )  # fmt: skip


def test_a_message_waits_for_its_connection_and_for_what_it_needs() -> None:
    program = messages([(0, 1), (0, 1), (1, 2), (0, 2), (2, 3)], [[], [], [0], [], [1, 2, 3]], 1.0)
    clock = ProgramClock(program)
    pace, latency = np.array([10.0, 20, 5, 1, 2]), np.array([100.0, 100, 30, 500, 7])
    # 0 leaves until 10 and is there at 110, 1 until 30 and at 130; 2 begins at 110 and is there at
    # 145; 3 at 501; so 4 begins then
    assert clock.ends(latency, pace) == 501 + 2 + 7
    latency[3] = 50
    assert clock.ends(latency, pace) == 145 + 2 + 7
    latency[1] = 1000
    assert clock.ends(latency, pace) == 1030 + 2 + 7


@pytest.mark.parametrize(("time", "wanted", "factor"), [
    (lambda x: 5 + 2 * x, 6.0, 0.5),
    (lambda x: 5 + 2 * x, 7.0, 1.0),
    (lambda x: 5 + 2 * x, 5.0, 0.0),
    (lambda x: 5 + 2 * x, 3.0, 0.0),  # it takes longer anyway
    (lambda x: 5 + 2 * x, 205.0, 100.0),
    (lambda x: max(5 + 2 * x, 9 * x), 45.0, 5.0),
    (lambda x: max(5 + 0.01 * x, 100 * x - 3), 50.0, 0.53),
    (lambda x: max(1 + x, 50 * x - 1000), 900.0, 38.0),
    (lambda x: 5.0, 9.0, 0.0),  # nothing makes it last longer
])  # fmt: skip
def test_the_factor_at_which_a_program_lasts_so_long(
    time: Callable[[float], float], wanted: float, factor: float
) -> None:
    asked = 0

    def counted(x: float) -> float:
        nonlocal asked
        asked += 1
        return time(x)

    assert factor_at(counted, wanted) == pytest.approx(factor, rel=2e-7)
    assert asked <= 30


@pytest.mark.parametrize(("messages_each", "pieces"), [
    (1, 32), (512, 32), (513, 31), (4096, 4), (5461, 3), (8192, 2), (8193, 2), (10**6, 2),
])  # fmt: skip
def test_pieces_of_a_program(messages_each: int, pieces: int) -> None:
    assert _pieces(messages_each) == pieces


def choice(algorithm: Algorithm, size: int = 1 << 20) -> Choice:
    return Choice("all_reduce", size, algorithm, Protocol.Simple, 8, 8, 512, 1 << 17, 1 << 17, 0.0)


def group(nodes: int, ranks: list[int] | None = None, **more: Any) -> NcclGroup:
    cluster = Cluster.preset("dgx-h100", nodes=nodes, **more)
    return NcclGroup(Site(cluster), ranks or range(cluster.world_size))


OVER_NODES = (Algorithm.NVLS, Algorithm.NVLSTree, Algorithm.CollNetDirect)


def test_whose_messages_are_known() -> None:
    one, two, uneven = group(1), group(2), group(2, list(range(5, 14)))
    ragged, alone = group(2, [0, 1, 8]), group(2, [0, 8])
    for op in ("all_reduce", "all_gather"):
        assert has_program(one, op, choice(Algorithm.NVLS))
        assert not has_program(one, op, choice(Algorithm.NVLSTree))
        assert not has_program(one, op, choice(Algorithm.CollNetDirect))
    for algorithm in OVER_NODES:
        assert has_program(two, "all_reduce", choice(algorithm))
        assert not has_program(two, "all_gather", choice(algorithm))
        assert not has_program(uneven, "all_reduce", choice(algorithm))
        assert not has_program(ragged, "all_reduce", choice(algorithm))
    for plain in (Algorithm.Ring, Algorithm.Tree):
        assert not has_program(two, "all_reduce", choice(plain))
    assert has_program(alone, "all_gather", choice(Algorithm.PAT))
    assert not has_program(ragged, "all_gather", choice(Algorithm.PAT))
    assert not has_program(two, "all_gather", choice(Algorithm.PAT))


def test_software_between_nodes_within_them_and_at_a_switch() -> None:
    """What a route takes is in the latency already; a switch is half of a hop away."""
    made, picked = group(2), choice(Algorithm.NVLSTree, 1 << 22)
    ends = [(0, 1), (0, 8), (3, -1), (-1, 4), (9, 8), (1, 0), (8, 0)]
    program = messages(ends, [[]] * 7, 4096.0)
    runs, terms = made.runs("all_reduce", [picked.size], [picked]), default_terms()
    hop = hop_latency(runs, terms)[0] * 1e12
    reach = reach_latency(runs, terms, np.array([4096.0]))[0] * 1e12
    links = np.array([1e5, 2e5, 3e4, hop, 0.0, 0.0, 0.0])
    found = _software(made, picked, program, links)
    assert found == pytest.approx([hop - 1e5, reach - 2e5, hop / 2 - 3e4, 1.0, hop, hop, reach])


@pytest.mark.parametrize(("ranks", "chains"), [(4, [[0, 1]]), (6, [[2, 0, 1], [1, 2, 0]])])
def test_steps_of_chains_that_end_in_the_network(ranks: int, chains: list[list[int]]) -> None:
    """Up a chain of m in steps 0 to m - 2, into the network and out of it, and down again."""
    m, pieces = len(chains[0]), 2
    made = chains_over_nodes(ranks, chains, pieces)
    assert len(made.share) == len(chains) * pieces
    expected = set()
    for channel, chain in enumerate(chains):
        for piece in range(pieces):
            chunk = channel * pieces + piece
            for first in range(0, ranks, m):
                way = [first + place for place in reversed(chain)] + [ranks]
                for step, (a, b) in enumerate(pairwise(way)):
                    expected.add((chunk, a, b, piece + step, True))
                for step, (a, b) in enumerate(pairwise(way[::-1])):
                    expected.add((chunk, a, b, piece + m + step, False))
    of = made.message
    columns = (made.chunk, made.source[of], made.target[of], made.step[of], made.reduce[of])
    assert set(zip(*(column.tolist() for column in columns), strict=True)) == expected


def test_a_tree_ends_after_its_longest_way_up_and_its_longest_way_down() -> None:
    #    2
    #  0   4
    # 1 3
    clock = TreeClock(np.array([2, 0, -1, 0, 2]))
    up, down = [1.0, 10, 20, 30], [1.0, 2, 4, 100]  # of ranks 0, 1, 3 and 4
    scaled = [1.0, 1, 1, 1, 0, 0, 10, 0]
    end = clock.ends(np.array(up + down), np.array(scaled), 1000.0)
    assert end(0.0) == 30 + 100 + 1000  # up from 4 and down to it
    assert end(10.0) == (21 + 20) + (5 + 100) + 1000  # up from 3 and down to it


@pytest.mark.parametrize(("nodes", "algorithm"), [
    (1, Algorithm.NVLS), (3, Algorithm.NVLS), (3, Algorithm.CollNetDirect),
    (3, Algorithm.CollNetChain), (3, Algorithm.NVLSTree),
])  # fmt: skip
def test_a_program_has_as_many_messages_for_each_piece_as_its_pieces_are_chosen_for(
    nodes: int, algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, each = Cluster.preset("dgx-h100", nodes=nodes), list[int]()
    over = Nccl(env={"NCCL_COLLNET_ENABLE": "1"}).group(tuple(range(8 * nodes)), cluster)

    def pieces(count: int) -> int:
        each.append(count)
        return 2

    monkeypatch.setattr(laid_messages, "_pieces", pieces)
    made = laid_messages._shape(over, "all_reduce", choice(algorithm))
    assert [len(np.unique(made.message))] == [2 * count for count in each]
