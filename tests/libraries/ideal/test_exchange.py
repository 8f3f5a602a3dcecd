"""All-to-alls against the cut of the network, whatever its oversubscription."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.share import share_of_each

from commsim.cluster import NOWHERE, Cluster
from commsim.engine import simulate
from commsim.graph import GraphBuilder
from commsim.libraries import Ideal, Request
from commsim.libraries.ideal import exchange
from commsim.libraries.ideal.exchange import in_turns
from commsim.libraries.plan import RoutedProgram
from commsim.libraries.routing import Router

SIZE = 1 << 30


def cut_bound(cluster: Cluster, size: int) -> float:
    """Return the seconds that the busiest link takes for one part of `size` per pair."""
    router, load = Router(cluster), np.zeros(len(cluster.links))
    n = cluster.world_size
    for a in range(n):
        for b in range(n):
            if a != b:
                route = router.route(a, b)
                np.add.at(load, list(route.link), np.array(route.share) * size / n)
    return float(np.max(load / cluster.links.capacity))


def seconds(cluster: Cluster, network: str, op: str = "all_to_all", algo: str = "direct") -> float:
    build = GraphBuilder()
    world = build.group("world", range(cluster.world_size))
    for rank in range(cluster.world_size):
        build.collective(build.lane(rank), world, op, SIZE, stream="c")
    return simulate(build.build(), cluster, library=Ideal(algo), network=network).end_time * 1e-12


def tree(nodes: int, **fabric: Any) -> Cluster:
    return Cluster.preset("pcie-a100", nodes=nodes, fabric={"kind": "fat_tree", **fabric})


@pytest.mark.parametrize(("network", "nodes", "over"), share_of_each(
    product(["fluid", "steps"], [3, 4]), [(1,), (1.5,), (2,), (3,), (8,)], 0.4
))  # fmt: skip
def test_an_all_to_all_takes_what_the_cut_demands(network: str, nodes: int, over: float) -> None:
    cluster = tree(nodes, oversubscription=over, nodes_per_leaf=2)
    assert 1 <= seconds(cluster, network) / cut_bound(cluster, SIZE) <= 1.01


@pytest.mark.parametrize("network", ["fluid", "steps"])
@pytest.mark.parametrize("nodes", [2, 4, 6])
def test_halving_and_doubling_over_a_non_blocking_fabric_does_not_queue(
    network: str, nodes: int
) -> None:
    """One GPU a node: every step is a permutation, half of them across the leaves."""
    cluster = tree(nodes, nodes_per_leaf=nodes // 2)
    ranks = range(0, cluster.world_size, cluster.world_size // nodes)
    build = GraphBuilder()
    group = build.group("g", ranks)
    for rank in ranks:
        build.collective(build.lane(rank), group, "all_gather", SIZE, stream="c")
    found = simulate(build.build(), cluster, library=Ideal("halving_doubling"), network=network)
    speed = Router(cluster).speed(ranks[0], ranks[1])
    expected = (nodes - 1) / nodes * SIZE / speed
    if nodes & (nodes - 1) == 0:
        assert found.end_time * 1e-12 == pytest.approx(expected, rel=0.01)
    else:  # two ranks more than a power of two send their buffer ahead and get it back
        assert found.end_time * 1e-12 <= 3 * expected


@pytest.mark.parametrize("network", ["fluid", "steps"])
@pytest.mark.parametrize("count", [2, 5, 8])
def test_a_permutation_over_a_non_blocking_fabric_takes_its_bytes(network: str, count: int) -> None:
    cluster = tree(2 * count, nodes_per_leaf=count)
    apart = cluster.world_size // 2
    step = apart // count
    build = GraphBuilder()
    world = build.group("world", range(cluster.world_size))
    for rank in range(0, apart, step):
        build.send(build.lane(rank), rank + apart, SIZE, group=world, stream="s")
        build.recv(build.lane(rank + apart), rank, SIZE, group=world, stream="r")
    found = simulate(build.build(), cluster, library=Ideal(), network=network)
    expected = SIZE / Router(cluster).speed(0, apart)
    assert found.end_time * 1e-12 == pytest.approx(expected, rel=1e-3)


def test_pairs_within_nodes_have_what_pairs_over_the_network_leave_them() -> None:
    cluster = Cluster.preset("dgx-a100", nodes=2)
    near, far = Ideal().plan(Request("all_to_all", SIZE, tuple(range(16))), cluster).parts
    use = np.zeros(len(cluster.links))
    for part in (near, far):
        flow = part.phases[0]
        np.add.at(use, flow.link, flow.load / flow.idle * 1e12)
    assert near.idle < far.idle
    assert np.max(use / cluster.links.capacity) == pytest.approx(1.0, rel=0.01)
    assert (use <= cluster.links.capacity * (1 + 1e-9)).all()


def pairs_of(n: int) -> RoutedProgram:
    """Return a message of 48 bytes from each of n members to each other."""
    source, target = np.nonzero(~np.eye(n, dtype=bool))
    count = len(source)
    return RoutedProgram(
        source, target, np.full(count, 48.0), np.arange(count), (NOWHERE,) * count,
        np.zeros(count + 1, np.int64), np.zeros(0, np.int64),
    )  # fmt: skip


@pytest.mark.parametrize(("most", "slices"), [
    (11, 1), (12, 1), (23, 1), (24, 2), (36, 3), (12 * 16, 16), (12 * 17, 16), (32_768, 16),
])  # fmt: skip
def test_connections_send_a_slice_each_in_turn(
    most: int, slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_MOST_MESSAGES", most)
    made = in_turns(pairs_of(4), 4)
    assert len(made.size) == 12 * slices
    assert made.size.tolist() == [48 / slices] * (12 * slices)
    ends = list(zip(made.source.tolist(), made.target.tolist(), strict=True))
    assert ends == ends[:12] * slices
    assert len(set(ends)) == 12
    kept = pairs_of(4)
    assert all(
        (kept.source[route], kept.target[route]) == pair
        for route, pair in zip(made.route.tolist(), ends, strict=True)
    )
    assert made.dep_ptr.tolist() == [0] * (12 * slices + 1)
    assert len(made.dep) == 0


def test_distances_follow_one_another_by_the_golden_ratio() -> None:
    """Of five: parts of 1/phi times 0 to 4 are 0, .618, .236, .854 and .472."""
    made = in_turns(pairs_of(5), 5)
    distance = ((made.target - made.source) % 5).tolist()
    assert distance[:20] == [2] * 5 + [4] * 5 + [1] * 5 + [3] * 5
    assert made.source[:20].tolist() == [0, 1, 2, 3, 4] * 4
