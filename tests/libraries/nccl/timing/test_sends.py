"""Sends, exchanges and chains by hand: latency, what each peer costs, and the narrowest limit."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.libraries.nccl.timing.constants import TRANSPORTS, default_terms
from commsim.libraries.nccl.timing.edges import hop_latency, reach_latency
from commsim.libraries.nccl.timing.programs import chain_edges
from commsim.libraries.nccl.timing.runs import ChunkShape, LinkKind
from commsim.libraries.nccl.timing.shapes import program_time

TERMS = default_terms()
WIRE = TRANSPORTS.index("slingshot")  # whose proxies lose time
S = float(1 << 26)
WINDOW = float(1 << 19)
NEAR_CHANNEL = float(TERMS.channel[2, 2])


def test_slingshot_loses_part_of_a_nic_in_exchanges():
    assert TERMS.exchange_net[WIRE] < 0.9
    assert TERMS.exchange_net[TRANSPORTS.index("ib")] == 1.0


def blend(sharpness: float, *limits: float) -> float:
    return float(sum(limit**sharpness for limit in limits) ** (1 / sharpness))


def local(port: float) -> float:
    """Return the seconds for a byte on an NVLink of so many seconds for each."""
    return float(port / TERMS.link[2, LinkKind.NVLINK, 2])


def net(wire: float) -> float:
    return float(wire / TERMS.nic[WIRE, 2] / TERMS.exchange_net[WIRE])


def filled(message: float, channels: float, rate: float) -> float:
    return float(TERMS.fill_exchange * min(message / channels, WINDOW) / rate)


@pytest.mark.parametrize(("port", "nic"), [(1e-12, 1e-12), (1e-9, 1e-12), (1e-12, 1e-9)])
@pytest.mark.parametrize("channels", [1.0, 4.0])
@pytest.mark.parametrize("size", [S, 4096.0])
def test_a_send_to_the_next_rank(runs, port, nic, channels, size):
    at = {
        "shape": ChunkShape.PAIR,
        "rounds": 1,
        "size": size,
        "peer_channels": channels,
        "transport": WIRE,
    }
    wires = {"local": port, "net": nic, "longest": 2e-6}
    near_run, far_run = (runs(**at, **wires, ranks=8 * nodes, domains=nodes) for nodes in (1, 2))
    near = hop_latency(near_run, TERMS)[0] + filled(size, channels, NEAR_CHANNEL)
    near += size * blend(16, local(port), 1 / (NEAR_CHANNEL * channels))
    assert program_time(near_run, TERMS)[0] == pytest.approx(near, rel=1e-9)
    way = np.array([2e-6])
    far = reach_latency(far_run, TERMS, np.array([size]), route=way)[0]
    far += filled(size, channels, TERMS.pair_channel)
    far += size * blend(4, net(nic), 1 / (TERMS.pair_channel * channels))
    assert program_time(far_run, TERMS)[0] == pytest.approx(max(near, far), rel=1e-9)


@pytest.mark.parametrize("shape", [ChunkShape.EXCHANGE, ChunkShape.FAN])
@pytest.mark.parametrize(("port", "nic"), [(1e-14, 1e-14), (1e-9, 1e-12), (1e-12, 1e-9)])
@pytest.mark.parametrize(("ranks", "domains", "used"), [
    # channels towards other nodes: two for each rank there, of sixteen
    (8, 1, 2), (9, 3, 12), (16, 2, 16), (12, 2, 12), (4, 2, 4),
])  # fmt: skip
def test_messages_between_one_rank_and_each_other(runs, shape, port, nic, ranks, domains, used):
    run = runs(
        shape=shape, rounds=1, size=S, ranks=ranks, domains=domains, local=port, net=nic,
        longest=2e-6, transport=WIRE,
    )  # fmt: skip
    each = ranks // domains
    outer = ranks - each
    message = S / ranks
    copies = (ranks - 1) / ranks / (NEAR_CHANNEL * 16)
    far = blend(4, net(nic), outer / ranks / (TERMS.pair_channel * used)) if outer else 0.0
    wires = blend(16, blend(16, local(port), far), copies)
    first = (
        reach_latency(run, TERMS, np.array([message]), route=np.array([2e-6]))[0]
        if outer
        else hop_latency(run, TERMS)[0]
    )
    expected = first + (each - 1) * TERMS.exchange_near + outer * TERMS.exchange_peer[WIRE]
    expected += outer * filled(message, 2, TERMS.pair_channel) + wires * S
    assert program_time(run, TERMS)[0] == pytest.approx(expected, rel=1e-9)


def test_a_collective_in_the_network(runs):
    run = runs(
        shape=ChunkShape.COLLNET,
        size=S,
        local=1e-11,
        net=1e-11,
        longest=2e-6,
        hop=1e-6,
        transport=WIRE,
    )
    near = 1e-11 / TERMS.link[2, LinkKind.NVLINK, 2]
    far = 1e-11 / TERMS.nic[WIRE, 2] / TERMS.collnet
    expected = 31e-6 + 2 * (1e-6 + 2e-6) + S * blend(16, near, far)
    assert program_time(run, TERMS)[0] == pytest.approx(expected, rel=1e-9)


def chained(ranks: int, domains: int) -> tuple[int, int]:
    """Return the edges of a chain within domains and between them."""
    return ranks - domains, domains - 1


@pytest.mark.parametrize(("ranks", "domains"), [(2, 1), (2, 2), (3, 1), (4, 2), (3, 3), (16, 2)])
@pytest.mark.parametrize(("port", "nic"), [(1e-14, 1e-14), (1e-8, 1e-14), (1e-14, 1e-8)])
def test_a_chain_of_pieces(runs, ranks, domains, port, nic):
    """Latency of every edge, the first piece over all of them, the rest over the slowest."""
    at = {"shape": ChunkShape.CHAIN, "rounds": 1, "channels": 4, "local": port, "net": nic,
          "ranks": ranks, "domains": domains, "hop": 1e-6, "reach": 2e-6}  # fmt: skip
    inner, nets = chained(ranks, domains)
    for size in (S, 64.0):
        run = runs(**at, size=size)
        edges = chain_edges(run, TERMS)
        near = float(edges.message[0] / edges.local[0]) if inner else 0.0
        far = float(edges.message[0] / edges.net[0]) if nets else 0.0
        hop, reach, count = (float(x[0]) for x in (edges.hop, edges.reach, edges.count))
        assert count == max(size / 4 / (TERMS.fill_chain * WINDOW), 1)
        first = inner * near + nets * far
        rest = (count - 1) * max(near, far)
        expected = inner * hop + nets * reach + first + rest
        assert program_time(run, TERMS)[0] == pytest.approx(expected, rel=1e-9)
        # repeated: one edge of each kind, or an eighth of the way there and back
        once = (near if inner else 0) + (far if nets else 0) + rest
        hidden = (hop if inner else reach) + once
        ahead = max((hop + 1e-6) if inner else 0, (reach + 2e-6) if nets else 0)
        again = program_time(runs(**at, size=size, repeated=True), TERMS)[0]
        assert again == pytest.approx(max(hidden, ahead / 8), rel=1e-9)


def test_a_far_hop_there_and_back_is_what_repeated_chains_wait_for(runs):
    run = runs(shape=ChunkShape.CHAIN, rounds=1, size=64.0, ranks=4, domains=2, hop=1e-6,
               reach=1e-3, repeated=True)  # fmt: skip
    reach = chain_edges(run, TERMS).reach[0]
    assert program_time(run, TERMS)[0] == pytest.approx((reach + 1e-3) / 8, rel=1e-9)
