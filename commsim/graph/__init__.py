"""
The workload graph: the first of commsim's two waists. Every source of work becomes one.

`table` holds the columns, `builder` makes them op by op, `file` keeps them on disk.
"""

from commsim.graph.builder import GraphBuilder
from commsim.graph.capture_meta import HOST_STREAM
from commsim.graph.check import validate
from commsim.graph.edit import replace_rank, scale_compute, slowest_rank
from commsim.graph.file import load_graph, pack_graph, save_graph, unpack_graph
from commsim.graph.fold import Axis, Fold
from commsim.graph.merge import merged, moved_to, repeated
from commsim.graph.npz import (
    Arrays,
    column,
    columns_of,
    foreign,
    indices,
    read_arrays,
    write_arrays,
)
from commsim.graph.op_rows import Tags
from commsim.graph.refold import refold
from commsim.graph.table import (
    Collectives,
    CopyDirection,
    Device,
    Folding,
    Graph,
    Group,
    Messages,
    OpKind,
    Phase,
    joined_lanes,
    member_lanes,
    rank_lanes,
)

__all__ = [
    "HOST_STREAM",
    "Arrays",
    "Axis",
    "Collectives",
    "CopyDirection",
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
    "column",
    "columns_of",
    "foreign",
    "indices",
    "joined_lanes",
    "load_graph",
    "member_lanes",
    "merged",
    "moved_to",
    "pack_graph",
    "rank_lanes",
    "read_arrays",
    "refold",
    "repeated",
    "replace_rank",
    "save_graph",
    "scale_compute",
    "slowest_rank",
    "unpack_graph",
    "validate",
    "write_arrays",
]
