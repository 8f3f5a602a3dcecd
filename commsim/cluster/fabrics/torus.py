"""
A torus: a router for every node (or a few), in a ring with its neighbours in each dimension.

Routers are numbered with the last dimension fastest, and nodes fill them in that order. A
dimension of two routers has two cables between them, one for each way round.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from commsim.cluster.fabrics.fabric_section import FabricSpec
from commsim.cluster.fabrics.leaves import Nic
from commsim.cluster.fabrics.wiring import SwitchLink, Wiring, nodes_on_leaves
from commsim.errors import ScenarioError

__all__ = ["torus_wiring"]

_MOST_DIMENSIONS = 6


def torus_wiring(spec: FabricSpec, nics: Sequence[Nic]) -> Wiring:
    """Return the wiring of a torus of `spec.dims` routers.

    Raises:
        ScenarioError: no dims, or not as many nodes as it has places.
    """
    dims, where = spec.dims, f"{spec.where}.dims"
    if not dims:
        raise ScenarioError(f"{where}: is missing. Give the routers per dimension: [4, 4, 4].")
    if min(dims) < 1 or len(dims) > _MOST_DIMENSIONS:
        raise ScenarioError(
            f"{where}: {list(dims)}: give 1 to {_MOST_DIMENSIONS} dimensions of 1 router or more."
        )
    at = nodes_on_leaves(spec, nics, spec.nodes_per_leaf or 1, math.prod(dims))
    names = ["router" + "-".join(map(str, place)) for place in _places(dims)]
    rate = spec.link_bandwidth or nics[0].bandwidth
    links = tuple(SwitchLink(names[a], names[b], rate, count) for a, b, count in _neighbours(dims))
    return Wiring(dict.fromkeys(names, "leaf"), links, tuple(names[leaf] for leaf in at), dims)


def _places(dims: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, dims))


def _neighbours(dims: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield each router with the next one in every dimension, and the cables between them."""
    for number, place in enumerate(_places(dims)):
        for axis, size in enumerate(dims):
            if size == 1 or (size == 2 and place[axis] == 1):
                continue
            stride = math.prod(dims[axis + 1 :])
            step = 1 if place[axis] + 1 < size else 1 - size
            yield number, number + step * stride, 2 if size == 2 else 1
