"""Which groups fill a box of a torus, and how their nodes stand in it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.libraries.ideal.library import _per_node
from commsim.libraries.ideal.torus import torus_dims


def torus(dims: tuple[int, ...], nodes: int, each: int = 2) -> Cluster:
    """Return so many nodes of `each` GPUs on the routers of a torus."""
    found: Any = SimpleNamespace(
        fabric=SimpleNamespace(dims=dims),
        node_of=np.repeat(np.arange(nodes), each),
        node_names=("node",) * nodes,
    )
    return cast("Cluster", found)


def ranks_of(nodes: list[int], each: int = 2) -> list[int]:
    return [node * each + local for node in nodes for local in range(each)]


@pytest.mark.parametrize(("dims", "nodes", "used", "box"), [
    ((2, 3), 6, [0, 1, 2, 3, 4, 5], (2, 3)),
    ((2, 3), 6, [0, 1, 3, 4], (2, 2)),
    ((2, 3), 6, [1, 2], (1, 2)),
    ((2, 3), 6, [0, 3], (2, 1)),
    ((2, 3), 6, [4], (1, 1)),
    ((2, 3), 6, [0, 1, 3], ()),  # no box
    ((2, 3), 6, [0, 4], ()),
    ((2, 3), 6, [1, 0], ()),  # not in order
    ((2, 2), 8, [0, 1, 2, 3, 4, 5, 6, 7], (2, 2, 2)),  # two nodes on a router
    ((2, 2), 8, [0, 2], (1, 2, 1)),
    ((2, 2), 8, [0, 1], (1, 1, 2)),
    ((4,), 4, [1, 2, 3], (3,)),
    ((), 4, [0, 1], ()),  # no torus
])  # fmt: skip
def test_boxes(dims: tuple[int, ...], nodes: int, used: list[int], box: tuple[int, ...]) -> None:
    cluster = torus(dims, nodes)
    assert torus_dims("torus", ranks_of(used), 2, cluster) == box
    assert torus_dims("hierarchical", ranks_of(used), 2, cluster) == ()
    assert torus_dims("torus", ranks_of(used), 0, cluster) == ()


@pytest.mark.parametrize(("algorithm", "ranks", "each"), [
    ("ring", range(16), 0),
    ("torus", range(8), 0),  # one node has no dimensions
    ("torus", range(16), 8),
    ("torus", [0, 1, 8, 9], 2),
    ("hierarchical", range(8), 8),
    ("hierarchical", [0, 8], 1),
])  # fmt: skip
def test_ranks_of_each_node(algorithm: str, ranks: list[int], each: int) -> None:
    cluster = Cluster.preset("dgx-h100", nodes=2)
    order = list(range(len(ranks)))
    assert _per_node(algorithm, order, tuple(ranks), cluster) == each


def test_nodes_with_more_ranks_than_others_are_refused() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=2)
    with pytest.raises(ScenarioError, match="has 1 on one and 2 on another"):
        _per_node("torus", [0, 1, 2], (0, 1, 8), cluster)
