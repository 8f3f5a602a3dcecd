"""Properties of the search: no link over its bandwidth, NCCL's limits, and its budget."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from helpers.counting import python_calls
from helpers.share import examples
from hypothesis import given
from hypothesis import strategies as st

from commsim.cluster import Cluster
from commsim.cluster.section import cluster_from
from commsim.libraries.nccl.communicator import communicator
from commsim.libraries.nccl.communicator.communicator import communicator_from_xml, communicator_of
from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.search import bound as search_bound
from commsim.libraries.nccl.search.graph_search import search_all
from commsim.libraries.nccl.shapes import Pattern
from commsim.libraries.nccl.topology.build import system_of
from commsim.libraries.nccl.topology.from_cluster import cluster_xml
from commsim.libraries.nccl.topology.paths import Paths
from commsim.libraries.nccl.topology.rules import rules_of
from commsim.libraries.nccl.topology.xml_file import read_xml

PRESETS = [
    "dgx-1v", "dgx-2", "dgx-a100", "dgx-h100", "dgx-b200", "aws-p4d", "aws-p5", "perlmutter",
    "alps", "snellius-h100", "pcie-a100", "pcie-l40s", "pcie-rtx4090", "polaris",
]  # fmt: skip


def built(preset, *, inter, version="2.27"):
    rules = rules_of(version)
    text = cluster_xml(Cluster.preset(preset))
    return Paths(system_of(read_xml(text, preset), preset, rules, nets=inter), Knobs(), rules)


def loads(paths, graph):
    """Return MB/s on every link when each channel carries what the graph says."""
    gpus, nets = paths.system.gpus, paths.system.nets
    used: dict[int, float] = defaultdict(float)

    def carry(a, b, rate):
        for link in paths.between(a, b).links:
            used[link] += rate * 1000

    for channel in graph.channels:
        chain = [gpus[i] for i in channel.intra]
        for a, b in zip(chain, chain[1:], strict=False):
            carry(a, b, graph.bw_intra)
        if channel.inter is None:
            if graph.pattern == Pattern.RING and len(chain) > 1:
                carry(chain[-1], chain[0], graph.bw_intra)
            continue
        into, out = (nets[i] for i in channel.inter)
        carry(into, chain[0], graph.bw_inter)
        if graph.pattern == Pattern.RING:
            carry(chain[-1], out, graph.bw_inter)
        elif graph.pattern == Pattern.TREE:
            carry(chain[0], out, graph.bw_inter)
        else:
            for gpu in chain[:2]:
                carry(gpu, out, graph.bw_inter / 2)
    return used


@pytest.mark.share(0.4)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("inter", [False, True])
def test_no_link_carries_more_than_it_can(preset, inter):
    paths = built(preset, inter=inter)
    graphs = search_all(paths, inter=inter, nvls=False, collnet=False)
    for name in ("ring", "tree"):
        if graphs[name].bw_intra == 0.1:
            continue
        for link, rate in loads(paths, graphs[name]).items():
            assert rate <= paths.system.links[link].bandwidth + 1, (name, link)


@pytest.mark.share(0.4)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("inter", [False, True])
def test_channels_visit_every_gpu_once_over_allowed_paths(preset, inter):
    paths = built(preset, inter=inter)
    graphs = search_all(paths, inter=inter, nvls=False, collnet=False)
    gpus = paths.system.gpus
    for graph in graphs.values():
        assert 1 <= graph.n_channels <= 32
        for channel in graph.channels:
            assert sorted(channel.intra) == list(range(len(gpus)))
            assert (channel.inter is not None) == inter
            hops = zip(channel.intra, channel.intra[1:], strict=False)
            assert all(paths.between(gpus[a], gpus[b]).type <= graph.type_intra for a, b in hops)
    assert graphs["tree"].n_channels == graphs["ring"].n_channels


@examples(12)
@given(
    preset=st.sampled_from(PRESETS), seed=st.integers(0, 99), nodes=st.integers(1, 2),
    version=st.sampled_from(["2.18", "2.24", "2.27", "2.30.7"]),
)  # fmt: skip
def test_searches_put_off_change_nothing(preset, seed, nodes, version):
    """The same graphs as when every search that NCCL runs is run."""
    chance = random.Random(seed)
    cluster = Cluster.preset(preset, nodes=nodes)
    count = cluster.world_size // nodes
    own = sorted(chance.sample(range(count), chance.randint(1, min(count, 6))))
    gpus = [node * count + gpu for node in range(nodes) for gpu in own]
    quick = communicator_of(cluster, gpus, version=version)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_bound.SearchBound, "can_improve", lambda *_: True)
        communicator._views.cache_clear()
        full = communicator_of(cluster, gpus, version=version)
    communicator._views.cache_clear()
    assert dict(quick.graphs) == dict(full.graphs)


@pytest.mark.parametrize(
    ("preset", "nodes"), [("dgx-a100", 2), ("dgx-1v", 2), ("dgx-2", 2), ("alps", 2)]
)
def test_the_search_of_a_node_takes_few_steps(preset, nodes):
    cluster = Cluster.preset(preset, nodes=nodes)
    communicator._views.cache_clear()
    steps = python_calls(lambda: communicator_of(cluster, range(cluster.world_size)))
    assert steps < 400_000  # 84,759 to 265,044 when written


@pytest.mark.long
def test_the_search_of_a_rack_of_72_gpus_takes_few_steps():
    cluster = Cluster.preset("gb200-nvl72", nodes=36)
    communicator._views.cache_clear()
    found = []
    steps = python_calls(lambda: found.append(communicator_of(cluster, range(144))))
    assert steps < 3_000_000  # 2,115,269 when written
    (comm,) = found
    assert comm.local_ranks == (72, 72)
    assert comm.graphs["ring"].n_channels == 16
    assert comm.graphs["nvls"].n_channels == 32


@pytest.mark.parametrize(("version", "most"), [("2.24", 16), ("2.25", 32)])
def test_search_channels_are_limited_by_version(version, most, many_nics):
    """Eight GPUs with four 100 Gb/s NICs each could fill 32 channels."""
    comm = communicator_of(many_nics(2), range(16), version=version)
    assert comm.graphs["ring"].n_channels == most
    assert comm.channels == 2 * most


@pytest.mark.parametrize(
    ("version", "ring"), [("2.24", (12, 30.0)), ("2.27", (16, 45.0)), ("2.30.7", (16, 45.0))]
)
def test_blackwell_has_speeds_of_its_own_since_2_25(version, ring):
    cluster = Cluster.preset("dgx-b200")
    graph = communicator_of(cluster, range(8), version=version).graphs["ring"]
    if version == "2.24":
        assert graph.bw_intra in (60.0, 50.0, 40.0, 30.0, 24.0)
        assert graph.n_channels <= 16
    else:
        assert (graph.n_channels, graph.bw_intra) == ring


@pytest.mark.parametrize(
    ("preset", "nodes", "channels"),
    [
        ("dgx-1v", 1, 12), ("dgx-a100", 1, 24), ("dgx-a100", 2, 16), ("dgx-h100", 1, 24),
        ("dgx-h100", 2, 16), ("aws-p4d", 2, 8), ("pcie-a100", 2, 2),
    ],
)  # fmt: skip
def test_channels_as_logs_of_these_machines_show(preset, nodes, channels):
    cluster = Cluster.preset(preset, nodes=nodes)
    assert communicator_of(cluster, range(cluster.world_size)).channels == channels


def test_cross_nic_by_the_environment(topology):
    text = topology("dgx_h100")
    for value, cross in (("0", 0), ("1", 1), ("2", 2)):
        comm = communicator_from_xml(text, nodes=2, env={"NCCL_CROSS_NIC": value})
        assert comm.graphs["ring"].cross_nic == cross, value


def test_nvls_needs_hopper_a_switch_and_leave(topology):
    hopper = communicator_from_xml(topology("dgx_h100"))
    assert hopper.nvls_support
    assert [c.intra for c in hopper.graphs["nvls"].channels] == [(g,) for g in range(8)]
    off = communicator_from_xml(topology("dgx_h100"), env={"NCCL_NVLS_ENABLE": 0})
    assert not off.nvls_support
    assert not communicator_from_xml(topology("dgx_a100")).nvls_support


def test_collnet_where_the_network_reduces(topology):
    text = topology("dgx_h100").replace('gdr="1"/>\n        </nic>', 'gdr="1" coll="1"/>\n</nic>')
    comm = communicator_from_xml(text, nodes=4, env={"NCCL_COLLNET_ENABLE": 1})
    assert comm.collnet_support
    assert comm.graphs["collnet_direct"].n_channels == 8
    heads = [channel.intra[0] for channel in comm.graphs["collnet_direct"].channels]
    assert heads == list(range(8))
    assert comm.graphs["collnet_chain"].pattern == Pattern.TREE
    plain = communicator_from_xml(topology("dgx_h100"), nodes=4, env={"NCCL_COLLNET_ENABLE": 1})
    assert not plain.collnet_support
    assert "collnet_direct" not in plain.graphs


def test_a_version_without_its_third_number_is_the_last_of_its_series():
    """2.27.5 gave Blackwell nodes finer speeds between nodes."""
    for version, speeds in (("2.27.3", 48_000), ("2.27.5", 96_000), ("2.27", 96_000)):
        assert rules_of(version).speeds(100, inter=True)[0] == speeds


@pytest.mark.parametrize(("version", "found"), [("2.24", True), ("2.27", False), ("2.30.7", True)])
def test_balanced_trees_on_ampere_may_go_around_but_from_2_25_to_2_28(version, found):
    """Two GPUs that each have a NIC of their own, both near: the second GPU's way back is SYS."""
    node = {
        "gpu": {"count": 2, "spec": "A100-SXM4-40GB"},
        "nvlink": {"kind": "mesh", "per_link": "25GB/s", "links": 4},
        "pcie": {
            "generation": 4,
            "switches": [
                {"socket": 0, "gpus": [0], "nics": [0]},
                {"socket": 1, "gpus": [1], "nics": [1]},
            ],
        },
        "cpu": {"sockets": 2, "vendor": "intel", "family": 6, "model_id": 106},
        "nic": {"count": 2, "bandwidth": "100Gbps", "medium": "infiniband", "gdr": True},
    }
    cluster = cluster_from({"nodes": 2, "node": node}, "test")
    tree = communicator_of(cluster, range(4), version=version).graphs["tree"]
    assert (tree.bw_inter > 1) == found
