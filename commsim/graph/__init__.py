"""
The workload graph: the first of commsim's two waists. Every source of work becomes one.

`table` holds the columns, `builder` makes them op by op, `file` keeps them on disk.
"""

from commsim.graph.builder import GraphBuilder, Tags
from commsim.graph.file import load_graph, save_graph
from commsim.graph.table import (
    COLLECTIVES,
    Collectives,
    Device,
    Graph,
    Group,
    Messages,
    OpKind,
    Phase,
)

__all__ = [
    "COLLECTIVES",
    "Collectives",
    "Device",
    "Graph",
    "GraphBuilder",
    "Group",
    "Messages",
    "OpKind",
    "Phase",
    "Tags",
    "load_graph",
    "save_graph",
]
