"""Who sends to whom, and how much of S, in each algorithm between and within nodes."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.libraries.expansion import Connections
from commsim.libraries.nccl.env import knobs_of
from commsim.libraries.nccl.plans.edges import CommunicatorEdges, _places
from commsim.libraries.nccl.plans.group import NcclGroup, Site
from commsim.libraries.nccl.shapes import Algorithm


def edges_of(ranks: list[int], nodes: int = 2, *, one_channel: bool = False) -> CommunicatorEdges:
    cluster = Cluster.preset("dgx-h100", nodes=nodes)
    site = Site(cluster, knobs=knobs_of({"NCCL_COLLNET_ENABLE": "1"}))
    edges = NcclGroup(site, ranks).edges
    if one_channel:
        graphs = dict(edges.comm.graphs)
        chain = graphs["collnet_chain"]
        graphs["collnet_chain"] = replace(chain, channels=chain.channels[:1])
        edges.comm = replace(edges.comm, graphs=graphs)
    return edges


def shares(connections: Connections) -> dict[tuple[int, int], float]:
    """Return what goes from each rank to each other, over all NICs."""
    found: dict[tuple[int, int], float] = defaultdict(float)
    ends = zip(connections.source.tolist(), connections.target.tolist(), strict=True)
    for pair, share in zip(ends, connections.share.tolist(), strict=True):
        found[pair] += share
    return dict(found)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 9])
def test_pat_sends_over_every_power_of_two(n: int) -> None:
    """Of n blocks, ceil((n - d) / 2 d) go over distance d: n - 1 in all."""
    edges = edges_of([8 * node for node in range(n)], n)
    found = shares(edges.of(Algorithm.PAT, "all_gather", 1, -1))
    assert {(a // 8, b // 8): share * n for (a, b), share in found.items()} == {
        (rank, (rank + d) % n): -(-(n - d) // (2 * d))
        for rank in range(n)
        for d in (1, 2, 4, 8)
        if d < n
    }
    assert sum(found.values()) == pytest.approx(n - 1)


@pytest.mark.parametrize("one_channel", [False, True])
def test_chains_within_nodes_carry_s_up_and_down(one_channel: bool) -> None:
    edges = edges_of(list(range(16)), one_channel=one_channel)
    chains = edges._along_chains()
    count = len(edges.comm.graphs["collnet_chain"].channels)
    assert (count == 1) is one_channel
    assert chains.share.sum() == pytest.approx(2 * 7 * 2)
    found = shares(chains)
    assert {(b, a) for a, b in found} == set(found)
    assert all(a // 8 == b // 8 for a, b in found)
    out = np.bincount(chains.source, chains.share, 16)
    assert out.max() <= 2 + 1e-9  # both neighbours, but for the ends


@pytest.mark.parametrize(("op", "share"), [
    ("all_reduce", 1.0), ("all_gather", 1 / 2), ("reduce_scatter", 1 / 2),
])  # fmt: skip
def test_what_a_network_that_adds_takes_from_each_node(op: str, share: float) -> None:
    found = shares(edges_of(list(range(16)))._to_neighbours(op))
    assert set(found) == {(rank, (rank + 8) % 16) for rank in range(16)}
    assert list(found.values()) == pytest.approx([share / 8] * 16)
    # of nodes with three and two ranks two take part
    uneven = shares(edges_of([0, 1, 2, 8, 9])._to_neighbours(op))
    assert uneven == pytest.approx(dict.fromkeys([(0, 8), (8, 0), (1, 9), (9, 1)], share / 2))
    assert shares(edges_of([0, 1, 2])._to_neighbours(op)) == {}


@pytest.mark.parametrize(("op", "times"), [
    ("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1),
])  # fmt: skip
def test_heads_take_their_part_from_all_of_their_node_and_hand_it_out(op: str, times: int) -> None:
    found = shares(edges_of([0, 1, 2, 8, 9])._to_heads(op))
    # two heads in each node; rank 2 is none
    within = {(a, b) for node in ((0, 1, 2), (8, 9)) for a in node for b in node if a != b}
    expected = {}
    for a, b in within:
        parts = (op != "all_gather") * (b != 2) + (op != "reduce_scatter") * (a != 2)
        if parts:
            expected[a, b] = parts / 2
    assert found == pytest.approx(expected)
    assert max(found.values()) == times / 2


def test_trees_over_nodes_have_half_of_each_heads_part_both_ways() -> None:
    found = shares(edges_of(list(range(24)), 3)._heads())
    assert all(abs(a - b) % 8 == 0 for a, b in found)
    assert {(b, a) for a, b in found} == set(found)
    assert sum(found.values()) == pytest.approx(2 * 2)  # two edges of a tree, up and down
    assert {round(share * 16, 9) for share in found.values()} <= {1.0, 2.0}


@pytest.mark.parametrize(("op", "root", "missing"), [
    ("broadcast", 5, "target"), ("reduce", 5, "source"),
])  # fmt: skip
def test_chains_end_at_the_root_or_begin_there(op: str, root: int, missing: str) -> None:
    connections = edges_of(list(range(16))).of(Algorithm.Ring, op, 4, root)
    assert connections.share.sum() == pytest.approx(15)
    assert root not in getattr(connections, missing)
    other = "source" if missing == "target" else "target"
    assert (getattr(connections, other) == root).sum() == 4  # on each channel


@pytest.mark.parametrize(("op", "rounds"), [("all_reduce", 2), ("all_gather", 1)])
@pytest.mark.parametrize("channels", [1, 3, 40])
def test_rings_send_n_less_one_parts_over_every_edge(op: str, rounds: int, channels: int) -> None:
    edges = edges_of(list(range(16)))
    connections = edges.of(Algorithm.Ring, op, channels, -1)
    assert len(connections.source) == 16 * channels
    out = np.bincount(connections.source, connections.share, 16)
    into = np.bincount(connections.target, connections.share, 16)
    assert out == pytest.approx(np.full(16, rounds * 15 / 16))
    assert into == pytest.approx(out)
    trees = edges.of(Algorithm.Tree, op, channels, -1)
    assert trees.share.sum() == pytest.approx(2 * 15)


def test_fans_and_exchanges_have_an_nth_for_each() -> None:
    edges = edges_of([0, 1, 2, 3])
    every = shares(edges.exchange())
    assert every == dict.fromkeys([(a, b) for a in range(4) for b in range(4) if a != b], 0.25)
    assert shares(edges.fan(2, gather=True)) == dict.fromkeys([(0, 2), (1, 2), (3, 2)], 0.25)
    assert shares(edges.fan(2, gather=False)) == dict.fromkeys([(2, 0), (2, 1), (2, 3)], 0.25)


def test_places_within_nodes() -> None:
    assert _places(np.array([0, 1, 0, 0, 1, 2])).tolist() == [0, 0, 1, 2, 1, 0]


@pytest.mark.parametrize(("without", "pairs", "named"), [
    ([3], [(0, 8), (3, 9)], 3),
    ([3], [(0, 8), (8, 3)], 3),  # it cannot be entered either
    ([3, 9], [(0, 8), (0, 9), (3, 8)], 9),  # the first that is met
    ([3, 9], [(0, 8), (3, 9), (8, 0)], 3),
])  # fmt: skip
def test_the_rank_without_a_nic_is_named(
    without: list[int], pairs: list[tuple[int, int]], named: int
) -> None:
    edges = edges_of(list(range(16)))
    edges._nics.count[without] = 0
    edges._pxn = False
    source, target = np.array(pairs).T
    with pytest.raises(ScenarioError, match=f"rank {named} has no NIC to leave its node by"):
        edges.pairs(source, target, 1.0)
    assert len(edges.pairs(source[:1], target[:1], 1.0).source) == 1
