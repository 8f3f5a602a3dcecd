"""
Which op can be done by which algorithm, and the program for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from commsim.collectives import direct, doubling, ring, tree
from commsim.collectives.ops import ROOTED
from commsim.collectives.program import Program, ProgramBuilder
from commsim.errors import ScenarioError, did_you_mean

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


@lru_cache(maxsize=256)
def program(
    op: str,
    algorithm: str,
    n: int,
    *,
    root: int = 0,
    pieces: int = 1,
    splits: Splits | None = None,
) -> Program:
    """Return `op` among `n` members as a chunk program.

    `pieces` cuts the buffer of pipelined chains and trees; `root` is a member index.

    Raises:
        ScenarioError: no such op or algorithm, or the algorithm cannot do the op.
    """
    possible = algorithms_for(op)
    if algorithm not in possible:
        hint = did_you_mean(algorithm, possible)
        raise ScenarioError(
            f"no algorithm {algorithm!r} for {op!r}.{hint} Possible: {', '.join(possible)}."
        )
    if n < 2:
        nobody = root if op in ROOTED else -1
        return ProgramBuilder(op, algorithm, n, [1.0], root=nobody).build()
    return ALGORITHMS[op, algorithm](n, root, pieces, splits or ())
