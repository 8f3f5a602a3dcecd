"""
What a collective promises: where the data is before it and after it. Sizes are as in `commsim.ops`.

Data is counted, not stored: a state has shape (n, chunks, n) and says, for each rank and chunk,
how often the contribution of each rank is in it. Chunks stand in the order of their owners:
those of rank 0 first; in an all-to-all those from 0 to 0, then from 0 to 1, and so on.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Bools, Ints, Ints32
from commsim.ops import DEALT, PAIRED, REDUCING

__all__ = ["parts", "promise", "start"]


def parts(op: str, n: int) -> int:
    """Return how many parts S has: one per pair of ranks, one per rank, or the whole."""
    if op in PAIRED:
        return n * n
    return n if op in DEALT else 1


def start(op: str, n: int, chunks: int, root: int) -> Ints32:
    """Return what every rank holds before the op; a barrier's ranks hold a token each."""
    state = np.zeros((n, chunks, n), dtype=np.int32)
    ranks = np.arange(n)
    if op in REDUCING:
        state[ranks, :, ranks] = 1
    elif op in ("broadcast", "scatter"):
        state[root, :, root] = 1
    else:
        sender = _sender(n, chunks)
        state[sender, np.arange(chunks), sender] = 1
    return state


def promise(op: str, n: int, chunks: int, root: int) -> tuple[Ints32, Bools]:
    """Return what every rank holds after the op, and for which (rank, chunk) that is promised."""
    state = np.zeros((n, chunks, n), dtype=np.int32)
    if op in REDUCING:
        state[:] = 1
    elif op in ("broadcast", "scatter"):
        state[:, :, root] = 1
    else:
        state[:, np.arange(chunks), _sender(n, chunks)] = 1
    return state, _promised(op, n, chunks, root)


def _promised(op: str, n: int, chunks: int, root: int) -> Bools:
    promised = np.zeros((n, chunks), dtype=np.bool_)
    if op in ("reduce", "gather"):
        promised[root] = True
    elif op in ("reduce_scatter", "scatter", "all_to_all", "all_to_all_v"):
        promised[_receiver(op, n, chunks), np.arange(chunks)] = True
    else:
        promised[:] = True
    return promised


def _sender(n: int, chunks: int) -> Ints:
    """Return the rank that each chunk comes from, if every chunk comes from one."""
    return np.arange(chunks) * n // chunks


def _receiver(op: str, n: int, chunks: int) -> Ints:
    """Return the rank that each chunk is for, if every chunk is for one."""
    return np.arange(chunks) * parts(op, n) // chunks % n
