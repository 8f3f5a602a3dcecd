"""
Rates of flows: bottleneck max-min fairness for coupled flows.

In: flows with their bytes and connections per link, and capacities. Out: a rate per flow.
`progressive` fills links step by step, `coupled` solves the cases in which filling stalls, and
`incremental` solves again what the coming and going of a few flows can have changed. `sharers` does
so for very many flows of equal bytes per connection, link by link in the order of their `levels`.
"""

from commsim.engine.fair_share.incremental import fair_again
from commsim.engine.fair_share.progressive import AT_CAP, UNKNOWN, Flows, fair_rates, limits_of
from commsim.engine.fair_share.sharers import Sharers

__all__ = ["AT_CAP", "UNKNOWN", "Flows", "Sharers", "fair_again", "fair_rates", "limits_of"]
