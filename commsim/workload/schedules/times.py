"""Stage times for which a schedule is searched: per stage, and from device to device."""

from __future__ import annotations

import msgspec

__all__ = ["StageTimes", "equal_times"]


class StageTimes(msgspec.Struct, frozen=True):
    """Times of one microbatch on each stage in ps: F, input gradient, weight gradient.

    `hops[d]` is the delay between devices d and d + 1, that of the last one back to the first.
    `repeats`: what counts is the time from step to step, not the span of one; with `tied` the
    first and the last stage end a step together (they share a token table).
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    weight: tuple[int, ...]
    hops: tuple[int, ...]
    repeats: bool = False
    tied: bool = False

    def hop(self, source: int, target: int) -> int:
        """Return the delay from one device to another; the longest for two that are far apart."""
        low, high = sorted((source, target))
        if low == high:
            return 0
        if high - low == 1:
            return self.hops[low]
        return self.hops[-1] if high - low == len(self.hops) - 1 else max(self.hops)


def equal_times(devices: int, stages: int) -> StageTimes:
    """Return F = B = W = 1 without delays: what a schedule is made for when nothing is known."""
    ones = (1,) * stages
    return StageTimes(ones, ones, ones, (0,) * devices)
