"""
The report: one HTML file that needs nothing else, written piece by piece.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from commsim._version import __version__
from commsim.charts.page import policy, scripts_of
from commsim.charts.report.draws import draws_section
from commsim.charts.report.facts import ReportFacts, ReportSection
from commsim.charts.report.head_figures import Figure, figures
from commsim.charts.report.markup import text
from commsim.charts.report.memory_part import memory_section
from commsim.charts.report.pack import ShownRun, pack
from commsim.charts.report.time_parts import (
    breakdown_section,
    bubble_section,
    limits_section,
    path_section,
    waits_section,
)
from commsim.charts.report.topology import topology_section
from commsim.charts.report.use_parts import bandwidth_section, links_section
from commsim.charts.report.what_if import WhatIfRuns, slider_elements, sliders
from commsim.charts.theme import FAMILIES
from commsim.files import write_pieces

__all__ = [
    "live_assets",
    "live_head",
    "live_sections",
    "page",
    "report_page",
    "viewer_section",
    "write_report",
    "write_viewer",
]

_HERE = Path(__file__).parent
_SCRIPTS = (
    "viewer/words.js", "viewer/data.js", "viewer/paint.js", "viewer/lines.js", "viewer/draw.js",
    "viewer/overview.js", "viewer/details.js", "viewer/ranges.js", "viewer/picture.js",
    "viewer/address.js", "viewer/search.js", "viewer/tools.js",
    "viewer/input.js", "viewer/main.js", "sliders.js", "report.js",
)  # fmt: skip
_MAKERS: tuple[Callable[[ReportFacts], ReportSection | None], ...] = (
    breakdown_section,
    bubble_section,
    draws_section,
    limits_section,
    waits_section,
    bandwidth_section,
    links_section,
    topology_section,
    memory_section,
    path_section,
)
_BEFORE_THE_TIMELINE = ("breakdown", "bubble", "draws")


def write_report(
    facts: ReportFacts, path: str | Path, *, what_if: WhatIfRuns | None = None
) -> None:
    """Write the report of a run to an .html file; the same run gives the same bytes.

    `what_if` are runs that sliders on the page choose from.
    """
    write_pieces(path, report_page(facts, what_if=what_if))


def write_viewer(facts: ReportFacts, path: str | Path) -> None:
    """Write the timeline of a run, and nothing else, to an .html file."""
    runs = _runs(facts)
    shown = [section for section in (viewer_section(runs),) if section]
    write_pieces(path, page(facts.headline or facts.name, facts.name, shown, runs=runs))


def report_page(facts: ReportFacts, *, what_if: WhatIfRuns | None = None) -> Iterator[str]:
    """Yield the page of a run in pieces; only the sections that the run has."""
    runs = _runs(facts)
    sections = [made for make in _MAKERS if (made := make(facts)) is not None]
    order = [section for section in sections if section.key in _BEFORE_THE_TIMELINE]
    rest = [section for section in sections if section not in order]
    shown = [*order, viewer_section(runs), *rest, _notes(facts), _again(facts)]
    if what_if is not None:
        shown.insert(0, sliders(what_if))
    yield from page(
        facts.headline or facts.name,
        facts.name,
        [one for one in shown if one],
        figures(facts),
        runs=runs,
        more=() if what_if is None else slider_elements(what_if),
    )


def _runs(facts: ReportFacts) -> list[ShownRun]:
    """Return what the viewer shows: the run, below what was measured if that is known."""
    nodes = None if facts.cluster is None else facts.cluster.node_of
    if facts.measured is None:
        return [ShownRun("", facts.timeline, nodes)]
    return [
        ShownRun("measured", facts.measured[0], nodes),
        ShownRun("replayed", facts.timeline, nodes),
    ]


def page(
    title: str,
    name: str,
    sections: Sequence[ReportSection],
    numbers: Sequence[Figure] = (),
    *,
    runs: Sequence[ShownRun] = (),
    more: Iterable[str] = (),
) -> Iterator[str]:
    """Yield a page of `sections` below a title; `runs` are what its viewer section shows.

    `more` are elements of data that its scripts read.
    """
    head = (_HERE / "report.html").read_text(encoding="utf-8")
    scripts = [f"\n{(_HERE / script).read_text(encoding='utf-8')}" for script in _SCRIPTS]
    links = "".join(f'<a href="#{one.key}">{text(one.title)}</a>' for one in sections)
    marks = {
        "@POLICY@": policy(*scripts_of(head), *scripts),
        "@STYLE@": (_HERE / "report.css").read_text(encoding="utf-8"),
        "@VERSION@": text(__version__),
        "@TITLE@": text(title),
        "@NAME@": text(name),
        "@FIGURES@": "".join(map(_figure, numbers)),
        "@NAV@": links,
    }
    for mark, value in marks.items():
        head = head.replace(mark, value)
    yield head
    for section in _paired(sections):
        yield _section(section)
    yield f"</main>\n<footer>commsim {text(__version__)}</footer>\n"
    yield from _viewer(runs)
    yield from more
    for script in scripts:
        yield f"<script>{script}</script>\n"
    yield "</body>\n</html>\n"


def _paired(sections: Sequence[ReportSection]) -> list[ReportSection]:
    """Widen each narrow section that has no narrow neighbour to share its row with."""
    laid: list[ReportSection] = []
    alone = False
    for section in sections:
        if alone and section.wide:
            laid[-1] = replace(laid[-1], wide=True)
        alone = not section.wide and not alone
        laid.append(section)
    return [*laid[:-1], replace(laid[-1], wide=True)] if alone else laid


def viewer_section(runs: Sequence[ShownRun]) -> ReportSection | None:
    """Return the place for the viewer, None if there is nothing to see."""
    if not any(len(run.timeline) for run in runs):
        return None
    return ReportSection(
        "timeline", "Timeline", "", '<div class="viewer" id="viewer"></div>', wide=True
    )


def _viewer(runs: Sequence[ShownRun]) -> Iterator[str]:
    if not any(len(run.timeline) for run in runs):
        return
    facts, columns = pack(runs)
    looks = [{"label": f.label, "fill": f.fill, "ink": f.ink} for f in FAMILIES]
    # "<" could end the script element, whatever a trace's names hold
    data = json.dumps({**facts, "looks": looks}, separators=(",", ":")).replace("<", "\\u003c")
    yield f'<script type="application/json" id="viewer-facts">{data}</script>\n'
    yield from columns


def _figure(one: Figure) -> str:
    value = f"{text(one.value)}<small>{text(one.remark)}</small>"
    return f"<div><dt>{text(one.label)}</dt><dd>{value}</dd></div>"


def _section(section: ReportSection) -> str:
    wide = ' class="wide"' if section.wide else ""
    lead = f'<p class="lead">{text(section.lead)}</p>' if section.lead else ""
    head = f'<section id="{section.key}"{wide}>\n<h2>{text(section.title)}</h2>\n'
    return f"{head}{lead}{section.body}\n</section>\n"


def _notes(facts: ReportFacts) -> ReportSection | None:
    cost = facts.metrics.cost or {}
    notes = [*facts.notes, *cost.get("sources", ())]
    if not notes:
        return None
    items = "".join(f"<li>{text(str(note))}</li>" for note in notes)
    return ReportSection(
        "notes", "What was assumed", "", f'<ul class="notes">{items}</ul>', wide=True
    )


def _again(facts: ReportFacts) -> ReportSection | None:
    if not facts.command:
        return None
    lead = f"With commsim {__version__}, from the folder in which it was run:"
    return ReportSection(
        "again", "Run it again", lead, f"<pre>{text(facts.command)}</pre>", wide=True
    )


def live_head(facts: ReportFacts) -> dict[str, Any]:
    """Return what is above a report's sections, for a page that is there already.

    `figures` are [label, value, remark]; `viewer` is the HTML of the viewer's data, "" for no
    spans.
    """
    return {
        "headline": facts.headline or facts.name,
        "name": facts.name,
        "figures": [list(one) for one in figures(facts)],
        "viewer": "".join(_viewer(_runs(facts))),
    }


def live_sections(facts: ReportFacts) -> list[dict[str, Any]]:
    """Return a report's sections, for a page that is there already: key, title, lead (plain text),
    body (HTML), and whether they are wide.
    """
    made = (*(make(facts) for make in _MAKERS), _notes(facts))
    return [msgspec.structs.asdict(one) for one in made if one is not None]


def live_assets() -> tuple[str, str]:
    """Return the style sheet and the viewer's scripts that such a page needs."""
    scripts = [name for name in _SCRIPTS if name.startswith("viewer/")]
    return (
        (_HERE / "report.css").read_text(encoding="utf-8"),
        "".join((_HERE / name).read_text(encoding="utf-8") for name in scripts),
    )
