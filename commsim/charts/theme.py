"""
The look of every chart: colour is meaning, and the same everywhere.

Compute is cool and filled, communication warm, idle nearly paper; waiting is the pale, hatched
form of the communication it waits for. Text that comes from a trace passes `plain` (SVG) or
`markup` (plotly, which reads a little HTML) before it is drawn.
"""

from __future__ import annotations

import html
import re
from typing import Any, NamedTuple

from commsim.graph import OpKind, Phase
from commsim.metrics import PARTS
from commsim.ops import REDUCING

__all__ = [
    "ACCOUNT",
    "COMMUNICATION",
    "FAMILIES",
    "FONT",
    "GRID",
    "HATCH",
    "HOST",
    "IDLE",
    "INK",
    "LANE",
    "LINES",
    "MUTED",
    "PAPER",
    "Family",
    "TimePart",
    "base_layout",
    "family_of",
    "markup",
    "plain",
    "plain_axis",
    "shorten",
    "svg_text",
    "time_unit",
    "tint",
]

PAPER = "#FFFFFF"
INK = "#1F2937"
MUTED = "#6B7280"
GRID = "#E5E7EB"
IDLE = "#F3F4F6"
HATCH = "#E3E6EA"
LANE = "#FAFAFB"  # the empty communication lane: paler than idle, which only compute can be
FONT = "Inter, 'Open Sans', 'Helvetica Neue', Arial, sans-serif"


class Family(NamedTuple):
    """One meaning that a box can have: its colour, and the ink that is legible on it."""

    label: str
    fill: str
    ink: str


FAMILIES = (
    Family("forward", "#4C78A8", PAPER),
    Family("backward", "#F2A65A", INK),
    Family("weight grad", "#8FBF88", INK),
    Family("optimizer", "#3F8F8B", PAPER),
    Family("compute", "#8FA9C4", INK),
    Family("reduce", "#C85C5C", PAPER),
    Family("gather", "#7B6BA8", PAPER),
    Family("send/recv", "#9C755F", PAPER),
    Family("copy", "#B3AE5C", INK),
    Family("host thread", "#C9A2D6", INK),
)
HOST = 9  # position in FAMILIES of work of CPU threads next to that of GPUs


class TimePart(NamedTuple):
    """A part of the account of time: its key in the JSON, its name, CSS class and colour."""

    key: str
    label: str
    look: str
    fill: str


ACCOUNT = tuple(
    TimePart(f"{part}_s", label, look, fill)
    for (part, label), (look, fill) in zip(
        PARTS.items(),
        (
            ("compute", "#4C78A8"),
            ("comm", "#C85C5C"),
            ("copy", "#B3AE5C"),
            ("waits", "#E5B4B4"),
            ("host", "#C9A2D6"),
            ("idle", IDLE),
        ),
        strict=True,
    )
)
COMMUNICATION = range(5, 8)  # positions in FAMILIES that can wait
_FORWARD, _COMPUTE, _REDUCE, _GATHER, _P2P, _COPY = 0, 4, 5, 6, 7, 8
_BY_PHASE = {
    Phase.FORWARD: _FORWARD,
    Phase.BACKWARD: 1,
    Phase.WEIGHT: 2,
    Phase.OPTIMIZER: 3,
}

LINES = ("#4C78A8", "#C85C5C", "#547326", "#8B3FC8", "#C67B1B", "#3F8F8B", "#9E4C6D", "#6B7280")
"""Colours of curves that stand for no op: algorithms, kinds of links.

All have a contrast of 3 with light and dark paper, and the first seven stay apart for eyes that
see fewer colours (the tests check both).
"""

_UNITS = (("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 10**3), ("ps", 1))
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]+")


def family_of(kind: int, phase: int, collective: str) -> int:
    """Return the position in FAMILIES of an op, by its OpKind, Phase and kind of collective.

    The reduce family does arithmetic on the way; everything else that many ranks do together
    only moves bytes and belongs to the gather family.
    """
    if kind == OpKind.COLLECTIVE:
        return _REDUCE if collective in REDUCING else _GATHER
    if kind in (OpKind.SEND, OpKind.RECV):
        return _P2P
    if kind == OpKind.COPY:
        return _COPY
    return _BY_PHASE.get(Phase(phase), _COMPUTE)


def tint(colour: str, strength: float) -> str:
    """Mix "#RRGGBB" with white; strength 1 leaves it, 0 is white."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - (255 - part) * strength):02X}" for part in parts)


def time_unit(window: float) -> tuple[str, int]:
    """Return the unit to show a window of `window` ps in, and the ps that it has."""
    for name, size in _UNITS:
        if window >= 2 * size:
            return name, size
    return _UNITS[-1]


def plain(text: str) -> str:
    """Return `text` without control characters, which neither XML nor a label can hold."""
    return _UNPRINTABLE.sub(" ", text).strip()


def shorten(text: str, limit: int = 64) -> str:
    """Cut a long name (CUDA kernels have hundreds of letters) in its middle."""
    if len(text) <= limit:
        return text
    head = (limit - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def markup(text: str) -> str:
    """Return `text` so that plotly shows it letter by letter, tags and entities included."""
    return html.escape(plain(text), quote=False)


def base_layout(title: str, subtitle: str, height: int) -> dict[str, Any]:
    """Return the layout that all charts start from; `title` and `subtitle` are plain text."""
    return {
        "template": "none",
        "height": height,
        "paper_bgcolor": PAPER,
        "plot_bgcolor": PAPER,
        "font": {"family": FONT, "size": 12, "color": INK},
        "title": {
            "text": f"<b>{markup(title)}</b>",
            "font": {"size": 18, "color": INK},
            "x": 0,
            "xanchor": "left",
            "xref": "container",
            "pad": {"l": 24, "t": 18},
            "y": 1,
            "yanchor": "top",
            "yref": "container",
            "subtitle": {"text": markup(subtitle), "font": {"size": 12, "color": MUTED}},
        },
        "margin": {"l": 24, "r": 24, "t": 96, "b": 48},
        "hoverlabel": {
            "bgcolor": "#111827",
            "bordercolor": "#111827",
            "align": "left",
            "font": {"family": FONT, "size": 12, "color": PAPER},
        },
        "legend": {
            "orientation": "h",
            "x": 1,
            "xanchor": "right",
            "y": 1,
            "yanchor": "bottom",
            "font": {"size": 12},
            "itemsizing": "constant",
        },
    }


def plain_axis(title: str) -> dict[str, Any]:
    """Return the layout of an axis with a title and a light grid."""
    return {
        "title": {"text": title, "font": {"size": 12, "color": MUTED}},
        "gridcolor": GRID,
        "zeroline": False,
        "tickfont": {"size": 11, "color": MUTED},
        "automargin": True,
    }


def svg_text(
    x: float,
    y: float,
    text: str,
    size: int,
    colour: str,
    *,
    anchor: str = "start",
    weight: str = "normal",
) -> str:
    """Return a text element of an SVG; markup of `text` is dropped."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}"'
        f' text-anchor="{anchor}" font-weight="{weight}">{html.escape(plain(text))}</text>'
    )
