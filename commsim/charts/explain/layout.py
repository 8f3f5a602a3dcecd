"""
Positions of an algorithm's actors in a picture, in a unit square.

A circle, in which rings are rings (rows, if there are too many); levels if the connections
form a shallow tree; rows if the program knows nodes. Switches stand in the middle of those
that hang on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, cos, inf, pi, sin, sqrt

import msgspec
import numpy as np

from commsim.charts.explain.views import Views, tree_levels
from commsim.collectives import Program
from commsim.ops import PAIRED

__all__ = ["ActorFrame", "Card", "Point", "ViewTitle", "frame", "positions"]

Point = tuple[float, float]
ViewTitle = tuple[float, float, str]  # its middle, its baseline, its words

_MOST_ON_CIRCLE = 20  # ranks; more stand in rows
_LABEL = 15  # height of a card's name
_ACROSS, _DOWN = 72, 58  # least gap between neighbouring cards, room for an arrow with its label
_EDGE, _HEAD, _FOOT = 16, 30, 26  # next to the cards; above, for a title; below, for an arrow


class Card(msgspec.Struct, frozen=True):
    """The size of an actor: `columns` x `rows` cells of `cell` pixels under its name."""

    columns: int
    rows: int
    cell: int

    @property
    def width(self) -> int:
        """Its width in pixels."""
        return max(self.columns * self.cell, 46)

    @property
    def height(self) -> int:
        """Its height in pixels, the name included."""
        return self.rows * self.cell + _LABEL


class ActorFrame(msgspec.Struct, frozen=True):
    """A picture's size, and the middle of every actor's card, in pixels."""

    card: Card
    width: float
    height: float
    spots: tuple[Point, ...]
    titles: tuple[ViewTitle, ...] = ()


def frame(program: Program, shown: Views, *, per_node: int = 0, narrow: bool = False) -> ActorFrame:
    """Return where to draw every spot of the views; `narrow` for small screens."""
    cells = shown.cells
    whole = program.n if program.op in PAIRED and program.layout is None else 0
    card = _card(cells, narrow=narrow or program.actors > 4, columns=whole)
    unit = positions(program, per_node=per_node)
    if shown.trees:
        unit = _trees(shown.trees, below=narrow)
    width, height = _least_size(unit, card, narrow=narrow)
    spots = tuple(
        (_EDGE + card.width / 2 + x * width, _HEAD + card.height / 2 + y * height) for x, y in unit
    )
    return ActorFrame(
        card,
        width + card.width + 2 * _EDGE,
        height + card.height + _HEAD + _FOOT,
        spots,
        _titles(shown, spots, card),
    )


def _titles(shown: Views, spots: Sequence[Point], card: Card) -> tuple[ViewTitle, ...]:
    """Return what stands over the top of each tree."""
    found = []
    for view, levels in enumerate(shown.trees):
        x, y = spots[view * shown.actors + levels[0][0]]
        found.append((x, y - card.height / 2 - 7, f"tree {view + 1}"))
    return tuple(found)


def _card(count: int, *, narrow: bool, columns: int = 0) -> Card:
    """Return a card for so many cells: one row of a few, then about a square.

    `columns`: as many as that, if the cells are a table.
    """
    if not columns:
        columns = (
            count if count <= (4 if narrow else 8) else 4 if count <= 8 else ceil(sqrt(count) * 1.3)
        )
    cell = 17 if count <= 8 else 16 if count <= 36 else 8 if count <= 128 else 4
    return Card(max(columns, 1), ceil(max(count, 1) / max(columns, 1)), cell)


def _least_size(unit: list[Point], card: Card, *, narrow: bool) -> tuple[float, float]:
    """Return how far apart the outermost cards must be so that no two come too close."""
    width, height = 0.0, 0.0
    across, down = (_ACROSS / 2, _DOWN * 0.75) if narrow else (_ACROSS, _DOWN)
    for i, (xa, ya) in enumerate(unit):
        for xb, yb in unit[:i]:
            dx, dy = abs(xa - xb), abs(ya - yb)
            wide = (card.width + across) / dx if dx > 1e-9 else inf
            tall = (card.height + down) / dy if dy > 1e-9 else inf
            if wide <= tall:
                width = max(width, wide)
            else:
                height = max(height, tall)
    return width, height


def positions(program: Program, *, per_node: int = 0) -> list[Point]:
    """Return each actor's (x, y), from (0, 0) at the top left to (1, 1)."""
    n = program.n
    every = np.ones(len(program), bool)
    levels = None if program.switches else tree_levels(program, every, max(program.root, 0))
    if per_node and 1 < per_node < n:
        return _stretched(_rows(program, per_node))
    if levels is not None:
        return _stretched(_by_level(levels))
    if n > _MOST_ON_CIRCLE:
        return _stretched(_snake(n) + [(0.5, -0.3)] * len(program.switches))
    ranks = [_on_circle(i, n) for i in range(n)]
    return _stretched(ranks + [(0.5, 0.5)] * len(program.switches))


def _snake(n: int) -> list[Point]:
    """Return rows that turn at their ends, so that neighbours on a ring stay neighbours."""
    across = ceil(sqrt(n) * 1.2)
    down = ceil(n / across)
    places = []
    for i in range(n):
        row, at = divmod(i, across)
        column = at if row % 2 == 0 else across - 1 - at
        places.append((column / max(across - 1, 1), row / max(down - 1, 1)))
    return places


def _stretched(points: list[Point]) -> list[Point]:
    """Return the points so that they reach all four sides."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    wide, high = max(xs) - min(xs) or 1, max(ys) - min(ys) or 1
    return [((x - min(xs)) / wide, (y - min(ys)) / high) for x, y in points]


def _on_circle(i: int, n: int) -> Point:
    angle = 2 * pi * i / n - pi / 2 - (pi / 4 if n == 4 else 0)  # four stand as a square
    return 0.5 + 0.5 * cos(angle), 0.5 + 0.5 * sin(angle)


def _rows(program: Program, per_node: int) -> list[Point]:
    """Return one row per node, a switch of a node at its left, one of the network on top."""
    n, switches = program.n, len(program.switches)
    nodes = n // per_node
    own, top = switches == nodes, switches == 1
    first, above = (0.22 if own else 0.0), (0.3 if top else 0.0)
    across, down = max(per_node - 1, 1), max(nodes - 1, 1)
    ranks = [
        (
            first + (1 - first) * (i % per_node) / across,
            above + (1 - above) * (i // per_node) / down,
        )
        for i in range(n)
    ]
    if own and not top:
        return ranks + [(0.0, ranks[node * per_node][1]) for node in range(nodes)]
    return ranks + [(0.5, 0.0)] * switches


def _trees(trees: Sequence[list[list[int]]], *, below: bool) -> list[Point]:
    """Return trees next to each other, or one below the other."""
    found: list[Point] = []
    apart = 1 + 1 / max(len(level) for levels in trees for level in levels)
    for at, levels in enumerate(trees):
        for x, y in _by_level(levels):
            found.append((x, y + at * 1.5) if below else (x + at * apart, y))
    return _stretched(found)


def _by_level(levels: list[list[int]]) -> list[Point]:
    found: dict[int, Point] = {}
    for depth, level in enumerate(levels):
        for i, rank in enumerate(level):
            found[rank] = ((i + 0.5) / len(level), depth / max(len(levels) - 1, 1))
    return [found[rank] for rank in range(len(found))]
