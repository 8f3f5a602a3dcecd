"""Single rules of the search that no recorded machine brings out."""

from __future__ import annotations

import pytest
from helpers.optional import present

from commsim.cluster import Cluster
from commsim.cluster.section import cluster_from
from commsim.libraries.nccl.communicator.communicator import communicator_from_xml, communicator_of
from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.search import channel_search as search_channels
from commsim.libraries.nccl.search.channel_search import ChannelSearch
from commsim.libraries.nccl.search.graph_search import search_all
from commsim.libraries.nccl.search.state import Trial
from commsim.libraries.nccl.shapes import PathType, Pattern
from commsim.libraries.nccl.topology.build import system_of
from commsim.libraries.nccl.topology.from_cluster import cluster_xml
from commsim.libraries.nccl.topology.paths import Paths
from commsim.libraries.nccl.topology.rules import rules_of
from commsim.libraries.nccl.topology.system import DeviceKind
from commsim.libraries.nccl.topology.xml_file import read_xml


def paths_of(text, *, nets=True):
    rules = rules_of("2.27")
    return Paths(system_of(read_xml(text, "f"), "f", rules, nets=nets), Knobs(), rules)


def two_gpus(vendor):
    """Two GPUs on PCIe 3 x16 (12 GB/s) of one socket."""
    ids = {"intel": (6, 106), "amd": (23, 49)}[vendor]
    node = {
        "gpu": {"count": 2, "spec": "A100-PCIe-40GB"},
        "nvlink": {"kind": "none"},
        "pcie": {"generation": 3},
        "cpu": {"sockets": 1, "vendor": vendor, "family": ids[0], "model_id": ids[1]},
    }
    return cluster_from({"node": node}, "test")


@pytest.mark.parametrize(("vendor", "speed"), [("intel", 10.0), ("amd", 12.0)])
def test_intel_hosts_take_a_fifth_more_of_pcie_between_gpus(vendor, speed):
    ring = communicator_of(two_gpus(vendor), [0, 1]).graphs["ring"]
    assert (ring.type_intra, ring.bw_intra) == (PathType.PHB, speed)


@pytest.mark.parametrize(("preset", "speed"), [("dgx-1v", 10.0), ("dgx-a100", 24.0)])
def test_before_ampere_receiving_takes_an_eighth_of_the_way_back(preset, speed):
    """One V100 behind 12 GB/s: 12 out and 12 / 8 for what comes in are too much."""
    cluster = Cluster.preset(preset, nodes=2)
    ring = communicator_of(cluster, [0, 8]).graphs["ring"]
    assert ring.bw_inter == speed


def test_each_channel_starts_one_nic_further(topology):
    """Eight NICs that could take two channels each: every channel has its own all the same."""
    wide = topology("dgx_a100").replace('speed="200000"', 'speed="400000"').splitlines()
    cards = [
        line.replace("16.0 GT/s", "32.0 GT/s") if "0x020700" in line else line for line in wide
    ]
    text = "\n".join(cards)
    comm = communicator_from_xml(text, nodes=2)
    starts = [present(channel.inter)[0] for channel in comm.graphs["ring"].channels]
    assert starts == list(range(8))


def test_hopper_nodes_with_few_wide_rings_get_four_channels_for_each():
    cluster = Cluster.preset("dgx-h100", nodes=2)
    comm = communicator_of(cluster, [8 * node + gpu for node in range(2) for gpu in range(6)])
    ring = comm.graphs["ring"]
    assert (ring.n_channels, ring.bw_intra) == (6, 48.0)
    assert comm.channels == 24
    assert comm.rings[12:].tolist() == comm.rings[:12].tolist()


def test_time_is_counted_by_steps():
    """
    Two GPUs, one ring: three visits, and one more for the second channel that does not fit; first
    in PCI order, then from each GPU.
    """
    rules = rules_of("2.27")
    two = system_of(
        read_xml(cluster_xml(Cluster.preset("pcie-a100")), "f"), "f", rules, ranks=[0, 1],
        nets=False,
    )  # fmt: skip
    paths = Paths(two, Knobs(), rules)
    trial = Trial(Pattern.RING, 1, 32, PathType.PIX, PathType.PIX, bw_intra=24_000, bw_inter=24_000)
    best = trial.copy()
    assert ChannelSearch(paths, inter=False).run(trial, best, 256) == 256 - 12
    assert best.intra == [[0, 1]]
    assert ChannelSearch(paths, inter=False).run(trial, best, 5) == 0


def test_a_search_that_found_all_channels_ends():
    paths = paths_of(cluster_xml(Cluster.preset("dgx-a100")), nets=False)
    trial = Trial(Pattern.RING, 1, 2, PathType.NVL, PathType.PIX, bw_intra=20_000, bw_inter=20_000)
    best = trial.copy()
    assert ChannelSearch(paths, inter=False).run(trial, best, 256) == search_channels.PERFECT
    assert best.channels == 2


def test_budgets_are_nccls(topology, monkeypatch):
    asked = []
    run = ChannelSearch.run

    def spied(self, trial, best, budget):
        asked.append((trial.same_channels, budget))
        return run(self, trial, best, budget)

    monkeypatch.setattr(ChannelSearch, "run", spied)
    search_all(paths_of(topology("dgx1v")), inter=True, nvls=False, collnet=False)
    assert dict.fromkeys(asked) == {(True, 256): None, (False, 16384): None}


def test_gpus_alike_are_tried_backwards_but_next_to_the_network(topology):
    """From a NIC, where all GPUs are alike, the search goes down from the highest number."""
    search = ChannelSearch(paths_of(topology("pcie4_sw_100g")), inter=True)
    trial = Trial(Pattern.RING, 1, 1, PathType.PIX, PathType.PIX, bw_intra=12_000, bw_inter=12_000)
    search.run(trial, trial.copy(), 0)
    trial.channels, trial.intra, trial.inter = 0, [[0, -1, -1, -1]], [[0, -1]]
    assert search._next_gpus(0, 0, 3, 0) == [3, 2, 1]
    assert search._next_gpus(0, 2, 3, 0) == [1, 2, 3]
    assert search._next_gpus(0, 0, -1, 0) == [1, 2, 3]


def test_wider_links_come_first(topology):
    system = paths_of(topology("dgx1v")).system
    for gpu in system.gpus:
        widths = [link.bandwidth for link in gpu.links if link.type == PathType.NVL]
        assert widths == sorted(widths, reverse=True)
        assert gpu.links[-1].remote.kind == DeviceKind.PCI


def test_functions_of_one_card_are_one_device(topology):
    """A second port (function 1) shares the card's slot."""
    text = topology("pcie4_sw_100g")
    start, end = text.index('      <pci busid="0000:10:00.0"'), text.rindex("    </pci>")
    port = text[start:end].replace("10:00.0", "10:00.1").replace("mlx5_0", "mlx5_1")
    port = port.replace('dev="0"', 'dev="1"').replace("0xa0000000", "0xa0000001")
    system = paths_of(text[:end] + port + text[end:]).system
    assert len(system.of(DeviceKind.NIC)) == 1
    assert [net.number for net in system.nets] == [0, 1]
    apart = port.replace("10:00.1", "11:00.0")
    assert len(paths_of(text[:end] + apart + text[end:]).system.of(DeviceKind.NIC)) == 2


def test_ports_with_one_guid_share_their_bandwidth(topology):
    text = topology("dgx_h100")
    ring = communicator_from_xml(text, nodes=2).graphs["ring"]
    one = communicator_from_xml(
        text.replace('guid="0xa0000010"', 'guid="0xa0000000"'), nodes=2
    ).graphs["ring"]
    assert one.n_channels * one.bw_inter < ring.n_channels * ring.bw_inter


def test_wider_ways_replace_narrow_ones_of_equal_length():
    """A GPU pair with two NVLink ways over a third GPU takes the wider one."""
    node = {
        "gpu": {"count": 4, "spec": "V100-SXM2-32GB"},
        "nvlink": {
            "kind": "mesh", "per_link": "25GB/s",
            "links": [[0, 2, 2, 0], [2, 0, 0, 1], [2, 0, 0, 2], [0, 1, 2, 0]],
        },
        "cpu": {"sockets": 1, "vendor": "intel", "family": 6, "model_id": 85},
    }  # fmt: skip
    paths = paths_of(cluster_xml(cluster_from({"node": node}, "test")))
    way = paths.between(paths.system.gpus[0], paths.system.gpus[3])
    assert (way.type, way.bandwidth) == (PathType.NVB, 40_000)
    assert [end.rank for end in paths.ends(way)] == [2, 3]
