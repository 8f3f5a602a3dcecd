"""
Single figures: breakdown, busbw against size, link use, memory, scaling, GPU-to-GPU matrices.

In: a timeline, metrics or a bench. Out: a plotly figure each; `stack` puts several on one axis,
`notebook` writes the short HTML of a result in a notebook.
"""

from commsim.charts.figures.breakdown import breakdown
from commsim.charts.figures.busbw import busbw
from commsim.charts.figures.calibration import calibration_figures
from commsim.charts.figures.link_matrix import bandwidth_matrix, traffic_matrix
from commsim.charts.figures.link_use import link_use
from commsim.charts.figures.memory import memory
from commsim.charts.figures.notebook import bench_html, result_html
from commsim.charts.figures.plan import plan_figures
from commsim.charts.figures.scaling import scaling
from commsim.charts.figures.stack import one_above_other
from commsim.charts.figures.sweep import sweep_figures
from commsim.charts.figures.tornado import tornado_figures

__all__ = [
    "bandwidth_matrix",
    "bench_html",
    "breakdown",
    "busbw",
    "calibration_figures",
    "link_use",
    "memory",
    "one_above_other",
    "plan_figures",
    "result_html",
    "scaling",
    "sweep_figures",
    "tornado_figures",
    "traffic_matrix",
]
