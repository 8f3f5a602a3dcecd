"""
The Gantt chart as SVG text: the same scene as `gantt`, written without a browser.
"""

from __future__ import annotations

from html import escape

from commsim.charts.gantt.figure import legend_label, numbers, pixels_per_row
from commsim.charts.gantt.headline import headline
from commsim.charts.gantt.scene import Scene, scene, strengths
from commsim.charts.theme import (
    FAMILIES,
    FONT,
    GRID,
    HATCH,
    IDLE,
    INK,
    LANE,
    MUTED,
    PAPER,
    svg_text,
    time_unit,
    tint,
)
from commsim.metrics import Metrics
from commsim.timeline import Timeline

__all__ = ["gantt_svg"]

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 1400, 86, 24, 104, 60
_DIGIT = 7.0  # pixels of a digit at 11 px
_GAP = 0.04  # the most of a box that the white line next to it may take
_LEGIBLE = 9.0  # pixels of a row: a lower one has no room for its name


def gantt_svg(
    timeline: Timeline,
    *,
    title: str | None = None,
    subtitle: str | None = None,
    metrics: Metrics | None = None,
) -> str:
    """Return the Gantt chart of `timeline` as a standalone SVG document."""
    picture = scene(timeline)
    text = headline(timeline, picture, metrics)
    below = " · ".join((text.subtitle if subtitle is None else subtitle, *picture.notes))
    row = pixels_per_row(picture)
    height = round(_TOP + _BOTTOM + picture.depth * row)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
        f' width="{_WIDTH}" height="{height}" font-family="{escape(FONT)}">',
        _PATTERN,
        f'<rect width="{_WIDTH}" height="{height}" fill="{PAPER}"/>',
        svg_text(24, 34, title or text.title, 18, INK, weight="bold"),
        svg_text(24, 56, below.strip(" ·"), 12, MUTED),
        *_legend(timeline, picture, text.idle),
        *_axis(picture, row, height),
        *_rows(picture, row),
        *_boxes(timeline, picture, row),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


_PATTERN = (
    '<defs><pattern id="idle" width="6" height="6" patternUnits="userSpaceOnUse"'
    f' patternTransform="rotate(45)"><rect width="6" height="6" fill="{IDLE}"/>'
    f'<rect width="1.5" height="6" fill="{HATCH}"/></pattern></defs>'
)


def _x(picture: Scene, time: float) -> float:
    share = (time - picture.begin) / (picture.end - picture.begin)
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _legend(timeline: Timeline, picture: Scene, idle: str) -> list[str]:
    """Return the legend, flush right under the subtitle."""
    boxes = picture.boxes
    present = sorted(set(boxes.family[~boxes.waits].tolist()))
    entries = [(idle, "url(#idle)")]
    entries += [(legend_label(timeline, picture, f), FAMILIES[f].fill) for f in present]
    if boxes.waits.any():
        waiting = FAMILIES[int(boxes.family[boxes.waits][0])].fill
        entries.append(("waiting", tint(waiting, 0.3)))
    x, parts = float(_WIDTH - _RIGHT), []
    for label, fill in reversed(entries):
        x -= len(label) * 6.6
        parts.append(svg_text(x, _TOP - 22, label, 12, INK))
        x -= 17
        parts.append(f'<rect x="{x:.1f}" y="{_TOP - 32}" width="11" height="11" fill="{fill}"/>')
        x -= 16
    return parts


def _axis(picture: Scene, row: float, height: int) -> list[str]:
    unit, size = time_unit(picture.end - picture.begin)
    span = (picture.end - picture.begin) / size
    step = _round_step(span / 8)
    bottom = _TOP + picture.depth * row
    parts, tick = [], 0.0
    while tick <= span * (1 + 1e-9):
        x = _x(picture, picture.begin + tick * size)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom:.1f}" stroke="{GRID}"/>'
        )
        parts.append(svg_text(x, bottom + 18, f"{tick:g}", 11, MUTED, anchor="middle"))
        tick = round(tick + step, 9)
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    return [*parts, svg_text(middle, height - 14, f"time ({unit})", 12, MUTED, anchor="middle")]


def _round_step(rough: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least `rough`."""
    power = 1.0
    while power > rough:
        power /= 10
    while power * 10 <= rough:
        power *= 10
    return next(power * f for f in (1, 2, 5, 10) if power * f >= rough * (1 - 1e-9))


def _rows(picture: Scene, row: float) -> list[str]:
    parts = []
    width = _WIDTH - _LEFT - _RIGHT
    for strip in picture.rows:
        y, high = _TOP + strip.top * row, strip.height * row
        fill = "url(#idle)" if strip.compute else LANE
        parts.append(
            f'<rect x="{_LEFT}" y="{y:.1f}" width="{width}" height="{high:.1f}" fill="{fill}"/>'
        )
        size, ink = (11, INK) if strip.compute else (9, MUTED)
        if high >= _LEGIBLE:
            middle = y + high / 2 + size / 3
            parts.append(svg_text(_LEFT - 8, middle, strip.label, size, ink, anchor="end"))
    if picture.by_stage:
        parts.append(svg_text(24, _TOP - 10, "stage", 12, MUTED))
    return parts


def _boxes(timeline: Timeline, picture: Scene, row: float) -> list[str]:
    boxes, parts = picture.boxes, []
    labels = numbers(timeline, boxes)
    columns = (*boxes.lists(), labels, strengths(timeline, boxes).tolist())
    for at, family, waits, start, end, _, _, label, strength in zip(*columns, strict=True):
        strip, look = picture.rows[at], FAMILIES[family]
        left, right = _x(picture, start), _x(picture, end)
        gap = min(1.0, _GAP * (right - left))
        y, high = _TOP + strip.top * row, strip.height * row
        fill = tint(look.fill, 0.3 if waits else strength)
        wide = right - left - gap
        parts.append(
            f'<rect x="{left:.2f}" y="{y:.1f}" width="{wide:.2f}" height="{high:.1f}"'
            f' fill="{fill}"/>'
        )
        if label and wide > len(label) * _DIGIT + 3 and high > 11:
            middle = (left + right) / 2
            parts.append(svg_text(middle, y + high / 2 + 4, label, 11, look.ink, anchor="middle"))
    return parts
