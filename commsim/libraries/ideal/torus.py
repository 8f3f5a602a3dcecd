"""
Where a group stands in a torus: the nodes per dimension that the dimension-wise algorithm goes by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from commsim.cluster import Cluster

__all__ = ["torus_dims"]


def torus_dims(
    algorithm: str, ranks: Sequence[int], per_node: int, cluster: Cluster
) -> tuple[int, ...]:
    """Return the nodes per dimension of a group that fills a box of the torus; else ().

    Nodes that share a router are one more dimension, within it.
    """
    if algorithm != "torus" or not cluster.fabric.dims or not per_node:
        return ()
    dims = cluster.fabric.dims
    nodes = cluster.node_of[list(ranks)][::per_node]
    shared = len(cluster.node_names) // math.prod(dims)
    sizes = (*dims, shared) if shared > 1 else dims
    places = np.stack(np.unravel_index(nodes, sizes))
    box = tuple(len(set(axis)) for axis in places.tolist())
    in_order = bool((np.diff(nodes) > 0).all())
    return box if in_order and math.prod(box) == len(nodes) else ()
