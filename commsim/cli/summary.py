"""
The short table that every run ends with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from commsim.units import format_time

if TYPE_CHECKING:
    from commsim.metrics import Metrics

__all__ = ["columns", "summary"]

_NONE = "–"


def summary(metrics: Metrics, written: Iterable[str], *, memory: str = "") -> str:
    """Return step time, its parts, bubble, busiest link, memory, and the files written.

    `memory` says whether the fullest GPU holds it.
    """
    from commsim.metrics import PARTS

    step = metrics.step_time_s
    parts = metrics.breakdown
    whole = parts.whole_s
    rows = [("step time", _time(step))]
    for part, name in PARTS.items():
        value = getattr(parts, f"{part}_s")
        rows.append((f"  {name}", f"{_time(value):>10}  {_share(value, whole)}"))
    rows.append(("bubble", _percent(metrics.bubble_fraction)))
    if metrics.mfu is not None:
        rows.append(("MFU", _percent(metrics.mfu)))
    if metrics.tokens_per_s is not None:
        rows.append(("tokens", f"{metrics.tokens_per_s:,.0f} per second"))
    busiest = metrics.links[0] if metrics.links else None
    rows.append(("busiest link", f"{busiest.name} {busiest.utilization:.1%}" if busiest else _NONE))
    rows.append(("memory", memory or _NONE))
    rows += [("wrote", name) for name in written]
    return columns(rows)


def columns(rows: Sequence[tuple[str, ...]], *, right: Iterable[int] = ()) -> str:
    """Return rows as aligned text columns; those numbered in `right` are flush right."""
    flush = set(right)
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))] if rows else []
    lines = []
    for row in rows:
        cells = (
            cell.rjust(width) if at in flush else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _time(seconds: float) -> str:
    return format_time(seconds * 1e12)


def _share(part: float, whole: float) -> str:
    return f"{part / whole:6.1%}" if whole else ""


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{value:.1%}"
