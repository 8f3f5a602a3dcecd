"""
An algorithm as a strip: one panel per step, with its messages and what all ranks hold then.
"""

from __future__ import annotations

from html import escape
from math import ceil, hypot

import numpy as np

from commsim.charts.explain.layout import ActorFrame, Card, Point, frame
from commsim.charts.explain.text import actor_name, headline, place_list, place_name
from commsim.charts.explain.views import Views, views
from commsim.charts.theme import FAMILIES, FONT, GRID, INK, LINES, MUTED, PAPER, svg_text
from commsim.collectives import Move, Picture, Walk
from commsim.errors import ScenarioError
from commsim.ops import REDUCING

__all__ = ["MOST_PANELS", "cell_colour", "explain_svg"]

MOST_PANELS = 65
_WIDTH, _MARGIN, _TOP, _GAP = 1240, 24, 80, 16
_LABEL = 15  # height of a card's name
_ADDS, _COPIES = FAMILIES[5].fill, FAMILIES[6].fill


def cell_colour(chunk: int) -> str:
    """Return the colour of a chunk; colours repeat after eight, numbers tell them apart."""
    return LINES[chunk % len(LINES)]


def explain_svg(walk: Walk, *, per_node: int = 0) -> str:
    """Return a standalone SVG document.

    Raises:
        ScenarioError: more steps than a strip can show.
    """
    if len(walk.stages) >= MOST_PANELS:
        raise ScenarioError(
            f"{len(walk.stages)} steps are too many for a strip (at most {MOST_PANELS - 1})."
            " Write .html, or take fewer ranks (-n)."
        )
    shown = views(walk, per_node=per_node)
    room = frame(walk.program, shown, per_node=per_node)
    panels = len(walk.stages) + 1
    across = min(max(1, int((_WIDTH - 2 * _MARGIN + _GAP) // (room.width + _GAP))), panels)
    width = max(across * (room.width + _GAP) - _GAP + 2 * _MARGIN, 560)
    height = _TOP + ceil(panels / across) * (room.height + _GAP) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' width="{width:.0f}" height="{height:.0f}" font-family="{escape(FONT)}">',
        _ARROWS,
        f'<rect width="100%" height="100%" fill="{PAPER}"/>',
        svg_text(_MARGIN, 34, headline(walk)[0], 18, INK, weight="bold"),
        svg_text(_MARGIN, 56, headline(walk)[1], 12, MUTED),
        _legend(height),
    ]
    for index in range(panels):
        x = _MARGIN + index % across * (room.width + _GAP)
        y = _TOP + index // across * (room.height + _GAP)
        parts.append(f'<g transform="translate({x:.0f} {y:.0f})">')
        parts += _panel(walk, index, room, shown)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


_ARROWS = (
    "<defs>"
    + "".join(
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        f' orient="auto"><path d="M0 0 8 4 0 8z" fill="{colour}"/></marker>'
        for name, colour in (("adds", _ADDS), ("copies", _COPIES))
    )
    + "</defs>"
)


def _panel(walk: Walk, index: int, room: ActorFrame, shown: Views) -> list[str]:
    """Return one panel: the moves of step `index` (0: none), and the picture after it."""
    moves = walk.stages[index - 1].moves if index else ()
    picture = walk.stages[index - 1].after if index else walk.start
    parts = [
        f'<rect width="{room.width:.0f}" height="{room.height:.0f}" rx="6" fill="none"'
        f' stroke="{GRID}"/>',
        svg_text(10, 18, f"step {index}" if index else "start", 12, INK, weight="bold"),
    ]
    parts += [svg_text(x, y, text, 11, MUTED, anchor="middle") for x, y, text in room.titles]
    fresh = {(move.target, place) for move in moves for place in move.into}
    for source, target, move in shown.moves(moves):
        if source != target:
            parts += _arrow(walk, move, (source, target), room, labelled=len(moves) <= 16)
    for spot in range(shown.spots):
        parts += _actor(walk, picture, spot, room, shown, fresh)
    return parts


def _arrow(
    walk: Walk, move: Move, ends: tuple[int, int], room: ActorFrame, *, labelled: bool
) -> list[str]:
    """Return a curve from card to card, bent to its left so that both ways can be seen."""
    (xa, ya), (xb, yb) = room.spots[ends[0]], room.spots[ends[1]]
    length = hypot(xb - xa, yb - ya) or 1
    ux, uy = (xb - xa) / length, (yb - ya) / length
    bend = _bend(room, ends, length)
    xm, ym = (xa + xb) / 2 + uy * bend, (ya + yb) / 2 - ux * bend
    start, end = _edge(xa, ya, xm, ym, room.card), _edge(xb, yb, xm, ym, room.card)
    kind, colour = ("adds", _ADDS) if move.adds else ("copies", _COPIES)
    parts = [
        f'<path d="M{start[0]:.1f} {start[1]:.1f}Q{xm:.1f} {ym:.1f} {end[0]:.1f} {end[1]:.1f}"'
        f' fill="none" stroke="{colour}" stroke-width="1.6" marker-end="url(#{kind})"/>'
    ]
    label = place_list(walk, move.places, most=3)
    if labelled and len(label) <= 9:
        x, y = (start[0] + 2 * xm + end[0]) / 4, (start[1] + 2 * ym + end[1]) / 4
        wide = 6.2 * len(label) + 6
        parts.append(
            f'<rect x="{x - wide / 2:.1f}" y="{y - 7.5:.1f}" width="{wide:.1f}" height="14"'
            f' rx="3" fill="{PAPER}" fill-opacity=".9"/>'
        )
        parts.append(svg_text(x, y + 4, label, 10, colour, anchor="middle", weight="bold"))
    return parts


def _bend(room: ActorFrame, ends: tuple[int, int], length: float) -> float:
    """Return how far a curve leaves the straight line: further where a card is in its way."""
    (xa, ya), (xb, yb) = room.spots[ends[0]], room.spots[ends[1]]
    for actor, (x, y) in enumerate(room.spots):
        if actor in ends:
            continue
        along = ((x - xa) * (xb - xa) + (y - ya) * (yb - ya)) / length
        aside = abs((x - xa) * (yb - ya) - (y - ya) * (xb - xa)) / length
        if 0 < along < length and aside < 4:
            level = abs(yb - ya) < abs(xb - xa)
            return 2 * ((room.card.height if level else room.card.width) / 2 + 12)
    return min(22.0, length / 6)


def _edge(x: float, y: float, to_x: float, to_y: float, card: Card) -> Point:
    """Return where a line from a card's middle leaves the card."""
    dx, dy = to_x - x, to_y - y
    across = (card.width / 2 + 4) / abs(dx) if dx else np.inf
    down = (card.height / 2 + 4) / abs(dy) if dy else np.inf
    share = min(across, down, 1.0)
    return x + dx * share, y + dy * share


def _actor(
    walk: Walk,
    picture: Picture,
    spot: int,
    room: ActorFrame,
    shown: Views,
    fresh: set[tuple[int, int]],
) -> list[str]:
    (x, y), card = room.spots[spot], room.card
    actor, places = shown.of_spot(spot)
    left, top = x - card.columns * card.cell / 2, y - card.height / 2
    parts = [svg_text(x, top + 10, actor_name(walk, actor), 11, INK, anchor="middle")]
    for i, place in enumerate(places):
        cx = left + i % card.columns * card.cell
        cy = top + _LABEL + i // card.columns * card.cell
        parts += _cell(walk, picture, actor, place, cx, cy, card.cell, (actor, place) in fresh)
    return parts


def _cell(
    walk: Walk,
    picture: Picture,
    actor: int,
    place: int,
    x: float,
    y: float,
    size: int,
    fresh: bool,
) -> list[str]:
    """Return a cell: filled from below as far as its sum is complete, full when it is done."""
    chunk, inner = int(picture.chunk[actor, place]), size - 1
    parts = [f'<rect x="{x:.1f}" y="{y:.1f}" width="{inner}" height="{inner}" fill="#F3F4F6"/>']
    done = bool(picture.done[actor, place])
    if chunk >= 0:
        of = walk.program.n if walk.program.op in REDUCING else 1
        share = picture.parts[actor, place] / of
        high = inner * share
        parts.append(
            f'<rect x="{x:.1f}" y="{y + inner - high:.1f}" width="{inner}" height="{high:.1f}"'
            f' fill="{cell_colour(chunk)}" fill-opacity="{1 if done else 0.45}"/>'
        )
    if size >= 15:
        name = place_name(walk, place)
        colour = PAPER if done else INK if chunk >= 0 else "#9CA3AF"
        small = 10 if len(name) < 3 else 8
        parts.append(
            svg_text(x + inner / 2, y + inner / 2 + 3.5, name, small, colour, anchor="middle")
        )
    if fresh and size >= 8:
        parts.append(
            f'<rect x="{x - 0.5:.1f}" y="{y - 0.5:.1f}" width="{inner + 1}" height="{inner + 1}"'
            f' fill="none" stroke="{INK}" stroke-width="1.5"/>'
        )
    return parts


def _legend(height: float) -> str:
    y = height - 16
    return "".join(
        (
            f'<path d="M{_MARGIN} {y - 4}h22" stroke="{_ADDS}" stroke-width="1.6"'
            ' marker-end="url(#adds)"/>',
            svg_text(_MARGIN + 30, y, "adds", 12, INK),
            f'<path d="M{_MARGIN + 78} {y - 4}h22" stroke="{_COPIES}" stroke-width="1.6"'
            ' marker-end="url(#copies)"/>',
            svg_text(_MARGIN + 108, y, "copies", 12, INK),
            svg_text(
                _MARGIN + 166,
                y,
                "pale: not yet what the op promises · framed: just arrived",
                12,
                MUTED,
            ),
        )
    )
