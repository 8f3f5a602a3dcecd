"""
Rates of flows: bottleneck max-min fairness for coupled flows.

In: flows with their bytes and connections per link, and capacities. Out: a rate per flow.
`progressive` fills links step by step, `coupled` solves the cases in which filling stalls.
"""

from commsim.engine.fair_share.progressive import Flows, fair_rates

__all__ = ["Flows", "fair_rates"]
