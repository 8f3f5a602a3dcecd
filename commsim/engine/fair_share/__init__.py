"""
Rates of flows: bottleneck max-min fairness for coupled flows.

In: flows with their bytes and connections per link, and capacities. Out: a rate per flow.
`progressive` fills links step by step, `coupled` solves the cases in which filling stalls, and
`incremental` solves again what the coming and going of a few flows can have changed.
"""

from commsim.engine.fair_share.incremental import fair_again
from commsim.engine.fair_share.progressive import AT_CAP, UNKNOWN, Flows, fair_rates, limits_of

__all__ = ["AT_CAP", "UNKNOWN", "Flows", "fair_again", "fair_rates", "limits_of"]
