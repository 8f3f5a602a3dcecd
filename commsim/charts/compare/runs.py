"""
Sections of a comparison of runs: time on one scale, figures, waits, settings, prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commsim.charts.compare.formatting import NONE, difference_text, figure_text, quantity_text
from commsim.charts.report import (
    BarPart,
    ReportSection,
    legend,
    percent,
    stack,
    table,
    text,
    time_ticks,
)
from commsim.charts.theme import ACCOUNT, shorten
from commsim.metrics import op_label
from commsim.units import format_time

__all__ = [
    "costs_section",
    "figures_section",
    "settings_section",
    "time_section",
    "waits_section",
]

_MOST = 6  # collectives that are named per side


def time_section(data: dict[str, Any]) -> ReportSection:
    """Return a bar per side, all on one scale of time: what the mean rank's step is spent on."""
    sides = data["sides"]
    longest = max((_whole(side) for side in sides), default=0.0) or 1.0
    used = [(p.look, p.label) for p in ACCOUNT if any(s["breakdown"][p.key] for s in sides)]
    rows = []
    for side in sides:
        parts = [
            BarPart(
                look,
                side["breakdown"][key] / longest,
                f"{name} {format_time(side['breakdown'][key] * 1e12)}"
                f" ({percent(side['breakdown'][key] / (_whole(side) or 1.0))})",
            )
            for key, name, look, _ in ACCOUNT
        ]
        name = f"<b>{text(side['label'])} {text(shorten(side['name'], 60))}</b>"
        step = format_time(float(side["step_time_s"]) * 1e12)
        rows.append(f'<div class="lane-name">{name}<span>{step}</span></div>{stack(parts)}')
    body = f'<div class="scaled">{legend(used)}{"".join(rows)}{time_ticks(longest * 1e12)}</div>'
    return ReportSection(
        "time", "Where the time goes", "Mean over the ranks, one scale for all", body, True
    )


def _whole(side: dict[str, Any]) -> float:
    return sum(float(side["breakdown"][key]) for key, *_ in ACCOUNT)


def figures_section(data: dict[str, Any]) -> ReportSection:
    """Return the figures side by side; rows that differ by more than the tolerance are marked."""
    labels = [side["label"] for side in data["sides"]]
    rows = []
    for row in data["metrics"]:
        cells = [text(quantity_text(row, data["currency"]))]
        for value, off in zip(row["values"], row["difference"], strict=True):
            cells.append(f"{figure_text(value, row['unit'])}{_off(row, off)}")
        rows.append((bool(row["differs"]), cells))
    lead = f"Shares are against {labels[data['reference']]}; what differs is marked"
    return ReportSection("figures", "Side by side", lead, _sheet(["", *labels], rows))


def _off(row: dict[str, Any], off: float | None) -> str:
    look = ""
    if off and row["differs"] and row["better"]:
        look = "good" if (off < 0) == (row["better"] == "less") else "bad"
    return f'<small class="{look}">{difference_text(off)}</small>'


def _sheet(head: Sequence[str], rows: Sequence[tuple[bool, Sequence[str]]]) -> str:
    """Return a table of figures whose marked rows stand out."""
    cells = [
        f"<tr{' class=differs' if differs else ''}>"
        + "".join(f"<td{' class=right' if at else ''}>{cell}</td>" for at, cell in enumerate(row))
        + "</tr>\n"
        for differs, row in rows
    ]
    heads = "".join(
        f"<th{' class=right' if at else ''}>{text(one)}{'<small></small>' if at else ''}</th>"
        for at, one in enumerate(head)
    )
    return (
        f'<div class="scroll"><table class="sheet"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(cells)}</tbody></table></div>"
    )


def waits_section(data: dict[str, Any]) -> ReportSection | None:
    """Return what each side waits for: the collectives that nothing hides, and busy links."""
    shown = [_merge_equal(side["collectives"])[:_MOST] for side in data["sides"]]
    longest = max((seconds for uses in shown for _, seconds in uses), default=0.0)
    if not longest:
        return None
    rows: list[list[str]] = []
    for side, uses in zip(data["sides"], shown, strict=True):
        rows.append([f"<b>{text(side['label'])} {text(shorten(side['name'], 40))}</b>", "", ""])
        rows += [
            [
                text(name),
                stack([BarPart("comm", spent / longest, "exposed")]),
                format_time(spent * 1e12),
            ]
            for name, spent in uses
        ]
        if side["links"]:
            link = side["links"][0]
            rows.append([f"busiest link: {text(link['name'])}", "", percent(link["utilization"])])
    lead = (
        "Communication that nothing hides, longest first, one scale for all: the mean over its"
        " members; what waits at once counts each"
    )
    return ReportSection(
        "waits", "Where it waits", lead, table(["", "", ""], rows, right=(2,), look="bars")
    )


def _merge_equal(uses: Sequence[dict[str, Any]]) -> list[tuple[str, float]]:
    """Return (name, exposed seconds) with groups of one kind (tp0, tp1, ...) put together.

    Each rank is in one of them; the longest stands for all.
    """
    kinds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for use in uses:
        kinds.setdefault((use["op"], use["group"].rstrip("0123456789")), []).append(use)
    found = []
    for (op, kind), several in kinds.items():
        first = max(several, key=lambda use: float(use["exposed_s"]))
        name = f"{kind} groups" if len(several) > 1 else first["group"]
        if first["exposed_s"] > 0:
            found.append((f"{op_label(op)} on {shorten(name, 28)}", float(first["exposed_s"])))
    return sorted(found, key=lambda item: -item[1])


def settings_section(data: dict[str, Any]) -> ReportSection | None:
    """Return settings and hardware: what differs first, what is equal folded."""
    blocks = []
    for title, key in (("Settings", "settings"), ("Hardware", "hardware")):
        rows = data[key]
        if rows:
            blocks.append(f"<h3>{title}</h3>{_words(data, [r for r in rows if r['differs']])}")
            equal = [row for row in rows if not row["differs"]]
            if equal:
                blocks.append(
                    f"<details><summary>{len(equal)} that are equal</summary>"
                    f"{_words(data, equal)}</details>"
                )
    if not blocks:
        return None
    return ReportSection("settings", "What was set", "", "".join(blocks))


def _words(data: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return '<p class="muted">nothing differs</p>'
    labels = [side["label"] for side in data["sides"]]
    heads = "".join(f"<th>{text(label)}</th>" for label in labels)
    body = "".join(
        f"<tr{' class=differs' if row['differs'] else ''}><td>{text(row['key'])}</td>"
        + "".join(f'<td class="words">{text(value or NONE)}</td>' for value in row["values"])
        + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="scroll"><table class="sheet"><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def costs_section(data: dict[str, Any]) -> ReportSection | None:
    """Return whose prices and power stand behind the costs; None if there are none."""
    rows = [
        [text(side["label"]), text(source)]
        for side in data["sides"]
        for source in (side["cost"] or {}).get("sources", ())
    ]
    if not rows:
        return None
    lead = (
        "List prices, on demand, of the day they name; power is the most that a node draws."
        " Storage, traffic, support and discounts are in neither."
    )
    return ReportSection("prices", "Prices and power", lead, table(["", "source"], rows))
