"""
How long steps took over the draws of faults: a histogram with the healthy step, p50 and p99.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count as count_from

import numpy as np

from commsim.charts.report.facts import FaultDraws, ReportFacts, ReportSection
from commsim.charts.report.markup import text
from commsim.units import format_time

__all__ = ["draws_section"]

_WIDE, _HIGH, _BELOW, _ABOVE = 720.0, 150.0, 52.0, 8.0
_LEFT, _RIGHT = 44.0, 16.0  # the axis of counts is on the left
_MOST_TICKS = 4
_MOST_BINS = 40
_PS = 1e12


def draws_section(facts: ReportFacts) -> ReportSection | None:
    """Return the histogram of the steps of all draws; None for a run of fewer than two."""
    draws = facts.draws
    if draws is None or len(draws.steps) < 2:
        return None
    lead = (
        f"{len(draws.steps):,} draws of what the scenario's faults may do; a bar is how many"
        " took so long. The rest of the page shows the draw with the median step."
    )
    return ReportSection("draws", "Draws of faults", lead, _histogram(draws), wide=True)


def _histogram(draws: FaultDraws) -> str:
    steps = np.asarray(draws.steps)
    p50, p99 = (float(value) for value in np.quantile(steps, (0.5, 0.99)))
    low, high = float(min(steps.min(), draws.healthy)), float(max(steps.max(), draws.healthy))
    spread = (high - low) or high or 1.0
    bins = int(min(_MOST_BINS, max(8, 2 * round(len(steps) ** 0.5))))
    counts, edges = np.histogram(steps, bins=bins, range=(low, low + spread))

    def x(step: float) -> float:
        return round(_LEFT + (step - low) / spread * (_WIDE - _LEFT - _RIGHT), 1)

    bars = []
    for count, left, right in zip(counts.tolist(), edges[:-1], edges[1:], strict=True):
        if not count:
            continue
        tall = _HIGH * count / counts.max()
        told = f"{format_time(left * _PS)} to {format_time(right * _PS)}: {count:,} draws"
        bars.append(
            f'<rect x="{x(left) + 0.5}" y="{_HIGH - tall:.1f}" height="{tall:.1f}"'
            f' width="{max(1.0, x(right) - x(left) - 1):.1f}"><title>{text(told)}</title></rect>'
        )
    marks = (("healthy", draws.healthy), ("p50", p50), ("p99", p99))
    lines = "".join(_mark(name, step, x(step), row) for row, (name, step) in enumerate(marks))
    return (
        '<div class="scroll"><svg class="draws" role="img" aria-label="steps of all draws"'
        f' viewBox="0 {-_ABOVE} {_WIDE:.0f} {_HIGH + _BELOW + _ABOVE:.0f}"'
        f">{_counts(int(counts.max()))}{''.join(bars)}"
        f'<line class="floor" x1="{_LEFT}" x2="{_WIDE - _RIGHT}" y1="{_HIGH}" y2="{_HIGH}"/>'
        f"{lines}</svg></div>"
    )


def _counts(most: int) -> str:
    """Return the axis of counts: a line and a number at whole steps up to the highest bar."""
    step = next(one for one in _nice() if one * _MOST_TICKS >= most)
    found = []
    for count in range(0, most + 1, step):
        y = _HIGH - _HIGH * count / most
        found.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDE - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{count:,}</text>'
        )
    return "".join(found)


def _nice() -> Iterator[int]:
    """Yield 1, 2, 5, 10, 20, 50, ..."""
    for scale in count_from(0):
        yield from (10**scale, 2 * 10**scale, 5 * 10**scale)


def _mark(name: str, step: float, x: float, row: int) -> str:
    """Return a line at a step, and its name in a row of its own below."""
    y = _HIGH + 16 + 15 * row
    anchor = "start" if x < _WIDE / 2 else "end"
    beside = x + (4 if anchor == "start" else -4)
    told = f"{name} {format_time(step * _PS)}"
    return (
        f'<line x1="{x}" x2="{x}" y1="0" y2="{y - 9:.0f}"/>'
        f'<text x="{beside:.1f}" y="{y:.0f}" text-anchor="{anchor}">{text(told)}</text>'
    )
