"""
What an op means: collectives as chunk programs, and the checker that proves them.
"""

from commsim.collectives.catalogue import algorithms_for, program
from commsim.collectives.checker import check
from commsim.collectives.dependencies import dependencies
from commsim.collectives.msccl import Custom, load_msccl
from commsim.collectives.ops import bus_factor
from commsim.collectives.program import Program, ProgramBuilder

__all__ = [
    "Custom",
    "Program",
    "ProgramBuilder",
    "algorithms_for",
    "bus_factor",
    "check",
    "dependencies",
    "load_msccl",
    "program",
]
