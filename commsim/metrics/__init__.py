"""
What a timeline means: where the time goes, bubbles, bandwidths, links, the critical path.

Everything here is computed from a `Timeline` alone, simulated or measured.
"""

from commsim.metrics.bandwidth import GroupUse, Instances, bandwidths, instances
from commsim.metrics.bound import Bound, bound
from commsim.metrics.breakdown import Breakdown, breakdown
from commsim.metrics.bubbles import Bubbles, bubbles
from commsim.metrics.critical_path import CriticalPath, critical_path
from commsim.metrics.links import (
    UseOverTime,
    Utilization,
    busiest,
    use_of_kinds,
    use_over_time,
    utilization,
)
from commsim.metrics.measure import Metrics, measure
from commsim.metrics.window import Window, measured_window

__all__ = [
    "Bound",
    "Breakdown",
    "Bubbles",
    "CriticalPath",
    "GroupUse",
    "Instances",
    "Metrics",
    "UseOverTime",
    "Utilization",
    "Window",
    "bandwidths",
    "bound",
    "breakdown",
    "bubbles",
    "busiest",
    "critical_path",
    "instances",
    "measure",
    "measured_window",
    "use_of_kinds",
    "use_over_time",
    "utilization",
]
