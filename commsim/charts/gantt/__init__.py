"""
The Gantt chart: a scene of rows and boxes, drawn by plotly or as SVG.

In: a timeline. Out: a plotly figure (`figure`) or SVG text (`svg`), both of the same `scene`, with
a title that states the finding (`headline`) and what a box says of itself (`hover`).
"""

from commsim.charts.gantt.figure import gantt
from commsim.charts.gantt.scene import below_compute, drawn_spans, families
from commsim.charts.gantt.svg import gantt_svg

__all__ = ["below_compute", "drawn_spans", "families", "gantt", "gantt_svg"]
