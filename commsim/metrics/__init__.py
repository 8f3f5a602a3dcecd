"""
What a timeline means: where the time goes, bubbles, bandwidths, links, the critical path.

Everything here is computed from a `Timeline` alone, simulated or measured.
"""

from commsim.metrics.bandwidth import GroupUse, Instances, bandwidths, instances
from commsim.metrics.bottleneck import link_resource
from commsim.metrics.bound import Bound, bound, slowest
from commsim.metrics.breakdown import (
    PARTS,
    Account,
    Breakdown,
    account,
    breakdown,
    communication_time,
)
from commsim.metrics.bubbles import Bubbles, bubbles
from commsim.metrics.cost import (
    bill_of,
    capital_per_hour,
    hourly_price,
    power_per_hour,
    priced,
    rated_power,
)
from commsim.metrics.critical_path import CriticalPath, critical_path
from commsim.metrics.headline import finding, limit_name, limit_remarks, limit_text
from commsim.metrics.limits import Limit, limits
from commsim.metrics.links import (
    UseOverTime,
    Utilization,
    busiest,
    peak_use,
    use_of_kinds,
    use_over_time,
    utilization,
)
from commsim.metrics.measure import CollectiveMetrics, Metrics, RankTimes, Times, measure
from commsim.metrics.one_axis import OneAxis
from commsim.metrics.stages import lane_stages
from commsim.metrics.waits import Wait, waits
from commsim.metrics.window import Window, arrivals, measured_window
from commsim.metrics.words import op_label, schedule_words, short_time

__all__ = [
    "PARTS",
    "Account",
    "Bound",
    "Breakdown",
    "Bubbles",
    "CollectiveMetrics",
    "CriticalPath",
    "GroupUse",
    "Instances",
    "Limit",
    "Metrics",
    "OneAxis",
    "RankTimes",
    "Times",
    "UseOverTime",
    "Utilization",
    "Wait",
    "Window",
    "account",
    "arrivals",
    "bandwidths",
    "bill_of",
    "bound",
    "breakdown",
    "bubbles",
    "busiest",
    "capital_per_hour",
    "communication_time",
    "critical_path",
    "finding",
    "hourly_price",
    "instances",
    "lane_stages",
    "limit_name",
    "limit_remarks",
    "limit_text",
    "limits",
    "link_resource",
    "measure",
    "measured_window",
    "op_label",
    "peak_use",
    "power_per_hour",
    "priced",
    "rated_power",
    "schedule_words",
    "short_time",
    "slowest",
    "use_of_kinds",
    "use_over_time",
    "utilization",
    "waits",
]
