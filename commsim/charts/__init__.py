"""
Charts: functions from a timeline, a cluster, metrics or a bench to a figure.

In: results of other rooms, which compute every figure that is drawn. Out: plotly figures
(`figures`), self-contained pages (`report`, `gantt`, `topology`, `explain`, `compare`), and the
headline that a report and the terminal share (`headline`).
"""

from commsim.charts.figures import (
    bandwidth_matrix,
    breakdown,
    busbw,
    calibration_figures,
    link_use,
    memory,
    one_above_other,
    plan_figures,
    scaling,
    sweep_figures,
    tornado_figures,
    traffic_matrix,
)
from commsim.charts.gantt import gantt, gantt_svg
from commsim.charts.report import (
    FaultDraws,
    ReportFacts,
    ReportSlider,
    Residents,
    WhatIfRuns,
    live_assets,
    live_head,
    live_sections,
    point_page,
    point_spans,
    resident_bytes,
    write_report,
    write_viewer,
)
from commsim.charts.save import check_picture, save_figure, save_page
from commsim.charts.topology import topology

__all__ = [
    "FaultDraws",
    "ReportFacts",
    "ReportSlider",
    "Residents",
    "WhatIfRuns",
    "bandwidth_matrix",
    "breakdown",
    "busbw",
    "calibration_figures",
    "check_picture",
    "gantt",
    "gantt_svg",
    "link_use",
    "live_assets",
    "live_head",
    "live_sections",
    "memory",
    "one_above_other",
    "plan_figures",
    "point_page",
    "point_spans",
    "resident_bytes",
    "save_figure",
    "save_page",
    "scaling",
    "sweep_figures",
    "topology",
    "tornado_figures",
    "traffic_matrix",
    "write_report",
    "write_viewer",
]
