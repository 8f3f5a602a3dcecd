"""
The chunk programs behind the clocks: which messages a run sends over each edge, and what an edge
takes for one of them.

Simulated step by step on an idle cluster (each edge first in, first out) they take exactly what
`shapes` says in closed form. Every channel runs the same program at the same time.
"""

from __future__ import annotations

from functools import partial

import msgspec
import numpy as np

from commsim.arrays import Floats
from commsim.libraries.nccl.shapes import Protocol
from commsim.libraries.nccl.timing.constants import Terms
from commsim.libraries.nccl.timing.edges import (
    channel_rate,
    hop_latency,
    local_time,
    net_copy,
    net_time,
    net_wait,
    reach_latency,
    wire_rate,
)
from commsim.libraries.nccl.timing.runs import Runs

__all__ = [
    "ProgramEdges",
    "branch_delay",
    "chain_edges",
    "levels_of",
    "ring_edges",
    "tree_edges",
    "tree_share",
]


_SLICES = 2
"""Slices of a ring's chunk with Simple: NCCL's chunk steps over its slice steps."""
_LINES = 8
"""Parts in which a block's lines of LL and LL128 go on: each warp's as they come."""
_TREE_HOP = np.array([1.0, 1.25 / 1.9, 4 / 3.4])
"""A hop in a tree against one in a ring: the ratios of NCCL's own latency table."""
_DOWN_THREADS = 0.3
"""Of a tree's threads with LL, those that take what comes down: runTreeSplit (all_reduce.h)."""
_ONE_WAY = 2.0
"""What goes up meets nothing that comes down until the first message has been at the root: it has
the wires, which are counted both ways, twice over."""


class ProgramEdges(msgspec.Struct, frozen=True, eq=False):
    """One channel's program: `count` messages of `message` bytes over every edge.

    An edge within a domain has latency `hop` (s) and serves `local` bytes/s, one through the
    network `reach` and `net`; without a network the latter are those of a local edge.
    """

    message: Floats
    count: Floats
    hop: Floats
    local: Floats
    reach: Floats
    net: Floats
    start: Floats
    """Seconds before the first message leaves: the pipeline of slices fills once."""
    local_alone: Floats
    """bytes/s of a message that meets no other flow on its way: those of `local`, but in trees."""
    net_alone: Floats

    @property
    def local_service(self) -> Floats:
        """Seconds that a local edge is busy with one message."""
        service: Floats = self.message / self.local
        return service

    @property
    def net_service(self) -> Floats:
        """Seconds that a network edge is busy with one message."""
        service: Floats = self.message / self.net
        return service

    @property
    def local_transit(self) -> Floats:
        """Seconds that the first message takes to pass a local edge."""
        transit: Floats = self.message / self.local_alone
        return transit

    @property
    def net_transit(self) -> Floats:
        """Seconds that the first message takes to pass a network edge."""
        transit: Floats = self.message / self.net_alone
        return transit


def ring_edges(runs: Runs, terms: Terms) -> ProgramEdges:
    """Return rounds x (n - 1) messages of S/n over a channel's ring; each waits for the last."""
    message = runs.size / (runs.ranks * runs.channels)
    count = runs.rounds * (runs.ranks - 1)
    share = np.maximum(count, 1.0) / (runs.ranks * runs.channels)
    wait = _waited(runs, terms, message)
    local, net = _rates(runs, terms, message, channel_rate(runs, terms), share, wait=wait)
    hop = hop_latency(runs, terms)
    # A chunk goes in two slices, even one that fills no buffer.
    whole = np.where(runs.protocol == Protocol.Simple, message / _SLICES, message)
    window = np.minimum(whole, runs.window)
    far = _ring_reach(runs, terms, message) + terms.fill_ring_net * window / net
    reach = np.where(runs.crosses, far, hop)
    held = terms.fill_ring[runs.protocol] * window
    start = held / np.minimum(local, net)
    return ProgramEdges(message, count, hop, local, reach, net, start, local, net)


def chain_edges(runs: Runs, terms: Terms) -> ProgramEdges:
    """Return the pieces of S that follow one another along a channel's ring, from the root on."""
    piece = runs.size / runs.channels
    fill = np.where(runs.protocol == Protocol.Simple, terms.fill_chain, 1 / _LINES)
    count = _messages(piece, fill * runs.window)
    wait = _waited(runs, terms, piece)
    local, net = _rates(runs, terms, piece, channel_rate(runs, terms), 1 / runs.channels, wait=wait)
    hop = hop_latency(runs, terms)
    reach = np.where(runs.crosses, _ring_reach(runs, terms, piece), hop)
    start = np.zeros_like(piece)
    return ProgramEdges(piece / count, count, hop, local, reach, net, start, local, net)


def tree_edges(runs: Runs, terms: Terms) -> ProgramEdges:
    """Return the pieces of S that go up and down a channel's tree, both ways at once."""
    piece = runs.size / runs.channels
    lines = runs.protocol != Protocol.Simple
    fill = terms.fill_tree[runs.protocol]
    count = _messages(piece, runs.window * np.where(lines, 1 / _LINES, fill))
    copy = channel_rate(runs, terms) * np.where(runs.domains > 2, terms.tree_far, 1.0)
    share = tree_share(runs, terms)
    rates = partial(_rates, runs, terms, piece, net_share=share, threads=_DOWN_THREADS)
    local, net = rates(copy / _flows(runs), 1 / runs.channels)
    alone = rates(copy, _ONE_WAY / runs.channels)
    hop = runs.hop + (hop_latency(runs, terms) - runs.hop) * _TREE_HOP[runs.protocol]
    held = np.where(lines, fill * np.minimum(piece, runs.window) / channel_rate(runs, terms), 0.0)
    reach = np.where(runs.crosses, reach_latency(runs, terms, piece), hop)
    start = np.zeros_like(piece)
    return ProgramEdges(piece / count, count, hop + held, local, reach + held, net, start, *alone)


def levels_of(runs: Runs) -> Floats:
    """Return how deep NCCL's binary tree over the domains is."""
    levels: Floats = np.ceil(np.log2(np.maximum(runs.domains, 1.0)))
    return levels


def branch_delay(runs: Runs) -> Floats:
    """Return how much longer than the mean the longest way of a tree's branch is, up and down."""
    delay: Floats = np.where(runs.crosses, 2 * (runs.longest - runs.reach), 0.0)
    return delay


def _flows(runs: Runs) -> Floats:
    """Return how many flows the busiest GPU of a tree copies on a channel, each way.

    Up and down; over more than two domains a GPU has a parent and a child beyond its domain
    besides the one within.
    """
    few = np.where((runs.per_domain == 1) | (runs.ranks == 2), 1.0, 2.0)
    flows: Floats = np.where(runs.domains > 2, 3.0, few)
    return flows


def tree_share(runs: Runs, terms: Terms) -> Floats:
    """Return what a double tree over more than two domains makes of the links between them."""
    return np.where(runs.domains > 2, terms.tree_net, 1.0)


def _rates(
    runs: Runs,
    terms: Terms,
    message: Floats,
    copy: Floats,
    share: Floats,
    *,
    net_share: Floats | float = 1.0,
    wait: Floats | float = 0.0,
    threads: float = 1.0,
) -> tuple[Floats, Floats]:
    """Return the bytes/s of a channel's edge within and between domains.

    Between domains: `net_share` of the wires is left, the channel waits `wait` seconds for a byte,
    and `threads` of its threads receive.
    """
    local = wire_rate(copy, local_time(runs, terms), share)
    far = 1 / (1 / net_copy(runs, terms, copy, message, threads) + wait)
    far = wire_rate(far, net_time(runs, terms) / net_share, share)
    return local, np.where(runs.crosses, far, local)


def _waited(runs: Runs, terms: Terms, message: Floats) -> Floats:
    """Return the seconds for a byte that a ring's channel waits for the slowest of many domains.

    With Simple it waits with each slice. Where the NICs decide, that is hidden behind them; rings
    of few channels on fast NICs lose it.
    """
    lost = net_wait(runs, terms, message) / np.maximum(runs.window, 1.0)
    waited: Floats = np.where(runs.protocol == Protocol.Simple, lost, 0.0)
    return waited


def _ring_reach(runs: Runs, terms: Terms, message: Floats) -> Floats:
    software = reach_latency(runs, terms, message) - runs.reach
    reach: Floats = runs.reach + software * terms.ring_net[runs.transport]
    return reach


def _messages(piece: Floats, window: Floats) -> Floats:
    """Return how many messages of at most `window` bytes a piece is cut into, fractions too.

    A whole number would let a larger piece take less time than a smaller one.
    """
    count: Floats = np.maximum(piece / window, 1.0)
    return count
