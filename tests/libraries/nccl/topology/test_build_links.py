"""The links of a topology's devices, on machines made by hand: bridges, NVLink, C2C."""

from __future__ import annotations

import pytest
from helpers.nccl_machines import bridge, c2c, cpu, gpu, nvlink, root
from helpers.optional import present

from commsim.errors import ScenarioError
from commsim.libraries.nccl.shapes import PathType
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


BROADCOM = [
    # (numbers of the switch, numbers of the switch below, whether they are one)
    ("c010 1000 a096", "c010 1000 a096", True),
    ("c010 1000 a096", "c010 1000 b096", False),
    ("c030 1000 0001", "c030 1000 1001", True),
    ("c030 1000 0001", "c030 1000 0001", False),
    ("c030 1000 1001", "c030 1000 1001", False),
    ("c010 1000 a096", "c030 1000 1001", False),
    ("c020 1000 a096", "c020 1000 a096", False),
]


@pytest.mark.parametrize(("above", "below", "one"), BROADCOM)
def test_broadcoms_two_levels_are_one_switch(above, below, one):
    def names(text):
        device, vendor, subsystem = (f"0x{part}" for part in text.split())
        return {"vendor": "0x1000", "device": device, "subsystem_vendor": vendor,
                "subsystem_device": subsystem}  # fmt: skip

    inner = [bridge(2 + i, gpu(i), **names(below)) for i in range(2)]
    system = built(cpu(bridge(1, *inner, **names(above))))
    switches = system.of(DeviceKind.PCI)
    assert len(switches) == (1 if one else 3)
    first = switches[0]
    assert links(first) == [
        *(("PIX", "GPU" if one else "PCI", at(0x80 + i if one else 2 + i), 12_000)
          for i in range(2)),
        ("PIX", "CPU", 0, 12_000),
    ]  # fmt: skip
    if one:
        assert all(g.links[0].remote is first for g in system.gpus)
        assert first.model & 0xFFFF == 0xFFFF


def test_two_broadcom_switches_are_flattened_each():
    names = {"vendor": "0x1000", "device": "0xc010", "subsystem_vendor": "0x1000",
             "subsystem_device": "0xa096"}  # fmt: skip
    halves = [bridge(1 + 4 * i, bridge(2 + 4 * i, gpu(i), **names), **names) for i in range(2)]
    system = built(cpu(*halves))
    assert [switch.bus for switch in system.of(DeviceKind.PCI)] == [at(1), at(5)]
    assert [g.links[0].remote.bus for g in system.gpus] == [at(1), at(5)]


def test_nvlinks_join_gpus_switches_and_sockets():
    """20 GB/s each of an A100's; a GPU that is not there, or that has no rank, has none."""
    power = Element("nvlink", {"target": "0", "count": "3", "tclass": "0x068001"})
    system = built(
        cpu(
            gpu(0, nvlink(0x81, 2), nvlink(0x99), nvlink(None, 4)),
            bridge(1, gpu(1, nvlink(0x80, 2), nvlink(None, 5), nvlink(None, 1), power)),
        )
    )
    one, other = system.gpus
    (switch,) = system.of(DeviceKind.NVS)
    assert links(one) == [
        ("NVL", "NVS", 0, 80_000), ("NVL", "GPU", at(0x81), 40_000), ("PIX", "CPU", 0, 12_000),
    ]  # fmt: skip
    assert links(other) == [
        ("NVL", "NVS", 0, 120_000), ("NVL", "CPU", 0, 60_000), ("NVL", "GPU", at(0x80), 40_000),
        ("PIX", "PCI", at(1), 12_000),
    ]  # fmt: skip
    assert links(switch) == [("NVL", "GPU", at(0x81), 120_000), ("NVL", "GPU", at(0x80), 80_000)]
    assert (switch.host, switch.bus) == (0, 0)
    assert links(system.cpus[0])[0] == ("NVL", "GPU", at(0x81), 60_000)


def test_a_c2c_link_is_its_bandwidth_times_its_count():
    system = built(cpu(gpu(0, c2c(10, 3), nvlink(0x81)), bridge(1, gpu(1, c2c(200_000)))))
    one, other = system.gpus
    assert links(one) == [
        ("NVL", "GPU", at(0x81), 20_000), ("C2C", "CPU", 0, 30), ("PIX", "CPU", 0, 12_000),
    ]  # fmt: skip
    assert links(other) == [("C2C", "CPU", 0, 200_000), ("PIX", "PCI", at(1), 12_000)]


@pytest.mark.parametrize("count", [0, -1])
def test_a_count_of_nvlinks_is_one_or_more(count):
    with pytest.raises(ScenarioError, match="count must be 1 or more"):
        built(cpu(gpu(0, nvlink(None, count))))


def test_the_link_upwards_is_the_last():
    """However wide it is: the search looks for it there."""
    wide = {"link_speed": "64.0 GT/s PCIe"}
    system = built(cpu(bridge(1, bridge(2, gpu(0), gpu(1), **wide), **wide)))
    outer, inner = system.of(DeviceKind.PCI)
    assert [x.remote.kind for x in outer.links] == [DeviceKind.PCI, DeviceKind.CPU]
    assert [x.remote.kind for x in inner.links] == [
        DeviceKind.GPU, DeviceKind.GPU, DeviceKind.PCI,
    ]  # fmt: skip
    assert [x.remote.bus for x in inner.links] == [at(0x80), at(0x81), at(1)]


def test_links_are_paired_with_the_way_back():
    system = built(cpu(gpu(0, nvlink(0x81), nvlink(None)), gpu(1, nvlink(0x80))))
    for link in system.links:
        back = system.links[link.reverse]
        assert back.remote is next(d for d in system.all() if link in d.links)
        assert back.type == link.type
        assert link in back.remote.links or back in link.remote.links
    assert [link.id for link in system.links] == list(range(len(system.links)))
    lone = built(cpu(gpu(0, nvlink(0x81)), gpu(1)))
    (oneway,) = (x for x in lone.gpus[0].links if x.type == PathType.NVL)
    assert oneway.reverse == -1
    assert present(lone.find(DeviceKind.GPU, 0, at(0x81))).links[0].type == PathType.PIX


@pytest.mark.parametrize("width", ["4", "16"])
def test_a_link_to_the_socket_passes_any_tree_of_switches(width):
    """Whichever of a switch's links is the widest: its own upwards, or one to another switch."""
    power = Element("nvlink", {"target": "0", "count": "3", "tclass": "0x068001"})
    inner = [
        bridge(2, gpu(0, power, link_width=width), link_width=width),
        bridge(3, gpu(1, c2c(200_000), link_width="8"), gpu(2), link_width="8"),
    ]
    system = built(cpu(), cpu(bridge(1, *inner), numa=1))
    first, second, third = system.gpus
    assert ("NVL", "CPU", 1, 60_000) in links(first)
    assert ("C2C", "CPU", 1, 200_000) in links(second)
    assert [kind for _, kind, _, _ in links(third)] == ["PCI"]
