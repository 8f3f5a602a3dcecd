"""
What exists: GPUs, nodes, fabrics, and the ways between them.

`node` and `section` are what users write; `spec` checks it, `template` lays out a node,
`fabric` joins nodes, `build` numbers the links; `cluster` answers questions about routes.
"""

from commsim.cluster.cluster import Cluster
from commsim.cluster.fabric_section import FabricSection
from commsim.cluster.gpus import GpuSpec
from commsim.cluster.leaves import Nic
from commsim.cluster.routes import Links, Route
from commsim.cluster.section import ClusterSection, build_cluster, cluster_from, load_cluster

__all__ = [
    "Cluster",
    "ClusterSection",
    "FabricSection",
    "GpuSpec",
    "Links",
    "Nic",
    "Route",
    "build_cluster",
    "cluster_from",
    "load_cluster",
]
