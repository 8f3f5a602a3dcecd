"""
Latencies and rates of the edges that a chunk program runs on: what the cluster's links give, and
what NCCL's software makes of it.

A latency is that of the route plus a constant; a rate is the capacity of the busiest link times a
constant share. Two limits of one edge (the copy rate of a channel, its share of a wire) blend
if they are close: neither is ever exceeded.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Floats
from commsim.libraries.nccl.shapes import Protocol
from commsim.libraries.nccl.timing.constants import TRANSPORTS, Terms
from commsim.libraries.nccl.timing.runs import NicWay, Runs

__all__ = [
    "SENDS",
    "channel_rate",
    "hop_latency",
    "larger",
    "local_time",
    "net_copy",
    "net_time",
    "net_wait",
    "reach_latency",
    "wire_rate",
]

_TCP = TRANSPORTS.index("tcp")
_SHARPNESS = 16.0  # of the blend: two equal limits give 0.96 of either
SENDS = 4.0  # of the blend of a send's channels with its NIC, whose proxies take turns: 0.84
_EAGER = 4096.0  # bytes that Slingshot sends without a rendezvous
_BEFORE_AMPERE = 9 / 8  # NCCL: what a NIC reads from these GPUs takes 1/8 of the way back too
_LL_WIRE = 2.0  # bytes on the wire for a byte of payload


def larger(a: Floats, b: Floats, sharpness: float = _SHARPNESS) -> Floats:
    """Return a little more than the larger of two times."""
    high, low = np.maximum(a, b), np.minimum(a, b)
    ratio = np.divide(low, high, out=np.zeros_like(high), where=high > 0)
    found: Floats = high * (1 + ratio**sharpness) ** (1 / sharpness)
    return found


def hop_latency(runs: Runs, terms: Terms) -> Floats:
    """Return the seconds of a hop between two GPUs of a domain."""
    latency: Floats = runs.hop + terms.hop[runs.link, runs.protocol]
    return latency


def reach_latency(
    runs: Runs, terms: Terms, message: Floats, *, route: Floats | None = None
) -> Floats:
    """Return the seconds of a hop between domains for a message of so many payload bytes.

    `route` is the latency of the way itself; the mean of the routes used if it is not given.
    """
    software = _software(runs, terms, message) + net_wait(runs, terms, message)
    latency: Floats = (runs.reach if route is None else route) + software
    return latency


def net_wait(runs: Runs, terms: Terms, message: Floats) -> Floats:
    """Return the seconds that more than two domains add to the software's part of a hop.

    Deeper queues, and waiting for the slowest.
    """
    grown = terms.skew * np.log2(np.maximum(runs.domains / 2, 1.0))
    wait: Floats = _software(runs, terms, message) * grown
    return wait


def _software(runs: Runs, terms: Terms, message: Floats) -> Floats:
    """Return the seconds of software of a hop between two domains."""
    root = np.where(runs.way == NicWay.ROOT, terms.root, 0.0)
    base = terms.net[runs.transport] + terms.net_protocol[runs.protocol] + root
    late = (runs.protocol == Protocol.LL) & (message * _LL_WIRE > _EAGER)
    software: Floats = base + np.where(late, terms.rendezvous[runs.transport], 0.0)
    return software


def channel_rate(runs: Runs, terms: Terms) -> Floats:
    """Return the bytes/s that one channel copies."""
    rate: Floats = terms.channel[runs.generation, runs.protocol]
    return rate


def net_copy(
    runs: Runs, terms: Terms, copy: Floats, message: Floats, threads: float = 1.0
) -> Floats:
    """Return the bytes/s that a channel copies of a message to another domain, `copy` within one.

    LL passes through host memory there, GPUDirect or not (src/transport/net.cc): a thread fetches
    each of its lines over PCIe before it asks for the next. The first is part of the latency.
    `threads` is the share of a channel's threads that do so.
    """
    fetched = runs.window * threads
    turn = np.divide(1.0, fetched, out=np.zeros_like(fetched), where=fetched > 0)
    lines = np.maximum(turn - 1 / np.maximum(message, 1.0), 0.0)
    slowest = larger(1 / copy, terms.fetch * lines)
    rate: Floats = np.where(runs.protocol == Protocol.LL, 1 / slowest, copy)
    return rate


def local_time(runs: Runs, terms: Terms) -> Floats:
    """Return the seconds for a byte of S on the busiest link within a domain."""
    time: Floats = runs.local / terms.link[runs.generation, runs.link, runs.protocol]
    return time


def net_time(runs: Runs, terms: Terms) -> Floats:
    """Return the seconds for a byte of S on the busiest link between domains.

    The CPU's part is a rate of the node: TCP sockets, and messages staged through host memory.
    """
    time = runs.net / terms.nic[runs.transport, runs.protocol]
    time = np.where(runs.generation == 0, time * _BEFORE_AMPERE, time)
    time = np.where(runs.way == NicWay.ROOT, time / terms.root_rate, time)
    staged = np.where(runs.way == NicWay.STAGED, runs.leaving / terms.staged, 0.0)
    sockets = np.where(runs.transport == _TCP, runs.leaving / terms.tcp, 0.0)
    return larger(larger(time, staged), sockets)


def wire_rate(copy: Floats, wire: Floats, share: Floats) -> Floats:
    """Return the bytes/s of a channel's edge that carries `share` of S.

    `copy` is the rate of the channel itself, `wire` the seconds for a byte of S on the links.
    """
    rate: Floats = 1 / larger(1 / copy, wire / share)
    return rate
