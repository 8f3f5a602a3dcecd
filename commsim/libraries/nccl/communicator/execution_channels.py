"""
The channels that a communicator runs on: those of the search, repeated and limited.

Follows ncclTopoPostset in src/graph/connect.cc, which doubles the searched channels, adds more
for CollNet and Hopper, and applies NCCL_MIN/MAX_NCHANNELS and NCCL_MIN/MAX_CTAS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from commsim.libraries.nccl.communicator.net_ends import PlacedNode
from commsim.libraries.nccl.communicator.node import NodeView
from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Channel, Communicator, SearchGraph, Trees
from commsim.libraries.nccl.tuning import nvls_setup, tables_of

__all__ = ["execution_order", "in_local_ranks", "with_nvls_channels"]

_WIDE_RING = 45.0  # GB/s of a ring channel, above which four run per searched channel


def with_nvls_channels(comm: Communicator, knobs: Knobs) -> Communicator:
    """Return the communicator with its channels repeated up to those of NVLS.

    NCCL 2.20 to 2.27 do so (ncclTopoPostset in src/graph/connect.cc), so that rings, trees and
    sends have them too. A limit of the user's holds all the same.
    """
    tables = tables_of(comm.version)
    most = nvls_setup(comm, tables, knobs).channels if comm.nvls_support else 0
    most = min([most, *(n for n in (knobs.max_nchannels, knobs.max_ctas) if n is not None)])
    if not tables.grows_to_nvls or most <= comm.channels:
        return comm
    order = [channel % comm.channels for channel in range(most)]
    trees = Trees(comm.trees.up[order], comm.trees.down[order])
    return replace(comm, channels=most, rings=comm.rings[order], trees=trees)


def execution_order(
    graphs: Mapping[str, SearchGraph],
    views: Sequence[NodeView],
    knobs: Knobs,
    *,
    nodes: int,
    ranks: int,
    collnet: bool,
    most: int,
) -> list[int]:
    """Return the execution channels, each as the searched channel (or its twin) it repeats.

    Twice the channels of the search, more if that fills links, and what the environment asks.
    """
    ring = graphs["ring"]
    order = list(range(min(most, 2 * ring.n_channels)))
    if collnet:
        chain = graphs["collnet_chain"]
        if chain.bw_intra > chain.bw_inter and ranks > nodes:
            order = _grown(order, min(most, len(order) + len(order) // 2))
    hopper = min(one.capability[0] for one in views) >= 90
    if hopper and nodes > 1 and ring.bw_intra > _WIDE_RING and len(order) < 16:
        order = _grown(order, 2 * len(order))
    for upper in (knobs.max_nchannels, knobs.max_ctas):
        order = order if upper is None else order[: max(upper, 1)]
    lower = [n for n in (knobs.min_nchannels, knobs.min_ctas) if n is not None]
    return _grown(order, max([0, *(min(n, most) for n in lower)]))


def _grown(order: list[int], count: int) -> list[int]:
    """Return a list of channels repeated from its start on, up to a count."""
    return order + [order[c % len(order)] for c in range(count - len(order))]


def in_local_ranks(graph: SearchGraph, node: PlacedNode) -> SearchGraph:
    """Return a graph whose channels name local ranks and the NICs' numbers."""
    local = np.argsort(np.argsort(node.ranks)).tolist()
    numbers = _net_numbers(node.view)
    channels = tuple(
        Channel(
            tuple(local[gpu] for gpu in channel.intra),
            (numbers[channel.inter[0]], numbers[channel.inter[1]]) if channel.inter else None,
        )
        for channel in graph.channels
    )
    return replace(graph, channels=channels)


def _net_numbers(one: NodeView) -> list[int]:
    """Return the number of each NET: the plugin's on one machine, else counted over all."""
    if len({host for host, _ in one.nets}) <= 1:
        return [number for _, number in one.nets]
    order = sorted(range(len(one.nets)), key=lambda index: one.nets[index])
    return [order.index(index) for index in range(len(one.nets))]
