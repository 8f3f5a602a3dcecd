"""
Faults and noise: slow GPUs, slow and flapping links, dead NICs, jitter of compute.

In: a `FaultsSection` and a cluster. `draw_faults` picks by seed what the section leaves to chance;
of the faults drawn, `slowed` changes a graph, `degraded` a cluster's links, and `in_windows` makes
extensions of the engine for what comes and goes.
"""

from __future__ import annotations

from commsim.engine.faults.apply import apart_links, degraded, roles_of, slowed
from commsim.engine.faults.draw import DrawnFaults, check_faults, draw_dead, draw_faults
from commsim.engine.faults.section import FaultsSection
from commsim.engine.faults.windows import Target, TimedChange, TimedChanges, in_windows

__all__ = [
    "DrawnFaults",
    "FaultsSection",
    "Target",
    "TimedChange",
    "TimedChanges",
    "apart_links",
    "check_faults",
    "degraded",
    "draw_dead",
    "draw_faults",
    "in_windows",
    "roles_of",
    "slowed",
]
