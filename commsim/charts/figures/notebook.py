"""
A result in a notebook: a bar of the account of time, and the key figures.

Plain HTML of a few kilobytes; every text is escaped; colours of text are the notebook's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from commsim.charts.theme import ACCOUNT, plain
from commsim.metrics import Metrics
from commsim.units import format_size, format_time

__all__ = ["bench_html", "result_html"]

_DARK_IDLE = "#C9CDD4"  # the paper of a notebook may be white: idle would not be seen
_MOST_ROWS = 48
_CELL, _NUMBER = 'align="left"', 'align="right"'


def result_html(scenario: str, metrics: Metrics, notes: Sequence[str]) -> str:
    """Return a run as HTML: its name, its bar, and what is known of it."""
    rows = [("step time", format_time(metrics.step_time_s * 1e12)), *_parts(metrics)]
    if metrics.bubble_fraction is not None:
        rows.append(("bubble", f"{metrics.bubble_fraction:.1%}"))
    if metrics.mfu is not None:
        rows.append(("MFU", f"{metrics.mfu:.1%}"))
    if metrics.tokens_per_s is not None:
        rows.append(("tokens", f"{metrics.tokens_per_s:,.0f} per second"))
    if metrics.links:
        busiest = metrics.links[0]
        rows.append(("busiest link", f"{busiest.name}, {busiest.utilization:.1%}"))
    if metrics.memory_gib is not None:
        fits = "fits" if metrics.memory_gib["fits"] else "does not fit"
        rows.append(("memory", f"{metrics.memory_gib['peak']:.3g} GiB on the fullest GPU: {fits}"))
    remarks = f"<p>{len(notes)} notes: see <code>.notes</code></p>" if notes else ""
    return f"<div><b>{_text(scenario)}</b>{_bar(metrics)}{_table(rows)}{remarks}</div>"


def _parts(metrics: Metrics) -> list[tuple[str, str]]:
    whole = metrics.breakdown.whole_s or 1.0
    return [
        (part.label, f"{format_time(seconds * 1e12)} ({seconds / whole:.1%})")
        for part in ACCOUNT
        if (seconds := getattr(metrics.breakdown, part.key))
    ]


def _bar(metrics: Metrics) -> str:
    """Return where the mean rank's time goes, as one bar."""
    whole = metrics.breakdown.whole_s or 1.0
    pieces = "".join(
        f'<span title="{part.label}" style="width:{100 * share:.2f}%;background:'
        f'{_DARK_IDLE if part.look == "idle" else part.fill}"></span>'
        for part in ACCOUNT
        if (share := getattr(metrics.breakdown, part.key) / whole)
    )
    return f'<div style="display:flex;height:12px;max-width:520px;margin:6px 0">{pieces}</div>'


def bench_html(bench: dict[str, Any]) -> str:
    """Return the table of a bench, the first rows if there are many."""
    rows = bench["results"]
    head = ("op", "size", "algo", "proto", "time (us)", "busbw (GB/s)", "of the bound")
    cells = [
        (
            row["op"],
            format_size(row["size"]),
            row["algo"],
            row["proto"] or "–",
            f"{row['time_us']:.2f}",
            "–" if row["busbw_gbs"] is None else f"{row['busbw_gbs']:.2f}",
            f"{row['bound_us'] / row['time_us']:.1%}" if row.get("bound_us") else "–",
        )
        for row in rows[:_MOST_ROWS]
    ]
    more = len(rows) - len(cells)
    remarks = f"<p>and {more:,} more rows: see <code>.results</code></p>" if more else ""
    heads = "".join(f"<th {_side(at)}>{_text(name)}</th>" for at, name in enumerate(head))
    body = "".join(
        "<tr>" + "".join(f"<td {_side(at)}>{_text(c)}</td>" for at, c in enumerate(row)) + "</tr>"
        for row in cells
    )
    system = _text(f"{bench['system']['cluster']}, {bench['system']['gpus']} GPUs")
    return f"<div><b>{system}</b><table><tr>{heads}</tr>{body}</table>{remarks}</div>"


def _side(at: int) -> str:
    return _NUMBER if at in (1, 4, 5, 6) else _CELL


def _table(rows: Iterable[tuple[str, str]]) -> str:
    body = "".join(
        f"<tr><td {_CELL}>{_text(name)}</td><td {_CELL}>{_text(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table>{body}</table>"


def _text(value: str) -> str:
    return escape(plain(value))
