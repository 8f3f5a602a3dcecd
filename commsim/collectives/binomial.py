"""
Binomial trees: in every round the ranks that have the data send it on, so their number doubles.

Seen from the root, rank v hangs below v without its lowest set bit, and edges of the longest
distance come first. Unlike the trees of `tree` nothing is pipelined: whole buffers move in
ceil(log2 n) rounds. This is how MPI and Gloo broadcast small buffers.
"""

from __future__ import annotations

from commsim.collectives.program import Program, ProgramBuilder

__all__ = ["all_reduce", "broadcast", "gather", "reduce", "scatter"]

NAME = "binomial"


def _edges(n: int, root: int) -> list[tuple[int, int, int, list[int]]]:
    """Return (round, parent, child, ranks below the child and itself), rounds ascending."""
    rounds = (n - 1).bit_length()
    edges = []
    for v in range(1, n):
        low = v & -v
        below = [(root + w) % n for w in range(v, min(v + low, n))]
        step = rounds - low.bit_length()
        edges.append((step, (root + (v ^ low)) % n, (root + v) % n, below))
    return sorted(edges, key=lambda edge: edge[0])


def broadcast(n: int, root: int) -> Program:
    """Down the tree, the farthest rank first."""
    program = ProgramBuilder("broadcast", NAME, n, [1.0], root=root)
    for step, above, rank, _ in _edges(n, root):
        program.copy(0, above, rank, step=step, phase=step)
    return program.build()


def reduce(n: int, root: int) -> Program:
    """Up the tree, neighbours first."""
    program = ProgramBuilder("reduce", NAME, n, [1.0], root=root)
    _up(program, n, root)
    return program.build()


def all_reduce(n: int) -> Program:
    """Up to rank 0, and down again."""
    program = ProgramBuilder("all_reduce", NAME, n, [1.0])
    first = _up(program, n, 0)
    for step, above, rank, _ in _edges(n, 0):
        program.copy(0, above, rank, step=first + step, phase=first + step)
    return program.build()


def _up(program: ProgramBuilder, n: int, root: int) -> int:
    """Reduce whole buffers to the root; return the number of rounds."""
    rounds = (n - 1).bit_length()
    for step, above, rank, _ in _edges(n, root):
        program.reduce(0, rank, above, step=rounds - 1 - step, phase=rounds - 1 - step)
    return rounds


def scatter(n: int, root: int) -> Program:
    """Each rank hands its children the chunks of all below them."""
    program = ProgramBuilder("scatter", NAME, n, [1 / n] * n, root=root)
    for step, above, rank, below in _edges(n, root):
        program.copy(below, above, rank, step=step, phase=step)
    return program.build()


def gather(n: int, root: int) -> Program:
    """The scatter backwards."""
    program = ProgramBuilder("gather", NAME, n, [1 / n] * n, root=root)
    rounds = (n - 1).bit_length()
    for step, above, rank, below in _edges(n, root):
        program.copy(below, rank, above, step=rounds - 1 - step, phase=rounds - 1 - step)
    return program.build()
