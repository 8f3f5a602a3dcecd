"""
How NCCL lays an operation's data on its channels.

The data is cut in cells, each at least `min_traffic` bytes of traffic, so a small operation may
use fewer channels than it was given: the first channel has `lo` elements, the last `hi`, those
between `mid` each.

Follows scheduleCollTasksToPlan (src/enqueue.cc, NCCL 2.22 to 2.30).
"""

from __future__ import annotations

import msgspec

from commsim.libraries.nccl.tuning.tables import Tables

__all__ = ["Cut", "cut", "interleaved"]


class Cut(msgspec.Struct, frozen=True):
    """How the elements lie on the channels: first, each between, last."""

    channels: int
    lo: int
    mid: int
    hi: int

    @property
    def typical(self) -> int:
        """Elements of a channel in the middle, or of the first if there is none."""
        return self.mid or self.lo


def cut(
    count: int,
    element: int,
    *,
    traffic_per_byte: int,
    ll: bool,
    most: int,
    total: int,
    tables: Tables,
) -> Cut:
    """Lay `count` elements of `element` bytes on up to `most` of the `total` channels.

    `traffic_per_byte` is how often a byte of the operation crosses a rank's links: 2 for an
    all-reduce, the ranks for all-gather and reduce-scatter, 1 otherwise; LL counts four times.
    """
    if count == 0:
        return Cut(0, 0, 0, 0)
    if tables.partition == "even":
        return interleaved(count, most)
    weight = traffic_per_byte * (4 if ll else 1)
    per_channel = _traffic_per_channel(count * element * weight, most, tables)
    cell = _up(-(-tables.min_traffic // weight), 16)
    per_cell, cells = cell // element, -(-count * element // cell)
    full = min(cells, -(-per_channel // (cell * weight)))
    lo = cells if total == 1 else full
    mids, hi = divmod(cells - lo, full)
    if (lo != 0) + mids + (hi != 0) > total:
        mids = total - 2
        full = (cells - lo) // (mids + 1)
        hi = full + (cells - lo) % (mids + 1)
    if hi == 0 and mids:
        hi, mids = full, mids - 1
    spare = cells * per_cell - count
    counts = [lo * per_cell, full * per_cell if mids else 0, hi * per_cell]
    counts[2 if hi else 0] -= spare
    return Cut(1 + mids + (hi != 0), *counts)


def interleaved(count: int, channels: int) -> Cut:
    """Share `count` elements by turns, the first channel with what is over: CollNet, and all
    operations until 2.21, use every channel they are given.
    """
    channels = min(channels, count)
    if channels == 0:
        return Cut(0, 0, 0, 0)
    share = count // channels
    first = count - share * (channels - 1)
    return Cut(channels, first, share if channels > 2 else 0, share if channels > 1 else 0)


def _traffic_per_channel(traffic: int, most: int, tables: Tables) -> int:
    """Return the traffic that a channel should get."""
    share = max(tables.min_traffic, traffic) // most
    return max(tables.min_traffic, share) if tables.partition == "cells" else _up(share, 16)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
