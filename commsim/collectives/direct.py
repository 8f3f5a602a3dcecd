"""
Straight from each rank to each other, in rotated order; and through one server.
"""

from __future__ import annotations

from collections.abc import Sequence

from commsim.collectives.program import Program, ProgramBuilder

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_v", "barrier", "broadcast", "gather",
    "reduce", "reduce_scatter", "scatter", "server_all_reduce",
]  # fmt: skip


def _others(n: int) -> list[tuple[int, int, int]]:
    """Return (step, rank, peer) so that in each step every rank has another peer."""
    return [(s - 1, i, (i + s) % n) for s in range(1, n) for i in range(n)]


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
    """Rank 0 serves: it reduces what everybody sends, and sends everybody the result."""
    program = ProgramBuilder("all_reduce", "server", n, [1.0])
    for step in range(1, n):
        program.reduce(0, step, 0, step=step - 1)
        program.copy(0, 0, step, step=n - 2 + step, phase=1)
    return program.build()
