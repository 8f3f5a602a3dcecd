"""A group after init, on machines made by hand: who is where, and what all of them have."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.nccl_machines import bridge, cpu, gpu, net, nic, nvlink, root

from commsim.cluster import Cluster
from commsim.cluster.section import cluster_from
from commsim.errors import ScenarioError
from commsim.libraries.nccl.communicator.communicator import communicator_from_xml, communicator_of
from commsim.libraries.nccl.topology import write_xml


def comm_of(*cpus, nodes=1, source="my.xml", **asked):
    return communicator_from_xml(write_xml(root(*cpus)), nodes=nodes, source=source, **asked)


def port(number, **attributes):
    return nic(0x10 + number, net(number, gdr="1", **attributes))


def pair(*more, first=0):
    """Two GPUs with a NIC each, and two NVLinks between them."""
    return cpu(
        bridge(1, gpu(first, nvlink(0x21, 2), bus=0x20, sm=90), port(0)),
        bridge(2, gpu(first + 1, nvlink(0x20, 2), bus=0x21, sm=90), port(1)),
        *more,
    )


def test_a_group_of_one_node_has_no_nics():
    comm = comm_of(pair())
    assert (comm.version, comm.node_of, comm.local_ranks) == ("2.27", (0, 0), (2,))
    assert (comm.min_compute_capability, comm.max_compute_capability) == (90, 90)
    assert (comm.max_bw, comm.total_bw, comm.peer_nvlinks) == (41.2, 41.2, 2)
    assert (comm.nvswitch, comm.nvls_support, comm.collnet_support) == (False, False, False)
    assert (comm.net_bandwidth, comm.local_nets) == (0.0, 0)
    assert comm.nets == {}
    assert comm.peer_access
    assert comm.gdr


def test_nodes_of_a_file_count_on():
    """NICs are numbered node by node, in the order of their own numbers."""
    comm = comm_of(pair(port(7, speed=50_000), first=4), nodes=3)
    assert comm.node_of == (0, 0, 1, 1, 2, 2)
    assert comm.local_ranks == (2, 2, 2)
    assert (comm.max_bw, comm.net_bandwidth, comm.local_nets) == (12.0, 12.0, 1)
    rings = comm.nets["ring"]
    assert sorted(dict.fromkeys(rings.nics.reshape(-1).tolist())) == [0, 1, 3, 4, 6, 7]
    assert (rings.relays // 2 == rings.nics // 3).all()
    assert sorted(comm.rings[0].tolist()) == list(range(6))


@pytest.mark.parametrize(("nodes", "message"), [(0, "0 is not a count"), (-3, "-3 is not a count")])
def test_nodes_are_counted_from_one(nodes, message):
    with pytest.raises(ScenarioError, match=message):
        comm_of(pair(), nodes=nodes)


def test_a_node_without_nics_is_alone():
    bare = cpu(gpu(0), gpu(1))
    assert comm_of(bare).n_nodes == 1
    with pytest.raises(ScenarioError, match=r"my.xml: a node without a NIC .* group of 2 nodes"):
        comm_of(bare, nodes=2)


@pytest.mark.parametrize(
    ("threshold", "nodes", "asked", "there"),
    [(2, 2, 1, True), (3, 2, 1, False), (3, 3, 1, True), (2, 1, 1, False), (2, 2, 0, False)],
)
def test_collnet_needs_its_count_of_nodes(threshold, nodes, asked, there):
    ports = [port(i, coll="1") for i in range(2)]
    machine = cpu(*(bridge(1 + i, gpu(i), ports[i]) for i in range(2)))
    env = {"NCCL_COLLNET_ENABLE": asked, "NCCL_COLLNET_NODE_THRESHOLD": threshold}
    comm = comm_of(machine, nodes=nodes, env=env)
    assert comm.collnet_support == there
    assert ("collnet_chain" in comm.graphs) == ("collnet_direct" in comm.graphs) == there
    assert ("collnet_chain" in comm.nets) == there


def switched(sm, count=4):
    return cpu(*(bridge(1 + i, gpu(i, nvlink(None, 8), sm=sm), port(i)) for i in range(count)))


@pytest.mark.parametrize(("sm", "does"), [(90, True), (80, False)])
def test_nvls_is_of_hopper_behind_a_switch(sm, does):
    comm = comm_of(switched(sm))
    assert (comm.nvswitch, comm.nvls_support) == (True, does)


@pytest.mark.parametrize(
    ("gpus", "what"),
    [
        ([], "a group needs a GPU"), ([0, 16], "there is no GPU 16"), ([-1], "there is no GPU -1"),
        ([3, 3], "stands twice"),
    ],
)  # fmt: skip
def test_a_group_is_of_gpus_that_are_there_once_each(gpus, what):
    cluster = Cluster.preset("dgx-h100", nodes=2)
    with pytest.raises(ScenarioError, match=what):
        communicator_of(cluster, gpus)


def test_the_first_and_the_last_gpu_make_a_group():
    comm = communicator_of(Cluster.preset("dgx-h100", nodes=2), [15, 0])
    assert (comm.node_of, comm.local_ranks) == ((0, 1), (1, 1))
    assert comm.nets["ring"].nics[0].tolist() == [[15, 15], [0, 0]]
    assert comm.notes == ()


def test_nodes_are_numbered_by_their_first_rank():
    comm = communicator_of(Cluster.preset("dgx-h100", nodes=3), [16, 0, 17, 8, 1, 9])
    assert comm.node_of == (0, 1, 0, 2, 1, 2)
    assert comm.local_ranks == (2, 2, 2)
    for name, ends in comm.nets.items():
        assert (ends.nics[:, 0] // 8 == 2).all(), name
        assert (ends.nics[:, 1] // 8 == 0).all(), name


def mixed(first, second):
    fabric = {"kind": "single_switch"}
    kinds: Any = [{"preset": first}, {"preset": second}]
    return cluster_from({"nodes": kinds, "fabric": fabric}, "test")


@pytest.mark.parametrize(("first", "second"), [("dgx-h100", "dgx-a100"), ("dgx-a100", "dgx-h100")])
def test_a_group_of_two_kinds_has_what_both_have(first, second):
    both = communicator_of(mixed(first, second), range(16))
    alone = [communicator_of(Cluster.preset(name, nodes=2), range(16)) for name in (first, second)]
    assert both.net_bandwidth == min(one.net_bandwidth for one in alone)
    assert both.peer_nvlinks == min(one.peer_nvlinks for one in alone)
    assert (both.max_bw, both.total_bw) == (alone[0].max_bw, alone[0].total_bw)
    assert (both.min_compute_capability, both.max_compute_capability) == (80, 90)
    assert both.nvswitch


def test_a_gpu_of_unknown_capability_is_said_once():
    node = {"gpu": {"count": 2, "memory": "16GiB"}, "pcie": {"generation": 4}}
    comm = communicator_of(cluster_from({"node": node}, "test"), [1, 0])
    (note,) = (note for note in comm.notes if "compute capability" in note)
    assert "NCCL's rules for 70 are taken" in note


def test_a_node_that_falls_apart_says_so():
    env = {"NCCL_P2P_DISABLE": 1, "NCCL_SHM_DISABLE": 1}
    comm = comm_of(pair(), env=env)
    assert comm.local_ranks == (1, 1)
    assert [n for n in comm.notes if "treats the 2 parts of a node as nodes" in n]
    assert not [n for n in comm_of(pair()).notes if "parts of a node" in n]


def test_ranks_of_a_file_stand_in_order_and_once():
    assert comm_of(pair(first=6)).rings.tolist() == comm_of(pair()).rings.tolist()
    with pytest.raises(ScenarioError, match=r"my.xml: two GPUs have one rank"):
        comm_of(cpu(gpu(0), gpu(0, bus=0x33)))
