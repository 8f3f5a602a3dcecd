"""
When it happens: rules and rates over arrays, and the SimPy engine that runs a graph.

In: a graph, a cluster, a library per group. Out: a timeline. `fair_share` divides links among
flows, `folding` simulates equivalent ranks once, `faults` degrades parts of the cluster.
"""

from commsim.engine.core import Engine
from commsim.engine.faults import (
    DrawnFaults,
    FaultsSection,
    apart_links,
    check_faults,
    degraded,
    draw_dead,
    draw_faults,
    in_windows,
    roles_of,
    slowed,
)
from commsim.engine.folding import folded
from commsim.engine.gc_paused import gc_paused
from commsim.engine.planning import Planner
from commsim.engine.simulate import EngineSection, Extension, simulate

__all__ = [
    "DrawnFaults",
    "Engine",
    "EngineSection",
    "Extension",
    "FaultsSection",
    "Planner",
    "apart_links",
    "check_faults",
    "degraded",
    "draw_dead",
    "draw_faults",
    "folded",
    "gc_paused",
    "in_windows",
    "roles_of",
    "simulate",
    "slowed",
]
