"""
What exists: the hardware of a cluster, its links, and the path segments between GPUs and NICs.
"""

from commsim.cluster.cluster import Cluster
from commsim.cluster.routes import Links, Route

__all__ = ["Cluster", "Links", "Route"]
