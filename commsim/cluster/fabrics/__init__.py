"""
What joins the nodes: leaves and spines, tori, dragonflies, and any graph of switches.

`fabric_section` is what users write; `fabric` routes through leaves and spines, `graph_fabric`
through any `wiring` (`torus`, `dragonfly`, `fabric_graph`) by its `shortest` routes, evenly or
`adaptive`; `leaves` says where each NIC hangs, `bill` which switches and cables that takes.
"""

from commsim.cluster.fabrics.bill import FabricParts
from commsim.cluster.fabrics.fabric import Fabric
from commsim.cluster.fabrics.fabric_section import FabricSection, fabric_spec, inherited
from commsim.cluster.fabrics.graph_fabric import WIRINGS, GraphFabric
from commsim.cluster.fabrics.leaves import Nic

__all__ = [
    "WIRINGS",
    "Fabric",
    "FabricParts",
    "FabricSection",
    "GraphFabric",
    "Nic",
    "fabric_spec",
    "inherited",
]
