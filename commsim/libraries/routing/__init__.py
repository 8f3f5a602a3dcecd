"""
Which way a connection goes: the library's choice among the segments that the cluster offers.

In: a cluster and a group. Out: routes as link ids (`routes`), many at once as `columns`, half
routes to a switch that reduces or multicasts (`switches`), and the order of a group's members on
a channel (`layout`).
"""

from commsim.libraries.routing.columns import RouteColumns
from commsim.libraries.routing.layout import channel_orders, neighbours
from commsim.libraries.routing.routes import Router
from commsim.libraries.routing.switches import switch_routes

__all__ = ["RouteColumns", "Router", "channel_orders", "neighbours", "switch_routes"]
