"""
Algorithms side by side: their pages next to each other, played on one clock.

A step costs the latency of its messages and the bytes of its busiest rank: the alpha-beta model
with one port per rank, whose size, latency and bandwidth stand on sliders.

    time = sum over steps of  α + share * S / B
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from commsim.charts.explain.page import explain_page, explain_scripts
from commsim.charts.explain.text import headline
from commsim.charts.page import policy, scripts_of
from commsim.charts.theme import plain
from commsim.collectives import Move, Walk

__all__ = ["explain_together", "step_shares"]

_TEMPLATE = Path(__file__).with_name("together.html")
_LEAD = (
    "Each bar is a step, as long as it takes: latency α, and the bytes of its busiest rank over its"
    " bandwidth B. Move the size: few steps win for small sizes, few bytes for large ones."
)


def step_shares(walk: Walk) -> list[float]:
    """Return, per step, the share of S that its busiest rank sends or receives."""
    return [_busiest(walk, step.moves) for step in walk.stages]


def _busiest(walk: Walk, moves: Sequence[Move]) -> float:
    program = walk.program
    sent, received = np.zeros(program.actors), np.zeros(program.actors)
    for move in moves:
        if move.source != move.target:
            size = float(sum(_size(walk, place) for place in move.places))
            sent[move.source] += size
            received[move.target] += size
    ranks = slice(0, program.n)  # a switch forwards on every port at once
    return float(max(sent[ranks].max(initial=0.0), received[ranks].max(initial=0.0)))


def _size(walk: Walk, place: int) -> float:
    """Return the share of S at a place: those of one chunk's places are all alike."""
    share = walk.program.share
    return float(share[place] if place < len(share) else share.max(initial=0.0))


def explain_together(walks: Sequence[Walk], *, per_node: Sequence[int]) -> str:
    """Return the page as HTML text.

    Raises:
        ScenarioError: a program too large to draw.
    """
    data = [{"name": plain(walk.program.algorithm), "shares": step_shares(walk)} for walk in walks]
    title = " and ".join(walk.program.algorithm for walk in walks)
    panels = [
        _panel(walk, explain_page(walk, per_node=rows, embedded=True))
        for walk, rows in zip(walks, per_node, strict=True)
    ]
    page = _TEMPLATE.read_text(encoding="utf-8")
    texts = {
        "@POLICY@": policy(*scripts_of(page), *explain_scripts()),  # panels inherit it
        "@TITLE@": escape(plain(title)),
        "@LEAD@": escape(_LEAD),
        "@DATA@": json.dumps(data).replace("<", "\\u003c"),
        "@PANELS@": "".join(panels),
    }
    for mark, text in texts.items():
        page = page.replace(mark, text)
    return page


def _panel(walk: Walk, page: str) -> str:
    title, figures = headline(walk)
    name = escape(plain(title))
    return (
        f'<section class="panel"><h2>{name}</h2><span class="time"></span>'
        f' <span class="cost">{escape(plain(figures))}</span><div class="steps"></div>'
        '<div class="axis"><span>0</span><span></span></div>'
        f'<iframe title="{name}" srcdoc="{escape(page)}"></iframe></section>'
    )
