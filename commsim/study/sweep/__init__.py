"""
Many runs of one scenario with settings varied: resumable, over processes or a Dask cluster.

In: a scenario and what to vary (`axes`). Out: a `Sweep`: a row per point, as a table, a file or a
page. `points` makes the runs and their keys, `store` keeps results by key in SQLite, `executors`
runs what is not there yet and survives workers that die.
"""

from commsim.study.sweep.axes import SweepAxis, axis_of
from commsim.study.sweep.executors import run_points
from commsim.study.sweep.points import Outcome, SweepPoint, point_of
from commsim.study.sweep.sweep import Sweep, sweep

__all__ = [
    "Outcome",
    "Sweep",
    "SweepAxis",
    "SweepPoint",
    "axis_of",
    "point_of",
    "run_points",
    "sweep",
]
