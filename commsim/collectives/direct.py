"""
Straight from each rank to each other, in rotated order; and through one server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from commsim.collectives.program import Program, ProgramBuilder

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_v", "barrier", "broadcast", "gather",
    "pairwise_all_to_all", "reduce", "reduce_scatter", "scatter", "server_all_reduce",
]  # fmt: skip


def _others(n: int) -> Iterator[tuple[int, int, int]]:
    """Yield (step, rank, peer) so that in each step every rank has another peer."""
    return ((s - 1, i, (i + s) % n) for s in range(1, n) for i in range(n))


def all_reduce(n: int) -> Program:
    """Everybody reduces one chunk of all, then hands it to all."""
    program = ProgramBuilder("all_reduce", "direct", n, [1 / n] * n)
    for step, rank, peer in _others(n):
        program.reduce(peer, rank, peer, step=step)
        program.copy(rank, rank, peer, step=n - 1 + step, phase=1)
    return program.build()


def reduce_scatter(n: int) -> Program:
    """Each rank sends every other its chunk."""
    program = ProgramBuilder("reduce_scatter", "direct", n, [1 / n] * n)
    for step, rank, peer in _others(n):
        program.reduce(peer, rank, peer, step=step)
    return program.build()


def all_gather(n: int, *, op: str = "all_gather", share: float | None = None) -> Program:
    """Each rank sends every other its own chunk."""
    program = ProgramBuilder(op, "direct", n, [1 / n if share is None else share] * n)
    for step, rank, peer in _others(n):
        program.copy(rank, rank, peer, step=step)
    return program.build()


def barrier(n: int) -> Program:
    """Each rank tells every other."""
    return all_gather(n, op="barrier", share=0.0)


def all_to_all(n: int) -> Program:
    """Rank i sends to i + 1, then to i + 2, and so on."""
    program = ProgramBuilder("all_to_all", "direct", n, [1 / n] * (n * n))
    for step, rank, peer in _others(n):
        program.copy(rank * n + peer, rank, peer, step=step)
    return program.build()


def pairwise_all_to_all(n: int) -> Program:
    """Exchange with one partner at a time: with i xor step, or around if n is no power of two.

    A rank goes on when both halves of its exchange are through (MPI's pairwise exchange).
    """
    program = ProgramBuilder("all_to_all", "pairwise", n, [1 / n] * (n * n))
    pairs = n & (n - 1) == 0
    for step in range(1, n):
        for rank in range(n):
            peer = rank ^ step if pairs else (rank + step) % n
            program.copy(rank * n + peer, rank, peer, step=step - 1, phase=step - 1)
    return _in_rounds(program.build())


def _in_rounds(program: Program) -> Program:
    """Let every message wait for what its source sent and got in the step before.

    For programs in which every rank sends and gets one message in each step.
    """
    n = program.n
    needs = [np.zeros(0, np.int64)] * n
    for first in range(0, len(program) - n, n):
        before = np.arange(first, first + n)
        sent, got = np.empty(n, np.int64), np.empty(n, np.int64)
        sent[program.source[before]], got[program.target[before]] = before, before
        after = program.source[first + n : first + 2 * n]
        needs += [np.unique((sent[rank], got[rank])) for rank in after]
    ptr = np.concatenate(([0], np.cumsum([len(some) for some in needs])))
    return replace(program, needs=(ptr, np.concatenate(needs)))


def all_to_all_v(n: int, splits: Sequence[Sequence[int]]) -> Program:
    """As all_to_all, with `splits[i][j]` bytes from i to j; S is the largest row sum."""
    largest = max(sum(row) for row in splits) or 1
    share = [splits[i][j] / largest for i in range(n) for j in range(n)]
    program = ProgramBuilder("all_to_all_v", "direct", n, share)
    for step, rank, peer in _others(n):
        program.copy(rank * n + peer, rank, peer, step=step)
    return program.build()


def broadcast(n: int, root: int) -> Program:
    """The root sends everything to each in turn."""
    program = ProgramBuilder("broadcast", "direct", n, [1.0], root=root)
    for step in range(1, n):
        program.copy(0, root, (root + step) % n, step=step - 1)
    return program.build()


def reduce(n: int, root: int, *, name: str = "direct") -> Program:
    """Each sends everything to the root."""
    program = ProgramBuilder("reduce", name, n, [1.0], root=root)
    for step in range(1, n):
        program.reduce(0, (root + step) % n, root, step=step - 1)
    return program.build()


def scatter(n: int, root: int) -> Program:
    """The root sends each its chunk."""
    program = ProgramBuilder("scatter", "direct", n, [1 / n] * n, root=root)
    for step in range(1, n):
        target = (root + step) % n
        program.copy(target, root, target, step=step - 1)
    return program.build()


def gather(n: int, root: int) -> Program:
    """Each sends the root its chunk."""
    program = ProgramBuilder("gather", "direct", n, [1 / n] * n, root=root)
    for step in range(1, n):
        source = (root + step) % n
        program.copy(source, source, root, step=step - 1)
    return program.build()


def server_all_reduce(n: int) -> Program:
    """Rank 0 serves: it reduces what all ranks send, and sends the result to all."""
    program = ProgramBuilder("all_reduce", "server", n, [1.0])
    for step in range(1, n):
        program.reduce(0, step, 0, step=step - 1)
        program.copy(0, 0, step, step=n - 2 + step, phase=1)
    return program.build()
