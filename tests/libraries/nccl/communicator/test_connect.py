"""Rings and trees over nodes: what they must be, whatever the nodes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.share import examples
from hypothesis import given
from hypothesis import strategies as st

from commsim.cluster import Cluster
from commsim.cluster.section import cluster_from
from commsim.errors import ScenarioError
from commsim.libraries.nccl.communicator.communicator import communicator_from_xml, communicator_of
from commsim.libraries.nccl.communicator.connect import Chains, connect_rings, double_tree
from commsim.libraries.nccl.shapes import PathType, Pattern, SearchGraph


@given(st.integers(1, 600))
def test_both_trees_span_the_nodes_and_are_shallow(nodes):
    for tree in double_tree(nodes):
        roots = [node for node, place in enumerate(tree) if place.parent < 0]
        assert len(roots) == 1
        for node, place in enumerate(tree):
            for side, child in enumerate(place.children):
                if child >= 0:
                    assert tree[child].parent == node
                    assert tree[child].side == side
        children = sum(child >= 0 for place in tree for child in place.children)
        assert children == nodes - 1
        depth = {roots[0]: 0}
        waiting = [roots[0]]
        for node in waiting:
            for child in tree[node].children:
                if child >= 0:
                    depth[child] = depth[node] + 1
                    waiting.append(child)
        assert len(depth) == nodes
        assert max(depth.values()) <= math.ceil(math.log2(nodes)) + 1


@given(st.integers(2, 600))
def test_no_node_is_inner_in_both_trees(nodes):
    """But for the few whose one child is no burden: a node has at most three children in all."""
    first, second = double_tree(nodes)
    for one, other in zip(first, second, strict=True):
        count = sum(child >= 0 for place in (one, other) for child in place.children)
        assert count <= 3
    both = [
        node
        for node, (one, other) in enumerate(zip(first, second, strict=True))
        if max(one.children) >= 0 and max(other.children) >= 0
    ]
    assert len(both) <= 2


def check_rings(comm):
    ranks = list(range(comm.n_ranks))
    node_of = np.array(comm.node_of)
    for ring in comm.rings:
        assert sorted(ring.tolist()) == ranks
        assert ring[0] == 0
        # Nodes follow each other in order, each in one stretch.
        nodes = node_of[ring]
        starts = np.flatnonzero(nodes != np.roll(nodes, 1))
        if comm.n_nodes > 1:
            assert len(starts) == comm.n_nodes
            assert (np.diff(nodes[starts]) % comm.n_nodes == 1).all()


def check_trees(comm):
    up, down = comm.trees.up, comm.trees.down
    for channel in range(comm.trees.channels):
        assert (up[channel] < 0).sum() == 1
        for rank in range(comm.n_ranks):
            links = comm.trees.at(channel, rank)
            for child in links.down:
                assert up[channel, child] == rank
            filled = down[channel, rank] >= 0
            assert (np.sort(filled)[::-1] == filled).all()
        assert (down[channel] >= 0).sum() == comm.n_ranks - 1


@pytest.mark.share(0.4)
@pytest.mark.parametrize("name", ["dgx1v", "dgx_a100", "dgx_h100", "pcie4_sw_100g"])
@pytest.mark.parametrize("nodes", [1, 2, 3, 8])
def test_any_count_of_recorded_nodes(name, nodes, topology):
    comm = communicator_from_xml(topology(name), nodes=nodes)
    assert comm.rings.shape == comm.trees.up.shape == (comm.channels, comm.n_ranks)
    check_rings(comm)
    check_trees(comm)


@examples(15)
@given(st.data())
def test_any_group_of_a_cluster(data):
    preset = data.draw(st.sampled_from(["dgx-h100", "dgx-a100", "perlmutter", "pcie-a100"]))
    cluster = Cluster.preset(preset, nodes=3)
    gpus = data.draw(
        st.lists(st.integers(0, cluster.world_size - 1), min_size=2, max_size=10, unique=True)
    )
    comm = communicator_of(cluster, gpus)
    firsts = list(dict.fromkeys(cluster.domain_of(gpu) for gpu in gpus))
    assert comm.node_of == tuple(firsts.index(cluster.domain_of(gpu)) for gpu in gpus)
    check_rings(comm)
    check_trees(comm)


def test_rails_are_kept_across_nodes(topology):
    """With NICs swapped in pairs, a channel leaves node n on the rail where it enters n + 1."""
    for name in ("dgx_h100", "dgx_a100"):
        comm = communicator_from_xml(topology(name), nodes=4)
        nics = comm.nets["ring"].nics % 8
        for channel in nics:
            assert (channel[:, 1] == np.roll(channel[:, 0], -1)).all()
    comm = communicator_from_xml(topology("dgx_h100"), nodes=4)
    assert sorted(comm.nets["ring"].nics[:, 0, 0].tolist()) == list(range(8))


def test_the_rank_that_feeds_a_nic_is_near_it(topology):
    """DGX-1V has a NIC for two GPUs; where the chain ends at another GPU, PXN hands over."""
    comm = communicator_from_xml(topology("dgx1v"), nodes=2)
    ends = comm.nets["ring"]
    assert ends.nics.shape == ends.relays.shape == (4, 2, 2)
    assert ends.nics[:, 0, 0].tolist() == [0, 1, 2, 3]
    assert ends.nics[:, 1, 0].tolist() == [4, 5, 6, 7]
    assert (ends.relays // 2 == ends.nics).all()


def test_trees_talk_to_the_network_through_their_first_ranks(topology):
    comm = communicator_from_xml(topology("dgx_h100"), nodes=2)
    ends, graph = comm.nets["tree"], comm.graphs["tree"]
    for channel, found in enumerate(graph.channels):
        assert found.inter == (channel, channel)
        assert ends.nics[channel, 0].tolist() == [channel, channel]
        assert ends.relays[channel, 0, 0] == found.intra[0]


def test_one_gpu_per_node():
    cluster = Cluster.preset("dgx-h100", nodes=5)
    comm = communicator_of(cluster, [8 * node + 3 for node in range(5)])
    assert comm.local_ranks == (1,) * 5
    assert comm.graphs["tree"].pattern.name == "TREE"
    check_rings(comm)
    check_trees(comm)
    assert comm.nets["ring"].nics[0, :, 0].tolist() == [8 * node + 3 for node in range(5)]


def test_one_rank_alone():
    comm = communicator_of(Cluster.preset("dgx-h100"), [5])
    assert comm.n_ranks == comm.n_nodes == 1
    assert comm.rings.tolist() == [[0]] * comm.channels
    assert (comm.trees.up == -1).all()


def test_nodes_that_differ_take_the_least():
    cluster = cluster_from({"nodes": [{"preset": "dgx-h100"}, {"preset": "dgx-a100"}],
                            "fabric": {"kind": "single_switch"}}, "test")  # fmt: skip
    comm = communicator_of(cluster, range(16))
    hopper = communicator_of(Cluster.preset("dgx-h100", nodes=2), range(16))
    ampere = communicator_of(Cluster.preset("dgx-a100", nodes=2), range(16))
    ring = comm.graphs["ring"]
    assert ring.bw_inter == min(hopper.graphs["ring"].bw_inter, ampere.graphs["ring"].bw_inter)
    assert comm.cpu_vendor.name == "MIXED"
    assert (comm.min_compute_capability, comm.max_compute_capability) == (80, 90)
    assert not comm.nvls_support
    check_rings(comm)
    check_trees(comm)


def test_channels_by_the_environment(topology):
    text = topology("dgx_h100")

    def channels(**env):
        return communicator_from_xml(text, nodes=2, env=env).channels

    assert channels() == 16
    assert channels(NCCL_MAX_NCHANNELS=4) == 4
    assert channels(NCCL_MIN_NCHANNELS=24) == 24
    assert channels(NCCL_MIN_NCHANNELS=200) == 64
    assert channels(NCCL_MAX_NCHANNELS=4, NCCL_MIN_NCHANNELS=6) == 6
    comm = communicator_from_xml(
        text, nodes=2, env={"NCCL_MAX_NCHANNELS": 4, "NCCL_MIN_NCHANNELS": 6}
    )
    assert comm.rings[4:].tolist() == comm.rings[:2].tolist()


def test_mnnvl_can_be_switched_off():
    cluster = Cluster.preset("gb200-nvl72", nodes=18)
    assert communicator_of(cluster, range(72)).n_nodes == 1
    apart = communicator_of(cluster, range(72), env={"NCCL_MNNVL_ENABLE": 0})
    assert apart.local_ranks == (4,) * 18


def test_a_part_of_a_rack_is_still_one_node():
    cluster = Cluster.preset("gb200-nvl72", nodes=18)
    comm = communicator_of(cluster, [4 * node for node in range(18)])
    assert comm.local_ranks == (18,)
    check_rings(comm)


def test_two_thousand_nodes_take_little():
    cluster = Cluster.preset("dgx-h100", nodes=2048)
    comm = communicator_of(cluster, range(cluster.world_size))
    assert comm.rings.shape == (16, 16384)
    assert comm.rings.dtype == comm.trees.down.dtype == np.int32
    small = communicator_of(Cluster.preset("dgx-h100", nodes=2), range(16))
    assert dict(comm.graphs) == dict(small.graphs)


@pytest.mark.parametrize(
    ("gpus", "words"),
    [([], "a group needs a GPU"), ([0, 99], "no GPU 99"), ([-1], "no GPU -1"), ([3, 3], "twice")],
)
def test_a_group_that_cannot_be(gpus, words):
    with pytest.raises(ScenarioError, match=words):
        communicator_of(Cluster.preset("dgx-h100", nodes=2), gpus)


@pytest.mark.parametrize("version", ["2.9", "two", "", "2.27.x"])
def test_a_version_that_is_none(version):
    with pytest.raises(ScenarioError, match=r"NCCL version"):
        communicator_of(Cluster.preset("dgx-h100"), range(8), version=version)


def test_an_unknown_variable_is_an_error():
    with pytest.raises(ScenarioError, match="NCCL_CROSS_NIC"):
        communicator_of(Cluster.preset("dgx-h100"), range(8), env={"NCCL_CROSSNIC": 1})


def test_ranks_on_cpus_are_not_nccls():
    with pytest.raises(ScenarioError, match="gloo"):
        communicator_of(Cluster.preset("cpu-ethernet", nodes=2), range(4))


def test_a_gpu_without_a_compute_capability_counts_as_the_oldest():
    node = {"gpu": {"count": 2, "memory": "16GiB"}, "pcie": {"generation": 4}}
    comm = communicator_of(cluster_from({"node": node}, "test"), [0, 1])
    assert comm.min_compute_capability == 70
    assert any("no NVIDIA compute capability" in note for note in comm.notes)


@pytest.mark.parametrize(
    ("cross", "channels", "swaps"), [(2, 2, True), (1, 2, False), (0, 2, False), (2, 3, False)]
)
def test_every_odd_node_exchanges_pairs_of_rings_where_nics_are_swapped(cross, channels, swaps):
    """Two ranks in each of three nodes: forth on even channels, back on odd ones."""
    graph = SearchGraph(Pattern.RING, (), 1.0, 1.0, PathType.NVL, PathType.PIX, cross_nic=cross)
    chains = [
        Chains(graph, np.array([[2 * n + c % 2, 2 * n + 1 - c % 2] for c in range(channels)]))
        for n in range(3)
    ]
    rings = connect_rings(chains, channels).tolist()
    forth, back = ([0, 1, 3, 2, 4, 5], [0, 2, 3, 5, 4, 1]) if swaps else (
        [0, 1, 2, 3, 4, 5], [0, 3, 2, 5, 4, 1]
    )  # fmt: skip
    assert rings == [forth, back, forth][:channels]
