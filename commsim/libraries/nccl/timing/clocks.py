"""
The idle time of a ring of two kinds of edges in closed form (max-plus), over arrays.

An edge has a latency and serves one message after another; a message may go on when it has
arrived whole. All times in seconds, all arguments arrays of one shape (or plain numbers).
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Floats

__all__ = ["ring_time"]


def ring_time(
    steps: Floats,
    period: Floats,
    local: tuple[Floats, Floats],
    net: tuple[Floats, Floats],
) -> Floats:
    """Return when the last of `steps` messages per edge of a ring has arrived.

    The ring repeats `period` edges: period - 1 `local` ones and one `net` edge, each a
    (latency, service) pair; `net` is the ring's only kind if period is 1. Message k of an
    edge waits for message k - 1 of the edge before it, so the longest path through the program
    visits some successive edges once each and spends the remaining steps on the slowest of
    them. Its length is linear in the number of whole periods visited: only the ends count.
    """
    (l_i, s_i), (l_x, s_x) = local, net
    inner = period - 1
    slow = np.where(inner > 0, np.maximum(s_i, s_x), s_x)

    def gain(nets: Floats, locals_: Floats) -> Floats:
        """Return what a path of so many edges adds to `steps` services on the slowest one."""
        gained = nets * (l_x + s_x - slow) + locals_ * (l_i + s_i - slow)
        return np.where(nets + locals_ <= steps, gained, -np.inf)

    rounds, rest = np.floor(steps / period), np.mod(steps, period)
    most = rounds + (rest > 0)
    turns = np.floor((steps - 1) / period)
    between = np.maximum(np.floor((steps - inner) / period), 0)
    found = np.maximum.reduce(
        [
            gain(most, steps - most),
            gain(rounds, steps - rounds),
            gain(turns + 1, turns * inner),
            gain(between, (between + 1) * inner),
            gain(np.ones_like(slow), np.zeros_like(slow)),
        ]
    )
    only_local = steps * s_i + np.minimum(inner, steps) * l_i
    time: Floats = np.maximum(steps * slow + found, np.where(inner > 0, only_local, 0.0))
    return time
