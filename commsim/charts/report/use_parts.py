"""
Sections on what communication achieves and uses: bandwidth of collectives, links over time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from commsim.arrays import Ints
from commsim.charts.report.facts import ReportFacts, ReportSection
from commsim.charts.report.markup import (
    HEIGHTS,
    BarPart,
    and_equal,
    area,
    percent,
    stack,
    table,
    text,
    time_ticks,
)
from commsim.charts.theme import shorten
from commsim.metrics import (
    CollectiveMetrics,
    UseOverTime,
    Utilization,
    Window,
    busiest,
    measured_window,
    op_label,
    use_over_time,
    utilization,
)
from commsim.ops import REDUCING
from commsim.units import format_bandwidth, format_size, format_time

__all__ = ["bandwidth_section", "links_section"]


_LINKS = 8  # rows of links; those that do the same at the same time share one
_LOOKED = 6  # links of one kind and mean use that are looked at for them
_COLLECTIVES = 24
_SEPARATE = 8  # rows of collectives above which groups of one kind are joined
_POINTS = 300


class _EqualLinks(NamedTuple):
    """A row of links, and the use over time of the first."""

    links: list[int]
    over: UseOverTime


def bandwidth_section(facts: ReportFacts) -> ReportSection | None:
    """Return what each collective achieved on each group, None without communication."""
    uses = sorted(_by_axis(facts.metrics.collectives), key=lambda use: -use.time_s)
    if not uses:
        return None
    before = _by_axis(facts.measured[1].collectives) if facts.measured else []
    measured = {(use.op, use.group): use for use in before}
    highest = max((use.busbw_gbs or 0.0) for use in (*uses, *before)) or 1.0
    rows = []
    for use in uses[:_COLLECTIVES]:
        known = measured.get((use.op, use.group))
        rows += [] if known is None else [_use_row(known, highest, ", measured")]
        rows.append(_use_row(use, highest, "" if known is None else ", replayed"))
    head = ["", "", "busbw", "count", "size", "time", "of it waiting", "exposed"]
    lead = (
        "Bus bandwidth as nccl-tests defines it; times are sums over instances of the mean over"
        " ranks"
    )
    if len(uses) > _COLLECTIVES:
        lead += f"; the {_COLLECTIVES} longest of {len(uses):,}"
    sheet = table(head, rows, right=range(2, 8), look="bars stacked")
    return ReportSection("bandwidth", "Bandwidth of collectives", lead, sheet, wide=True)


def _use_row(use: CollectiveMetrics, highest: float, which: str) -> list[str]:
    rate = use.busbw_gbs
    words = "–" if rate is None else format_bandwidth(rate * 1e9)
    group = f"{shorten(use.group, 24)}{which}"
    return [
        f"{text(op_label(use.op))} <span class=muted>{text(group)}</span>",
        stack([BarPart(_look(use.op), (rate or 0.0) / highest, words)]),
        words,
        f"{use.count:,}",
        format_size(use.bytes / max(1, use.count)),
        format_time(use.time_s * 1e12),
        format_time(use.wait_s * 1e12),
        format_time(use.exposed_s * 1e12),
    ]


def _look(op: str) -> str:
    if op in REDUCING:
        return "comm"
    return "p2p" if op == "send_recv" else "gather"


def _by_axis(uses: Sequence[CollectiveMetrics]) -> list[CollectiveMetrics]:
    """Join the groups of one kind ("tp0", "tp1", ...) if the table would be long."""
    if len(uses) <= _SEPARATE:
        return list(uses)
    equal: dict[tuple[str, str], list[CollectiveMetrics]] = {}
    for use in uses:
        equal.setdefault((use.op, use.group.rstrip("0123456789")), []).append(use)
    return [
        same[0] if len(same) == 1 else _joined(f"{axis} ({len(same):,} groups)", same)
        for (_, axis), same in equal.items()
    ]


def _joined(name: str, same: list[CollectiveMetrics]) -> CollectiveMetrics:
    moved = [use for use in same if use.busbw_gbs is not None]
    transfer = sum(use.time_s - use.wait_s for use in moved)
    bus = sum((use.busbw_gbs or 0.0) * (use.time_s - use.wait_s) for use in moved)
    return CollectiveMetrics(
        same[0].op,
        name,
        sum(use.count for use in same),
        sum(use.bytes for use in same),
        sum(use.time_s for use in same),
        sum(use.wait_s for use in same),
        sum(use.exposed_s for use in same),
        bus / transfer if transfer > 0 else None,
    )


def links_section(facts: ReportFacts) -> ReportSection | None:
    """Return the busiest links by name, each with its use over time; None without traffic."""
    timeline = facts.timeline
    window = measured_window(timeline)
    use = utilization(timeline, window=window)
    chosen = busiest(timeline, use)
    if not len(chosen) or window.step_time <= 0:
        return None
    found = _merge_equal(facts, use, chosen, window)
    highest = max(float(row.over.share.max()) for row in found)
    full = next(height for height in HEIGHTS if height >= min(highest, 1.0))
    rows = [_link_row(facts, use, row, window, full) for row in found]
    rows.append(["", time_ticks(window.step_time), "", "", "", ""])
    head = ["link", "use over time", "mean", "peak", "carried", "could"]
    lead = (
        f"{len(chosen):,} of {len(timeline.links.names):,} links carry something; these are used"
        f" most. Full height is {full:.0%} of what a link can."
    )
    sheet = table(head, rows, right=range(2, 6), look="areas stacked")
    return ReportSection("links", "Busiest links", lead, sheet, wide=True)


def _merge_equal(
    facts: ReportFacts, use: Utilization, chosen: Ints, window: Window
) -> list[_EqualLinks]:
    """Return the links in rows, the busiest first.

    Links that are drawn the same share a row. Of those of one kind, speed and mean use only the
    first _LOOKED are looked at; the others count as equal to the first.
    """
    timeline = facts.timeline
    rows: dict[str, _EqualLinks] = {}
    drawn: dict[tuple[str, float, float], list[str]] = {}
    for link in chosen.tolist():
        kind, speed = timeline.links.kinds[link], float(timeline.links.bandwidth[link])
        seen = drawn.setdefault((kind, speed, round(float(use.share[link]), 9)), [])
        if not seen and len(rows) >= _LINKS:
            break
        if len(seen) < _LOOKED:
            over = use_over_time(timeline, np.array([link]), points=_POINTS, window=window)
            seen.append(_drawing(over, window, 1.0, kind))
            rows.setdefault(seen[-1], _EqualLinks([], over)).links.append(link)
        else:
            rows[seen[0]].links.append(link)
    return list(rows.values())[:_LINKS]


def _drawing(over: UseOverTime, window: Window, full: float, kind: str) -> str:
    time = (over.time - window.first) / window.step_time
    return area(time, np.minimum(over.share / full, 1.0), look=f"k-{text(kind)}")


def _link_row(
    facts: ReportFacts, use: Utilization, row: _EqualLinks, window: Window, full: float
) -> list[str]:
    first, named = row.links[0], facts.timeline.links
    return [
        text(shorten(named.names[first], 40)) + and_equal(len(row.links) - 1),
        _drawing(row.over, window, full, named.kinds[first]),
        percent(float(use.share[first])),
        percent(float(row.over.share.max())),
        format_size(float(use.bytes[first])),
        format_bandwidth(float(named.bandwidth[first])),
    ]
