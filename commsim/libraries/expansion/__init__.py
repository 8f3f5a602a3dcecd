"""
From a chunk program to what it does to links: idle time, loads, messages in flight.

In: a chunk program (`collectives`) and the routes of a group (`routing`). Out: the parts of a
plan. `expand` lays a program onto routes, `loads` sums bytes per link, `traffic` times messages
over FIFO links one by one, `waves` those of a program that is alone, `ring_clock` a long ring in
closed form.
"""

from commsim.libraries.expansion.expand import (
    busiest,
    coupled,
    lay,
    part_of,
    per_byte,
    split_by_kind,
    whole,
)
from commsim.libraries.expansion.loads import Connections, LinkLoads, loads_of
from commsim.libraries.expansion.ring_clock import ring_arrivals
from commsim.libraries.expansion.traffic import (
    Hop,
    LinkService,
    RunningProgram,
    Traffic,
    arrivals,
    hops_of,
)
from commsim.libraries.expansion.waves import LinkServices, Waves, waves_of

__all__ = [
    "Connections",
    "Hop",
    "LinkLoads",
    "LinkService",
    "LinkServices",
    "RunningProgram",
    "Traffic",
    "Waves",
    "arrivals",
    "busiest",
    "coupled",
    "hops_of",
    "lay",
    "loads_of",
    "part_of",
    "per_byte",
    "ring_arrivals",
    "split_by_kind",
    "waves_of",
    "whole",
]
