"""From the elements of a topology file to devices and links, on machines made by hand."""

from __future__ import annotations

import re

import pytest
from helpers.nccl_machines import bridge, cpu, gpu, net, nic, pci, root

from commsim.errors import ScenarioError
from commsim.libraries.nccl.shapes import CpuArch, CpuVendor
from commsim.libraries.nccl.topology.build import system_of
from commsim.libraries.nccl.topology.rules import rules_of
from commsim.libraries.nccl.topology.system import DeviceKind
from commsim.libraries.nccl.topology.xml_file import Element


def built(*cpus, version="2.27", **asked):
    return system_of(root(*cpus), "my.xml", rules_of(version), **asked)


def links(device):
    """Return a device's links in their order: type, kind and address of the end, MB/s."""
    return [(x.type.name, x.remote.kind.name, x.remote.bus, x.bandwidth) for x in device.links]


def at(bus, function=0, domain=0):
    """Return a PCI address in one number: domain, bus, slot 0, function."""
    return (domain << 20) + (bus << 12) + function


@pytest.mark.parametrize(
    ("version", "wanted", "attributes"),
    [
        ("2.27", 32_000, {"arch": "ppc64"}),
        ("2.27", 6_000, {"arch": "arm64"}),
        ("2.27", 16_000, {"vendor": "AuthenticAMD", "familyid": "175"}),
        ("2.27", 6_000, {"vendor": "CentaurHauls", "familyid": "7", "modelid": "90"}),
        ("2.27", 9_000, {"vendor": "CentaurHauls", "familyid": "7", "modelid": "91"}),
        ("2.27", 6_000, {"vendor": "CentaurHauls", "familyid": "6", "modelid": "91"}),
        ("2.27", 9_000, {"vendor": "  Shanghai  ", "familyid": "7", "modelid": "91"}),
        ("2.27", 6_000, {"modelid": "84"}),
        ("2.27", 10_000, {"modelid": "85"}),
        ("2.27", 10_000, {"modelid": "142"}),
        ("2.27", 22_000, {"modelid": "143"}),
        ("2.25", 10_000, {"modelid": "143"}),
        ("2.27", 22_000, {"modelid": "206"}),
        ("2.27", 40_000, {"modelid": "207"}),
        ("2.27", 6_000, {"familyid": "15", "modelid": "207"}),
        ("2.27", 22_000, {"vendor": "SomeoneElse", "modelid": "143"}),
    ],
)
def test_the_link_between_sockets_is_the_cpus(version, wanted, attributes):
    system = built(cpu(gpu(0), **attributes), cpu(numa=1, **attributes), version=version)
    assert ("SYS", "CPU", 1, wanted) in links(system.cpus[0])
    assert links(system.cpus[1]) == [("SYS", "CPU", 0, wanted)]
    assert [one.cross_link for one in system.cpus] == [wanted, wanted]


def test_sockets_of_one_machine_are_joined_and_no_others():
    arm = {"arch": "arm64"}
    system = built(
        cpu(gpu(0), **arm),
        cpu(numa=1, **arm),
        cpu(host="0xab", **arm),
        cpu(numa=1, host="ab", **arm),
    )
    assert [(c.host, c.bus) for c in system.cpus] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    across = [[(x.remote.host, x.remote.bus) for x in c.links if x.type.name == "SYS"]
              for c in system.cpus]  # fmt: skip
    assert across == [[(0, 1)], [(0, 0)], [(1, 1)], [(1, 0)]]
    assert system.hosts == [0, 0xAB]


def test_a_cpu_is_known_by_its_maker_and_numbers():
    system = built(
        cpu(gpu(0)),
        cpu(numa=1, vendor="AuthenticAMD", familyid="0x19", modelid="1"),
        cpu(numa=2, vendor="CentaurHauls", familyid="0", modelid="0"),
        cpu(numa=3, arch="arm64", vendor="AuthenticAMD"),
    )
    found = [(c.arch, c.vendor, c.family) for c in system.cpus]
    assert found == [
        (CpuArch.X86, CpuVendor.INTEL, (6, 85)),
        (CpuArch.X86, CpuVendor.AMD, (25, 1)),
        (CpuArch.X86, CpuVendor.ZHAOXIN, (0, 0)),
        (CpuArch.ARM, CpuVendor.INTEL, (0, 0)),
    ]


@pytest.mark.parametrize(
    ("speed", "width", "rate"),
    [
        ("2.5 GT/s", "16", 3_000), ("5 GT/s", "16", 6_000), ("8 GT/s", "8", 6_000),
        ("16.0 GT/s PCIe", "16", 24_000), ("32.0 GT/s PCIe", "16", 48_000),
        ("64.0 GT/s PCIe", "1", 6_000), ("64.0 GT/s PCIe", "32", 192_000),
        ("", "16", 12_000), ("fast", "0", 12_000), ("2.5 GT/s", "1", 188),
    ],
)  # fmt: skip
def test_a_slot_is_as_wide_as_its_lanes(speed, width, rate):
    """GB/s are width x lane / 80; an unknown speed is PCIe 3, a width of 0 is 16 lanes."""
    system = built(cpu(gpu(0, link_speed=speed, link_width=width)))
    assert links(system.gpus[0]) == [("PIX", "CPU", 0, rate)]
    assert system.gpus[0].slot == (speed, int(width) or 16)


@pytest.mark.parametrize("width", ["33", "-1"])
def test_a_slot_that_cannot_be(width):
    with pytest.raises(ScenarioError, match=f"link_width='{width}'>: link_width must be 0 to 32"):
        built(cpu(gpu(0, link_width=width)))


def test_a_gpu_has_what_its_element_says():
    system = built(
        cpu(
            gpu(3, sm=90, gdr="0", device="0x2330"),
            pci(
                "0001:c2:1f.7", Element("gpu", {"dev": "2", "sm": "0", "rank": "9"}),
                class_="0x030200",
            ),
        )
    )  # fmt: skip
    one, other = system.gpus
    assert (one.rank, one.number, one.capability, one.gdr) == (3, 3, 90, False)
    assert (one.device, one.bus) == (0x2330, at(0x83))
    assert (other.rank, other.number, other.capability, other.gdr) == (9, 2, 0, False)
    assert (other.device, other.bus) == (0, (1 << 20) + (0xC2 << 12) + (0x1F << 4) + 7)
    assert system.capability == (0, 90)
    assert built(cpu(gpu(0, gdr="1"))).gpus[0].gdr


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("80:00.0", 0x80 << 12),
        ("1:80:00.0", (1 << 20) + (0x80 << 12)),
        ("0000000f:0b:0c.d", (15 << 20) + (11 << 12) + (12 << 4) + 13),
    ],
)
def test_a_pci_address_may_leave_out_its_domain(text, wanted):
    slot = Element("gpu", {"dev": "0", "sm": "80", "rank": "0"})
    assert built(cpu(pci(text, slot))).gpus[0].bus == wanted


def test_only_gpus_with_these_ranks_are_there():
    three = cpu(gpu(0), gpu(None, bus=0x70), gpu(1), gpu(2))
    assert [g.rank for g in built(three).gpus] == [0, 1, 2]
    assert [g.rank for g in built(three, ranks=[0, 2]).gpus] == [0, 2]
    with pytest.raises(ScenarioError, match="no GPU with a rank"):
        built(three, ranks=[])


def test_a_second_gpu_on_a_device_is_refused_by_its_line():
    two = gpu(0)
    two.inside.append(Element("gpu", {}, line=17))
    with pytest.raises(ScenarioError, match=r"my.xml:17: a second <gpu> on one device"):
        built(cpu(two))


def test_a_port_has_what_its_element_says():
    full = net(7, speed=400_000, latency="2.5", port="2", gdr="1", coll="1", rail="3", guid="0xfe")
    system = built(cpu(gpu(0), nic(0x10, full, net(8, speed=None), net(9, speed=0))))
    seven, eight, nine = system.nets
    assert (seven.number, seven.bandwidth, seven.latency, seven.port) == (7, 50_000, 2.5, 2)
    assert (seven.gdr, seven.in_network, seven.rail, seven.asic) == (True, True, 3, 0xFE)
    for number, plain in ((8, eight), (9, nine)):
        assert (plain.number, plain.bandwidth, plain.latency, plain.port) == (number, 1_250, 0.0, 0)
        assert (plain.gdr, plain.in_network, plain.rail) == (False, False, -1)
    assert links(seven) == [("NET", "NIC", at(0x10), 50_000)]
    (card,) = system.of(DeviceKind.NIC)
    assert [x[:2] + x[3:] for x in links(card)] == [
        ("NET", "NET", 50_000), ("NET", "NET", 1_250), ("NET", "NET", 1_250),
        ("PIX", "CPU", 12_000),
    ]  # fmt: skip


@pytest.mark.parametrize(("speed", "rate"), [(8, 1), (1_000, 125), (-5, 1_250), (1, 0)])
def test_a_port_of_no_speed_counts_as_10_gigabits(speed, rate):
    assert built(cpu(gpu(0), nic(0x10, net(0, speed=speed)))).nets[0].bandwidth == rate


def test_ports_without_a_guid_are_cards_of_their_own():
    ports = [nic(0x10, net(0), net(1), net(2, guid=""))], [nic(0x10, net(0), net(1))]
    system = built(cpu(gpu(0), *ports[0]), cpu(*ports[1], host="0x1"))
    found = [port.asic for port in system.nets]
    assert len(set(found)) == 5
    assert max(found) < 0


def test_ports_with_no_number_or_no_use_are_absent():
    nameless = net(0)
    del nameless.attributes["dev"]
    card = nic(0x10, nameless, net(1, net="0"), net(2, net="1"), net(3))
    assert [port.number for port in built(cpu(gpu(0), card)).nets] == [2, 3]


def test_functions_of_one_card_share_its_first_slot():
    first, second = nic(0x10, net(0)), nic(0x10, net(1), function=9, link_width="4")
    other = nic(0x11, net(2), class_="0x020000")
    bare = pci("0000:12:00.0", Element("nic", {}, [net(3)]), class_="0x0")
    system = built(cpu(gpu(0), first, second, other, bare))
    cards = system.of(DeviceKind.NIC)
    assert [(c.bus, c.device) for c in cards] == [
        (at(0x10), 0x020700), (at(0x11), 0x020000), (at(0x12), 0),
    ]  # fmt: skip
    assert [len(card.links) for card in cards] == [3, 2, 2]
    assert links(cards[0])[-1] == ("PIX", "CPU", 0, 12_000)
    assert cards[0].slot == ("8.0 GT/s PCIe", 16)


def test_a_card_with_no_class_has_none():
    card = nic(0x10, net(0))
    del card.attributes["class"]
    assert built(cpu(gpu(0), card)).of(DeviceKind.NIC)[0].device == 0


def test_cards_beside_the_tree_hang_on_their_socket():
    loose = [Element("nic", {}, [net(i)]) for i in range(3)]
    system = built(cpu(gpu(0), *loose[:2]), cpu(loose[2], numa=1))
    cards = system.of(DeviceKind.NIC)
    assert len({card.bus for card in cards}) == 3
    assert max(card.bus for card in cards) < 0
    assert [links(card)[-1] for card in cards] == [
        ("PIX", "CPU", 0, 5_000_000), ("PIX", "CPU", 0, 5_000_000), ("PIX", "CPU", 1, 5_000_000),
    ]  # fmt: skip


def test_a_group_within_the_node_has_no_network():
    loose = Element("nic", {}, [net(1)])
    whole = cpu(gpu(0), bridge(1, nic(0x10, net(0))), loose)
    assert len(built(whole).nets) == 2
    alone = built(whole, nets=False)
    assert not alone.nets
    assert not alone.of(DeviceKind.NIC)
    assert len(alone.of(DeviceKind.PCI)) == 1
    assert alone.notes == []


@pytest.mark.parametrize(
    ("kind", "there"),
    [
        ("0x030200", 0), ("0x020000", 0), ("0x068000", 0), ("0x068001", 0),
        ("0x060400", 1), ("0x068002", 1), ("0x040300", 1),
    ],
)  # fmt: skip
def test_devices_without_a_process_are_no_bridges(kind, there):
    system = built(cpu(gpu(0), pci("0000:01:00.0", gpu(1), class_=kind)))
    assert len(system.of(DeviceKind.PCI)) == there
    assert len(system.gpus) == 1 + there


def test_a_bridge_carries_its_numbers_and_its_slot():
    names = {"vendor": "0x1000", "device": "0xc030", "subsystem_vendor": "0x1", "link_width": "8"}
    system = built(cpu(bridge(1, gpu(0), **names)))
    (switch,) = system.of(DeviceKind.PCI)
    assert switch.model == 0x1000_C030_0001_0000
    assert switch.slot == ("8.0 GT/s PCIe", 8)
    assert links(switch) == [("PIX", "GPU", at(0x80), 12_000), ("PIX", "CPU", 0, 6_000)]
    assert links(system.gpus[0]) == [("PIX", "PCI", at(1), 12_000)]


def test_unknown_elements_are_counted_wherever_they_stand():
    fans = [Element("fan", {}) for _ in range(4)]
    card = nic(0x10, net(0), fans[2])
    whole = cpu(gpu(0), fans[0], Element("gin", {}), bridge(1, fans[1], card), Element("lamp", {}))
    del fans[3]
    (note,) = built(whole).notes
    assert note == "my.xml: passed over, as NCCL does: <fan> (3), <lamp> (1)."
    assert built(cpu(gpu(0), Element("rma", {}))).notes == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("12", 12), ("0x1F", 31), ("0X1f", 31), ("-7", -7), (str(2**64 - 1), 2**64 - 1)],
)
def test_whole_numbers_are_decimal_or_hexadecimal(text, wanted):
    assert built(cpu(gpu(0), nic(0x10, net(0, guid=text)))).nets[0].asic == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (str(2**64), "a number of at most 64 bits"),
        (str(-(2**64)), "a number of at most 64 bits"),
        ("1f", "a whole number"),
        ("y" * 41, f"guid={'y' * 40!r}>: guid must be a whole number"),
    ],
)
def test_what_is_no_whole_number_is_said(text, words):
    with pytest.raises(ScenarioError, match=re.escape(words)):
        built(cpu(gpu(0), nic(0x10, net(0, guid=text))))


def test_counts_are_not_negative():
    assert built(cpu(gpu(0, sm=0), familyid="0", modelid="0")).capability == (0, 0)
    with pytest.raises(ScenarioError, match="sm must be 0 or more"):
        built(cpu(gpu(0, sm=-1)))
    with pytest.raises(ScenarioError, match="modelid must be 0 or more"):
        built(cpu(gpu(0), modelid="-1"))


def test_equal_addresses_are_refused_within_a_machine_alone():
    with pytest.raises(ScenarioError, match="a second CPU at the same address"):
        built(cpu(gpu(0)), cpu())
    with pytest.raises(ScenarioError, match="a second NET at the same address"):
        built(cpu(gpu(0), nic(0x10, net(4)), nic(0x11, net(4))))
    two = built(cpu(gpu(0), nic(0x10, net(4))), cpu(nic(0x10, net(4)), host="1"))
    assert [port.host for port in two.nets] == [0, 1]
