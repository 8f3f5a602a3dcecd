"""
Latencies and rates of the edges that a chunk program runs on.

Two limits of one edge (the copy rate of a channel, its share of a wire) blend smoothly where
they are close: neither is ever exceeded.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Floats
from commsim.libraries.nccl.shapes import Protocol
from commsim.libraries.nccl.timing.constants import TRANSPORTS, Terms
from commsim.libraries.nccl.timing.runs import Runs, Way

__all__ = [
    "hop_latency",
    "local_rate",
    "net_rate",
    "nic_rate",
    "reach_latency",
    "smaller",
]


_TCP = TRANSPORTS.index("tcp")
_SHARPNESS = 8.0  # of the blend: two equal limits give 0.92 of either
_EAGER = 4096.0  # bytes that Slingshot sends without a rendezvous
_BEFORE_AMPERE = 8 / 9  # NCCL: what a NIC reads from these GPUs takes 1/8 of the way back too
_LL_WIRE = 2.0  # bytes on the wire for a byte of payload


def smaller(a: Floats, b: Floats | np.float64) -> Floats:
    """Return a little less than the smaller of two positive limits."""
    low, high = np.minimum(a, b), np.maximum(a, b)
    found: Floats = low * (1 + (low / high) ** _SHARPNESS) ** (-1 / _SHARPNESS)
    return found


def hop_latency(runs: Runs, terms: Terms) -> Floats:
    """Return the seconds of a hop between two GPUs of a domain."""
    latency: Floats = terms.hop[runs.link, runs.protocol]
    return latency


def reach_latency(runs: Runs, terms: Terms, message: Floats) -> Floats:
    """Return the seconds of a hop through the network for a message of so many payload bytes."""
    root = np.where(runs.way == Way.ROOT, terms.root, 0.0)
    base = terms.net[runs.transport] + terms.net_protocol[runs.protocol] + root
    late = (runs.protocol == Protocol.LL) & (message * _LL_WIRE > _EAGER)
    return _skewed(runs, terms, base + np.where(late, terms.rendezvous[runs.transport], 0.0))


def _skewed(runs: Runs, terms: Terms, latency: Floats) -> Floats:
    """Return a network latency grown with the fabric: deeper, and waiting for the slowest."""
    found: Floats = latency * (1 + terms.skew * np.log2(np.maximum(runs.domains / 2, 1.0)))
    return found


def _channel_rate(runs: Runs, terms: Terms) -> Floats:
    """Return the bytes/s that one channel copies."""
    rate: Floats = terms.channel[runs.generation, runs.protocol]
    return rate


def local_rate(runs: Runs, terms: Terms, *, flows: Floats | float, copies: float) -> Floats:
    """Return the bytes/s of a channel's edge between two GPUs of a domain.

    Each channel has `flows` such edges out of a GPU; `copies` is what the algorithm leaves of
    the channel's rate.
    """
    port = runs.port * terms.link[runs.link, runs.protocol] / (runs.channels * flows)
    return smaller(_channel_rate(runs, terms) * copies, port)


def net_rate(runs: Runs, terms: Terms, *, flows: Floats | float, share: Floats | float) -> Floats:
    """Return the bytes/s of a channel's edge through the network; `flows` out of a domain."""
    wire = nic_rate(runs, terms) * share / (runs.channels * flows)
    return smaller(_channel_rate(runs, terms), wire)


def nic_rate(runs: Runs, terms: Terms) -> Floats:
    """Return the payload bytes/s of the NICs of a domain, one way; never 0, even without NICs."""
    used = np.minimum(runs.nics, runs.channels)
    rate = np.maximum(used, 1e-9) * runs.nic_rate * terms.nic[runs.transport, runs.protocol]
    rate = np.where(runs.generation == 0, rate * _BEFORE_AMPERE, rate)
    rate = np.where(runs.way == Way.ROOT, rate * terms.root_rate, rate)
    rate = np.where(runs.way == Way.STAGED, smaller(rate, np.float64(terms.staged)), rate)
    rate = np.where(runs.transport == _TCP, smaller(rate, np.float64(terms.tcp)), rate)
    found: Floats = np.maximum(rate, 1.0)
    return found
