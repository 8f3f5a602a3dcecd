"""
Pieces of HTML: escaped text, tables, stacked bars, and areas over time.

Colours are names of CSS variables or `#RRGGBB`; every text passes `text`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from commsim.arrays import Floats
from commsim.charts.theme import plain, time_unit

__all__ = [
    "HEIGHTS",
    "BarPart",
    "and_equal",
    "area",
    "legend",
    "percent",
    "stack",
    "table",
    "text",
    "time_ticks",
]

HEIGHTS = (0.05, 0.1, 0.25, 0.5, 1.0)
"""Parts of what there is (of a link, of a memory) that the height of an area may stand for."""


class BarPart(NamedTuple):
    """One part of a stacked bar: its class of colour, its share of the whole, what it says."""

    look: str
    share: float
    words: str


def text(value: str) -> str:
    """Return `value` so that a browser shows it letter by letter."""
    return escape(plain(value))


def percent(value: float) -> str:
    """Write a fraction as "12.3%"; "<0.1%" for what would be rounded to nothing."""
    return "<0.1%" if 0 < value < 0.0005 else f"{value:.1%}"


def stack(parts: Iterable[BarPart], *, tall: bool = False) -> str:
    """Return a bar whose parts take their shares of its width; what is left stays empty."""
    spans = (
        f'<span class="{p.look}" style="width:{100 * p.share:.4g}%" title="{text(p.words)}"></span>'
        for p in parts
        if p.share > 0
    )
    return f'<div class="bar{" tall" if tall else ""}">{"".join(spans)}</div>'


def and_equal(others: int) -> str:
    """Return " and 7 equal" in muted ink, "" for no others."""
    return f" <span class=muted>and {others:,} equal</span>" if others else ""


def legend(items: Iterable[tuple[str, str]]) -> str:
    """Return what the colours mean, as (class of colour, label)."""
    marks = (f'<span><i class="{look}"></i>{text(label)}</span>' for look, label in items)
    return f'<p class="key">{"".join(marks)}</p>'


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Iterable[int] = (),
    look: str = "",
) -> str:
    """Return a table; cells are HTML, columns numbered in `right` are flush right.

    `look` is a class: "bars" and "areas" give their second column the room that is left, and
    "stacked" puts a row's cells below each other on a narrow page.
    """
    flush, heads = set(right), [text(one) for one in head]

    def cell(tag: str, at: int, inner: str) -> str:
        right = ' class="right"' if at in flush else ""
        label = f' data-label="{heads[at]}"' if tag == "td" and heads[at] else ""
        return f"<{tag}{right}{label}>{inner}</{tag}>"

    def line(tag: str, row: Sequence[str]) -> str:
        return f"<tr>{''.join(cell(tag, at, inner) for at, inner in enumerate(row))}</tr>\n"

    body = "".join(line("td", row) for row in rows)
    return (
        f'<div class="scroll"><table class="{look}"><thead>{line("th", heads)}</thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def area(time: Floats, level: Floats, *, look: str = "", base: float = 0.0) -> str:
    """Return steps over time as a filled area; `time` and `level` lie in 0..1.

    `level[i]` holds from `time[i]` to `time[i + 1]`. Below `base` a second area is drawn.
    """
    points, last = [f"M{1000 * time[0]:.4g} 100"], -1.0
    for left, right, height in zip(time[:-1], time[1:], level, strict=True):
        if height != last:
            points.append(f"L{1000 * left:.5g} {100 - 100 * height:.4g}")
        points.append(f"H{1000 * right:.5g}")
        last = height
    path = "".join(_joined(points)) + "V100Z"
    size = f'y="{100 - 100 * base:.4g}" width="1000" height="{100 * base:.4g}"'
    floor = f'<rect class="base" x="0" {size}/>'
    return (
        '<svg class="area" viewBox="0 0 1000 100" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="{look}" d="{path}"/>{floor if base > 0 else ""}</svg>'
    )


def _joined(points: list[str]) -> list[str]:
    """Leave out each horizontal stroke that another one follows."""
    kept = [a for a, b in zip(points, points[1:], strict=False) if not (a[0] == b[0] == "H")]
    return [*kept, points[-1]]


def time_ticks(window: float) -> str:
    """Return the axis below an area of `window` ps: zero, middle, end."""
    unit, size = time_unit(window)
    marks = "".join(f"<span>{window * part / size:.4g} {unit}</span>" for part in (0, 0.5, 1))
    return f'<div class="ticks">{marks}</div>'
