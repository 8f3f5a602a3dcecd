"""
Sliders in a report: runs of a grid, embedded, that change the page in place.

A point is a page in plain data (headline, figures, sections) and a small timeline. The points
stand in the order of a product: the last slider moves first.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.charts.report.facts import ReportFacts, ReportSection
from commsim.charts.report.head_figures import figures
from commsim.charts.report.markup import text
from commsim.charts.report.memory_part import memory_section
from commsim.charts.report.pack import ShownRun, pack_small
from commsim.charts.report.time_parts import (
    breakdown_section,
    bubble_section,
    limits_section,
    path_section,
    waits_section,
)
from commsim.charts.report.use_parts import bandwidth_section, links_section
from commsim.charts.theme import plain
from commsim.metrics import lane_stages
from commsim.timeline import Timeline

__all__ = ["ReportSlider", "WhatIfRuns", "point_page", "point_spans", "slider_elements", "sliders"]

_SECTIONS = (
    breakdown_section,
    bubble_section,
    limits_section,
    waits_section,
    bandwidth_section,
    links_section,
    memory_section,
    path_section,
)
_STAGES, _RANKS = 16, 8  # rows of a point's timeline
_COLUMNS = 2_000  # pixels for which spans are told apart at first


class ReportSlider(msgspec.Struct, frozen=True):
    """What a slider shows: words, a label per place, and the place of the run as it was given."""

    title: str
    labels: tuple[str, ...]
    given: int


class WhatIfRuns(msgspec.Struct, frozen=True, eq=False):
    """The runs that sliders choose from: `point_page` and `point_spans` of each, b"" for none.

    The page of a point that cannot run is {"error": why}.
    """

    sliders: tuple[ReportSlider, ...]
    pages: tuple[dict[str, Any], ...]
    spans: tuple[bytes, ...]


def point_page(facts: ReportFacts) -> dict[str, Any]:
    """Return what a report says of a run, as plain data: text, and HTML of sections."""
    made = [section for make in _SECTIONS if (section := make(facts)) is not None]
    return {
        "headline": plain(facts.headline or facts.name),
        "step": facts.metrics.step_time_s,
        "tokens": facts.metrics.tokens_per_s,
        "figures": [[plain(part) for part in one] for one in figures(facts)],
        "sections": [[one.key, one.title, one.lead, one.body, one.wide] for one in made],
    }


def point_spans(facts: ReportFacts, most: int) -> bytes:
    """Return the timeline of a run in at most about `most` bytes.

    It has a rank of each stage, or the first ranks; its short spans are joined until it fits.
    """
    timeline = facts.timeline
    if not len(timeline):
        return b""
    nodes = None if facts.cluster is None else facts.cluster.node_of
    lanes = _lanes(timeline)
    reach = int(timeline.end.max()) - int(timeline.start.min())
    stretch = max(1, reach // _COLUMNS)
    found = pack_small([ShownRun("", timeline, nodes, lanes, stretch)])
    while len(found) > most and stretch < reach:
        stretch *= 2
        found = pack_small([ShownRun("", timeline, nodes, lanes, stretch)])
    return found


def _lanes(timeline: Timeline) -> Ints:
    order = np.argsort(timeline.graph.lane_rank, kind="stable").astype(np.int64)
    stages = lane_stages(timeline.graph)[order]
    known, first = np.unique(stages, return_index=True)
    if len(known) > 1:
        return order[np.sort(first[known >= 0])][:_STAGES]
    return order[:_RANKS]


def sliders(runs: WhatIfRuns) -> ReportSection:
    """Return the section with the sliders; the script of the page fills in what they say."""
    rows = "".join(
        f'<div class="slider"><label for="what-if-{at}">{text(one.title)}</label>'
        f'<input type="range" id="what-if-{at}" min="0" max="{len(one.labels) - 1}" step="1"'
        f' value="{one.given}"><output for="what-if-{at}">{text(one.labels[one.given])}</output>'
        f'<svg class="spark" role="img" aria-label="step time along {text(one.title)}"></svg></div>'
        for at, one in enumerate(runs.sliders)
    )
    lead = (
        f"{len(runs.pages):,} runs are in this page. Move a slider: headline, figures, timeline and"
        " the sections below are those of the run you chose. The curve is the step time along a"
        " slider, the others as they stand"
    )
    body = (
        f'<div id="what-if">{rows}<p class="outcome" aria-live="polite"></p>'
        '<p class="buttons"><button type="button" id="as-given">as given</button></p></div>'
    )
    return ReportSection("what-if", "What if", lead, body, wide=True)


def slider_elements(runs: WhatIfRuns) -> Iterator[str]:
    """Yield the elements that hold the runs."""
    facts = [
        {"title": plain(one.title), "labels": list(map(plain, one.labels)), "given": one.given}
        for one in runs.sliders
    ]
    data = json.dumps({"sliders": facts}, separators=(",", ":")).replace("<", "\\u003c")
    yield f'<script type="application/json" id="what-if-facts">{data}</script>\n'
    pages = json.dumps(_sections_once(runs.pages), separators=(",", ":")).encode()
    yield _element("pages", zlib.compress(pages, 9))
    for at, spans in enumerate(runs.spans):
        if spans:
            yield _element(str(at), spans)


def _sections_once(pages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return pages whose sections are [key, number] into `sections`, each different one once.

    Those of a kind stand together: they are alike, and deflate looks back 32 KiB, less than a page.
    """
    sections: dict[str, dict[str, int]] = {}
    made = []
    for page in pages:
        places = []
        for one in page.get("sections", ()):
            known = sections.setdefault(one[0], {})
            places.append([one[0], known.setdefault(json.dumps(one), len(known))])
        made.append({**page, "sections": places})
    return {
        "sections": {key: list(map(json.loads, known)) for key, known in sections.items()},
        "pages": made,
    }


def _element(key: str, data: bytes) -> str:
    held = base64.b64encode(data).decode("ascii")
    return f'<script type="text/plain" data-what-if="{key}">{held}</script>\n'
