"""
What the ops of torch.distributed mean: bus factors, roots, and where the data starts and ends.

n  members          S  the op's size in bytes, as nccl-tests counts it (its PERFORMANCE.md):
all_reduce, broadcast, reduce: the buffer; all_gather: what a rank ends with; reduce_scatter,
all_to_all: what a rank starts with; scatter, gather: the root's full buffer; all_to_all_v: the
largest sum that a rank sends. algbw = S/t; busbw = algbw times the bus factor, which makes it
comparable with the speed of the links.

Data is counted, not stored: a state has shape (n, chunks, n) and says, for each rank and chunk,
how often the contribution of each rank is in it. Chunks stand in the order of their owners:
those of rank 0 first; in an all-to-all those from 0 to 0, then from 0 to 1, and so on.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Bools, Ints, Ints32

__all__ = ["OWNED", "PAIRED", "REDUCING", "ROOTED", "bus_factor", "parts", "promise", "start"]


ROOTED = frozenset({"broadcast", "reduce", "scatter", "gather"})
REDUCING = frozenset({"all_reduce", "reduce", "reduce_scatter"})
OWNED = frozenset({"reduce_scatter", "all_gather", "scatter", "gather", "barrier"})
PAIRED = frozenset({"all_to_all", "all_to_all_v"})
_WHOLE = frozenset({"broadcast", "reduce", "send_recv"})


def bus_factor(op: str, n: int) -> float:
    """Return busbw / algbw for `n` members; a barrier moves nothing and has factor 0."""
    if op == "barrier" or n < 2:
        return 0.0
    if op == "all_reduce":
        return 2 * (n - 1) / n
    return 1.0 if op in _WHOLE else (n - 1) / n


def parts(op: str, n: int) -> int:
    """Return how many parts S has: one per pair of ranks, one per rank, or the whole."""
    if op in PAIRED:
        return n * n
    return n if op in OWNED else 1


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
    """Return the rank that each chunk comes from, where every chunk comes from one."""
    return np.arange(chunks) * n // chunks


def _receiver(op: str, n: int, chunks: int) -> Ints:
    """Return the rank that each chunk is for, where every chunk is for one."""
    return np.arange(chunks) * parts(op, n) // chunks % n
