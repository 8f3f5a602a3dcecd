"""The graphs, channels, rings and trees that NCCL itself found, against ours."""

from __future__ import annotations

import pytest

from commsim.cluster import Cluster
from commsim.libraries.nccl.communicator.communicator import communicator_from_xml, communicator_of
from commsim.libraries.nccl.topology.to_cluster import cluster_from_xml

RECORDS = [
    "dgx1v_1", "dgx_a100_1", "dgx_a100_2", "dgx_a100_4", "dgx_h100_1", "dgx_h100_2",
    "pcie4_sw_100g_1", "pcie4_sw_100g_2",
]  # fmt: skip


@pytest.fixture(scope="module", params=RECORDS)
def pair(request, record, topology):
    want = record(request.param)
    comm = communicator_from_xml(
        topology(want["system"]), nodes=want["nNodes"], version=want["nccl"]
    )
    return want, comm


def test_facts(pair):
    want, comm = pair
    assert comm.max_bw == want["maxBw"]
    assert comm.total_bw == want["totalBw"]
    assert comm.min_compute_capability == want["minCompCap"]
    assert comm.cpu_arch == want["cpuArch"]
    assert comm.cpu_vendor == want["cpuVendor"]
    assert comm.nvswitch == bool(want["nvswitch"])
    assert (comm.n_ranks, comm.n_nodes) == (want["nRanks"], want["nNodes"])


def test_graphs(pair):
    want, comm = pair
    for name, graph in want["graphs"].items():
        if not graph["nChannels"] and name not in comm.graphs:
            continue
        found = comm.graphs[name]
        figures = {
            "pattern": found.pattern.name, "nChannels": found.n_channels,
            "bwIntra": found.bw_intra, "bwInter": found.bw_inter,
            "typeIntra": found.type_intra.name, "typeInter": found.type_inter.name,
            "crossNic": found.cross_nic, "sameChannels": int(found.same_channels),
            "latencyInter": found.latency_inter,
            "channels": [
                {"intra": list(c.intra)} | ({"inter": list(c.inter)} if c.inter else {})
                for c in found.channels
            ],
        }  # fmt: skip
        assert figures == graph, name


def test_rings(pair):
    want, comm = pair
    assert comm.channels == want["nChannels"]
    assert comm.rings.tolist() == want["rings"]


def test_trees(pair):
    want, comm = pair
    for rank in range(comm.n_ranks):
        up = comm.trees.up[:, rank].tolist()
        down = comm.trees.down[:, rank].tolist()
        assert [[u, d] for u, d in zip(up, down, strict=True)] == want["trees_up_down"][str(rank)]


@pytest.mark.parametrize("name", RECORDS)
def test_by_way_of_a_cluster(name, record, topology):
    """File to cluster to file: the same graphs and rings."""
    want = record(name)
    text = topology(want["system"])
    cluster = cluster_from_xml(text, nodes=want["nNodes"], source=f"{name}.xml")
    comm = communicator_of(cluster, range(cluster.world_size), version=want["nccl"])
    direct = communicator_from_xml(text, nodes=want["nNodes"], version=want["nccl"])
    assert dict(comm.graphs) == dict(direct.graphs)
    assert comm.rings.tolist() == want["rings"]
    assert (comm.peer_nvlinks, comm.local_nets) == (direct.peer_nvlinks, direct.local_nets)


@pytest.mark.parametrize(
    ("preset", "name"),
    [("dgx-h100", "dgx_h100_2"), ("dgx-a100", "dgx_a100_2"), ("pcie-a100", "pcie4_sw_100g_2")],
)
def test_presets_give_what_their_machines_gave(preset, name, record):
    want = record(name)
    cluster = Cluster.preset(preset, nodes=2)
    comm = communicator_of(cluster, range(cluster.world_size), version=want["nccl"])
    assert comm.rings.tolist() == want["rings"]
    assert comm.channels == want["nChannels"]
    assert comm.graphs["tree"].bw_intra == want["graphs"]["tree"]["bwIntra"]
