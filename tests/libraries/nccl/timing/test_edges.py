"""Latencies and rates of single edges, worked out by hand from the constants."""

from __future__ import annotations

from itertools import product

import msgspec
import numpy as np
import pytest

from commsim.libraries.nccl.timing.constants import TRANSPORTS, default_terms
from commsim.libraries.nccl.timing.edges import (
    hop_latency,
    larger,
    local_time,
    net_copy,
    net_time,
    net_wait,
    reach_latency,
    wire_rate,
)
from commsim.libraries.nccl.timing.runs import ChunkShape, LinkKind, NicWay
from commsim.libraries.nccl.timing.shapes import program_time

TERMS = default_terms()
SLINGSHOT, TCP = TRANSPORTS.index("slingshot"), TRANSPORTS.index("tcp")
IB = TRANSPORTS.index("ib")


def test_two_equal_limits_blend_and_a_far_one_does_not_count():
    one = np.ones(1)
    assert larger(one, one)[0] == pytest.approx(2 ** (1 / 16), rel=1e-12)
    assert larger(one, one, 4.0)[0] == pytest.approx(2 ** (1 / 4), rel=1e-12)
    assert larger(3 * one, one)[0] == larger(one, 3 * one)[0]
    assert larger(3 * one, one)[0] == pytest.approx(3 * (1 + 3.0**-16) ** (1 / 16), rel=1e-12)
    assert larger(3 * one, 0 * one)[0] == 3.0
    assert larger(0 * one, 0 * one)[0] == 0.0
    assert larger(np.array([1e-30]), 0 * one)[0] == 1e-30


def test_a_hop_is_its_route_and_its_software(runs):
    for link, protocol in product(LinkKind, range(3)):
        run = runs(link=link, protocol=protocol, hop=3e-6)
        assert hop_latency(run, TERMS)[0] == pytest.approx(3e-6 + TERMS.hop[link, protocol])


@pytest.mark.parametrize(("way", "protocol"), [(NicWay.ROOT, 0), (NicWay.DIRECT, 2)])
@pytest.mark.parametrize(("domains", "doublings"), [(1, 0), (2, 0), (4, 1), (6, np.log2(3))])
def test_a_hop_between_domains_and_what_more_of_them_add(runs, way, protocol, domains, doublings):
    run = runs(way=way, protocol=protocol, domains=domains, reach=2e-6, transport=IB)
    root = TERMS.root if way is NicWay.ROOT else 0.0
    software = TERMS.net[IB] + TERMS.net_protocol[protocol] + root
    message = np.array([1e6])
    wait = software * TERMS.skew * doublings
    assert net_wait(run, TERMS, message)[0] == pytest.approx(wait)
    assert reach_latency(run, TERMS, message)[0] == pytest.approx(2e-6 + software + wait)
    by_route = reach_latency(run, TERMS, message, route=np.array([5e-6]))[0]
    assert by_route == pytest.approx(5e-6 + software + wait)


@pytest.mark.parametrize(("protocol", "message", "times"), [
    (0, 2048.0, 0), (0, 2049.0, 1), (1, 2049.0, 0), (2, 1e9, 0),
])  # fmt: skip
def test_ll_beyond_4_kib_on_the_wire_makes_a_rendezvous(runs, protocol, message, times):
    for transport in range(len(TRANSPORTS)):
        run = runs(protocol=protocol, transport=transport)
        few, many = (reach_latency(run, TERMS, np.array([size]))[0] for size in (1.0, message))
        assert many - few == pytest.approx(times * TERMS.rendezvous[transport])
        assert (TERMS.rendezvous[transport] > 0) == (transport == SLINGSHOT)


@pytest.mark.parametrize(("shape", "least"), [
    # bytes of S with which a message between nodes has 2048 bytes: 16 ranks, 4 channels
    (ChunkShape.RING, 2048 * 16 * 4),
    (ChunkShape.CHAIN, 2048 * 4),
    (ChunkShape.TREE, 2048 * 4),
    (ChunkShape.NVLS_TREE, 2048 * 4),
    (ChunkShape.PAT, 2048 * 16 * 4),
    (ChunkShape.EXCHANGE, 2048 * 16),
    (ChunkShape.FAN, 2048 * 16),
    (ChunkShape.PAIR, 2048),
])  # fmt: skip
def test_which_part_of_a_buffer_a_message_is(runs, shape, least):
    """Slingshot tells: a message of more makes a rendezvous, one of as much none."""
    rounds = 2 if shape in (ChunkShape.RING, ChunkShape.TREE, ChunkShape.NVLS_TREE) else 1
    sizes = least + np.array([-2.0, 0.0, 2.0])
    run = runs(shape=shape, rounds=rounds, size=sizes, channels=4, protocol=0, transport=SLINGSHOT)
    below, at, above = program_time(run, TERMS)
    rendezvous = TERMS.rendezvous[SLINGSHOT]
    assert at - below < 0.01 * rendezvous
    assert above - at > 0.3 * rendezvous


def test_lines_of_ll_are_fetched_one_after_another(runs):
    """A window of them at a time; the first belongs to the latency."""
    copy, message = np.array([1e30]), np.array([1e6])

    def rate(protocol, window, size=message, threads=1.0):
        run = runs(protocol=protocol, window=window)
        return net_copy(run, TERMS, copy, size, threads)[0]

    assert rate(0, 4096.0) == pytest.approx(1 / (TERMS.fetch * (1 / 4096 - 1e-6)))
    assert rate(0, 4096.0, threads=0.25) == pytest.approx(1 / (TERMS.fetch * (1 / 1024 - 1e-6)))
    for fetched in (4096.0, 1.0, 0.0):  # one turn: no line more than the first
        assert rate(0, 4096.0, np.array([fetched])) == pytest.approx(1e30)
    assert rate(0, 0.0) == pytest.approx(1e30)
    assert rate(1, 4096.0) == rate(2, 4096.0) == 1e30
    slow = net_copy(runs(protocol=0, window=4096.0), TERMS, np.array([1.0]), message)[0]
    assert slow == pytest.approx(1.0)


def test_a_byte_on_the_busiest_link_of_a_domain(runs):
    for generation, link in product(range(4), LinkKind):
        run = runs(generation=generation, link=link, protocol=1, local=2e-12)
        share = TERMS.link[generation, link, 1]
        assert local_time(run, TERMS)[0] == pytest.approx(2e-12 / share)


@pytest.mark.parametrize("way", NicWay)
@pytest.mark.parametrize("transport", [IB, TCP])
@pytest.mark.parametrize(("protocol", "generation"), [(0, 2), (1, 1), (2, 0)])
def test_a_byte_on_the_busiest_link_between_domains(runs, protocol, transport, generation, way):
    """GPUs before Ampere lose an eighth; hosts that stage, and sockets, have rates of their own."""
    run = runs(
        protocol=protocol, transport=transport, generation=generation, way=way,
        net=1e-10, leaving=3.0,
    )  # fmt: skip
    wires = 1e-10 / TERMS.nic[transport, protocol]
    if generation == 0:
        wires *= 1.125
    if way is NicWay.ROOT:
        wires /= TERMS.root_rate
    staged = 3.0 / TERMS.staged if way is NicWay.STAGED else 0.0
    sockets = 3.0 / TERMS.tcp if transport == TCP else 0.0
    blended = sum(limit**16 for limit in (wires, staged, sockets)) ** (1 / 16)
    assert net_time(run, TERMS)[0] == pytest.approx(blended, rel=1e-9)


def test_an_edge_carries_its_share_of_the_wires():
    copy, wire = np.array([10.0, 1e30]), np.array([1e-30, 1 / 40])
    share = np.array([0.25, 0.25])
    assert wire_rate(copy, wire, share) == pytest.approx([10.0, 10.0])


def test_ranks_of_a_domain_are_whole_and_one_at_least(runs):
    found = []
    for ranks, domains in ((16, 2), (15, 2), (3, 4), (2, 1), (1, 1)):
        run = msgspec.structs.replace(
            runs(), ranks=np.array([float(ranks)]), domains=np.array([float(domains)])
        )
        found.append((run.per_domain[0], run.crosses[0], program_time(run, TERMS)[0] > 0))
    assert found == [
        (8, True, True), (7, True, True), (1, True, True), (2, False, True), (1, False, False),
    ]  # fmt: skip
