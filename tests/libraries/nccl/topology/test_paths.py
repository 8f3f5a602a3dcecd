"""How NCCL gets from device to device: path types, peer access, PXN, GPUDirect, local NICs."""

from __future__ import annotations

import pytest

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.libraries.nccl.communicator.communicator import communicator_from_xml, communicator_of
from commsim.libraries.nccl.env import Knobs, knobs_of
from commsim.libraries.nccl.shapes import PathType
from commsim.libraries.nccl.topology.build import system_of
from commsim.libraries.nccl.topology.from_cluster import cluster_xml
from commsim.libraries.nccl.topology.paths import Paths
from commsim.libraries.nccl.topology.rules import rules_of
from commsim.libraries.nccl.topology.view import path_tables, view_text
from commsim.libraries.nccl.topology.xml_file import read_xml


def paths_of(text, version="2.27", knobs=None, nets=True):
    rules = rules_of(version)
    return Paths(system_of(read_xml(text, "f"), "f", rules, nets=nets), knobs or Knobs(), rules)


def kinds(paths, sources, targets):
    return [[paths.between(a, b).type.name for b in targets] for a in sources]


def test_a_cube_mesh_goes_over_a_gpu_where_it_must(topology):
    """DGX-1V: 0-3 by two links, 0-5 by one GPU between, at the width of the narrower link."""
    paths = paths_of(topology("dgx1v"))
    gpus = paths.system.gpus
    assert kinds(paths, gpus[:1], gpus) == [
        ["LOC", "NVL", "NVL", "NVL", "NVL", "NVB", "NVB", "NVB"]
    ]
    widths = [paths.between(gpus[0], other).bandwidth for other in gpus[1:]]
    assert widths == [20_000, 20_000, 40_000, 40_000, 20_000, 20_000, 40_000]
    assert len(paths.between(gpus[0], gpus[5]).links) == 2


def test_without_nvb_they_go_through_the_host(topology):
    paths = paths_of(topology("dgx1v"), knobs=knobs_of({"NCCL_NVB_DISABLE": 1}))
    gpus = paths.system.gpus
    assert kinds(paths, gpus[:1], gpus)[0][5:] == ["SYS"] * 3
    assert paths.between(gpus[0], gpus[5]).bandwidth == 6_000


def test_a_broadcom_switch_of_two_levels_is_one(topology):
    """DGX A100: GPU and NIC under two halves of one switch are one switch apart."""
    paths = paths_of(topology("dgx_a100"))
    gpu, nets = paths.system.gpus[0], paths.system.nets
    assert kinds(paths, [gpu], nets[:2]) == [["PIX", "PIX"]]
    other = topology("dgx_a100").replace('subsystem_device="0xa096"', 'subsystem_device="0x1"')
    paths = paths_of(other)
    assert kinds(paths, [paths.system.gpus[0]], paths.system.nets[:2]) == [["PXB", "PXB"]]


def test_pxn_reaches_far_nics_over_nvlink_only_outwards(topology):
    paths = paths_of(topology("dgx_h100"))
    gpu, far = paths.system.gpus[0], paths.system.nets[5]
    assert paths.between(gpu, far).type == PathType.PXN
    assert paths.relay(gpu, far).rank == 5
    assert paths.between(far, gpu).type == PathType.SYS
    off = paths_of(topology("dgx_h100"), knobs=knobs_of({"NCCL_PXN_DISABLE": 1}))
    assert off.between(off.system.gpus[0], off.system.nets[5]).type == PathType.SYS


def test_gpudirect_needs_both_sides_and_nearness(topology):
    text = topology("dgx_h100")
    paths = paths_of(text)
    gpu, near = paths.system.gpus[0], paths.system.nets[0]
    assert paths.gdr(gpu, near)
    assert paths.between(gpu, near).type == PathType.PIX
    without = paths_of(text.replace('maxconn="131072" gdr="1"', 'maxconn="131072" gdr="0"'))
    gpu, near = without.system.gpus[0], without.system.nets[0]
    assert not without.gdr(gpu, near)
    assert without.between(gpu, near).type == PathType.PHB
    level = paths_of(text, knobs=knobs_of({"NCCL_NET_GDR_LEVEL": "LOC"}))
    assert not level.gdr(level.system.gpus[0], level.system.nets[0])


def test_before_ampere_nics_read_gpus_only_beside_nvlink(topology):
    text = topology("pcie4_sw_100g").replace('sm="80"', 'sm="70"')
    paths = paths_of(text)
    gpu, net = paths.system.gpus[0], paths.system.nets[0]
    assert paths.gdr(gpu, net)
    assert not paths.gdr(gpu, net, read=True)
    asked = paths_of(text, knobs=knobs_of({"NCCL_NET_GDR_READ": 1}))
    assert asked.gdr(asked.system.gpus[0], asked.system.nets[0], read=True)


def test_peer_access_has_a_level(topology):
    text = topology("pcie4_sw_100g")
    gpus = paths_of(text).system.gpus
    assert paths_of(text).between(gpus[0], gpus[1]).type == PathType.PIX
    for env in ({"NCCL_P2P_DISABLE": 1}, {"NCCL_P2P_LEVEL": "NVL"}, {"NCCL_P2P_LEVEL": "LOC"}):
        paths = paths_of(text, knobs=knobs_of(env))
        one, other = paths.system.gpus[:2]
        assert paths.between(one, other).type == PathType.PHB
        assert len(paths.between(one, other).links) == 4


def test_intel_sockets_by_generation(topology):
    """DGX H100 (Sapphire Rapids): 10 GB/s across sockets until 2.25, 22 since 2.26."""
    for version, rate in (("2.25", 10_000), ("2.26", 22_000), ("2.30.7", 22_000)):
        system = system_of(read_xml(topology("dgx_h100"), "f"), "f", rules_of(version))
        assert system.cpus[0].cross_link == rate


def test_c2c_to_the_nic_is_a_path_of_its_own_since_2_27():
    text = cluster_xml(Cluster.preset("gb200-nvl72", nodes=1))
    for version, kind in (("2.26", "PHB"), ("2.27", "P2C")):
        paths = paths_of(text, version)
        assert paths.between(paths.system.gpus[0], paths.system.nets[0]).type.name == kind


@pytest.mark.parametrize(
    ("preset", "want"),
    [
        ("dgx-h100", [[0], [1], [2], [3], [4], [5], [6], [7]]),
        ("dgx-a100", [[0], [1], [2], [3], [4], [5], [6], [7]]),
        ("dgx-1v", [[0], [0], [1], [1], [2], [2], [3], [3]]),
    ],
)
def test_near_nics_are_dealt_to_the_gpus_that_share_them(preset, want):
    paths = paths_of(cluster_xml(Cluster.preset(preset)))
    assert [[n.number for n in paths.near_nets(gpu)] for gpu in paths.system.gpus] == want


def test_several_nics_of_one_gpu_take_turns(many_nics):
    """Four NICs for each GPU; which comes first differs from GPU to GPU."""
    text = cluster_xml(many_nics(1))
    paths = paths_of(text)
    turns = [[n.number for n in paths.near_nets(gpu)] for gpu in paths.system.gpus]
    assert [sorted(row) for row in turns] == [list(range(4 * g, 4 * g + 4)) for g in range(8)]
    assert [row[0] for row in turns[:4]] == [0, 6, 9, 15]
    policy = knobs_of({"NCCL_NETDEVS_POLICY": "MAX:1"})
    one = paths_of(text, knobs=policy)
    assert [len(one.near_nets(gpu)) for gpu in one.system.gpus] == [1] * 8


TWO_SOCKETS = {
    "node": {
        "gpu": {"count": 8, "spec": "A100-PCIe-40GB"},
        "nvlink": {"kind": "none"},
        "pcie": {
            "generation": 4,
            "switches": [
                {"socket": 0, "gpus": [0, 1, 2, 3], "nics": [0]},
                {"socket": 1, "gpus": [4, 5, 6, 7], "nics": [1]},
            ],
        },
        "cpu": {"sockets": 2, "arch": "x86_64", "vendor": "intel", "family": 6, "model_id": 106},
        "nic": {"count": 2, "bandwidth": "100Gbps", "medium": "infiniband", "gdr": True},
    },
    "fabric": {"kind": "single_switch"},
}


def test_sockets_slower_than_nics_make_two_nodes():
    """The NICs carry 12.5 GB/s, the sockets' link 10: NCCL splits the box, or is told not to."""
    from commsim.cluster.section import cluster_from

    cluster = cluster_from(TWO_SOCKETS, "test")
    comm = communicator_of(cluster, range(8))
    assert comm.n_nodes == 2
    assert comm.node_of == (0, 0, 0, 0, 1, 1, 1, 1)
    assert any("parts of a node" in note for note in comm.notes)
    assert comm.graphs["ring"].type_inter == PathType.PIX
    kept = communicator_of(cluster, range(8), env={"NCCL_NET_DISABLE_INTRA": 1})
    assert kept.n_nodes == 1
    assert kept.graphs["ring"].type_intra == PathType.SYS


def test_no_way_at_all_between_gpus_takes_the_network():
    from commsim.cluster.section import cluster_from

    cluster = cluster_from(TWO_SOCKETS, "test")
    env = {"NCCL_P2P_DISABLE": 1, "NCCL_SHM_DISABLE": 1}
    comm = communicator_of(cluster, range(8), env=env)
    assert comm.local_ranks == (1,) * 8


def test_gpus_without_peer_access_over_pcie_share_memory():
    cluster = Cluster.preset("pcie-rtx4090")
    comm = communicator_of(cluster, range(cluster.world_size))
    assert comm.graphs["ring"].type_intra in (PathType.PHB, PathType.SYS)
    assert comm.peer_nvlinks == 0


def test_a_group_over_nodes_needs_nics(topology):
    text = topology("dgx_h100")
    start, end = text.index("<net "), text.rindex("/>") + 2
    bare = "".join(line for line in text.splitlines(keepends=True) if "<net " not in line)
    assert start < end
    assert communicator_from_xml(bare).n_nodes == 1
    with pytest.raises(ScenarioError, match="without a NIC"):
        communicator_from_xml(bare, nodes=2, source="bare.xml")


def test_the_view_says_what_nccl_sees(topology):
    text = topology("dgx1v")
    tables = path_tables(text)
    assert tables[0].rows[0] == (
        "GPU 0", "-", "NVL 20", "NVL 20", "NVL 40", "NVL 40", "NVB 20", "NVB 20", "NVB 40"
    )  # fmt: skip
    assert tables[1].heads == ("", "NET 0", "NET 1", "NET 2", "NET 3")
    drawn = view_text(communicator_from_xml(text, nodes=2), tables)
    assert "Graphs (NCCL 2.27, 16 ranks on 2 nodes): 8 channels" in drawn
    assert "NET 0: 0 3 2 6 7 4 5 1 :NET 0" in drawn
