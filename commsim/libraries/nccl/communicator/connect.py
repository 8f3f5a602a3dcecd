"""
From the graphs of nodes to rings and trees over all of them.

Rings: each channel goes through the nodes in order, in each node the way its graph found. Trees:
a chain within a node, and over the nodes two binary trees, in which every node but the root is
inner in one and a leaf in the other; half of the channels take the first, half the second.

Follows connectRings and connectTrees (src/graph/connect.cc) and ncclGetDtree
(src/graph/trees.cc), NCCL 2.18 to 2.30.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from commsim.arrays import Ints32
from commsim.libraries.nccl.shapes import Pattern, SearchGraph, Trees

__all__ = ["Chains", "TreePlace", "connect_rings", "connect_trees", "double_tree"]


class Chains(msgspec.Struct, frozen=True):
    """A graph in one node: `ranks[c]` are the ranks that channel c visits there, in order."""

    graph: SearchGraph
    ranks: Ints32


class TreePlace(NamedTuple):
    """A node's place in a binary tree: parent, the two children, and which child it is."""

    parent: int
    children: tuple[int, int]
    side: int


def connect_rings(nodes: Sequence[Chains], channels: int) -> Ints32:
    """Return the ranks of each ring from rank 0 on, shape (channels, ranks).

    Where a node's graph swaps NICs between two channels (crossNic 2), every odd node exchanges
    these channels, so that each stays on its rail.
    """
    swapped = np.arange(channels) ^ 1
    blocks = [
        node.ranks[swapped if _swaps(node, index, channels) else slice(channels)]
        for index, node in enumerate(nodes)
    ]
    rings = np.concatenate(blocks, axis=1)
    ranks = rings.shape[1]
    starts = (rings == 0).argmax(axis=1)
    places = (starts[:, None] + np.arange(ranks)) % ranks
    return np.take_along_axis(rings, places, axis=1)


def _swaps(node: Chains, index: int, channels: int) -> bool:
    return node.graph.cross_nic == 2 and channels % 2 == 0 and index % 2 == 1


def connect_trees(nodes: Sequence[Chains], channels: int, ranks: int) -> Trees:
    """Return the trees, shape (2 x channels, ranks): the second half on the second binary tree."""
    up = np.full((2 * channels, ranks), -1, dtype=np.int32)
    down = np.full((2 * channels, ranks, 3), -1, dtype=np.int32)
    rows = np.arange(channels)[:, None]
    for node in nodes:
        chain = node.ranks[:channels]
        for half in (rows, rows + channels):
            up[half, chain[:, 1:]] = chain[:, :-1]
            down[half, chain[:, :-1], 0] = chain[:, 1:]
    _join(nodes, up, down, channels)
    return Trees(up, down)


def _join(nodes: Sequence[Chains], up: Ints32, down: Ints32, channels: int) -> None:
    """Link the nodes' chains by the two binary trees."""
    tops = [node.ranks[:channels, 0] for node in nodes]
    ends = [_child_ends(node, channels) for node in nodes]
    for half, tree in enumerate(double_tree(len(nodes))):
        rows = np.arange(channels) + half * channels
        for node, place in enumerate(tree):
            if place.parent >= 0:
                up[rows, tops[node]] = ends[place.parent][place.side]
            for side, child in enumerate(place.children):
                if child >= 0:
                    _add_child(down, rows, ends[node][side], tops[child])


def _child_ends(node: Chains, channels: int) -> tuple[Ints32, Ints32]:
    """Return the ranks that talk to the first and to the second child, per channel."""
    pattern = node.graph.pattern
    first = 0 if pattern == Pattern.TREE else 1
    second = 1 if pattern == Pattern.SPLIT_TREE else 0
    return node.ranks[:channels, first], node.ranks[:channels, second]


def _add_child(down: Ints32, rows: npt.NDArray[np.int_], parents: Ints32, children: Ints32) -> None:
    free = (down[rows, parents] < 0).argmax(axis=1)
    down[rows, parents, free] = children


def double_tree(nodes: int) -> tuple[list[TreePlace], list[TreePlace]]:
    """Return every node's place in the two trees.

    The second is the first mirrored for an even count, shifted by one for an odd one.
    """
    first = [_place(nodes, node) for node in range(nodes)]
    if nodes % 2 == 0:
        mirror = [nodes - 1 - node for node in range(nodes)]
        return first, [_renamed(first[mirror[node]], mirror) for node in range(nodes)]
    shifted = [(node + 1) % nodes for node in range(nodes)]
    return first, [_renamed(first[(node - 1) % nodes], shifted) for node in range(nodes)]


def _renamed(place: TreePlace, names: Sequence[int]) -> TreePlace:
    parent, *children = (names[n] if n >= 0 else -1 for n in (place.parent, *place.children))
    return TreePlace(parent, (children[0], children[1]), place.side)


def _place(nodes: int, node: int) -> TreePlace:
    """Return a node's place in the binary tree over 0 to nodes-1.

    With b the lowest set bit, a node's parent has b cleared and the next bit set, if that
    exists; its children lie b/2 below and above. Node 0 is the root, over one child.
    """
    bit = 1
    while bit < nodes and not node & bit:
        bit <<= 1
    if node == 0:
        return TreePlace(-1, (-1, bit >> 1 if nodes > 1 else -1), 0)
    parent = (node ^ bit) | (bit << 1)
    if parent >= nodes:
        parent = node ^ bit
    low = bit >> 1
    below = node - low if low else -1
    while low and node + low >= nodes:
        low >>= 1
    above = node + low if low else -1
    return TreePlace(parent, (below, above), 0 if node < parent else 1)
