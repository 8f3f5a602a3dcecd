"""
The workload graph: the first of commsim's two waists. Every source of work becomes one.

`table` holds the columns, `builder` makes them op by op, `file` keeps them on disk.
"""

from commsim.graph.builder import GraphBuilder, Tags
from commsim.graph.file import load_graph, save_graph
from commsim.graph.fold import Axis, Fold
from commsim.graph.table import (
    COLLECTIVES,
    Collectives,
    Device,
    Folding,
    Graph,
    Group,
    Messages,
    OpKind,
    Phase,
    Way,
    member_lanes,
)

__all__ = [
    "COLLECTIVES",
    "Axis",
    "Collectives",
    "Device",
    "Fold",
    "Folding",
    "Graph",
    "GraphBuilder",
    "Group",
    "Messages",
    "OpKind",
    "Phase",
    "Tags",
    "Way",
    "load_graph",
    "member_lanes",
    "save_graph",
]
