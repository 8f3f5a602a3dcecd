"""
The report of a run: one self-contained HTML file, with a viewer for millions of spans.
"""

from commsim.charts.report.facts import Facts, Residents, Section, resident_bytes
from commsim.charts.report.pack import Run
from commsim.charts.report.words import Figure
from commsim.charts.report.write import page, report_page, viewer_section, write_report

__all__ = [
    "Facts",
    "Figure",
    "Residents",
    "Run",
    "Section",
    "page",
    "report_page",
    "resident_bytes",
    "viewer_section",
    "write_report",
]
