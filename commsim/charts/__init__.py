"""
Charts: functions from a timeline (or a bench) to a figure.
"""

from commsim.charts.busbw import busbw
from commsim.charts.gantt import gantt
from commsim.charts.gantt_svg import gantt_svg
from commsim.charts.link_use import link_use
from commsim.charts.save import save_figure

__all__ = ["busbw", "gantt", "gantt_svg", "link_use", "save_figure"]
