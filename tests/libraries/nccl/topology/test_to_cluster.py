"""From a topology file to a cluster, on machines made by hand."""

from __future__ import annotations

import pytest
from helpers.nccl_machines import bridge, c2c, cpu, gpu, net, nic, nvlink, root
from helpers.optional import present

from commsim.errors import ScenarioError
from commsim.libraries.nccl.topology.to_cluster import cluster_from_xml
from commsim.libraries.nccl.topology.xml_file import write_xml

FABRIC = {"kind": "single_switch"}


def cluster_of(*cpus, nodes=1, source="dir/my.xml", **asked):
    return cluster_from_xml(write_xml(root(*cpus)), nodes=nodes, source=source, **asked)


def spec_of(*cpus):
    return cluster_of(*cpus).specs[0]


def said(cluster, words):
    """Return the notes that hold some words."""
    return [note for note in cluster.notes if words in note]


def test_switches_hang_where_the_file_has_them():
    """A switch under a switch, one beside it, and one on the second socket of half the lanes."""
    spec = spec_of(
        cpu(
            bridge(1, gpu(0), bridge(2, gpu(2), nic(0x10, net(1, gdr="1")))),
            bridge(3, gpu(1)),
            nic(0x11, net(4, gdr="1")),
        ),
        cpu(bridge(4, gpu(3), link_width="8"), numa=1),
    )
    switches = [(s.gpus, s.nics, s.socket, s.under) for s in spec.pcie.switches]
    assert switches == [
        ((0,), (), 0, -1), ((1,), (), 0, -1), ((3,), (), 1, -1), ((2,), (0,), 0, 0),
    ]  # fmt: skip
    assert (spec.gpus, spec.sockets) == (4, 2)
    assert (spec.pcie.generation, spec.pcie.width, spec.pcie.p2p) == (3, 16, True)
    full = spec.pcie.bandwidth
    assert [s.bandwidth for s in spec.pcie.switches] == [full, full, full / 2, full]
    assert spec.nic_socket[1] == 0
    assert present(spec.nic).count == 2
    assert present(spec.nic).gdr
    assert present(spec.nic).own == ((0,), (0,), (1,), (1,))


def test_gpus_are_numbered_by_rank():
    spec = spec_of(cpu(gpu(3), gpu(1)), cpu(gpu(2), gpu(0), numa=1))
    assert spec.gpu_socket == (1, 0, 1, 0)
    assert spec.nic is None
    assert spec.nvlink is None
    assert not any(any(row) for row in spec.mesh)
    assert spec.switch is None
    assert spec.c2c is None


def test_nics_that_do_not_divide_the_gpus_take_turns():
    ports = [nic(0x10 + i, net(i)) for i in range(2)]
    spec = spec_of(cpu(*[gpu(i) for i in range(3)], *ports))
    assert present(spec.nic).own == ((0,), (1,), (0,))


@pytest.mark.parametrize(
    ("gpus", "nics", "own"),
    [
        (4, 2, ((0,), (0,), (1,), (1,))),
        (2, 4, ((0, 1), (2, 3))),
        (3, 3, ((0,), (1,), (2,))),
        (1, 1, ((0,),)),
    ],
)
def test_nics_that_divide_the_gpus_are_dealt_in_order(gpus, nics, own):
    ports = [nic(0x10 + i, net(i)) for i in range(nics)]
    assert present(spec_of(cpu(*[gpu(i) for i in range(gpus)], *ports)).nic).own == own


@pytest.mark.parametrize(
    ("generation", "speed", "width", "lanes"),
    [
        (1, "2.5 GT/s", "16", 16), (2, "5.0 GT/s PCIe", "4", 4), (3, "", "0", 16),
        (4, "16 GT/s", "1", 1), (5, "32.0 GT/s PCIe", "12", 8), (6, "64.0 GT/s PCIe", "2", 2),
        (4, "16 GT/s", "9", 8), (4, "16 GT/s", "7", 4), (4, "16 GT/s", "8", 8),
    ],
)  # fmt: skip
def test_a_slot_has_a_generation_and_a_power_of_two_of_lanes(generation, speed, width, lanes):
    spec = spec_of(cpu(gpu(0, link_speed=speed, link_width=width)))
    assert (spec.pcie.generation, spec.pcie.width) == (generation, lanes)


def test_slots_that_differ_are_said():
    one = cluster_of(cpu(gpu(0), gpu(1, link_width="8")))
    assert said(one, "GPUs' slots differ; all count as the first.")
    assert not said(one, "NICs' slots")
    assert one.specs[0].pcie.width == 16
    other = cluster_of(cpu(gpu(0), gpu(1), nic(0x10, net(0), link_width="8")))
    assert said(other, "NICs' slots count as the GPUs'.")
    assert not said(other, "GPUs' slots differ")
    alike = cluster_of(cpu(gpu(0), gpu(1), nic(0x10, net(0))))
    assert not said(alike, "slots")


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({}, ("x86_64", "intel", 6, 85)),
        ({"vendor": "AuthenticAMD", "familyid": "23", "modelid": "49"}, ("x86_64", "amd", 23, 49)),
        (
            {"vendor": "CentaurHauls", "familyid": "7", "modelid": "91"},
            ("x86_64", "zhaoxin", 7, 91),
        ),
        ({"arch": "arm64"}, ("arm64", "arm", 0, 0)),
        ({"arch": "ppc64"}, ("ppc64", "ibm", 0, 0)),
    ],
)
def test_the_cpu_is_the_files(attributes, wanted):
    spec = spec_of(cpu(gpu(0), **attributes), cpu(numa=1, **attributes))
    found = spec.cpu
    assert (found.arch, found.vendor, found.family, found.model_id) == wanted
    assert spec.sockets == 2


def test_the_link_between_sockets_is_nccls():
    assert spec_of(cpu(gpu(0)), cpu(numa=1)).socket_link.bandwidth == 10e9


@pytest.mark.parametrize(("counts", "sure"), [((2, 2), 2), ((1, 3), 1), ((4, 2), 2)])
def test_nvlinks_between_gpus_count_as_both_say(counts, sure):
    spec = spec_of(cpu(gpu(0, nvlink(0x81, counts[0])), gpu(1, nvlink(0x80, counts[1])), gpu(2)))
    assert spec.mesh == ((0, sure, 0), (sure, 0, 0), (0, 0, 0))
    assert present(spec.nvlink).bandwidth == 25e9
    assert spec.switch is None


@pytest.mark.parametrize(("sm", "rate"), [(70, 25e9), (86, 14.0625e9), (90, 25e9), (100, 50e9)])
def test_a_switch_has_all_links_of_a_gpu(sm, rate):
    spec = spec_of(cpu(*(gpu(i, nvlink(None, 4), nvlink(None, 5), sm=sm) for i in range(2))))
    assert spec.switch_links == 9
    assert present(spec.switch).bandwidth == 9 * rate
    assert spec.domain_nodes == 1


def test_c2c_is_the_files():
    arm = {"arch": "arm64"}
    spec = spec_of(cpu(gpu(0, c2c(100_000, 2)), **arm), cpu(gpu(1, c2c(100_000, 2)), numa=1, **arm))
    assert present(spec.c2c).bandwidth == 200e9


@pytest.mark.parametrize(
    ("kind", "gdr", "wanted"),
    [
        ("0x020700", "1", ("infiniband", True)), ("0x0207ff", "1", ("infiniband", True)),
        ("0x020000", "0", ("ethernet", False)), ("0x020600", "1", ("ethernet", True)),
        ("0x020800", "0", ("ethernet", False)),
    ],
)  # fmt: skip
def test_a_nic_is_infiniband_by_its_class(kind, gdr, wanted):
    found = present(spec_of(cpu(gpu(0), nic(0x10, net(0, gdr=gdr), class_=kind))).nic)
    assert (found.medium, found.gdr) == wanted
    assert found.wire.bandwidth == 12.5e9


def test_gpudirect_needs_all_nics_and_all_gpus():
    good = [nic(0x10, net(0, gdr="1")), nic(0x11, net(1, gdr="1"))]
    bad = nic(0x11, net(1, gdr="0"))
    assert present(spec_of(cpu(gpu(0), gpu(1), *good)).nic).gdr
    assert not present(spec_of(cpu(gpu(0), gpu(1), good[0], bad)).nic).gdr
    assert not present(spec_of(cpu(gpu(0), gpu(1, gdr="0"), *good)).nic).gdr


def test_the_fastest_ports_alone_are_taken():
    cluster = cluster_of(
        cpu(gpu(0), gpu(1), nic(0x10, net(5, speed=200_000)), nic(0x11, net(1, speed=10_000)),
            nic(0x12, net(2, speed=200_000)), nic(0x13, net(3, speed=100_000)))
    )  # fmt: skip
    assert said(cluster, "slower NETs left out: 1 (1.25 GB/s), 3 (12.5 GB/s).")
    assert present(cluster.specs[0].nic).count == 2
    alike = cluster_of(cpu(gpu(0), nic(0x10, net(0))))
    assert not said(alike, "slower NETs")


def test_a_gpu_is_known_by_its_device_or_said_to_be_taken():
    known = cluster_of(cpu(gpu(0, sm=90, device="0x2330")))
    assert known.specs[0].gpu.name == "H100-SXM5-80GB"
    assert not said(known, "is taken for")
    other = cluster_of(cpu(gpu(0, sm=86, device="0x1")))
    assert said(other, "PCI device 0x0001 (sm 86) is taken for a A10G")
    assert other.specs[0].gpu.name == "A10G"


def test_machines_of_one_domain_become_nodes():
    hosts = [cpu(gpu(i, nvlink(None, 2), bus=0x80), nic(0x10, net(0)), host=str(i))
             for i in range(2)]  # fmt: skip
    cluster = cluster_of(*hosts, nodes=3, fabric=FABRIC)
    assert cluster.world_size == 6
    assert cluster.specs[0].domain_nodes == 2
    assert cluster.domain_of_node.tolist() == [0, 0, 1, 1, 2, 2]
    assert cluster.name == "6 x my"
    with pytest.raises(ScenarioError, match="its 2 machines differ"):
        cluster_of(hosts[0], cpu(gpu(1, nvlink(None, 3)), nic(0x10, net(0)), host="1"))


def test_machines_without_gpus_are_refused():
    with pytest.raises(ScenarioError, match="machine 1 has no GPU with a rank"):
        cluster_of(cpu(gpu(0)), cpu(gpu(None), host="1"))


@pytest.mark.parametrize(
    ("nodes", "source", "name"),
    [(1, "a/b/box.xml", "1 x box"), (2, "box.xml", "2 x box"), (1, "plain", "1 x plain")],
)
def test_a_cluster_is_named_after_its_file(nodes, source, name):
    cluster = cluster_of(cpu(gpu(0), nic(0x10, net(0))), nodes=nodes, source=source, fabric=FABRIC)
    assert cluster.name == name
    assert cluster.world_size == nodes


def test_one_node_is_the_default_and_none_is_refused():
    text = write_xml(root(cpu(gpu(0))))
    assert cluster_from_xml(text).world_size == 1
    with pytest.raises(ScenarioError, match="0 is not a count of nodes"):
        cluster_from_xml(text, nodes=0)


def test_what_is_passed_over_is_said_once():
    hosts = [cpu(gpu(i, nvlink(None, 2), bus=0x80, device="0x1"), nic(0x10, net(0)), host=str(i))
             for i in range(2)]  # fmt: skip
    cluster = cluster_of(*hosts, fabric=FABRIC)
    assert len(said(cluster, "is taken for")) == 1
