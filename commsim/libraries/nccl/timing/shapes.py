"""
The program of each shape, timed: rings, chains, trees, NVLS, all-to-all and the rest.

Each function takes runs of its own shape and returns seconds from the end of the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from commsim.arrays import Floats
from commsim.libraries.nccl.shapes import Protocol
from commsim.libraries.nccl.timing.clocks import ring_time
from commsim.libraries.nccl.timing.constants import Terms
from commsim.libraries.nccl.timing.edges import hop_latency, nic_rate, reach_latency
from commsim.libraries.nccl.timing.programs import (
    Edges,
    chain_edges,
    levels_of,
    ring_edges,
    tree_edges,
    tree_flows,
)
from commsim.libraries.nccl.timing.runs import LinkKind, Runs, Shape

__all__ = ["program_time"]


_NVLS_WINDOW, _NVLS_TREE_WINDOW = 131072.0, 262144.0
_COLLNET = 31e-6  # seconds: NCCL's own table for CollNetDirect; no measurement has it
_PAT_RANK = 1e-6  # seconds per rank: of the size of NCCL's own 2.8 us / 3.5; not measured


def program_time(runs: Runs, terms: Terms) -> Floats:
    """Return the seconds of each run's program on an idle cluster."""
    found = np.zeros(len(runs))
    for shape, clock in _CLOCKS.items():
        chosen = runs.shape == shape
        if chosen.any():
            found[chosen] = clock(runs.at(chosen), terms)
    return np.where(runs.ranks > 1, found, 0.0)


def _ring(runs: Runs, terms: Terms) -> Floats:
    """Time rounds x (n - 1) steps around the ring, cut over the channels."""
    edges = ring_edges(runs, terms)
    period = np.where(runs.crosses, runs.per_domain, 1.0)
    local, net = (edges.hop, edges.local_service), (edges.reach, edges.net_service)
    return ring_time(edges.count, period, local, net)


def _chain(runs: Runs, terms: Terms) -> Floats:
    """Time S along the ring in pieces, from or to the root.

    In the per-iteration time of nccl-tests the chain's latency hides behind the iterations
    before, but for Simple, whose sender waits until its receiver has posted its buffer.
    """
    edges, nets = chain_edges(runs, terms), runs.domains - 1
    inner = runs.ranks - 1 - nets
    latency = inner * edges.hop + nets * edges.reach
    hidden = runs.repeated & (runs.protocol != Protocol.Simple)
    latency = np.where(hidden, edges.hop, latency)
    return latency + _filled(edges, inner, nets)


def _tree(runs: Runs, terms: Terms) -> Floats:
    """Time an all-reduce up and down a double binary tree of chains."""
    edges = tree_edges(runs, terms)
    inner, nets = 2 * (runs.per_domain - 1), 2 * levels_of(runs)
    return inner * edges.hop + nets * edges.reach + _filled(edges, inner, nets)


def _filled(edges: Edges, inner: Floats, nets: Floats) -> Floats:
    """Return the services of a chain: the first message's on all edges, the rest's on one."""
    local, net = edges.local_service, edges.net_service
    slowest = np.maximum(np.where(inner > 0, local, 0.0), np.where(nets > 0, net, 0.0))
    time: Floats = inner * local + nets * net + (edges.count - 1) * slowest
    return time


def _switch_time(runs: Runs, terms: Terms, bus: Floats) -> Floats:
    """Return the seconds of `bus` bytes per GPU through a switch that reduces and multicasts.

    A GPU sends its whole buffer and a reduced share of it, however the bus bandwidth counts.
    """
    # Only where the switch adds up does a port carry less than the bus bandwidth counts.
    plain = terms.link[LinkKind.NVLINK, Protocol.Simple]
    share = np.where(runs.rounds > 1, terms.nvls_bus[runs.generation], plain)
    wire = (runs.rounds - 1) * (1 + 1 / runs.per_domain) * runs.size
    time: Floats = np.maximum(bus / share, wire) / runs.port
    return time


def _nvls(runs: Runs, terms: Terms) -> Floats:
    """Time a collective of one domain in its switch."""
    bus = runs.rounds * (runs.ranks - 1) / runs.ranks * runs.size
    window = terms.fill_nvls * np.minimum(runs.size / 8, _NVLS_WINDOW * runs.channels)
    return terms.nvls + _switch_time(runs, terms, bus + 2 * window)


def _nvls_tree(runs: Runs, terms: Terms) -> Floats:
    """Time an all-reduce in the switches of the domains, and a double tree between them."""
    bus = 2 * (runs.per_domain - 1) / runs.per_domain * runs.size
    flows, share = tree_flows(runs, terms)
    hops = 2 * levels_of(runs)
    reach = reach_latency(runs, terms, runs.size / runs.channels)
    window = terms.fill_nvls_tree * np.minimum(runs.size / 8, _NVLS_TREE_WINDOW * runs.channels)
    wires = nic_rate(runs, terms)
    body = np.maximum(_switch_time(runs, terms, bus), runs.size * flows / (wires * share))
    return terms.nvls + hops * reach + (hops + 2) * window / wires + body


def _collnet(runs: Runs, terms: Terms) -> Floats:
    """Time a collective that the network's switches reduce."""
    bus = runs.rounds * (runs.per_domain - 1) / runs.per_domain * runs.size
    local = bus / (runs.port * terms.link[runs.link, runs.protocol])
    return _COLLNET + np.maximum(local, runs.size / nic_rate(runs, terms))


def _pat(runs: Runs, terms: Terms) -> Floats:
    """Time an all-gather or reduce-scatter of one GPU per node in parallel aggregated trees."""
    reach = reach_latency(runs, terms, runs.size / (runs.ranks * runs.channels))
    bytes_out = (runs.ranks - 1) / runs.ranks * runs.size
    return levels_of(runs) * reach + _PAT_RANK * runs.ranks + bytes_out / nic_rate(runs, terms)


def _exchange(runs: Runs, terms: Terms) -> Floats:
    """Time a message from each to each, within the domain and beyond at the same time."""
    message, inner = runs.size / runs.ranks, runs.per_domain - 1
    outer = runs.ranks - runs.per_domain
    port = runs.port * terms.link[runs.link, runs.protocol]
    wires = nic_rate(runs, terms) * terms.exchange_net[runs.transport]
    far = np.where(runs.crosses, runs.per_domain * message * outer / wires, 0.0)
    peers = inner * terms.hop[runs.link, 0] + outer * terms.exchange_peer
    first = np.where(runs.crosses, reach_latency(runs, terms, message), hop_latency(runs, terms))
    time: Floats = first + peers + np.maximum(message * inner / port, far)
    return time


def _pair(runs: Runs, terms: Terms) -> Floats:
    """Time S from each rank to the next one around the ring."""
    port = runs.port * terms.link[runs.link, runs.protocol]
    wire = _own_nic_rate(runs, terms) * terms.pair_net
    near = hop_latency(runs, terms) + runs.size / port
    far = reach_latency(runs, terms, runs.size) + runs.size / wire
    return np.where(runs.crosses, far, near)


def _own_nic_rate(runs: Runs, terms: Terms) -> Floats:
    """Return the payload bytes/s of the NICs nearest to one GPU."""
    count = np.maximum(np.floor(runs.nics / runs.per_domain), 1.0)
    own = count * runs.nic_rate * terms.nic[runs.transport, runs.protocol]
    rate: Floats = np.minimum(np.maximum(own, 1.0), nic_rate(runs, terms))
    return rate


def _fan(runs: Runs, terms: Terms) -> Floats:
    """Time a message between one rank and each other: through its port, and its own NICs."""
    message, inner = runs.size / runs.ranks, runs.per_domain - 1
    outer = runs.ranks - runs.per_domain
    port = runs.port * terms.link[runs.link, runs.protocol]
    far = np.where(runs.crosses, message * outer / _own_nic_rate(runs, terms), 0.0)
    first = np.where(runs.crosses, reach_latency(runs, terms, message), hop_latency(runs, terms))
    peers = inner * terms.hop[runs.link, 0] + outer * terms.exchange_peer
    time: Floats = first + peers + np.maximum(message * inner / port, far)
    return time


_CLOCKS: Mapping[Shape, Callable[[Runs, Terms], Floats]] = MappingProxyType(
    {
        Shape.RING: _ring,
        Shape.CHAIN: _chain,
        Shape.TREE: _tree,
        Shape.NVLS: _nvls,
        Shape.NVLS_TREE: _nvls_tree,
        Shape.COLLNET: _collnet,
        Shape.PAT: _pat,
        Shape.EXCHANGE: _exchange,
        Shape.PAIR: _pair,
        Shape.FAN: _fan,
    }
)
