"""The tables of `commsim topo`: paths between devices, graphs, columns."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.nccl_machines import cpu, gpu, net, nic, root

from commsim.errors import ScenarioError
from commsim.libraries.nccl.env import knobs_of
from commsim.libraries.nccl.shapes import (
    Channel,
    Communicator,
    CpuArch,
    CpuVendor,
    PathType,
    Pattern,
    SearchGraph,
)
from commsim.libraries.nccl.topology.view import Table, graph_table, path_tables, view_text
from commsim.libraries.nccl.topology.xml_file import write_xml


def graph(*channels, pattern=Pattern.RING, **changes):
    asked = {"bw_intra": 20.0, "bw_inter": 12.5, "type_intra": PathType.NVL,
             "type_inter": PathType.PXB, "cross_nic": 2, "same_channels": True}  # fmt: skip
    return SearchGraph(pattern=pattern, channels=channels, **(asked | changes))


def comm(graphs, *, nodes=2, local=4, channels=2):
    return Communicator(
        version="2.27", node_of=tuple(np.arange(nodes * local) // local),
        local_ranks=(local,) * nodes, min_compute_capability=80, max_compute_capability=80,
        cpu_arch=CpuArch.X86, cpu_vendor=CpuVendor.INTEL, nvswitch=False, max_bw=1.0, total_bw=1.0,
        graphs=graphs, channels=channels,
    )  # fmt: skip


def test_columns_are_aligned_the_first_to_the_left():
    table = Table("Title", ("", "bb", "c"), (("long one", "1", "22"), ("x", "333", "")))
    assert table.text() == (
        "Title\n"
        "           bb   c\n"
        "long one    1  22\n"
        "x         333"
    )  # fmt: skip


def machine(gpus, nets=0, **ports):
    cards = [nic(0x10 + i, net(i, **ports)) for i in range(nets)]
    return write_xml(root(cpu(*(gpu(i, bus=0x20 + i) for i in range(gpus)), *cards)))


def test_paths_have_their_type_and_gigabytes():
    """Two GPUs on one socket (PCIe 3 x16) and a NIC of 12.5 GB/s behind 12 GB/s."""
    pairs, nets = path_tables(machine(2, 1))
    assert pairs == Table(
        "Paths between GPUs: type and GB/s",
        ("", "GPU 0", "GPU 1"),
        (("GPU 0", "-", "PHB 12"), ("GPU 1", "PHB 12", "-")),
    )
    assert nets == Table(
        "Paths from GPUs to NETs: type and GB/s",
        ("", "NET 0"),
        (("GPU 0", "PHB 12"), ("GPU 1", "PHB 12")),
    )
    assert len(path_tables(machine(2))) == 1


def test_gpus_are_called_by_rank_and_ports_by_number():
    text = write_xml(root(cpu(gpu(0, bus=0x20, dev=5), gpu(3, bus=0x21, dev=0), nic(0x10, net(7)))))
    pairs, nets = path_tables(text)
    assert pairs.heads == ("", "GPU 0", "GPU 3")
    assert nets.heads == ("", "NET 7")


def test_a_table_shows_sixteen_devices():
    (sixteen,) = path_tables(machine(16))
    assert sixteen.title == "Paths between GPUs: type and GB/s"
    assert (len(sixteen.heads), len(sixteen.rows)) == (17, 16)
    more, nets = path_tables(machine(17, 18))
    assert more.title == "Paths between GPUs (the first 16 of 17): type and GB/s"
    assert (len(more.heads), len(more.rows)) == (17, 16)
    assert nets.title == "Paths from GPUs to NETs (the first 16 of 18): type and GB/s"
    assert (nets.heads[-1], nets.rows[-1][0]) == ("NET 15", "GPU 15")


def test_paths_follow_the_environment():
    text = machine(2)
    near = path_tables(text, knobs=knobs_of({"NCCL_P2P_LEVEL": "SYS"}))[0]
    assert near.rows[0][2] == "PHB 12"
    with pytest.raises(ScenarioError, match="mine.xml"):
        path_tables("<system/>", source="mine.xml")


def test_graphs_are_rows_of_what_was_found():
    ring = graph(Channel((0, 1, 2, 3), (4, 5)), Channel((1, 0, 2, 3), (6, 7)))
    tree = graph(
        Channel((3, 2, 1, 0), (1, 2)), pattern=Pattern.TREE, same_channels=False, cross_nic=0
    )
    nothing = graph(pattern=Pattern.NVLS)
    table = graph_table(comm({"ring": ring, "tree": tree, "nvls": nothing}))
    assert table.title == "Graphs (NCCL 2.27, 8 ranks on 2 nodes): 2 channels"
    assert table.heads == (
        "graph", "pattern", "channels", "GB/s", "GB/s to NICs", "between GPUs", "to NICs",
        "cross NIC", "same", "first channel",
    )  # fmt: skip
    assert table.rows == (
        ("ring", "RING", "2", "20", "12.5", "NVL", "PXB", "2", "yes", "NET 4: 0 1 2 3 :NET 5"),
        ("tree", "TREE", "1", "20", "12.5", "NVL", "PXB", "0", "no", "NET 1: 3 2 1 0 :NET 2"),
    )


def test_within_a_node_no_network_is_shown():
    table = graph_table(comm({"ring": graph(Channel((0,)))}, nodes=1, local=1, channels=1))
    assert table.title == "Graphs (NCCL 2.27, 1 rank on 1 node): 1 channel"
    assert table.rows == (("ring", "RING", "1", "20", "-", "NVL", "-", "2", "yes", "0"),)


@pytest.mark.parametrize(("gpus", "more"), [(16, ""), (17, " ...")])
@pytest.mark.parametrize("inter", [None, (2, 3)])
def test_a_channel_shows_sixteen_gpus(gpus, more, inter):
    shown = " ".join(map(str, range(16))) + more
    found = graph_table(comm({"ring": graph(Channel(tuple(range(gpus)), inter))})).rows[0][-1]
    assert found == (shown if inter is None else f"NET 2: {shown} :NET 3")


def test_the_text_is_all_tables_with_lines_between():
    one = Table("One", ("a",), (("b",),))
    text = view_text(comm({"ring": graph(Channel((0,)))}), [one])
    assert text.startswith("One\na\nb\n\nGraphs (NCCL 2.27")
    assert text.endswith("0\n")
    assert not text.endswith("\n\n")
