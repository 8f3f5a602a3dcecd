"""Devices and links: what a new one has, and the order in which links are kept."""

import pytest

from commsim.libraries.nccl.shapes import CpuArch, CpuVendor, PathType
from commsim.libraries.nccl.topology.system import DeviceKind, System, TopologyDevice


def test_a_new_device_has_nothing_of_any_kind():
    one = TopologyDevice(DeviceKind.PCI, 2, 7)
    assert (one.kind, one.host, one.bus) == (DeviceKind.PCI, 2, 7)
    assert (one.index, one.number_of_all, one.rank, one.number, one.rail) == (-1,) * 5
    assert (one.capability, one.device, one.cross_link, one.model) == (0,) * 4
    assert (one.asic, one.port, one.bandwidth, one.latency) == (0,) * 4
    assert (one.links, one.slot, one.family) == ([], ("", 0), (0, 0))
    assert (one.gdr, one.in_network) == (False, False)
    assert (one.arch, one.vendor) == (CpuArch.X86, CpuVendor.INTEL)


def test_links_are_sorted_widest_first_and_equal_ones_as_they_came():
    system = System()
    hub, *others = (system.add(DeviceKind.PCI, 0, bus) for bus in range(5))
    for other, rate in zip(others, (10, 20, 10, 15), strict=True):
        hub.connect(other, PathType.PIX, rate)
    assert [(x.remote.bus, x.bandwidth) for x in hub.links] == [(2, 20), (4, 15), (1, 10), (3, 10)]
    hub.connect(others[2], PathType.PIX, 5)  # as wide as the second: it stays behind
    assert [(x.remote.bus, x.bandwidth) for x in hub.links] == [(2, 20), (4, 15), (3, 15), (1, 10)]
    hub.connect(others[0], PathType.PIX, 11)
    assert [(x.remote.bus, x.bandwidth) for x in hub.links] == [(1, 21), (2, 20), (4, 15), (3, 15)]
    assert all(not other.links for other in others)


def test_links_of_two_types_between_two_devices_are_two():
    one, other = TopologyDevice(DeviceKind.GPU, 0, 1), TopologyDevice(DeviceKind.CPU, 0, 0)
    one.join(other, PathType.PIX, 12)
    one.join(other, PathType.C2C, 200)
    one.join(other, PathType.PIX, 12)
    for ends in (one, other):
        assert [(x.type, x.bandwidth) for x in ends.links] == [
            (PathType.C2C, 200), (PathType.PIX, 24),
        ]  # fmt: skip
        assert [(x.id, x.reverse) for x in ends.links] == [(-1, -1)] * 2


def test_a_device_is_found_by_its_address_until_it_is_removed():
    system = System()
    first = system.add(DeviceKind.GPU, 0, 1)
    system.add(DeviceKind.GPU, 0, 1)
    assert system.find(DeviceKind.GPU, 0, 1) is first
    assert system.find(DeviceKind.GPU, 1, 1) is None
    assert system.find(DeviceKind.PCI, 0, 1) is None
    system.remove(first)
    assert system.find(DeviceKind.GPU, 0, 1) is None
    assert len(system.gpus) == 1


def test_machines_are_numbered_as_they_appear():
    system = System()
    assert [system.host(digest) for digest in (9, 4, 9, 0, 4)] == [0, 1, 0, 2, 1]
    assert system.hosts == [9, 4, 0]


def test_sealing_numbers_devices_kind_by_kind():
    system = System()
    for kind in (DeviceKind.NET, DeviceKind.CPU, DeviceKind.GPU, DeviceKind.NET):
        system.add(kind, 0, len(system.nets))
    system.nets[0].join(system.cpus[0], PathType.NET, 5)
    system.nets[0].connect(system.gpus[0], PathType.PIX, 5)
    system.seal()
    assert [(d.kind.name, d.index) for d in system.all()] == [
        ("GPU", 0), ("CPU", 0), ("NET", 0), ("NET", 1),
    ]  # fmt: skip
    assert [d.number_of_all for d in system.all()] == [0, 1, 2, 3]
    assert [(x.id, x.reverse, x.remote.kind.name) for x in system.links] == [
        (0, 1, "NET"), (1, 0, "CPU"), (2, -1, "GPU"),
    ]  # fmt: skip


@pytest.mark.parametrize(("capabilities", "wanted"), [([80], (80, 80)), ([90, 70, 80], (70, 90))])
def test_the_capability_is_the_least_and_the_greatest(capabilities, wanted):
    system = System()
    for bus, capability in enumerate(capabilities):
        system.add(DeviceKind.GPU, 0, bus).capability = capability
    assert system.capability == wanted
