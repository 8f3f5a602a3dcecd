"""
Rings: every rank sends to the next one only.
"""

from __future__ import annotations

from commsim.collectives.program import Program, ProgramBuilder

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "chunked_all_reduce",
    "gather", "reduce", "reduce_scatter", "scatter",
]  # fmt: skip


def all_reduce(n: int) -> Program:
    """Reduce-scatter around the ring, then all-gather around the ring."""
    program = ProgramBuilder("all_reduce", "ring", n, [1 / n] * n)
    for step in range(n - 1):
        for i in range(n):
            program.reduce((i - step) % n, i, (i + 1) % n, step=step)
    for step in range(n - 1):
        for i in range(n):
            program.copy((i + 1 - step) % n, i, (i + 1) % n, step=n - 1 + step)
    return program.build()


def chunked_all_reduce(n: int, pieces: int) -> Program:
    """The ring with every part cut in two or more, so that one is on the wire while one is added.

    This is Gloo's ring: each of the n parts in `pieces` segments (2 at least), two in flight.
    """
    cuts = max(2, pieces)
    program = ProgramBuilder("all_reduce", "ring_chunked", n, [1 / n / cuts] * (n * cuts))
    for step in range((n - 1) * cuts):
        turn, cut = divmod(step, cuts)
        for i in range(n):
            program.reduce((i - turn) % n * cuts + cut, i, (i + 1) % n, step=step)
    for step in range((n - 1) * cuts):
        turn, cut = divmod(step, cuts)
        for i in range(n):
            onward = (i + 1 - turn) % n * cuts + cut
            program.copy(onward, i, (i + 1) % n, step=(n - 1) * cuts + step)
    return program.build()


def reduce_scatter(n: int) -> Program:
    """Each chunk travels once around, collecting contributions, and ends at its owner."""
    program = ProgramBuilder("reduce_scatter", "ring", n, [1 / n] * n)
    for step in range(n - 1):
        for i in range(n):
            program.reduce((i - 1 - step) % n, i, (i + 1) % n, step=step)
    return program.build()


def all_gather(n: int) -> Program:
    """Each chunk travels once around from its owner."""
    program = ProgramBuilder("all_gather", "ring", n, [1 / n] * n)
    for step in range(n - 1):
        for i in range(n):
            program.copy((i - step) % n, i, (i + 1) % n, step=step)
    return program.build()


def barrier(n: int) -> Program:
    """A token per rank, all-gathered around the ring."""
    program = ProgramBuilder("barrier", "ring", n, [0.0] * n)
    for step in range(n - 1):
        for i in range(n):
            program.copy((i - step) % n, i, (i + 1) % n, step=step)
    return program.build()


def broadcast(n: int, root: int, pieces: int) -> Program:
    """A chain from the root: piece k leaves one step after piece k - 1."""
    program = ProgramBuilder("broadcast", "ring", n, [1 / pieces] * pieces, root=root)
    for piece in range(pieces):
        for hop in range(n - 1):
            program.copy(piece, (root + hop) % n, (root + hop + 1) % n, step=piece + hop)
    return program.build()


def reduce(n: int, root: int, pieces: int) -> Program:
    """A chain that ends at the root."""
    program = ProgramBuilder("reduce", "ring", n, [1 / pieces] * pieces, root=root)
    for piece in range(pieces):
        for hop in range(n - 1):
            program.reduce(piece, (root + 1 + hop) % n, (root + 2 + hop) % n, step=piece + hop)
    return program.build()


def scatter(n: int, root: int) -> Program:
    """A chain from the root; the chunk for the farthest rank leaves first."""
    program = ProgramBuilder("scatter", "ring", n, [1 / n] * n, root=root)
    for behind, distance in enumerate(range(n - 1, 0, -1)):
        for hop in range(distance):
            program.copy(
                (root + distance) % n, (root + hop) % n, (root + hop + 1) % n, step=behind + hop
            )
    return program.build()


def gather(n: int, root: int) -> Program:
    """A chain that ends at the root; the nearest rank's chunk arrives first."""
    program = ProgramBuilder("gather", "ring", n, [1 / n] * n, root=root)
    for distance in range(1, n):
        for hop in range(distance):
            at = (root - distance + hop) % n
            program.copy((root - distance) % n, at, (at + 1) % n, step=distance - 1 + hop)
    return program.build()


def all_to_all(n: int) -> Program:
    """Every chunk is forwarded around the ring until it is where it belongs."""
    program = ProgramBuilder("all_to_all", "ring", n, [1 / n] * (n * n))
    for step in range(n - 1):
        for i in range(n):
            owner = (i - step) % n
            onward = [owner * n + (owner + d) % n for d in range(step + 1, n)]
            program.copy(onward, i, (i + 1) % n, step=step)
    return program.build()
