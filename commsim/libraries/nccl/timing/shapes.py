"""
The program of each shape, timed: rings, chains, trees, NVLS, all-to-all and the rest.

Each function takes runs of its own shape and returns seconds from the end of the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from commsim.arrays import Floats
from commsim.libraries.nccl.timing.clocks import ring_time
from commsim.libraries.nccl.timing.constants import Terms
from commsim.libraries.nccl.timing.edges import (
    SENDS,
    channel_rate,
    hop_latency,
    larger,
    local_time,
    net_time,
    reach_latency,
)
from commsim.libraries.nccl.timing.programs import (
    ProgramEdges,
    branch_delay,
    chain_edges,
    levels_of,
    ring_edges,
    tree_edges,
    tree_share,
)
from commsim.libraries.nccl.timing.runs import ChunkShape, Runs
from commsim.libraries.nccl.tuning import STEPS

__all__ = ["program_time"]


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
    return edges.start + ring_time(edges.count, period, local, net)


def _chain(runs: Runs, terms: Terms) -> Floats:
    """Time S along the ring in pieces, from or to the root.

    In the per-iteration time of nccl-tests the chain's latency and its filling hide behind the
    iterations before, as far as a connection's buffer has steps for them.
    """
    edges, nets = chain_edges(runs, terms), runs.crossings
    inner = runs.ranks - 1 - nets
    alone = inner * edges.hop + nets * edges.reach + _filled(edges, inner, nets)
    one = np.where(inner > 0, 1.0, 0.0)
    hidden = np.where(inner > 0, edges.hop, edges.reach) + _filled(
        edges, one, np.minimum(nets, 1.0)
    )
    ahead = np.maximum(
        np.where(inner > 0, edges.hop + runs.hop, 0.0),
        np.where(nets > 0, edges.reach + runs.reach, 0.0),
    )
    return np.where(runs.repeated, np.maximum(hidden, ahead / STEPS), alone)


def _tree(runs: Runs, terms: Terms) -> Floats:
    """Time an all-reduce up and down a double binary tree of chains."""
    edges = tree_edges(runs, terms)
    inner, nets = 2 * (runs.per_domain - 1), 2 * levels_of(runs)
    time = inner * edges.hop + nets * edges.reach + branch_delay(runs)
    return time + _filled(edges, inner, nets)


def _filled(edges: ProgramEdges, inner: Floats, nets: Floats) -> Floats:
    """Return the services of a chain: the first message's on all edges, the rest's on one."""
    slowest = np.maximum(
        np.where(inner > 0, edges.local_service, 0.0), np.where(nets > 0, edges.net_service, 0.0)
    )
    first = inner * edges.local_transit + nets * edges.net_transit
    time: Floats = first + (edges.count - 1) * slowest
    return time


def _switch_time(runs: Runs, terms: Terms) -> Floats:
    """Return the seconds for a byte of S through a switch that reduces and multicasts.

    Of what a GPU sends and takes, its own reduced part (1/n) is not felt: 4, 8 and 72 GPUs take
    as long for a byte of S.
    """
    own = np.where(runs.rounds > 1, 1 + 1 / runs.per_domain, 1.0)
    added = runs.local / own / terms.nvls_share[runs.generation]
    time: Floats = np.where(runs.rounds > 1, added, local_time(runs, terms))
    return time


def _nvls(runs: Runs, terms: Terms) -> Floats:
    """Time a collective of one domain in its switch: to it and back, and a loop of chunks more."""
    filled = runs.size + terms.fill_nvls * np.minimum(runs.size, runs.loop)
    return terms.nvls + 2 * runs.hop + _switch_time(runs, terms) * filled + _chunks(runs, terms)


def _chunks(runs: Runs, terms: Terms) -> Floats:
    """Return what a GPU's channels lose between the chunks of S that they take to the switch."""
    lost: Floats = terms.nvls_chunk * runs.size / (runs.channels * runs.window)
    return lost


def _nvls_tree(runs: Runs, terms: Terms) -> Floats:
    """Time an all-reduce in the switches of the domains, and a double tree between them.

    Each stage (a hop of the tree, the switch at either end) holds a loop of chunks back.
    """
    hops = 2 * levels_of(runs)
    reach = reach_latency(runs, terms, runs.size / runs.channels)
    wires = net_time(runs, terms) / tree_share(runs, terms) * runs.size
    switch = _switch_time(runs, terms) * runs.size + _chunks(runs, terms)
    body = larger(switch / terms.nvls_tree, wires)
    stage = terms.fill_nvls_tree * body * np.minimum(1.0, runs.loop / np.maximum(runs.size, 1.0))
    latency = terms.nvls + 2 * runs.hop + hops * reach + branch_delay(runs)
    return latency + (hops + 2) * stage + body


def _collnet(runs: Runs, terms: Terms) -> Floats:
    """Time a collective that the network's switches reduce."""
    local, net = local_time(runs, terms), net_time(runs, terms) / terms.collnet
    return _COLLNET + 2 * (runs.hop + runs.longest) + larger(local, net) * runs.size


def _pat(runs: Runs, terms: Terms) -> Floats:
    """Time an all-gather or reduce-scatter of one GPU per node in parallel aggregated trees."""
    reach = reach_latency(runs, terms, runs.size / (runs.ranks * runs.channels), route=runs.longest)
    wires = larger(local_time(runs, terms), net_time(runs, terms))
    return levels_of(runs) * reach + _PAT_RANK * runs.ranks + wires * runs.size


def _exchange(runs: Runs, terms: Terms) -> Floats:
    """Time a message between one rank and each other, or each and each.

    A GPU's channels copy its messages, and its proxies hand those beyond the domain to the NIC
    one after another.
    """
    inner, outer = runs.per_domain - 1, runs.ranks - runs.per_domain
    message = runs.size / runs.ranks
    far = net_time(runs, terms) / terms.exchange_net[runs.transport]
    copies = (runs.ranks - 1) / runs.ranks / (channel_rate(runs, terms) * runs.channels)
    used = np.minimum(np.maximum(outer, 1.0) * runs.peer_channels, runs.channels)
    far = larger(far, outer / runs.ranks / (terms.pair_channel * used), SENDS)
    wires = larger(larger(local_time(runs, terms), np.where(runs.crosses, far, 0.0)), copies)
    first = np.where(
        runs.crosses,
        reach_latency(runs, terms, message, route=runs.longest),
        hop_latency(runs, terms),
    )
    peers = inner * terms.exchange_near + outer * terms.exchange_peer[runs.transport]
    filled = _filling(runs, terms, message, near=False) * outer
    return first + peers + filled + wires * runs.size


def _pair(runs: Runs, terms: Terms) -> Floats:
    """Time S from each rank to the next one around the ring, on the channels of one peer."""
    near = hop_latency(runs, terms) + runs.size * larger(
        local_time(runs, terms), 1 / (channel_rate(runs, terms) * runs.peer_channels)
    )
    far = reach_latency(runs, terms, runs.size, route=runs.longest) + runs.size * larger(
        net_time(runs, terms) / terms.exchange_net[runs.transport],
        1 / (terms.pair_channel * runs.peer_channels),
        SENDS,
    )
    near += _filling(runs, terms, runs.size, near=True)
    far += _filling(runs, terms, runs.size, near=False)
    return np.where(runs.crosses, np.maximum(far, near), near)


def _filling(runs: Runs, terms: Terms, message: Floats, *, near: bool) -> Floats:
    """Return how long the first chunk of a message to one peer fills its channels."""
    rate = channel_rate(runs, terms) if near else np.full(len(runs), terms.pair_channel)
    time: Floats = (
        terms.fill_exchange * np.minimum(message / runs.peer_channels, runs.window) / rate
    )
    return time


_CLOCKS: Mapping[ChunkShape, Callable[[Runs, Terms], Floats]] = MappingProxyType(
    {
        ChunkShape.RING: _ring,
        ChunkShape.CHAIN: _chain,
        ChunkShape.TREE: _tree,
        ChunkShape.NVLS: _nvls,
        ChunkShape.NVLS_TREE: _nvls_tree,
        ChunkShape.COLLNET: _collnet,
        ChunkShape.PAT: _pat,
        ChunkShape.EXCHANGE: _exchange,
        ChunkShape.PAIR: _pair,
        ChunkShape.FAN: _exchange,
    }
)
