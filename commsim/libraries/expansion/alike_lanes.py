"""
Lanes that are all alike, as one: equal routes, equal messages and equal times in every wave.

A ring of equal edges is so from its first wave to its last. One lane is then worked out in plain
floats, by the same sums in the same order as `waves` has them over columns, so that both give the
same bits; at the first wave that differs the columns take over from where this stands.
"""

from __future__ import annotations

from commsim.arrays import Floats

__all__ = ["AlikeLanes"]


class AlikeLanes:
    """One lane for all: what is free from when on, and what its links have served since."""

    def __init__(self, cost: Floats, latency: Floats, noise: float) -> None:
        """Take the cost (ps per byte) and latency (ps) of each hop."""
        self._hops = list(zip(range(len(cost)), cost.tolist(), latency.tolist(), strict=True))
        self._noise = noise
        self.free, self.full = [0.0] * len(cost), [True] * len(cost)
        self._begin, self._end = [float("inf")] * len(cost), [0.0] * len(cost)
        self._moved = [0.0] * len(cost)

    def serve(self, size: float, head: float, tail: float) -> float | None:
        """Pass a message on every lane; return when the last byte is there.

        None if it trickles in behind another.
        """
        for hop, cost, latency in self._hops:
            work, free = size * cost, self.free[hop]
            begin = max(free, head)
            end = max(begin + work, tail)
            if free > head:
                trickles = tail > (begin + work) * (1 + self._noise) or not self.full[hop]
                if trickles:
                    return None
            span = end - begin
            share = min(1 / span * work, 1.0) if span > 0 else 1.0
            self.free[hop], self.full[hop] = end, share >= 1 - self._noise
            self._begin[hop] = min(self._begin[hop], begin)
            self._end[hop] = end
            self._moved[hop] += share * span
            head, tail = begin + latency, end + latency
        return tail

    def write(self, begin: Floats, end: Floats, moved: Floats) -> None:
        """Write down what each link has served since this was last asked, a row per hop."""
        for hop, _, _ in self._hops:
            begin[hop], end[hop], moved[hop] = self._begin[hop], self._end[hop], self._moved[hop]
            self._begin[hop], self._moved[hop] = float("inf"), 0.0
