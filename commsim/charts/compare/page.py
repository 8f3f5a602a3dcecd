"""
A comparison as one page: the answer, all on one scale and one time axis, and what differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from commsim.arrays import Ints
from commsim.charts.compare.formatting import BANDS, figure_text, kind_text
from commsim.charts.compare.runs import (
    costs_section,
    figures_section,
    settings_section,
    time_section,
    waits_section,
)
from commsim.charts.compare.sizes import sizes_section
from commsim.charts.report import Figure, ReportSection, ShownRun, page, text, viewer_section
from commsim.charts.theme import shorten
from commsim.timeline import Timeline
from commsim.units import format_time

__all__ = ["compare_page"]

_STYLE = Path(__file__).with_name("compare.css")


def compare_page(
    data: dict[str, Any],
    timelines: Sequence[tuple[str, Timeline, Ints | None]] = (),
) -> Iterator[str]:
    """Yield the page of a comparison's JSON in pieces.

    `timelines` are (label, timeline, node of each rank or None) of the sides that have one.
    """
    runs = [ShownRun(*one) for one in timelines]
    made = _run_sections(data, runs) if data["kind"] == "runs" else _table_sections(data)
    sections = [section for section in (_answer(data), *made, _notes(data)) if section is not None]
    if data["command"]:
        again = f"<pre>{text(data['command'])}</pre>"
        sections.append(ReportSection("again", "Run it again", "", again, True))
    names = " · ".join(f"{side['label']} {side['name']}" for side in data["sides"])
    title = data["verdict"][0].rstrip(".") if data["verdict"] else names
    yield from page(title, names, sections, _figures(data), runs=runs)


def _run_sections(data: dict[str, Any], runs: Sequence[ShownRun]) -> list[ReportSection | None]:
    return [
        time_section(data),
        figures_section(data),
        waits_section(data),
        viewer_section(runs),
        settings_section(data),
        costs_section(data),
    ]


def _table_sections(data: dict[str, Any]) -> list[ReportSection | None]:
    return [sizes_section(data, table) for table in data["tables"]]


def _answer(data: dict[str, Any]) -> ReportSection:
    """Return the verdict in sentences; it brings the style of the page along."""
    style = f"<style>\n{_STYLE.read_text(encoding='utf-8')}</style>"
    # the first sentence is the page's title
    items = "".join(f"<li>{text(line)}</li>" for line in data["verdict"][1:])
    warned = "".join(f'<p class="warned">{text(line)}</p>' for line in data["warnings"])
    listed = f'<ul class="answer">{items}</ul>' if items else ""
    lead = _lead(data)
    return ReportSection("answer", "The answer", lead, f"{style}{listed}{warned}", True)


def _lead(data: dict[str, Any]) -> str:
    reference, tolerance = data["sides"][data["reference"]]["label"], data["tolerance"]
    what = "step times" if data["kind"] == "runs" else "medians of the error by band of size"
    state = "within" if data["within"] else "outside"
    return f"Differences are against {reference}; {what} are {state} {100 * tolerance:.4g}%."


def _figures(data: dict[str, Any]) -> list[Figure]:
    """Return a card per side: its step time with price and MFU, or its error by band."""
    cards = []
    for at, side in enumerate(data["sides"]):
        name = f"{side['label']} {shorten(side['name'], 40)}"
        if data["kind"] == "runs":
            value = format_time(float(side["step_time_s"]) * 1e12)
            cards.append(Figure(name, value, _remark(data, at)))
        else:
            cards += _errors(data, at, name)
    return cards


def _remark(data: dict[str, Any], at: int) -> str:
    """Return what a card says below the step time."""
    remarks = [f"a step, {kind_text(data['sides'][at]['kind'])}"]
    for key, words in (("cost.per_1e9_tokens", "{} per 1e9 tokens"), ("mfu", "MFU {}")):
        row = next((row for row in data["metrics"] if row["key"] == key), None)
        if row is not None and row["values"][at] is not None:
            value = figure_text(row["values"][at], row["unit"])
            money = f" {data['currency']}" if row["unit"] == "money" and data["currency"] else ""
            remarks.append(words.format(value + money))
    return ", ".join(remarks)


def _errors(data: dict[str, Any], at: int, name: str) -> list[Figure]:
    if at == data["reference"]:
        return []
    found = []
    for table in data["tables"]:
        for band, values in (table["bands"][at] or {}).items():
            if values["n"]:
                op = table["op"].replace("_", "-")
                remark = f"{op}, {BANDS[band]}, {values['n']} size{'s' * (values['n'] > 1)}"
                found.append(Figure(f"{name}, error", f"{values['median_abs_err']:.1%}", remark))
    return found


def _notes(data: dict[str, Any]) -> ReportSection | None:
    """Return what was assumed: on all sides, and on single ones."""
    every = [side["notes"] for side in data["sides"]]
    shared = [note for note in every[0] if all(note in notes for notes in every)]
    items = [f"<li>{text(note)}</li>" for note in shared]
    for side in data["sides"]:
        items += [
            f"<li><b>{text(side['label'])}</b> {text(note)}</li>"
            for note in side["notes"]
            if note not in shared
        ]
    if not items:
        return None
    return ReportSection(
        "notes", "What was assumed", "", f'<ul class="notes">{"".join(items)}</ul>', True
    )
