"""
The report of a run: one self-contained HTML file, with a viewer for millions of spans.
"""

from commsim.charts.report.facts import (
    FaultDraws,
    ReportFacts,
    ReportSection,
    Residents,
    resident_bytes,
)
from commsim.charts.report.head_figures import Figure
from commsim.charts.report.markup import BarPart, legend, percent, stack, table, text, time_ticks
from commsim.charts.report.pack import ShownRun
from commsim.charts.report.what_if import (
    ReportSlider,
    WhatIfRuns,
    point_page,
    point_spans,
)
from commsim.charts.report.write import (
    live_assets,
    live_head,
    live_sections,
    page,
    report_page,
    viewer_section,
    write_report,
    write_viewer,
)

__all__ = [
    "BarPart",
    "FaultDraws",
    "Figure",
    "ReportFacts",
    "ReportSection",
    "ReportSlider",
    "Residents",
    "ShownRun",
    "WhatIfRuns",
    "legend",
    "live_assets",
    "live_head",
    "live_sections",
    "page",
    "percent",
    "point_page",
    "point_spans",
    "report_page",
    "resident_bytes",
    "stack",
    "table",
    "text",
    "time_ticks",
    "viewer_section",
    "write_report",
    "write_viewer",
]
