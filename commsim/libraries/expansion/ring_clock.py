"""
The last arrivals of a ring in closed form: a ring of 1,024 GPUs without its two million messages.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Floats

__all__ = ["ring_arrivals"]

_LARGEST_BLOCK = 2**18  # edges times hops back that are looked at together: some MB


def ring_arrivals(latency: Floats, service: Floats, steps: int) -> Floats:
    """Return when the last of `steps` messages arrives over each edge of a ring, in ps.

    Edge i has `latency[i]` and serves one message in `service[i]`; no link serves two edges.
    The k-th message of an edge waits for the (k-1)-th of the edge before it:

        x_i(k) = max(x_{i-1}(k-1) + latency_i, x_i(k-1)) + service_i

    The longest path to (i, steps) visits the last h + 1 edges once each and spends the steps
    that remain on the slowest of them, so x is a maximum over h. Once h has gone round all edges
    the slowest stays, and each further round adds the same: the maximum is in the first round, the
    second or the last.
    """
    n = len(latency)
    period = _period(latency, service)
    total = float(np.sum(latency[:period] + service[:period]))
    last = np.empty(period)
    h = np.arange(min(period, steps))
    rounds = (steps - 1 - h) // period  # complete ones that can follow
    rows = max(1, _LARGEST_BLOCK // period)
    for first in range(0, period, rows):
        i = np.arange(first, min(first + rows, period))
        back = (i[:, None] - h) % period
        path = np.cumsum(latency[back] + service[back], axis=1)
        slowest = np.maximum.accumulate(service[back], axis=1)
        last[i] = np.max(path + (steps - 1 - h) * slowest, axis=1)
        if steps > period:
            gain = total - period * slowest[:, -1:]
            more = np.where(gain > 0, rounds, np.minimum(rounds, 1))
            again = path + (steps - 1 - h) * slowest[:, -1:] + more * gain
            last[i] = np.maximum(last[i], np.max(again, axis=1, where=more > 0, initial=0.0))
    return np.tile(last, n // period)


def _period(latency: Floats, service: Floats) -> int:
    """Return the shortest length after which the edges of the ring repeat themselves."""
    n = len(latency)
    for period in range(1, n):
        if (
            n % period == 0
            and np.array_equal(latency, np.roll(latency, period))
            and np.array_equal(service, np.roll(service, period))
        ):
            return period
    return n
