"""
An algorithm as a page that plays: one self-contained file, drawn by the script in explain.html.

The page holds the same pictures as the strip: per step what moves, and which cells change.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from commsim.charts.explain.layout import frame
from commsim.charts.explain.text import actor_name, headline, move_text, place_list, place_name
from commsim.charts.explain.views import Views, views
from commsim.charts.page import policy, scripts_of
from commsim.charts.theme import LINES, plain
from commsim.collectives import Move, Picture, Walk
from commsim.errors import ScenarioError
from commsim.ops import REDUCING

__all__ = ["explain_page", "explain_scripts"]

_TEMPLATE = Path(__file__).with_name("explain.html")
_MOST_CHANGES = 300_000  # cells; above, browsers become slow


def explain_page(walk: Walk, *, per_node: int = 0, embedded: bool = False) -> str:
    """Return the page as HTML text; an `embedded` one is told by the page around it where to be.

    Raises:
        ScenarioError: a program too large to draw.
    """
    shown = views(walk, per_node=per_node)
    rows = len(walk.program.chunk) + walk.program.actors * int(walk.bare.sum())
    if rows > _MOST_CHANGES:
        raise ScenarioError(
            f"{walk.program!r} has {rows:,} cells to draw, too many for a page. Take fewer"
            " ranks (-n)."
        )
    title, figures = headline(walk)
    data = json.dumps(_data(walk, shown, per_node), separators=(",", ":"))
    page = _TEMPLATE.read_text(encoding="utf-8")
    texts = {
        "@POLICY@": policy(*explain_scripts()),
        "@TITLE@": escape(plain(title)),
        "@FIGURES@": escape(plain(figures)),
        "@KEY@": _key(walk),
        "@BODY@": ' class="embedded"' if embedded else "",
        # "<" could end the script element, whatever a file's names hold
        "@DATA@": data.replace("<", "\\u003c"),
    }
    for mark, text in texts.items():
        page = page.replace(mark, text)
    return page


def explain_scripts() -> list[str]:
    """Return the scripts of the page."""
    return scripts_of(_TEMPLATE.read_text(encoding="utf-8"))


def _key(walk: Walk) -> str:
    filled = ""
    if walk.program.op in REDUCING:
        filled = "A cell is filled as far as its sum is complete. "
    return f"{filled}Pale: not yet what the op promises there. Framed: just arrived."


def _data(walk: Walk, shown: Views, per_node: int) -> dict[str, Any]:
    program = walk.program
    spots = [shown.of_spot(spot) for spot in range(shown.spots)]
    steps = [
        {
            "moves": [[source, target, *_move(walk, move)] for source, target, move in moves],
            "changes": _changes(stage.after, moves, shown),
        }
        for stage in walk.stages
        for moves in [shown.moves(stage.moves)]
    ]
    return {
        "actors": [actor_name(walk, actor) for actor, _ in spots],
        "names": [[place_name(walk, place) for place in places] for places in shown.places],
        "colours": list(LINES),
        "of": program.n if program.op in REDUCING else 1,
        "start": [[_cell(walk.start, actor, place) for place in places] for actor, places in spots],
        "steps": steps,
        "views": {
            name: _view(walk, shown, per_node, narrow=name == "narrow")
            for name in ("wide", "narrow")
        },
    }


def _view(walk: Walk, shown: Views, per_node: int, *, narrow: bool) -> dict[str, Any]:
    room = frame(walk.program, shown, per_node=per_node, narrow=narrow)
    return {
        "size": [round(room.width), round(room.height)],
        "card": [room.card.width, room.card.height],
        "columns": room.card.columns,
        "cell": room.card.cell,
        "spots": [[round(x, 1), round(y, 1)] for x, y in room.spots],
        "titles": [[round(x, 1), round(y, 1), text] for x, y, text in room.titles],
    }


def _move(walk: Walk, move: Move) -> list[Any]:
    """Return [adds, chunks for their colour, short label, words]."""
    return [
        int(move.adds),
        list(move.places[:6]),
        place_list(walk, move.places, most=3),
        move_text(walk, move),
    ]


def _cell(picture: Picture, actor: int, place: int) -> list[int]:
    done = int(picture.done[actor, place])
    return [int(picture.chunk[actor, place]), int(picture.parts[actor, place]), done]


def _changes(
    after: Picture, moves: Sequence[tuple[int, int, Move]], shown: Views
) -> list[list[int]]:
    """Return the cells that the moves of a step reach, with what is in them afterwards."""
    reached = dict.fromkeys((target, place) for _, target, move in moves for place in move.into)
    index = [{place: i for i, place in enumerate(places)} for places in shown.places]
    return [
        [spot, index[spot // shown.actors][place], *_cell(after, spot % shown.actors, place)]
        for spot, place in reached
    ]
