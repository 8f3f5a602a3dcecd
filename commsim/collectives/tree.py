"""
Trees: one binary tree, or two of which each carries half, so that every link is used both ways.

The binary tree over 0..n-1: rank r != 0 with lowest set bit b has the parent (r ^ b) | 2b, or
r ^ b if that is not below n. In the second tree of a pair every rank stands elsewhere
(shifted by one for odd n, mirrored for even n), so that inner ranks of one are leaves of the
other (NCCL's trees.cc; Sanders, Speck, Traff 2009, "Two-tree algorithms").

How many pieces are under way is bounded. Where every rank sends what it has as soon as it can,
pieces on their way up fill the links of the inner ranks, and those on their way down queue behind
them: an all-reduce then takes 2.5 S/B by two trees and 3.8 S/B by one instead of the 2 S/B and
3 S/B that an inner rank sends.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from commsim.arrays import Ints
from commsim.collectives.dependencies import dependencies
from commsim.collectives.program import Program, ProgramBuilder

__all__ = ["all_reduce", "barrier", "broadcast", "gather", "parents", "reduce", "scatter"]


def parents(n: int, root: int, *, second: bool = False) -> list[int]:
    """Return the parent of each rank, -1 for the top, of the first or the second tree.

    Ranks are renumbered so that `root` is the top of the first tree. The second has another
    top, so that a rooted op takes the root out of it and hangs the top below the root.
    """
    up = [_parent(v, n) for v in range(n)]
    if not second:
        place = [(v + root) % n for v in range(n)]
    elif n % 2:
        place = [(v + 1 + root) % n for v in range(n)]
    else:
        place = [(n - 1 - v + root) % n for v in range(n)]
    result = [-1] * n
    for v in range(n):
        result[place[v]] = place[up[v]] if up[v] >= 0 else -1
    return result


def _parent(v: int, n: int) -> int:
    if v == 0:
        return -1
    low = v & -v
    above = (v ^ low) | (low << 1)
    return above if above < n else v ^ low


def _depths(parent: list[int]) -> list[int]:
    def depth(rank: int) -> int:
        return 0 if parent[rank] < 0 else 1 + depth(parent[rank])

    return [depth(rank) for rank in range(len(parent))]


def _down(program: ProgramBuilder, parent: list[int], pieces: list[int], first: int) -> None:
    depth = _depths(parent)
    for k, piece in enumerate(pieces):
        for rank, above in enumerate(parent):
            if above >= 0:
                program.copy(piece, above, rank, step=first + k + depth[above])


def _up(program: ProgramBuilder, parent: list[int], pieces: list[int]) -> int:
    """Reduce pieces towards the top; return the step at which the first is complete there."""
    depth = _depths(parent)
    deepest = max(depth)
    for k, piece in enumerate(pieces):
        for rank, above in enumerate(parent):
            if above >= 0:
                program.reduce(piece, rank, above, step=k + deepest - depth[rank])
    return deepest


_BUFFERS = 2  # pieces of one connection that its receiver has room for


def _with_window(program: Program, pieces: int, *, up_and_down: int = 0) -> Program:
    """Return a program of trees that sends no piece up while too many are under way.

    A piece goes up once its parent has received the one `_BUFFERS` before it. Where pieces come
    down again: once the one `up_and_down` before it has come down to this rank; more than the
    steps that a piece needs up and down, so that all ranks always have something to send.
    """
    apart, up = up_and_down or _BUFFERS, program.reduce
    ends, of = (program.target, ~up) if up_and_down else (program.source, up)
    reached = np.full(program.n * len(program.share), -1)  # by rank and piece
    reached[ends[of] * len(program.share) + program.chunk[of]] = np.flatnonzero(of)
    waiting = np.flatnonzero(up & (program.chunk % pieces >= apart))
    before = program.source[waiting] * len(program.share) + program.chunk[waiting] - apart
    needed = reached[before]
    there = needed >= 0  # the top of a tree sends nothing up, and nothing comes down to it
    return replace(program, needs=_merged(program, waiting[there], needed[there]))


def _merged(program: Program, waiting: Ints, needed: Ints) -> tuple[Ints, Ints]:
    """Return what the messages of a program wait for, and more of it, as CSR."""
    ptr, dep = dependencies(program)
    later = np.concatenate((np.repeat(np.arange(len(program)), np.diff(ptr)), waiting))
    earlier = np.concatenate((dep, needed))
    order = np.lexsort((earlier, later))
    counts = np.bincount(later, minlength=len(program))
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64), earlier[order]


def _trees(n: int, root: int, name: str) -> list[list[int]]:
    first = parents(n, root)
    return [first] if name == "tree" else [first, parents(n, root, second=True)]


def _pieces(pieces: int, tree: int) -> list[int]:
    return list(range(tree * pieces, (tree + 1) * pieces))


def all_reduce(name: str, n: int, pieces: int) -> Program:
    """Reduce up and broadcast down, each piece as soon as it is complete at the top."""
    trees = _trees(n, 0, name)
    count = len(trees) * pieces
    program = ProgramBuilder("all_reduce", name, n, [1 / count] * count)
    for tree, parent in enumerate(trees):
        first = _up(program, parent, _pieces(pieces, tree))
        _down(program, parent, _pieces(pieces, tree), first)
    deepest = max(max(_depths(parent)) for parent in trees)
    return _with_window(program.build(), pieces, up_and_down=2 * deepest + 2)


def barrier(name: str, n: int) -> Program:
    """Everybody's token goes up, and all of them come down."""
    parent = parents(n, 0)
    depth = _depths(parent)
    below = _subtrees(parent)
    program = ProgramBuilder("barrier", name, n, [0.0] * n)
    for rank, above in enumerate(parent):
        if above >= 0:
            program.copy(below[rank], rank, above, step=max(depth) - depth[rank])
            program.copy(range(n), above, rank, step=max(depth) + depth[above])
    return program.build()


def broadcast(name: str, n: int, root: int, pieces: int) -> Program:
    """Down the tree, or half of the pieces down each of two."""
    return _rooted("broadcast", name, n, root, pieces, _spread)


def reduce(name: str, n: int, root: int, pieces: int) -> Program:
    """Up the tree, or half of the pieces up each of two."""
    return _rooted("reduce", name, n, root, pieces, _collect)


def _rooted(
    op: str,
    name: str,
    n: int,
    root: int,
    pieces: int,
    move: Callable[[ProgramBuilder, list[int], list[int], int], None],
) -> Program:
    trees = _trees(n, root, name)
    count = len(trees) * pieces
    program = ProgramBuilder(op, name, n, [1 / count] * count, root=root)
    for tree, parent in enumerate(trees):
        move(program, parent, _pieces(pieces, tree), root)
    built = program.build()
    return built if op == "broadcast" else _with_window(built, pieces)


def _spread(program: ProgramBuilder, parent: list[int], pieces: list[int], root: int) -> None:
    """From the root to the top of the tree, if that is another rank, and down."""
    top = parent.index(-1)
    if top != root:
        parent = _without(parent, root)
        for k, piece in enumerate(pieces):
            program.copy(piece, root, top, step=k)
    _down(program, parent, pieces, int(top != root))


def _collect(program: ProgramBuilder, parent: list[int], pieces: list[int], root: int) -> None:
    """Up the tree, and from its top to the root if that is another rank."""
    top = parent.index(-1)
    if top != root:
        parent = _without(parent, root)
    complete = _up(program, parent, pieces)
    if top != root:
        for k, piece in enumerate(pieces):
            program.reduce(piece, top, root, step=complete + k)


def _without(parent: list[int], rank: int) -> list[int]:
    """Return the tree with a rank taken out: its children hang at its parent.

    The rank taken out keeps -1, like the top: nothing is sent to or from it here.
    """
    above = parent[rank]
    cut = [above if p == rank else p for p in parent]
    cut[rank] = -1
    return cut


def scatter(n: int, root: int) -> Program:
    """Each rank hands its children the chunks of their subtrees."""
    parent = parents(n, root)
    below, depth = _subtrees(parent), _depths(parent)
    program = ProgramBuilder("scatter", "tree", n, [1 / n] * n, root=root)
    for rank, above in enumerate(parent):
        if above >= 0:
            program.copy(below[rank], above, rank, step=depth[above])
    return program.build()


def gather(n: int, root: int) -> Program:
    """Each rank hands its parent the chunks of its subtree."""
    parent = parents(n, root)
    below, depth = _subtrees(parent), _depths(parent)
    program = ProgramBuilder("gather", "tree", n, [1 / n] * n, root=root)
    for rank, above in enumerate(parent):
        if above >= 0:
            program.copy(below[rank], rank, above, step=max(depth) - depth[rank])
    return program.build()


def _subtrees(parent: list[int]) -> list[list[int]]:
    below: list[list[int]] = [[] for _ in parent]
    for rank in range(len(parent)):
        at = rank
        while at >= 0:
            below[at].append(rank)
            at = parent[at]
    return below
