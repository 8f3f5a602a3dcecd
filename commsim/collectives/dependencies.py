"""
Find what each message of a program waits for.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Bools, Ints
from commsim.collectives.program import Program

__all__ = ["dependencies"]


def dependencies(program: Program) -> tuple[Ints, Ints]:
    """Return CSR (ptr, messages): what must have arrived before each message may leave.

    For each of its chunks, that is what earlier steps wrote into the chunk at its source: all
    reduces since the last copy, and that copy. Messages of one connection keep their order as
    well, but that is left to the network. A program that states its own `needs` has those.
    """
    if program.needs is not None:
        return program.needs
    of, count = program.message, len(program)
    if count == 0:
        return np.zeros(1, np.int64), np.zeros(0, np.int64)
    step = np.unique(program.step, return_inverse=True)[1].reshape(-1)[of]
    steps = int(step[-1]) + 1
    written = (program.target[of] * len(program.share) + program.places) * steps
    order = np.argsort(written, kind="stable")  # by place; rows of a place stay in message order
    writes = of[order]
    moments = (written + step)[order]
    read = (program.source[of] * len(program.share) + program.chunk) * steps
    end = np.searchsorted(moments, read + step)
    begin = np.maximum(_last_copy(program.reduce[writes], end), np.searchsorted(moments, read))
    waiting = np.repeat(of, end - begin)
    return _compressed(waiting, writes[_ranges(begin, end)], count)


def _last_copy(reduce: Bools, end: Ints) -> Ints:
    """Return, for each end, the last copy before it, of whatever place; 0 if there is none."""
    latest = np.maximum.accumulate(np.where(reduce, 0, np.arange(len(reduce))))
    return np.where(end > 0, latest[end - 1], 0)


def _ranges(begin: Ints, end: Ints) -> Ints:
    """Return begin[0], ..., end[0] - 1, begin[1], ..., end[1] - 1, and so on."""
    counts = end - begin
    skipped = np.cumsum(counts) - counts
    ranges: Ints = np.arange(counts.sum()) + np.repeat(begin - skipped, counts)
    return ranges


def _compressed(waiting: Ints, on: Ints, count: int) -> tuple[Ints, Ints]:
    """Return pairs of messages as CSR, each pair once, ascending."""
    pairs = waiting * count + on
    if not (np.diff(pairs) > 0).all():  # they are if every message carries one chunk
        pairs = np.unique(pairs)
    ptr = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(pairs // count, minlength=count), out=ptr[1:])
    return ptr, pairs % count
