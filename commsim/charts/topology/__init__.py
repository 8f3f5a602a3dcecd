"""
A cluster as a drawing: what hangs on what, links coloured by use or by kind.

In: a cluster, and optionally the use of its links. Out: a plotly figure (`figure`) of a `scene`;
`fold` merges equal vertices, `layout` places them.
"""

from commsim.charts.topology.figure import USE_STEPS, topology, use_step
from commsim.charts.topology.scene import (
    TopologyFrame,
    TopologyLink,
    TopologyNode,
    TopologyScene,
    describe_link,
    topology_scene,
)

__all__ = [
    "USE_STEPS",
    "TopologyFrame",
    "TopologyLink",
    "TopologyNode",
    "TopologyScene",
    "describe_link",
    "topology",
    "topology_scene",
    "use_step",
]
