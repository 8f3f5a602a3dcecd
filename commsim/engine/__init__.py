"""
When it happens: rules and rates over arrays, and the SimPy engine that runs a graph.
"""

from commsim.engine.core import Engine
from commsim.engine.folding import folded
from commsim.engine.gc_paused import gc_paused
from commsim.engine.planning import Planner
from commsim.engine.simulate import EngineSection, Extension, simulate

__all__ = [
    "Engine",
    "EngineSection",
    "Extension",
    "Planner",
    "folded",
    "gc_paused",
    "simulate",
]
