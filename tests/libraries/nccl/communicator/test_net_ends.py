"""Which NIC a channel uses at both ends of a node, and the rank that feeds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from commsim.libraries.nccl.communicator.net_ends import PlacedNode, _channel_ends, net_ends
from commsim.libraries.nccl.shapes import Channel, PathType, Pattern, SearchGraph


def graph(*channels, cross_nic=0):
    return SearchGraph(
        Pattern.RING, channels, 1.0, 1.0, PathType.NVL, PathType.PIX, cross_nic=cross_nic
    )


FIRST, SECOND = Channel((0, 1, 2), (4, 5)), Channel((2, 0, 1), (5, 4))


@pytest.mark.parametrize(
    ("name", "channel", "swapped", "wanted"),
    [
        ("ring", 0, False, ((0, 4), (2, 5))),
        ("ring", 1, False, ((2, 5), (1, 4))),
        # The other channel's chain: its ends take the NETs of this one, by who is first on it.
        ("ring", 0, True, ((2, 5), (1, 5))),
        ("ring", 1, True, ((0, 4), (2, 5))),
        ("tree", 0, False, ((0, 4), (1, 5))),
        ("tree", 1, False, ((2, 5), (0, 4))),
        ("collnet_chain", 0, False, ((0, 4), (0, 4))),
        ("nvls", 1, False, ((2, 5), (2, 5))),
    ],
)
def test_a_channels_first_gpu_takes_its_first_net_and_any_other_the_second(
    name, channel, swapped, wanted
):
    assert _channel_ends(graph(FIRST, SECOND), name, channel, swapped=swapped) == wanted


@pytest.mark.parametrize("name", ["ring", "tree"])
def test_a_gpu_alone_is_both_ends(name):
    alone = graph(Channel((0,), (4, 5)))
    assert _channel_ends(alone, name, 0, swapped=False) == ((0, 4), (0, 4))
    assert _channel_ends(graph(Channel((0,))), name, 0, swapped=False) == ((0, 0), (0, 0))


class View:
    """What a node found, as far as its NICs go."""

    def __init__(self, graphs, relays):
        self.graphs, self.relays = graphs, relays


def node(graphs, *, ranks, nics, relays=((0, 0), (1, 1))):
    view: Any = View(graphs, relays)
    return PlacedNode(view, np.array(ranks, np.int32), np.array(nics, np.int32))


def test_nics_and_relays_are_those_of_the_node():
    """Two GPUs, two NETs; GPU 0 reaches NET 1 by way of GPU 1."""
    one = graph(Channel((0, 1), (0, 0)), Channel((0, 1), (1, 1)))
    relays = ((0, 1), (1, 1))
    nodes = [
        node({"ring": one, "nvls": one}, ranks=[5, 6], nics=[10, 11], relays=relays),
        node({"ring": one, "nvls": one}, ranks=[0, 3], nics=[20, 21], relays=relays),
    ]
    found = net_ends(nodes, {"ring": one, "nvls": one})
    assert found["ring"].nics.tolist() == [[[10, 10], [20, 20]], [[11, 11], [21, 21]]]
    assert found["ring"].relays.tolist() == [[[5, 6], [0, 3]], [[6, 6], [3, 3]]]
    assert found["nvls"].nics.tolist() == [[[10, 10], [20, 20]], [[11, 11], [21, 21]]]
    assert found["nvls"].relays.tolist() == [[[5, 5], [0, 0]], [[6, 6], [3, 3]]]


@pytest.mark.parametrize(
    ("name", "cross_nic", "channels", "swaps"),
    [
        ("ring", 2, 2, True), ("ring", 1, 2, False), ("ring", 0, 2, False), ("tree", 2, 2, False),
        ("ring", 2, 3, False),
    ],
)  # fmt: skip
def test_odd_nodes_exchange_pairs_of_channels_where_nics_are_swapped(
    name, cross_nic, channels, swaps
):
    """Channel 0 is 0, 1 and channel 1 is 1, 0: exchanged, the other GPU is first in the node."""
    own = graph(
        *[Channel((c % 2, 1 - c % 2), (c % 2, 1 - c % 2)) for c in range(channels)],
        cross_nic=cross_nic,
    )
    nodes = [node({name: own}, ranks=[2 * i, 2 * i + 1], nics=[2 * i, 2 * i + 1]) for i in range(3)]
    firsts = net_ends(nodes, {name: own})[name].relays[:2, :, 0].tolist()
    plain = [[0, 2, 4], [1, 3, 5]]
    assert firsts == ([[0, 3, 4], [1, 2, 5]] if swaps else plain)


def test_a_graph_without_channels_has_no_ends():
    none = graph()
    found = net_ends([node({"nvls": none}, ranks=[0, 1], nics=[0, 1])], {"nvls": none})["nvls"]
    assert found.nics.shape == found.relays.shape == (0, 1, 2)
