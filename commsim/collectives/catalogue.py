"""
Which op can be done by which algorithm, and the program for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from commsim.collectives import direct, doubling, ring, tree
from commsim.collectives.ops import ROOTED
from commsim.collectives.program import Program, ProgramBuilder
from commsim.errors import ScenarioError, did_you_mean
from commsim.graph import COLLECTIVES

__all__ = ["ALGORITHMS", "algorithms_for", "program"]

Splits = tuple[tuple[int, ...], ...]
Make = Callable[[int, int, int, Splits], Program]


def _trees(name: str) -> dict[tuple[str, str], Make]:
    return {
        ("all_reduce", name): lambda n, root, k, splits: tree.all_reduce(name, n, k),
        ("broadcast", name): lambda n, root, k, splits: tree.broadcast(name, n, root, k),
        ("reduce", name): lambda n, root, k, splits: tree.reduce(name, n, root, k),
    }


ALGORITHMS: dict[tuple[str, str], Make] = {
    ("all_reduce", "ring"): lambda n, root, k, splits: ring.all_reduce(n),
    ("reduce_scatter", "ring"): lambda n, root, k, splits: ring.reduce_scatter(n),
    ("all_gather", "ring"): lambda n, root, k, splits: ring.all_gather(n),
    ("broadcast", "ring"): lambda n, root, k, splits: ring.broadcast(n, root, k),
    ("reduce", "ring"): lambda n, root, k, splits: ring.reduce(n, root, k),
    ("scatter", "ring"): lambda n, root, k, splits: ring.scatter(n, root),
    ("gather", "ring"): lambda n, root, k, splits: ring.gather(n, root),
    ("all_to_all", "ring"): lambda n, root, k, splits: ring.all_to_all(n),
    ("barrier", "ring"): lambda n, root, k, splits: ring.barrier(n),
    **_trees("tree"),
    ("scatter", "tree"): lambda n, root, k, splits: tree.scatter(n, root),
    ("gather", "tree"): lambda n, root, k, splits: tree.gather(n, root),
    ("barrier", "tree"): lambda n, root, k, splits: tree.barrier("tree", n),
    **_trees("double_tree"),
    ("all_reduce", "halving_doubling"): lambda n, root, k, splits: doubling.all_reduce(n),
    ("reduce_scatter", "halving_doubling"): lambda n, root, k, splits: doubling.reduce_scatter(n),
    ("all_gather", "halving_doubling"): lambda n, root, k, splits: doubling.all_gather(n),
    ("broadcast", "halving_doubling"): lambda n, root, k, splits: doubling.broadcast(n, root),
    ("reduce", "halving_doubling"): lambda n, root, k, splits: doubling.reduce(n, root),
    ("barrier", "halving_doubling"): lambda n, root, k, splits: doubling.barrier(n),
    ("all_reduce", "direct"): lambda n, root, k, splits: direct.all_reduce(n),
    ("reduce_scatter", "direct"): lambda n, root, k, splits: direct.reduce_scatter(n),
    ("all_gather", "direct"): lambda n, root, k, splits: direct.all_gather(n),
    ("all_to_all", "direct"): lambda n, root, k, splits: direct.all_to_all(n),
    ("all_to_all_v", "direct"): lambda n, root, k, splits: direct.all_to_all_v(n, splits),
    ("broadcast", "direct"): lambda n, root, k, splits: direct.broadcast(n, root),
    ("reduce", "direct"): lambda n, root, k, splits: direct.reduce(n, root),
    ("scatter", "direct"): lambda n, root, k, splits: direct.scatter(n, root),
    ("gather", "direct"): lambda n, root, k, splits: direct.gather(n, root),
    ("barrier", "direct"): lambda n, root, k, splits: direct.barrier(n),
    ("all_reduce", "server"): lambda n, root, k, splits: direct.server_all_reduce(n),
    ("reduce", "server"): lambda n, root, k, splits: direct.reduce(n, root, name="server"),
}


def algorithms_for(op: str) -> tuple[str, ...]:
    """Return the names of the algorithms that can do `op`."""
    return tuple(algorithm for kind, algorithm in ALGORITHMS if kind == op)


def program(
    op: str,
    algorithm: str,
    n: int,
    *,
    root: int = 0,
    pieces: int = 1,
    splits: Sequence[Sequence[int]] | None = None,
) -> Program:
    """Return `op` among `n` members as a chunk program; a lone member has nothing to send.

    `root` is a member index, for rooted ops. `pieces` cuts the buffer of pipelined chains and
    trees. `splits[i][j]` are the bytes from i to j, for all_to_all_v.

    Raises:
        ScenarioError: no such op or algorithm, the algorithm cannot do the op, or `n`, `root`,
            `pieces` or `splits` do not fit it.
    """
    _check_names(op, algorithm)
    _check_counts(op, n, root, pieces)
    _check_splits(op, n, splits)
    rows = tuple(tuple(row) for row in splits or ())
    return _made(op, algorithm, n, root, pieces, rows)


@lru_cache(maxsize=256)
def _made(op: str, algorithm: str, n: int, root: int, pieces: int, splits: Splits) -> Program:
    if n == 1:
        share = [0.0 if op == "barrier" else 1.0]
        return ProgramBuilder(op, algorithm, n, share, root=0 if op in ROOTED else -1).build()
    return ALGORITHMS[op, algorithm](n, root, pieces, splits)


def _check_names(op: str, algorithm: str) -> None:
    if op not in COLLECTIVES:
        hint = did_you_mean(op, COLLECTIVES)
        raise ScenarioError(f"{op!r} is not a collective.{hint} Known: {', '.join(COLLECTIVES)}.")
    possible = algorithms_for(op)
    if algorithm not in possible:
        hint = did_you_mean(algorithm, possible)
        raise ScenarioError(
            f"no algorithm {algorithm!r} for {op!r}.{hint} Possible: {', '.join(possible)}."
        )


def _check_counts(op: str, n: int, root: int, pieces: int) -> None:
    if n < 1:
        raise ScenarioError(f"{op} among {n} members: give at least one.")
    if pieces < 1:
        raise ScenarioError(f"{op} in {pieces} pieces: give at least one.")
    if op not in ROOTED and root != 0:
        raise ScenarioError(f"{op} has no root, but root {root} is given. Leave it out.")
    if not 0 <= root < n:
        raise ScenarioError(f"{op}: root {root} is none of the members 0 to {n - 1}.")


def _check_splits(op: str, n: int, splits: Sequence[Sequence[int]] | None) -> None:
    if op != "all_to_all_v":
        if splits is not None:
            raise ScenarioError(f"{op} has no splits; only all_to_all_v has. Leave them out.")
        return
    if splits is None or len(splits) != n or any(len(row) != n for row in splits):
        raise ScenarioError(f"all_to_all_v among {n} members needs {n} rows of {n} splits each.")
    worst = min((split, i, j) for i, row in enumerate(splits) for j, split in enumerate(row))
    if worst[0] < 0:
        raise ScenarioError(f"all_to_all_v: {worst[0]} bytes from {worst[1]} to {worst[2]}.")
