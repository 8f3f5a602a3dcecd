"""What graphs, trees and communicators of NCCL say about themselves."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.libraries.nccl.shapes import (
    Algorithm,
    Channel,
    Communicator,
    CpuArch,
    CpuVendor,
    PathType,
    Pattern,
    Protocol,
    SearchGraph,
    Trees,
)


def communicator(nodes: list[int]) -> Communicator:
    """Return one with so many ranks in each node, and the defaults."""
    return Communicator(
        "2.27", tuple(n for n, count in enumerate(nodes) for _ in range(count)), tuple(nodes),
        90, 90, CpuArch.X86, CpuVendor.INTEL, True, 400.0, 400.0, {}, 2,
    )  # fmt: skip


@pytest.mark.parametrize(("nodes", "each"), [([8], 8), ([8, 8], 8), ([8, 7], 7), ([1, 1, 1], 1)])
def test_ranks_per_node_are_rounded_down(nodes: list[int], each: int) -> None:
    comm = communicator(nodes)
    assert (comm.n_ranks, comm.n_nodes, comm.ranks_per_node) == (sum(nodes), len(nodes), each)


def test_a_communicator_of_which_nothing_more_is_known() -> None:
    """GPUs reach each other and the NICs; the network adds nothing, and no ring is known."""
    comm = communicator([2])
    assert comm.gdr
    assert comm.peer_access
    assert not comm.nvls_support
    assert not comm.collnet_support
    assert (comm.net_bandwidth, comm.local_nets, comm.peer_nvlinks) == (0.0, 0, 0)
    assert comm.rings.shape == (0, 0)
    assert (comm.trees.channels, comm.trees.down.shape) == (0, (0, 0, 3))
    assert comm.notes == ()


def test_heads_are_the_first_ranks_of_channels_each_once() -> None:
    ways = [(0, 1, 2), (1, 2, 0), (0, 2, 1), (2, 1, 0)]
    graph = SearchGraph(
        Pattern.NVLS, tuple(Channel(way) for way in ways), 20.0, 20.0, PathType.NVL, PathType.PIX
    )
    assert (graph.n_channels, graph.n_heads) == (4, 3)
    assert (graph.cross_nic, graph.same_channels, graph.latency_inter) == (0, False, 0.0)


def test_links_of_a_rank_in_a_tree_leave_out_what_is_not_there() -> None:
    up = np.array([[-1, 0, 0], [1, 2, -1]], dtype=np.int32)
    down = np.array(
        [[[1, 2, -1], [-1] * 3, [-1] * 3], [[-1] * 3, [0, -1, -1], [1, -1, -1]]], dtype=np.int32
    )
    trees = Trees(up, down)
    assert trees.channels == 2
    found = [
        [(links.up, links.down) for rank in range(3) for links in [trees.at(channel, rank)]]
        for channel in range(2)
    ]
    assert found == [[(-1, (1, 2)), (0, ()), (0, ())], [(1, ()), (2, (0,)), (-1, (1,))]]


@pytest.mark.parametrize("algorithm", Algorithm)
def test_what_switches_add_up_is_named_by_them(algorithm: Algorithm) -> None:
    plain = (Algorithm.Tree, Algorithm.Ring, Algorithm.PAT)
    assert algorithm.in_network is (algorithm not in plain)


def test_numbers_are_those_of_nccl() -> None:
    """The order in which the tuner scans, best path first, and the CPUs of topology files."""
    names = {
        Algorithm: (0, "Tree Ring CollNetDirect CollNetChain NVLS NVLSTree PAT"),
        Protocol: (0, "LL LL128 Simple"),
        PathType: (0, "LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS NET DIS"),
        Pattern: (1, "BALANCED_TREE SPLIT_TREE TREE RING NVLS COLLNET_DIRECT"),
        CpuArch: (1, "X86 POWER ARM MIXED"),
        CpuVendor: (1, "INTEL AMD ZHAOXIN MIXED"),
    }
    for kind, (first, words) in names.items():
        found = [(member.name, member.value) for member in kind]
        assert found == [(name, first + at) for at, name in enumerate(words.split())]
