"""The NVLink domains of a group: their files, and the ranks and NICs of their devices."""

from __future__ import annotations

import pytest
from helpers.nccl_machines import cpu, gpu, net, nic, root

from commsim.cluster import Cluster
from commsim.cluster.section import cluster_from
from commsim.libraries.nccl.communicator.domains import DomainWriter, numbered_from_zero
from commsim.libraries.nccl.env import knobs_of
from commsim.libraries.nccl.topology import read_xml, write_xml
from commsim.libraries.nccl.topology.build import system_of
from commsim.libraries.nccl.topology.rules import rules_of


def system(text):
    return system_of(read_xml(text, "f"), "f", rules_of("2.27"))


def writer(cluster, version="2.27", **env):
    return DomainWriter(cluster, knobs_of(env), version=version)


def test_ranks_of_a_file_are_numbered_by_their_place():
    text = write_xml(root(cpu(gpu(7), gpu(None, bus=0x70), gpu(3), nic(0x10, net(0)))))
    again = numbered_from_zero(text, "f", {3: 0, 7: 1})
    assert [(g.bus, g.rank) for g in system(again).gpus] == [(0x87 << 12, 1), (0x83 << 12, 0)]
    assert "rank" not in again.split("0000:70")[1].split("</pci>")[0]


def test_a_domain_has_the_ranks_and_nics_of_its_node():
    """Ranks 1 and 0 on GPUs 9 and 14 of the second node: its NICs are the cluster's 8 to 15."""
    describe = writer(Cluster.preset("dgx-h100", nodes=3))
    domain = describe.domain({14: 0, 9: 1})
    assert domain.ranks == (1, 0)
    assert [(g.number, g.rank) for g in system(domain.text).gpus] == [(1, 0), (6, 1)]
    assert domain.nics == {(0, number): 8 + number for number in range(8)}
    other = describe.domain({6: 5, 1: 9})
    assert other.text is domain.text
    assert (other.ranks, other.nics[0, 0]) == ((9, 5), 0)
    assert describe.domain({6: 5}).text != domain.text


def test_a_domain_of_several_nodes_counts_on():
    """Four GPUs of each tray; a group of the third and the second tray."""
    cluster = Cluster.preset("gb200-nvl72", nodes=3)
    count = cluster.first_nic(1)
    domain = writer(cluster).domain({8: 0, 5: 1, 7: 2})
    assert domain.ranks == (1, 2, 0)
    assert [(g.host, g.number, g.rank) for g in system(domain.text).gpus] == [
        (0, 1, 0), (0, 3, 1), (1, 0, 2),
    ]  # fmt: skip
    assert domain.nics == {
        (host, number): (1 + host) * count + number for host in range(2) for number in range(count)
    }


@pytest.mark.parametrize(
    ("version", "env", "devices"),
    [
        ("2.27", {}, 1), ("2.19", {}, 2), ("2.27", {"NCCL_IB_MERGE_NICS": 0}, 2),
        ("2.27", {"NCCL_NET_MERGE_LEVEL": "LOC"}, 2), ("2.27", {"NCCL_NET_MERGE_LEVEL": "PORT"}, 1),
    ],
)  # fmt: skip
def test_devices_of_one_nic_are_that_nic(version, env, devices):
    cluster = Cluster.preset("oci-h100", nodes=2)
    domain = writer(cluster, version, **env).domain({8: 0, 9: 1})
    nics = cluster.first_nic(1)
    assert domain.nics == {
        (0, number): nics + number // devices for number in range(nics * devices)
    }
    assert len(system(domain.text).nets) == nics * devices


def test_a_node_without_nics_has_none():
    node = {"gpu": {"count": 2, "spec": "A100-PCIe-40GB"}, "pcie": {"generation": 4}}
    assert writer(cluster_from({"node": node}, "test")).domain({0: 0}).nics == {}


def test_nics_without_a_fabric_are_left_out():
    """Else two sockets' GPUs would meet by NICs that nothing joins."""
    node = {
        "gpu": {"count": 2, "spec": "A100-PCIe-40GB"},
        "cpu": {"sockets": 2},
        "pcie": {"generation": 4},
        "nic": {"count": 2, "bandwidth": "200Gbps"},
    }
    domain = writer(cluster_from({"node": node}, "test")).domain({0: 0, 1: 1})
    assert domain.nics == {}
    assert not system(domain.text).nets
    joined = cluster_from({"node": node, "fabric": {"kind": "single_switch"}}, "test")
    assert writer(joined).domain({0: 0, 1: 1}).nics == {(0, 0): 0, (0, 1): 1}


@pytest.mark.parametrize(
    ("sharp", "asked", "reduces"), [(True, 1, True), (True, 0, False), (False, 1, False)]
)
def test_nics_reduce_where_the_fabric_does_and_nccl_is_asked(sharp, asked, reduces):
    fabric = {"kind": "single_switch", "sharp": sharp}
    cluster = cluster_from({"preset": "dgx-h100", "nodes": 2, "fabric": fabric}, "test")
    domain = writer(cluster, NCCL_COLLNET_ENABLE=asked).domain({0: 0, 1: 1})
    assert {port.in_network for port in system(domain.text).nets} == {reduces}


@pytest.mark.parametrize(
    ("preset", "asked", "level"),
    [
        ("pcie-a100", None, None), ("pcie-rtx4090", None, "C2C"), ("pcie-rtx4090", "SYS", "C2C"),
        ("pcie-rtx4090", "NVL", "NVL"), ("pcie-a100", "SYS", "SYS"),
    ],
)  # fmt: skip
def test_gpus_without_peer_access_over_pcie_have_it_over_nvlink_alone(preset, asked, level):
    env = {"NCCL_P2P_LEVEL": asked} if asked else {}
    found = writer(Cluster.preset(preset), **env).domain({0: 0, 1: 1}).knobs.p2p_level
    assert (found and found.name) == level
