"""
What an op means: collectives as chunk programs, and the checker that proves them.

In: an `Ask` (op, ranks, root, pieces), or an MSCCL file. Out: a `Program`: which chunk goes from
which rank to which, in which step. `catalogue` lists the algorithms.
"""

from commsim.collectives.catalogue import (
    ALGORITHMS,
    Ask,
    CollectiveAlgorithm,
    algorithms_for,
    default_per_node,
    is_switched,
    is_two_level,
    pair_sizes,
    program,
    register_algorithm,
)
from commsim.collectives.checker import check
from commsim.collectives.dependencies import dependencies
from commsim.collectives.direct import all_to_all as direct_all_to_all
from commsim.collectives.direct import all_to_all_v as direct_all_to_all_v
from commsim.collectives.msccl import Custom, is_msccl_file, load_msccl
from commsim.collectives.program import IN_NETWORK, IN_NODE, Program, ProgramBuilder
from commsim.collectives.walk import Move, Picture, Walk, walk

__all__ = [
    "ALGORITHMS",
    "IN_NETWORK",
    "IN_NODE",
    "Ask",
    "CollectiveAlgorithm",
    "Custom",
    "Move",
    "Picture",
    "Program",
    "ProgramBuilder",
    "Walk",
    "algorithms_for",
    "check",
    "default_per_node",
    "dependencies",
    "direct_all_to_all",
    "direct_all_to_all_v",
    "is_msccl_file",
    "is_switched",
    "is_two_level",
    "load_msccl",
    "pair_sizes",
    "program",
    "register_algorithm",
    "walk",
]
