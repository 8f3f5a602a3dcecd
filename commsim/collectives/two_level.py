"""
Rings on two levels: first along one dimension of a grid of ranks, then along the other.

Rank r stands in row r // m and column r % m. A row is a node of m ranks (hierarchical), or a
row of a 2-D torus. Hierarchical programs leave a node with 1/m of the data per rank. A torus
works on two halves at once, one along the rows first and one along the columns first, so that
the links of both dimensions are always in use (Mikami et al. 2018, "Massively distributed SGD:
ImageNet/ResNet-50 training in a flash", take one half; Sack and Gropp 2012, "Faster
topology-aware collective algorithms through non-minimal communication", both).
"""

from __future__ import annotations

from collections.abc import Sequence

from commsim.collectives.program import Program, ProgramBuilder

__all__ = ["all_gather", "all_reduce", "gather_around", "reduce_around", "reduce_scatter"]

Lines = list[list[int]]


def _grid(n: int, m: int) -> tuple[Lines, Lines]:
    """Return the rows and the columns."""
    rows = [list(range(first, first + m)) for first in range(0, n, m)]
    return rows, [list(range(column, n, m)) for column in range(m)]


def _halves(name: str, n: int, m: int) -> list[tuple[Lines, Lines]]:
    """Return, per part of the buffer, the lines of the first and of the second level."""
    rows, columns = _grid(n, m)
    return [(rows, columns)] if name == "hierarchical" else [(rows, columns), (columns, rows)]


def _builder(op: str, name: str, n: int) -> ProgramBuilder:
    chunks = n if name == "hierarchical" else 2 * n
    return ProgramBuilder(op, name, n, [1 / chunks] * chunks)


def _chunks(owners: Sequence[int], half: int, count: int) -> list[int]:
    return [owner * count + half for owner in owners]


def reduce_around(
    program: ProgramBuilder, line: list[int], blocks: list[list[int]], first: int, phase: int
) -> None:
    """Reduce around a line so that block i ends at its member i."""
    n = len(line)
    for step in range(n - 1):
        for i in range(n):
            block = blocks[(i - 1 - step) % n]
            program.reduce(block, line[i], line[(i + 1) % n], step=first + step, phase=phase)


def gather_around(
    program: ProgramBuilder, line: list[int], blocks: list[list[int]], first: int, phase: int
) -> None:
    """Copy around a line so that every member gets every block; block i starts at member i."""
    n = len(line)
    for step in range(n - 1):
        for i in range(n):
            block = blocks[(i - step) % n]
            program.copy(block, line[i], line[(i + 1) % n], step=first + step, phase=phase)


def _near(inner: Lines, outer: Lines, half: int, count: int) -> list[tuple[list[int], Lines]]:
    """Return each line of the first level, and per member the chunks of all in its outer line."""
    across = {rank: line for line in outer for rank in line}
    return [(line, [_chunks(across[r], half, count) for r in line]) for line in inner]


def _far(outer: Lines, half: int, count: int) -> list[tuple[list[int], Lines]]:
    """Return each line of the second level, and per member its own chunk."""
    return [(line, [_chunks([r], half, count) for r in line]) for line in outer]


def _down(program: ProgramBuilder, halves: list[tuple[Lines, Lines]]) -> None:
    """Reduce-scatter: along the first level, then along the second."""
    for half, (inner, outer) in enumerate(halves):
        for line, blocks in _near(inner, outer, half, len(halves)):
            reduce_around(program, line, blocks, 0, 0)
        for line, blocks in _far(outer, half, len(halves)):
            reduce_around(program, line, blocks, len(inner[0]) - 1, 1)


def _up(program: ProgramBuilder, halves: list[tuple[Lines, Lines]], *, first: int) -> None:
    """All-gather: along the second level, then along the first."""
    for half, (inner, outer) in enumerate(halves):
        for line, blocks in _far(outer, half, len(halves)):
            gather_around(program, line, blocks, first, 1 if first else 0)
        for line, blocks in _near(inner, outer, half, len(halves)):
            gather_around(program, line, blocks, first + len(outer[0]) - 1, 2 if first else 1)


def all_reduce(name: str, n: int, m: int) -> Program:
    """Reduce-scatter on both levels, then all-gather on both."""
    program = _builder("all_reduce", name, n)
    halves = _halves(name, n, m)
    _down(program, halves)
    _up(program, halves, first=m + n // m - 2)
    return program.build()


def reduce_scatter(name: str, n: int, m: int) -> Program:
    """Reduce within the lines of the first level, then across them."""
    program = _builder("reduce_scatter", name, n)
    _down(program, _halves(name, n, m))
    return program.build()


def all_gather(name: str, n: int, m: int) -> Program:
    """Gather across the lines of the first level, then within them."""
    program = _builder("all_gather", name, n)
    _up(program, _halves(name, n, m), first=0)
    return program.build()
