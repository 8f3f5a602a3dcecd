"""The chunk programs, stepped message by message, take what the closed forms say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from commsim.libraries.expansion.ring_clock import ring_arrivals
from commsim.libraries.nccl.timing.constants import TRANSPORTS, default_terms
from commsim.libraries.nccl.timing.programs import (
    ProgramEdges,
    branch_delay,
    chain_edges,
    levels_of,
    ring_edges,
    tree_edges,
    tree_share,
)
from commsim.libraries.nccl.timing.runs import ChunkShape
from commsim.libraries.nccl.timing.shapes import program_time

TERMS = default_terms()
CASES = [
    (n, domains, size, protocol)
    for n, domains in ((8, 1), (16, 2), (32, 4), (4, 4), (24, 3))
    for size in (256, 1 << 16, 1 << 22, 1 << 30)
    for protocol in (0, 1, 2)
]


def stepped_chain(edges: Sequence[tuple[float, float, float]], messages: int) -> float:
    """Return when the last message has passed all edges, first in first out.

    An edge is (latency, seconds that a message takes to pass, seconds until the next may start).
    """
    free = [0.0] * len(edges)
    at = 0.0
    for _ in range(messages):
        at = 0.0
        for place, (latency, transit, service) in enumerate(edges):
            start = max(at, free[place])
            free[place] = start + service
            at = start + transit + latency
    return at


def kinds_of(edges: ProgramEdges) -> tuple[tuple[float, float, float], ...]:
    """Return an edge within a domain and one between domains."""
    return (
        (float(edges.hop[0]), float(edges.local_transit[0]), float(edges.local_service[0])),
        (float(edges.reach[0]), float(edges.net_transit[0]), float(edges.net_service[0])),
    )


@pytest.mark.parametrize(("n", "domains", "size", "protocol"), CASES)
def test_a_ring_program_takes_its_closed_form(runs, n, domains, size, protocol):
    run = runs(size=size, ranks=n, domains=domains, protocol=protocol)
    edges = ring_edges(run, TERMS)
    inner = int(run.per_domain[0]) if domains > 1 else n
    hops = [float(edges.hop[0])] * (inner - 1) + [float(edges.reach[0])]
    services = [float(edges.local_service[0])] * (inner - 1) + [float(edges.net_service[0])]
    count = max(domains, 1)
    last = ring_arrivals(np.array(hops * count), np.array(services * count), int(edges.count[0]))
    expected = float(edges.start[0]) + last.max()
    assert program_time(run, TERMS)[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.share(0.4)
@pytest.mark.parametrize(("n", "domains", "size", "protocol"), CASES)
def test_a_tree_program_takes_its_closed_form(runs, n, domains, size, protocol):
    run = runs(shape=ChunkShape.TREE, size=size, ranks=n, domains=domains, protocol=protocol)
    edges = tree_edges(run, TERMS)
    local, net = kinds_of(edges)
    depth = {1: 0, 2: 1, 3: 2, 4: 2}[domains]  # of NCCL's binary tree
    up = [local] * (n // domains - 1) + [net] * depth
    messages = round(float(edges.count[0]))
    if abs(messages - edges.count[0]) > 1e-9:
        pytest.skip("the last message is a smaller one")
    expected = stepped_chain(up + up[::-1], messages)
    assert program_time(run, TERMS)[0] == pytest.approx(expected, rel=1e-9)


def test_a_tree_over_three_domains_copies_as_much_as_over_any_more(runs):
    """Where no wire limits it, a GPU's copies do: three flows each way, two between two domains."""
    wide = {"shape": ChunkShape.TREE, "port": 1e30, "nics": 1, "nic_rate": 1e30, "size": 1 << 30}
    two, three, four, eight = (
        float(tree_edges(runs(ranks=8 * domains, domains=domains, **wide), TERMS).local[0])
        for domains in (2, 3, 4, 8)
    )
    assert three == pytest.approx(four, rel=1e-9)
    assert four == pytest.approx(eight, rel=1e-9)
    assert three == pytest.approx(two * TERMS.tree_far * 2 / 3, rel=1e-9)


@pytest.mark.parametrize("domains", [1, 2, 4])
def test_a_single_broadcast_takes_its_chain(runs, domains):
    run = runs(
        shape=ChunkShape.CHAIN,
        size=1 << 26,
        ranks=8 * domains,
        domains=domains,
        rounds=1,
        channels=8,
    )
    edges = chain_edges(run, TERMS)
    local, net = kinds_of(edges)
    chain = ([local] * 7 + [net]) * (domains - 1) + [local] * 7
    whole = int(edges.count[0])
    few, more = (stepped_chain(chain, count) for count in (whole, whole + 1))
    assert few * (1 - 1e-12) <= program_time(run, TERMS)[0] <= more


def test_a_chain_that_comes_back_to_its_first_domain_crosses_once_more(runs):
    """Of 15 edges three cross instead of one: two hops more of those, two fewer of the others."""
    chain = {"shape": ChunkShape.CHAIN, "size": 1024, "rounds": 1, "protocol": 0}
    one, three = (runs(**chain, crossings=count) for count in (1, 3))
    edges = chain_edges(one, TERMS)
    more = edges.reach - edges.hop + edges.net_transit - edges.local_transit
    assert program_time(three, TERMS) - program_time(one, TERMS) == pytest.approx(2 * more)
    often, seldom = (program_time(runs(**chain, crossings=c, repeated=True), TERMS) for c in (3, 1))
    assert often == pytest.approx(seldom)  # hidden behind the iterations before


@pytest.mark.parametrize(("make", "shape", "carried"), [
    (ring_edges, ChunkShape.RING, 2 * 15 / 16),
    (chain_edges, ChunkShape.CHAIN, 1.0),
    (tree_edges, ChunkShape.TREE, 1.0),
])  # fmt: skip
@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_messages_add_up_to_what_an_edge_carries(runs, make, shape, carried, protocol):
    run = runs(shape=shape, size=1 << 28, protocol=protocol)
    edges = make(run, TERMS)
    assert edges.message[0] * edges.count[0] * 16 == pytest.approx(carried * (1 << 28), rel=1e-12)
    # a piece is cut where it fills what its buffer holds back, at least into one
    held = {
        ChunkShape.RING: [(1 << 28) / 256] * 3,
        ChunkShape.CHAIN: [2.0**19 / 8] * 2 + [2.0**19 * TERMS.fill_chain],
        ChunkShape.TREE: [2.0**19 / 8] * 2 + [2.0**19 * TERMS.fill_tree[2]],
    }[shape][protocol]
    assert edges.message[0] == pytest.approx(held, rel=1e-12)
    assert make(runs(shape=shape, size=16.0, protocol=protocol), TERMS).count[0] == (
        30 if shape is ChunkShape.RING else 1
    )


@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_the_first_message_up_a_tree_meets_nothing_coming_down(runs, protocol):
    run = runs(shape=ChunkShape.TREE, size=1 << 22, ranks=32, domains=4, protocol=protocol)
    edges = tree_edges(run, TERMS)
    assert edges.local_transit[0] < edges.local_service[0] / 2
    assert edges.net_transit[0] < edges.net_service[0]


def test_no_edge_has_a_negative_latency(runs):
    sizes = 2.0 ** np.arange(3, 36)
    for transport in range(len(TRANSPORTS)):
        for protocol in range(3):
            run = runs(size=sizes, transport=transport, protocol=protocol)
            for make in (ring_edges, chain_edges, tree_edges):
                edges = make(run, TERMS)
                assert (edges.hop >= 0).all()
                assert (edges.reach >= 0).all()


@pytest.mark.parametrize(("ranks", "domains", "flows"), [
    (2, 1, 1), (2, 2, 1), (3, 1, 2), (8, 1, 2), (4, 2, 2), (16, 2, 2), (3, 3, 3), (24, 3, 3),
])  # fmt: skip
@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_a_trees_busiest_gpu_copies_so_many_flows(runs, ranks, domains, flows, protocol):
    """Where no wire limits it; what meets no other flow has a channel's whole rate."""
    run = runs(
        shape=ChunkShape.TREE, ranks=ranks, domains=domains, protocol=protocol, size=1 << 30,
        port=1e30, nics=1, nic_rate=1e30,
    )  # fmt: skip
    copy = TERMS.channel[2, protocol] * (TERMS.tree_far if domains > 2 else 1)
    edges = tree_edges(run, TERMS)
    assert edges.local[0] == pytest.approx(copy / flows, rel=1e-9)
    assert edges.local_alone[0] == pytest.approx(copy, rel=1e-9)


@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_what_wires_leave_to_the_channels_of_a_tree(runs, protocol):
    """Slow wires, each counted both ways: the first message up has them twice over."""
    at = {"shape": ChunkShape.TREE, "protocol": protocol, "size": 1 << 30}
    for domains in (2, 3):
        run = runs(ranks=8 * domains, domains=domains, local=1e-6, net=2e-6, **at)
        edges = tree_edges(run, TERMS)
        near = TERMS.link[2, 0, protocol] / (16 * 1e-6)
        left = TERMS.tree_net if domains > 2 else 1.0
        far = TERMS.nic[0, protocol] * left / (16 * 2e-6)
        assert edges.local[0] == pytest.approx(near, rel=1e-3)
        assert edges.net[0] == pytest.approx(far, rel=1e-3)
        assert edges.local_alone[0] == pytest.approx(2 * near, rel=1e-3)
        assert edges.net_alone[0] == pytest.approx(2 * far, rel=1e-3)


@pytest.mark.parametrize(("domains", "levels"), [
    (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4),
])  # fmt: skip
def test_levels_and_branches_of_a_tree(runs, domains, levels):
    run = runs(ranks=8 * domains, domains=domains, reach=2e-6, longest=5e-6)
    assert levels_of(run)[0] == levels
    assert branch_delay(run)[0] == pytest.approx(6e-6 if domains > 1 else 0.0)
    assert tree_share(run, TERMS)[0] == (TERMS.tree_net if domains > 2 else 1.0)
