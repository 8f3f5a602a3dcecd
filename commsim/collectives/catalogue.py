"""
Which op can be done by which algorithm, and the program for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import msgspec
import numpy as np

from commsim.arrays import Floats
from commsim.collectives import (
    bcube,
    binomial,
    bruck,
    direct,
    doubling,
    ring,
    switches,
    torus,
    tree,
    two_level,
)
from commsim.collectives.checker import check
from commsim.collectives.program import Program, ProgramBuilder
from commsim.errors import ScenarioError, did_you_mean
from commsim.ops import COLLECTIVES, ROOTED
from commsim.registry import Registry

__all__ = [
    "ALGORITHMS",
    "Ask",
    "CollectiveAlgorithm",
    "algorithms_for",
    "default_per_node",
    "is_switched",
    "is_two_level",
    "pair_sizes",
    "program",
    "register_algorithm",
]

Splits = tuple[tuple[int, ...], ...]


class Ask(msgspec.Struct, frozen=True):
    """What a program is asked for: members, root, pieces, members per node, and splits.

    `dims`: nodes per dimension, where the network is a torus.
    """

    n: int
    root: int = 0
    pieces: int = 1
    per_node: int = 0
    splits: Splits = ()
    dims: tuple[int, ...] = ()


Make = Callable[[Ask], Program]


class CollectiveAlgorithm(msgspec.Struct, frozen=True):
    """A way to do an op, as a chunk program.

    `switched`: it needs switches that reduce or multicast. `two_level`: it knows nodes, or rows,
    all of one size. `members` says in words which numbers of members it can do, and `fits` tells
    whether n is one of them.
    """

    op: str
    name: str
    make: Make
    switched: bool = False
    two_level: bool = False
    members: str = "any number"
    fits: Callable[[int], bool] = lambda n: True
    proven: bool = False
    """The tests prove it; the programs of others are checked when they are made."""


MEMBERS: dict[str, Callable[[int], bool]] = {
    "any number": lambda n: True,
    "an even number": lambda n: n % 2 == 0,
    "a power of two": lambda n: n & (n - 1) == 0,
}
"""What an algorithm may need of its number of members."""

ALGORITHMS: Registry[tuple[str, str], CollectiveAlgorithm] = Registry("algorithm")
"""Every algorithm by (op, name)."""


def register_algorithm(
    op: str,
    name: str,
    *,
    members: str = "any number",
    switched: bool = False,
    two_level: bool = False,
) -> Callable[[Make], Make]:
    """Return a decorator that registers a function as an algorithm for `op`.

    The function gets an `Ask` (n, root, pieces, per_node, splits) and returns a `Program`, made
    with a `ProgramBuilder`. `members`: "any number", "an even number" or "a power of two".
    `commsim bench`, `explain` and `{name: ideal, algo: NAME}` know it from then on.

    Raises:
        ScenarioError: no such op, the name is taken, or unknown `members`.
    """
    _check_op(op)
    if members not in MEMBERS:
        raise ScenarioError(f"members: {members!r} is not one of: {', '.join(MEMBERS)}.")

    def register(make: Make) -> Make:
        ALGORITHMS.add(
            (op, name),
            CollectiveAlgorithm(op, name, make, switched, two_level, members, MEMBERS[members]),
        )
        return make

    return register


def _trees(name: str) -> dict[tuple[str, str], Make]:
    return {
        ("all_reduce", name): lambda a: tree.all_reduce(name, a.n, a.pieces),
        ("broadcast", name): lambda a: tree.broadcast(name, a.n, a.root, a.pieces),
        ("reduce", name): lambda a: tree.reduce(name, a.n, a.root, a.pieces),
    }


def _torus(op: str) -> Make:
    """Return the algorithm along every dimension of a torus, or along rows and columns."""
    every, flat = getattr(torus, op), getattr(two_level, op)

    def make(ask: Ask) -> Program:
        made = every(ask.dims, ask.per_node) if ask.dims else flat("torus", ask.n, ask.per_node)
        assert isinstance(made, Program)
        return made

    return make


def _two_levels(name: str) -> dict[tuple[str, str], Make]:
    return {
        ("all_reduce", name): lambda a: two_level.all_reduce(name, a.n, a.per_node),
        ("reduce_scatter", name): lambda a: two_level.reduce_scatter(name, a.n, a.per_node),
        ("all_gather", name): lambda a: two_level.all_gather(name, a.n, a.per_node),
    }


_BUILT_IN: dict[tuple[str, str], Make] = {
    ("all_reduce", "ring"): lambda a: ring.all_reduce(a.n),
    ("reduce_scatter", "ring"): lambda a: ring.reduce_scatter(a.n),
    ("all_gather", "ring"): lambda a: ring.all_gather(a.n),
    ("broadcast", "ring"): lambda a: ring.broadcast(a.n, a.root, a.pieces),
    ("reduce", "ring"): lambda a: ring.reduce(a.n, a.root, a.pieces),
    ("scatter", "ring"): lambda a: ring.scatter(a.n, a.root),
    ("gather", "ring"): lambda a: ring.gather(a.n, a.root),
    ("all_to_all", "ring"): lambda a: ring.all_to_all(a.n),
    ("barrier", "ring"): lambda a: ring.barrier(a.n),
    ("all_reduce", "ring_chunked"): lambda a: ring.chunked_all_reduce(a.n, a.pieces),
    **_trees("tree"),
    ("scatter", "tree"): lambda a: tree.scatter(a.n, a.root),
    ("gather", "tree"): lambda a: tree.gather(a.n, a.root),
    ("barrier", "tree"): lambda a: tree.barrier("tree", a.n),
    **_trees("double_tree"),
    ("all_reduce", "binomial"): lambda a: binomial.all_reduce(a.n),
    ("broadcast", "binomial"): lambda a: binomial.broadcast(a.n, a.root),
    ("reduce", "binomial"): lambda a: binomial.reduce(a.n, a.root),
    ("scatter", "binomial"): lambda a: binomial.scatter(a.n, a.root),
    ("gather", "binomial"): lambda a: binomial.gather(a.n, a.root),
    ("all_reduce", "halving_doubling"): lambda a: doubling.all_reduce(a.n),
    ("reduce_scatter", "halving_doubling"): lambda a: doubling.reduce_scatter(a.n),
    ("all_gather", "halving_doubling"): lambda a: doubling.all_gather(a.n),
    ("broadcast", "halving_doubling"): lambda a: doubling.broadcast(a.n, a.root),
    ("reduce", "halving_doubling"): lambda a: doubling.reduce(a.n, a.root),
    ("barrier", "halving_doubling"): lambda a: doubling.barrier(a.n),
    ("all_reduce", "bcube"): lambda a: bcube.all_reduce(a.n),
    ("reduce_scatter", "bcube"): lambda a: bcube.reduce_scatter(a.n),
    ("all_gather", "bcube"): lambda a: bcube.all_gather(a.n),
    ("all_gather", "bruck"): lambda a: bruck.all_gather(a.n),
    ("all_to_all", "bruck"): lambda a: bruck.all_to_all(a.n),
    ("barrier", "dissemination"): lambda a: bruck.barrier(a.n),
    ("all_gather", "pat"): lambda a: bruck.pat_all_gather(a.n),
    ("reduce_scatter", "pat"): lambda a: bruck.pat_reduce_scatter(a.n),
    ("all_reduce", "direct"): lambda a: direct.all_reduce(a.n),
    ("reduce_scatter", "direct"): lambda a: direct.reduce_scatter(a.n),
    ("all_gather", "direct"): lambda a: direct.all_gather(a.n),
    ("all_to_all", "direct"): lambda a: direct.all_to_all(a.n),
    ("all_to_all_v", "direct"): lambda a: direct.all_to_all_v(a.n, a.splits),
    ("broadcast", "direct"): lambda a: direct.broadcast(a.n, a.root),
    ("reduce", "direct"): lambda a: direct.reduce(a.n, a.root),
    ("scatter", "direct"): lambda a: direct.scatter(a.n, a.root),
    ("gather", "direct"): lambda a: direct.gather(a.n, a.root),
    ("barrier", "direct"): lambda a: direct.barrier(a.n),
    ("all_to_all", "pairwise"): lambda a: direct.pairwise_all_to_all(a.n),
    ("all_reduce", "server"): lambda a: direct.server_all_reduce(a.n),
    ("reduce", "server"): lambda a: direct.reduce(a.n, a.root, name="server"),
    **_two_levels("hierarchical"),
    **{(op, "torus"): _torus(op) for op in ("all_reduce", "reduce_scatter", "all_gather")},
    ("all_reduce", "nvls"): lambda a: switches.nvls_all_reduce(a.n, a.pieces),
    ("reduce_scatter", "nvls"): lambda a: switches.nvls_reduce_scatter(a.n, a.pieces),
    ("all_gather", "nvls"): lambda a: switches.nvls_all_gather(a.n, a.pieces),
    ("all_reduce", "nvls_tree"): lambda a: switches.nvls_tree(a.n, a.per_node, a.pieces),
    ("all_reduce", "sharp"): lambda a: switches.sharp_all_reduce(a.n, a.pieces),
    ("reduce_scatter", "sharp"): lambda a: switches.sharp_reduce_scatter(a.n, a.pieces),
    ("all_gather", "sharp"): lambda a: switches.sharp_all_gather(a.n, a.pieces),
    ("broadcast", "sharp"): lambda a: switches.sharp_broadcast(a.n, a.root, a.pieces),
    ("reduce", "sharp"): lambda a: switches.sharp_reduce(a.n, a.root, a.pieces),
    ("barrier", "sharp"): lambda a: switches.sharp_barrier(a.n),
    ("all_reduce", "collnet_direct"): lambda a: switches.collnet_direct(a.n, a.per_node, a.pieces),
    ("all_reduce", "collnet_chain"): lambda a: switches.collnet_chain(a.n, a.per_node, a.pieces),
}

_SWITCHED = ("nvls", "nvls_tree", "sharp", "collnet_direct", "collnet_chain")
_TWO_LEVEL = ("hierarchical", "torus", "nvls_tree", "collnet_direct", "collnet_chain")
for (_op, _name), _make in _BUILT_IN.items():
    ALGORITHMS.add(
        (_op, _name),
        CollectiveAlgorithm(
            _op, _name, _make, _name in _SWITCHED, _name in _TWO_LEVEL, proven=True
        ),
    )


def is_two_level(algorithm: str) -> bool:
    """Say whether an algorithm, for any op, knows nodes or rows."""
    return any(each.two_level for each in _named(algorithm))


def is_switched(algorithm: str) -> bool:
    """Say whether an algorithm, for any op, needs switches that reduce or multicast."""
    return any(each.switched for each in _named(algorithm))


def _named(algorithm: str) -> Iterator[CollectiveAlgorithm]:
    for op in COLLECTIVES:
        found = ALGORITHMS.find((op, algorithm))
        if found is not None:
            yield found


def algorithms_for(op: str, *, n: int = 1, switched: bool = False) -> tuple[str, ...]:
    """Return the names of the algorithms that can do `op` among `n` ranks.

    `switched`: also those that need switches which reduce or multicast.
    """
    found = [ALGORITHMS.find(key) for key in ALGORITHMS if key[0] == op]
    return tuple(
        each.name
        for each in found
        if each and (switched or not each.switched) and (n == 1 or each.fits(n))
    )


def program(
    op: str,
    algorithm: str,
    n: int,
    *,
    root: int = 0,
    pieces: int = 1,
    per_node: int = 0,
    splits: Sequence[Sequence[int]] | None = None,
    dims: Sequence[int] = (),
) -> Program:
    """Return `op` among `n` members as a chunk program; a lone member has nothing to send.

    `root` is a member index, for rooted ops. `pieces` cuts the buffer of pipelined chains and
    trees. `per_node` is the size of a node, or of a row, for algorithms on two levels; members
    stand node by node. 0 takes the divisor of n that makes the two levels most equal.
    `splits[i][j]` are the bytes from i to j, for all_to_all_v. `dims` are the nodes in each
    dimension of a torus, for the algorithm of that name.

    Raises:
        ScenarioError: no such op or algorithm, the algorithm cannot do the op, or `n`, `root`,
            `pieces`, `per_node` or `splits` do not fit it.
    """
    _check_names(op, algorithm)
    _check_counts(op, n, root, pieces)
    _check_splits(op, n, splits)
    record = ALGORITHMS.get((op, algorithm), "algorithm")
    if n > 1 and not record.fits(n):
        raise ScenarioError(f"{algorithm} needs {record.members} of members, not {n}.")
    if record.two_level:
        per_node = per_node or default_per_node(n)
        if per_node < 0 or n % per_node:
            raise ScenarioError(
                f"{algorithm} among {n} members: nodes of {per_node} do not divide them evenly."
            )
    rows = tuple(tuple(row) for row in splits or ())
    if dims and math.prod(dims) * per_node != n:
        raise ScenarioError(
            f"{algorithm} among {n} members: a torus of {list(dims)} with {per_node} on each node"
            f" has {math.prod(dims) * per_node}."
        )
    return _made(op, algorithm, Ask(n, root, pieces, per_node, rows, tuple(dims)))


@lru_cache(maxsize=256)
def _made(op: str, algorithm: str, ask: Ask) -> Program:
    if ask.n == 1:
        share = [0.0 if op == "barrier" else 1.0]
        return ProgramBuilder(op, algorithm, 1, share, root=0 if op in ROOTED else -1).build()
    record = ALGORITHMS.get((op, algorithm), "algorithm")
    made = record.make(ask)
    if not record.proven:
        _prove(record, made, ask)
    return made


_MOST_PROVEN = 1 << 22  # entries of the state that the checker follows: members^2 x chunks


def _prove(record: CollectiveAlgorithm, made: Program, ask: Ask) -> None:
    """Raise ScenarioError if a program does not do what its op promises."""
    if (made.op, made.n) != (record.op, ask.n):
        raise ScenarioError(
            f"algorithm {record.name}: returned {made.op} among {made.n} members,"
            f" asked for {record.op} among {ask.n}."
        )
    if ask.n**2 * len(made.share) > _MOST_PROVEN:
        return
    problems = check(made)
    if problems:
        raise ScenarioError(
            f"algorithm {record.name}: not a correct {record.op}. {' '.join(problems[:3])}"
        )


def default_per_node(n: int) -> int:
    """Return the smallest divisor of n that is at least its square root."""
    return next(m for m in range(1, n + 1) if m * m >= n and n % m == 0)


def _check_op(op: str) -> None:
    if op not in COLLECTIVES:
        hint = did_you_mean(op, COLLECTIVES)
        raise ScenarioError(f"{op!r} is not a collective.{hint} Known: {', '.join(COLLECTIVES)}.")


def _check_names(op: str, algorithm: str) -> None:
    _check_op(op)
    if (op, algorithm) not in ALGORITHMS:
        possible = algorithms_for(op, switched=True)
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


def pair_sizes(
    op: str, n: int, size: float, splits: Sequence[Sequence[int]] | None = None
) -> Floats:
    """Return the bytes from each member to each other in an all-to-all of S = `size` bytes, (n, n).

    Raises:
        ScenarioError: `splits` are missing, are not asked for, or do not fit.
    """
    _check_splits(op, n, splits)
    if splits is None:
        return np.full((n, n), size / n)
    parts = np.array(splits, dtype=np.float64)
    return parts / (float(parts.sum(axis=1).max()) or 1.0) * size


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
