"""
Charts: functions from a timeline, a cluster, metrics or a bench to a figure.
"""

from commsim.charts.breakdown import breakdown
from commsim.charts.busbw import busbw
from commsim.charts.gantt import gantt
from commsim.charts.gantt_svg import gantt_svg
from commsim.charts.link_matrix import bandwidth_matrix, traffic_matrix
from commsim.charts.link_use import link_use
from commsim.charts.memory import memory
from commsim.charts.save import save_figure, save_page
from commsim.charts.scaling import scaling
from commsim.charts.stack import one_above_other
from commsim.charts.topology import topology

__all__ = [
    "bandwidth_matrix",
    "breakdown",
    "busbw",
    "gantt",
    "gantt_svg",
    "link_use",
    "memory",
    "one_above_other",
    "save_figure",
    "save_page",
    "scaling",
    "topology",
    "traffic_matrix",
]
