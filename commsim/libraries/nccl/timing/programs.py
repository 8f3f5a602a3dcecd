"""
The chunk programs behind the clocks: which messages a run sends over each edge, and what an edge
takes for one of them.

Simulated step by step on an idle cluster (each edge first in, first out) they take exactly what
`timing_shapes` says in closed form. Every channel runs the same program at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commsim.arrays import Floats
from commsim.libraries.nccl.timing.constants import Terms
from commsim.libraries.nccl.timing.edges import hop_latency, local_rate, net_rate, reach_latency
from commsim.libraries.nccl.timing.runs import LinkKind, Runs

__all__ = ["Edges", "chain_edges", "levels_of", "ring_edges", "tree_edges", "tree_flows"]


# Bytes on the way over an edge before what waits for them goes on: LL, LL128, Simple. Of the
# size of NCCL's own slices; `fill` says how much of such a window really counts.
_RING_WINDOW = np.array([8192.0, 16384.0, 131072.0])
_CHAIN_WINDOW = np.array([32768.0, 73728.0, 131072.0])
_CHAIN_PART = np.array([0.25, 0.25, 1.0])
_TREE_WINDOW = np.array([16384.0, 32768.0, 131072.0])
_TREE_HOP = np.array([1.0, 1.25 / 1.9, 4 / 3.4])
"""A hop in a tree against one in a ring: the ratios of NCCL's own latency table."""


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
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


def ring_edges(runs: Runs, terms: Terms) -> Edges:
    """Return rounds x (n - 1) messages of S/n over a channel's ring; each waits for the last."""
    message = runs.size / (runs.ranks * runs.channels)
    window = terms.fill_ring * np.minimum(message, _RING_WINDOW[runs.protocol])
    local, net = _ring_rates(runs, terms)
    hop = hop_latency(runs, terms) + window / local
    reach = _ring_reach(runs, terms, message) + window / net
    return Edges(
        message, runs.rounds * (runs.ranks - 1), hop, local,
        np.where(runs.crosses, reach, hop), net,
    )  # fmt: skip


def chain_edges(runs: Runs, terms: Terms) -> Edges:
    """Return the pieces of S that follow one another along a channel's ring, from the root on."""
    piece = runs.size / runs.channels
    slot, part = _CHAIN_WINDOW[runs.protocol], _CHAIN_PART[runs.protocol]
    message = terms.fill_ring * np.minimum(piece * part, slot)
    local, net = _ring_rates(runs, terms)
    # Where edges share the way to host memory, a chain leaves each more of it than a ring.
    fewer = runs.ranks / np.maximum(runs.ranks - 1, 1.0)
    local = np.where(runs.link == LinkKind.SHM, local * fewer, local)
    hop = hop_latency(runs, terms)
    reach = np.where(runs.crosses, _ring_reach(runs, terms, piece), hop)
    return Edges(message, _share(piece, message), hop, local, reach, net)


def tree_edges(runs: Runs, terms: Terms) -> Edges:
    """Return the pieces of S that go up and down a channel's tree, both ways at once."""
    piece = runs.size / runs.channels
    message = np.minimum(piece / 4, _TREE_WINDOW[runs.protocol])
    # Up and down on the same port, but for a pair of GPUs.
    flows = np.where(runs.per_domain == 2, 1.0, 2.0)
    local = local_rate(runs, terms, flows=flows, copies=terms.tree)
    flows, share = tree_flows(runs, terms)
    net = np.where(runs.crosses, net_rate(runs, terms, flows=flows, share=share), local)
    more = (terms.fill_tree[runs.protocol] - 1) * message
    hop = hop_latency(runs, terms) * _TREE_HOP[runs.protocol] + more / local
    reach = np.where(runs.crosses, reach_latency(runs, terms, piece) + more / net, hop)
    return Edges(message, _share(piece, message), hop, local, reach, net)


def levels_of(runs: Runs) -> Floats:
    """Return how deep NCCL's binary tree over the domains is."""
    levels: Floats = np.ceil(np.log2(np.maximum(runs.domains, 1.0)))
    return levels


def tree_flows(runs: Runs, terms: Terms) -> tuple[Floats, Floats]:
    """Return the bytes out of a domain's NICs over S in a double tree, and what they reach.

    Of two domains one sends up and the other down, S each; of more, each is inner in one of the
    two trees (up once, down twice S/2) and a leaf in the other (up S/2).
    """
    many = runs.domains > 2
    return np.where(many, 2.0, 1.0), np.where(many, terms.tree_net, 1.0)


def _ring_rates(runs: Runs, terms: Terms) -> tuple[Floats, Floats]:
    local = local_rate(runs, terms, flows=1.0, copies=1.0)
    return local, np.where(runs.crosses, net_rate(runs, terms, flows=1.0, share=1.0), local)


def _ring_reach(runs: Runs, terms: Terms, message: Floats) -> Floats:
    reach: Floats = reach_latency(runs, terms, message) * terms.ring_net[runs.transport]
    return reach


def _share(piece: Floats, message: Floats) -> Floats:
    return np.divide(piece, message, out=np.ones_like(piece), where=message > 0)
