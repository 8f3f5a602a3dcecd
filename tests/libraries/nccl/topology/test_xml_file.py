"""NCCL's topology files: round trips, and files that are none."""

from __future__ import annotations

import re

import pytest
from helpers.counting import python_calls
from hypothesis import given
from hypothesis import strategies as st

from commsim.cluster import Cluster
from commsim.errors import CommsimError, ScenarioError
from commsim.libraries.nccl.communicator.communicator import communicator_from_xml, communicator_of
from commsim.libraries.nccl.topology.build import system_of
from commsim.libraries.nccl.topology.from_cluster import cluster_xml
from commsim.libraries.nccl.topology.rules import rules_of
from commsim.libraries.nccl.topology.to_cluster import cluster_from_xml
from commsim.libraries.nccl.topology.xml_file import MAX_BYTES, Element, read_xml, write_xml

MACHINES = ["dgx1v", "dgx_a100", "dgx_h100", "pcie4_sw_100g"]


def described(system):
    """Return every device and link as plain data."""
    return [
        (d.kind, d.host, d.bus, d.rank, d.capability, d.bandwidth, d.asic,
         [(x.type, x.remote.kind, x.remote.bus, x.bandwidth) for x in d.links])
        for d in system.all()
    ]  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
def test_written_files_read_back_the_same(name, topology):
    root = read_xml(topology(name), name)
    again = read_xml(write_xml(root), name)
    assert again == root
    rules = rules_of("2.27")
    assert described(system_of(again, name, rules)) == described(system_of(root, name, rules))


names = st.text("abcdefgh_", min_size=1, max_size=8)
values = st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S")), max_size=12)
leaves = st.builds(Element, names, st.dictionaries(names, values, max_size=3))
trees = st.recursive(
    leaves,
    lambda inside: st.builds(
        Element, names, st.dictionaries(names, values, max_size=2), st.lists(inside, max_size=3)
    ),
    max_leaves=10,
)


@given(st.lists(trees, max_size=3))
def test_any_elements_survive_writing(inside):
    root = Element("system", {"version": "1"}, inside)
    assert read_xml(write_xml(root), "file") == root


ENTITIES = (
    '<?xml version="1.0"?><!DOCTYPE system [<!ENTITY a "x"><!ENTITY b "&a;&a;&a;&a;">]>'
    '<system version="&b;"/>'
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not XML"),
        ("not xml at all", "not XML"),
        ("<system><cpu></system>", "mismatched tag"),
        ("<graphs version='1'/>", "<graphs>"),
        ("<system version='1'/>", "no GPU with a rank"),
        (ENTITIES, "document type"),
        ("<system>" * 100 + "</system>" * 100, "levels"),
        ("<system>" + "<cpu/>" * 70000 + "</system>", "elements"),
        ("<system><cpu numaid='0' arch='x86_64' vendor='GenuineIntel'/></system>", "familyid"),
        ("<system><cpu numaid='zero' arch='arm64'/></system>", "whole number"),
        ("<system><cpu numaid='0' arch='vax'/></system>", "arch must be"),
        ("<system><cpu numaid='0' arch='arm64' host_hash='q'/></system>", "hexadecimal"),
        ("<system><cpu numaid='0' arch='arm64'/><cpu numaid='0' arch='arm64'/></system>", "second"),
    ],
)
def test_what_is_no_topology_is_one_clear_error(text, words):
    with pytest.raises(ScenarioError, match=re.escape(words)) as error:
        communicator_from_xml(text, source="my.xml")
    assert str(error.value).startswith("my.xml")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('busid="0000:20:00.0"', 'busid="20"', "PCI address"),
        ('busid="0000:24:00.0"', 'busid="0000:20:00.0"', "second GPU"),
        ('link_width="16"', 'link_width="4000"', "link_width must be 0 to 32"),
        ('link_width="16"', 'link_width="-1"', "link_width must be 0 to 32"),
        ('sm="80"', 'sm="eighty"', "whole number"),
        ('sm="80" ', "", "lacks `sm`"),
        ('rank="1"', 'rank="0"', "two GPUs have one rank"),
        ('latency="0.000000"', 'latency="soon"', "latency must be a number"),
        ('gdr="1"/>', 'gdr="1"/><gpu dev="1" sm="80" rank="9" gdr="1"/>', "not modelled"),
        ('guid="0xa0000000"', 'guid="0x' + "f" * 40 + '"', "64 bits"),
        (
            'gdr="1"/>',
            'gdr="1"><nvlink target="0000:20:00.0" count="1" tclass="0x030200"/></gpu>',
            "another GPU",
        ),
        (
            'gdr="1"/>',
            'gdr="1"><nvlink target="0000:24:00.0" count="0" tclass="0x030200"/></gpu>',
            "count must be 1 or more",
        ),
    ],
)
def test_a_wrong_attribute_names_its_line(old, new, words, topology):
    text = topology("pcie4_sw_100g").replace(old, new, 1)
    with pytest.raises(ScenarioError, match=re.escape(words)):
        communicator_from_xml(text, source="my.xml")


def test_files_as_virtual_machines_have_them():
    """Azure's NCv4: no slot speeds, a NIC that hangs on the CPU, NVLink between the two GPUs."""
    gpu = (
        '<cpu numaid="{n}" affinity="0" arch="x86_64" vendor="AuthenticAMD" familyid="175"'
        ' modelid="1"><pci busid="000{b}:00:00.0" class="0x030200" vendor="0x10de" device="0x20b5"'
        ' subsystem_vendor="0x10de" subsystem_device="0x1533" link_speed="" link_width="0">'
        '<gpu dev="{n}" sm="80" rank="{n}" gdr="1">'
        '<nvlink target="000{o}:00:00.0" count="12" tclass="0x030200"/></gpu></pci>{nic}</cpu>'
    )
    nic = '<nic><net name="eth0" dev="0" speed="100000" port="0" guid="0x0" gdr="0"/></nic>'
    text = f"<system version='1'>{gpu.format(n=0, b=1, o=2, nic=nic)}"
    text += f"{gpu.format(n=1, b=2, o=1, nic='')}</system>"
    comm = communicator_from_xml(text, nodes=2, source="ncv4.xml")
    assert (comm.total_bw, comm.peer_nvlinks, comm.gdr) == (240.0, 12, False)
    assert comm.graphs["ring"].bw_inter == 12.0
    cluster = cluster_from_xml(text, nodes=2, source="ncv4.xml")
    assert cluster.specs[0].gpu.name == "A100-PCIe-80GB"
    assert cluster.specs[0].mesh == ((0, 12), (12, 0))
    assert communicator_of(cluster, range(4)).graphs["ring"].bw_inter == 12.0


def test_ports_fused_into_another_are_left_out(topology):
    text = topology("dgx_h100").replace('maxconn="131072"', 'maxconn="131072" net="0"', 1)
    system = system_of(read_xml(text, "f"), "f", rules_of("2.27"))
    assert [net.number for net in system.nets] == list(range(1, 8))


def test_huge_files_are_refused_before_they_are_read():
    def read() -> None:
        with pytest.raises(ScenarioError, match="MiB"):
            communicator_from_xml("<" * (17 << 20), source="my.xml")

    assert python_calls(read) < 100


@given(data=st.data())
def test_damaged_files_never_end_in_a_traceback(data, topology):
    text = topology("dgx1v")
    start = data.draw(st.integers(0, len(text) - 1))
    size = data.draw(st.integers(1, 200))
    put = data.draw(st.sampled_from(["", '"', "<", "/>", "0", "-1", "x" * 50, "&amp;"]))
    damaged = text[:start] + put + text[start + size :]
    try:
        system_of(read_xml(damaged, "my.xml"), "my.xml", rules_of("2.27"))
    except CommsimError as error:
        assert str(error).startswith("my.xml")  # noqa: PT017


def test_unknown_elements_are_passed_over_and_said(topology):
    text = topology("pcie4_sw_100g").replace("</cpu>", "<fan speed='9'/></cpu>")
    comm = communicator_from_xml(text, source="my.xml")
    assert any("<fan> (1)" in note for note in comm.notes)


def test_ranks_of_a_later_node_count_from_zero(topology):
    text = topology("dgx_h100")
    later = re.sub(r'rank="(\d)"', lambda m: f'rank="{int(m[1]) + 16}"', text)
    assert communicator_from_xml(later).rings.tolist() == communicator_from_xml(text).rings.tolist()


def test_gpus_without_a_rank_and_ports_without_a_number_are_absent(topology):
    text = topology("dgx_h100").replace(' rank="7"', "").replace(' dev="7" speed', " speed")
    system = system_of(read_xml(text, "f"), "f", rules_of("2.27"))
    assert [gpu.rank for gpu in system.gpus] == list(range(7))
    assert [net.number for net in system.nets] == list(range(7))


@pytest.mark.share(0.5)
@pytest.mark.parametrize("preset", ["dgx-h100", "dgx-a100", "dgx-1v", "pcie-a100", "gb200-nvl72"])
def test_a_cluster_written_and_read_is_the_same_to_nccl(preset):
    nodes = 18 if preset == "gb200-nvl72" else 1
    cluster = Cluster.preset(preset, nodes=nodes)
    text = cluster_xml(cluster)
    direct = communicator_of(cluster, range(cluster.world_size))
    by_file = communicator_from_xml(text, source="written.xml")
    assert dict(by_file.graphs) == dict(direct.graphs)
    back = cluster_from_xml(text, source="written.xml")
    assert back.world_size == cluster.world_size
    again = communicator_of(back, range(back.world_size))
    assert dict(again.graphs) == dict(direct.graphs)


def test_a_cluster_from_a_file_is_the_machine(topology):
    cluster = cluster_from_xml(topology("dgx_h100"), nodes=4, source="dgx_h100.xml")
    preset = Cluster.preset("dgx-h100")
    spec, known = cluster.specs[0], preset.specs[0]
    assert cluster.world_size == 32
    assert spec.gpu == known.gpu
    assert spec.switch is not None
    assert known.switch is not None
    assert spec.switch.bandwidth == known.switch.bandwidth == 450e9
    assert spec.nic is not None
    assert spec.nic.wire.bandwidth == 50e9
    assert [s.socket for s in spec.pcie.switches] == [0] * 4 + [1] * 4
    assert cluster.fabric.kind == "single_switch"
    assert any("single_switch taken by default" in note for note in cluster.notes)


def test_a_cluster_takes_the_fabric_it_is_given(topology):
    text = topology("dgx_h100")
    cluster = cluster_from_xml(text, nodes=2, fabric={"kind": "rail_only"}, source="x.xml")
    assert cluster.fabric.kind == "rail_only"
    with pytest.raises(ScenarioError, match="kindd"):
        cluster_from_xml(text, nodes=2, fabric={"kindd": "rail_only"}, source="x.xml")


def test_slower_ports_and_unknown_gpus_are_said(topology):
    text = topology("dgx_h100").replace('"400000"', '"100000"', 1).replace("0x2330", "0x9999")
    cluster = cluster_from_xml(text, source="x.xml")
    assert cluster.specs[0].nic is not None
    assert cluster.specs[0].nic.count == 7
    assert any("slower NETs left out: 0 (12.5 GB/s)" in note for note in cluster.notes)
    assert any("taken for a H100-SXM5-80GB" in note for note in cluster.notes)


@pytest.mark.parametrize("nodes", [0, -1])
def test_a_count_of_nodes_is_checked(nodes, topology):
    with pytest.raises(ScenarioError, match="not a count of nodes"):
        communicator_from_xml(topology("dgx1v"), nodes=nodes)
    with pytest.raises(ScenarioError, match="not a count of nodes"):
        cluster_from_xml(topology("dgx1v"), nodes=nodes)


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_a_rack_of_few_nodes_is_one_domain(nodes):
    back = cluster_from_xml(cluster_xml(Cluster.preset("gb200-nvl72", nodes=nodes)), source="r.xml")
    assert len(back.node_names) == nodes
    assert back.specs[0].domain_nodes == nodes
    assert len(set(back.domain_of_node.tolist())) == 1


def test_a_file_may_be_16_mib():
    text = "<system/>" + " " * (16 * 2**20 - 9)
    assert len(text) == MAX_BYTES
    assert read_xml(text, "big.xml") == Element("system")
    with pytest.raises(ScenarioError, match=r"big.xml: 16 MiB are too much"):
        read_xml(text + " ", "big.xml")


@pytest.mark.parametrize("extra", [0, 1])
def test_elements_may_be_64_deep(extra):
    depth = 64 + extra
    text = "<system>" + "\n<pci>" * (depth - 1) + "</pci>" * (depth - 1) + "</system>"
    if extra:
        with pytest.raises(ScenarioError, match=r"deep.xml:65: more than 64 levels"):
            read_xml(text, "deep.xml")
        return
    element, levels = read_xml(text, "deep.xml"), 1
    while element.inside:
        (element,), levels = element.inside, levels + 1
    assert (levels, element.line) == (64, 64)


@pytest.mark.parametrize("extra", [0, 1])
def test_elements_may_be_65536(extra):
    text = "<system>" + "<a/>" * (65_535 + extra) + "</system>"
    if extra:
        with pytest.raises(ScenarioError, match="65536 elements are no machine"):
            read_xml(text, "many.xml")
    else:
        assert len(read_xml(text, "many.xml").inside) == 65_535


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<system>\n<cpu>\n", "my.xml:3: not XML: no element found"),
        ("<system/><system/>", "my.xml:1: not XML: junk after document element"),
        ("\n\n<cpu/>", "my.xml: holds <cpu>; an NCCL topology is one <system> element"),
        ("\n<!DOCTYPE system><system/>", r"my.xml:2: a document type"),
    ],
)
def test_the_line_of_what_is_wrong_is_said(text, words):
    with pytest.raises(ScenarioError, match=words):
        read_xml(text, "my.xml")


def test_elements_are_compared_without_their_lines():
    assert Element("gpu", {"dev": "0"}, line=3) == Element("gpu", {"dev": "0"}, line=8)
    assert Element("gpu", {"dev": "0"}) != Element("gpu", {"dev": "1"})
    assert Element("gpu").line == 0


def test_a_file_is_written_by_levels():
    root = Element("system", {"version": "1"})
    cpu = root.add("cpu", numaid=0, tag_of='<&">\n')
    cpu.add("pci").add("gpu", dev=1)
    cpu.add("nic")
    assert write_xml(root) == (
        '<system version="1">\n'
        '  <cpu numaid="0" tag_of="&lt;&amp;&quot;&gt;&#10;">\n'
        "    <pci>\n"
        '      <gpu dev="1"/>\n'
        "    </pci>\n"
        "    <nic/>\n"
        "  </cpu>\n"
        "</system>\n"
    )
    assert [e.tag for e in cpu.all("nic")] == ["nic"]
