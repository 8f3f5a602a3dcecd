"""
When it happens: rules and rates over arrays, and the SimPy engine that runs a graph.
"""

from commsim.engine.collecting import collecting_later
from commsim.engine.core import Engine
from commsim.engine.folding import folded
from commsim.engine.planning import Planner
from commsim.engine.simulate import EngineSection, Extension, simulate

__all__ = [
    "Engine",
    "EngineSection",
    "Extension",
    "Planner",
    "collecting_later",
    "folded",
    "simulate",
]
