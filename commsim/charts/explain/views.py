"""
What of a program stands in a picture of its own: the two trees of a double tree.

Half of the pieces take one tree and half the other. Drawn on one circle nobody sees a tree; with
a picture per tree, each with the pieces that it carries, both are seen. All else has one view.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from commsim.arrays import Bools, Ints
from commsim.collectives import Move, Program, Walk
from commsim.ops import PAIRED

__all__ = ["Views", "tree_levels", "views"]


class Views(msgspec.Struct, frozen=True):
    """The places that each view shows; with several, the ranks of each one's tree by level.

    A spot is an actor in a view: actor + view x actors.
    """

    actors: int
    places: tuple[tuple[int, ...], ...]
    trees: tuple[list[list[int]], ...] = ()

    @property
    def spots(self) -> int:
        """How many cards are drawn."""
        return self.actors * len(self.places)

    @property
    def cells(self) -> int:
        """How many cells a card has at most."""
        return max(len(places) for places in self.places)

    def of_spot(self, spot: int) -> tuple[int, tuple[int, ...]]:
        """Return the actor of a spot, and the places that it shows."""
        return spot % self.actors, self.places[spot // self.actors]

    def moves(self, moves: tuple[Move, ...]) -> list[tuple[int, int, Move]]:
        """Return (source, target) spots and what goes there; a move of two views becomes two."""
        if len(self.places) == 1:
            return [(move.source, move.target, move) for move in moves]
        found = []
        for view, shown in enumerate(self.places):
            first = view * self.actors
            for move in moves:
                kept = [p for p in zip(move.places, move.into, strict=True) if p[1] in shown]
                if kept:
                    places, into = zip(*kept, strict=True)
                    part = replace(move, places=tuple(places), into=tuple(into))
                    found.append((move.source + first, move.target + first, part))
        return found


def views(walk: Walk, *, per_node: int = 0) -> Views:
    """Return the pictures of a walk: two where its pieces take two trees, else one."""
    program = walk.program
    shown = np.flatnonzero(walk.bare)
    trees = None if per_node or program.switches else _two_trees(program, shown)
    if trees is None:
        return Views(program.actors, (tuple(shown.tolist()),))
    return Views(program.actors, tuple(p for p, _ in trees), tuple(tree for _, tree in trees))


def _two_trees(
    program: Program, shown: Ints
) -> list[tuple[tuple[int, ...], list[list[int]]]] | None:
    """Return the places and levels of each tree, if the pieces take two."""
    if program.layout is not None or program.op in PAIRED or len(shown) < 2:
        return None
    found: dict[frozenset[tuple[int, int]], list[int]] = {}
    for place in shown.tolist():
        of = _messages(program, [place])
        ends = zip(program.source[of].tolist(), program.target[of].tolist(), strict=True)
        found.setdefault(frozenset((min(e), max(e)) for e in ends), []).append(place)
        if len(found) > 2:
            return None
    if len(found) < 2:
        return None
    trees = []
    for places in found.values():
        of = _messages(program, places)
        # A root that is not the top of its tree hangs the tree below itself: a level more.
        levels = tree_levels(program, of, _top(program, of), spare=2)
        if levels is None:
            return None
        trees.append((tuple(places), levels))
    return trees


def _messages(program: Program, places: list[int]) -> Bools:
    """Return which messages carry something of these chunks."""
    of = np.zeros(len(program), bool)
    of[program.message[np.isin(program.chunk, places)]] = True
    return of


def _top(program: Program, of: Bools) -> int:
    """Return the rank to which sums go, or from which copies come."""
    up = of & program.reduce
    ends = program.source[up] if up.any() else program.target[of]
    left = sorted(set(range(program.n)) - set(ends.tolist()))
    return left[0] if left else max(program.root, 0)


def tree_levels(
    program: Program, of: Bools, root: int, *, spare: int = 1
) -> list[list[int]] | None:
    """Return the ranks level by level if the connections of these messages form a shallow tree.

    Shallow: as deep as a binary tree of so many ranks, and `spare` levels more.
    """
    n = program.n
    near: list[list[int]] = [[] for _ in range(n)]
    ends = zip(program.source[of].tolist(), program.target[of].tolist(), strict=True)
    pairs = sorted({(min(a, b), max(a, b)) for a, b in ends if a != b})
    for a, b in pairs:
        near[a].append(b)
        near[b].append(a)
    if len(pairs) != n - 1 or n < 3:
        return None
    levels, seen = [[root]], {root}
    while levels[-1]:
        below = [b for a in levels[-1] for b in near[a] if b not in seen]
        seen.update(below)
        levels.append(below)
    levels.pop()
    shallow = len(levels) <= n.bit_length() + spare
    return levels if len(seen) == n and shallow else None
