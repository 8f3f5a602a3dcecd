"""
Which NIC each channel uses where it leaves or enters a node, and which rank feeds that NIC.

Follows ncclTopoGetNetDev (src/graph/search.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from commsim.arrays import Ints32
from commsim.libraries.nccl.communicator.node import NodeView
from commsim.libraries.nccl.shapes import NetEnds, SearchGraph

__all__ = ["PlacedNode", "net_ends"]

_Ends = tuple[tuple[int, int], tuple[int, int]]
"""(GPU, NET) twice."""


class PlacedNode(msgspec.Struct, frozen=True, eq=False):
    """A node of a group: what it found, the rank of each of its GPUs, the id of each NET."""

    view: NodeView
    ranks: Ints32
    nics: Ints32


def net_ends(
    nodes: Sequence[PlacedNode], graphs: Mapping[str, SearchGraph]
) -> Mapping[str, NetEnds]:
    """Return per graph what its channels use in every node."""
    return {name: _ends_of(nodes, name, graph.n_channels) for name, graph in graphs.items()}


def _ends_of(nodes: Sequence[PlacedNode], name: str, channels: int) -> NetEnds:
    nics = np.full((channels, len(nodes), 2), -1, dtype=np.int32)
    relays = np.full((channels, len(nodes), 2), -1, dtype=np.int32)
    kept: dict[tuple[NodeView, bool], tuple[Ints32, Ints32]] = {}
    for index, node in enumerate(nodes):
        graph = node.view.graphs[name]
        swapped = graph.cross_nic == 2 and channels % 2 == 0 and index % 2 == 1
        key = node.view, name == "ring" and swapped
        if key not in kept:
            kept[key] = _local(node.view, name, channels, swapped=key[1])
        gpus, nets = kept[key]
        nics[:, index], relays[:, index] = node.nics[nets], node.ranks[gpus]
    return NetEnds(nics, relays)


def _local(view: NodeView, name: str, channels: int, *, swapped: bool) -> tuple[Ints32, Ints32]:
    """Return per channel and end the feeding GPU and the NET, by index; (channels, 2) each."""
    ends = [_channel_ends(view.graphs[name], name, c, swapped=swapped) for c in range(channels)]
    gpus = [[view.relays[gpu][net] for gpu, net in pair] for pair in ends]
    nets = [[net for _, net in pair] for pair in ends]
    shape = (channels, 2)
    return np.array(gpus, np.int32).reshape(shape), np.array(nets, np.int32).reshape(shape)


def _channel_ends(graph: SearchGraph, name: str, channel: int, *, swapped: bool) -> _Ends:
    """Return the GPU and NET at both ends.

    A channel's first GPU uses its first NET, any other GPU the second: so on nodes that exchange
    two channels each still uses the NET of the channel's number, and stays on its rail.
    """
    own = graph.channels[channel]
    into, out = own.inter or (0, 0)
    if name not in ("ring", "tree"):
        return (own.intra[0], into), (own.intra[0], into)
    chain = graph.channels[channel ^ 1].intra if swapped else own.intra
    ends = chain[0], chain[-1] if name == "ring" else chain[min(1, len(chain) - 1)]
    first, second = (into if end == own.intra[0] else out for end in ends)
    return (ends[0], first), (ends[1], second)
