"""
From NCCL's topology file to NCCL's system: which devices there are, and how wide each link is.

GPUs without a rank and ports without a number are left out, as NCCL leaves them out. Links are
added in NCCL's order (PCI, NVLink, C2C, between CPUs), since the search breaks ties by it.

Follows ncclTopoGetSystemFromXml and what it calls (src/graph/topo.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from types import MappingProxyType

from commsim.errors import ScenarioError
from commsim.libraries.nccl.shapes import CpuArch, CpuVendor, PathType
from commsim.libraries.nccl.topology.rules import Rules
from commsim.libraries.nccl.topology.system import (
    LOCAL_BANDWIDTH,
    DeviceKind,
    System,
    TopologyDevice,
)
from commsim.libraries.nccl.topology.xml_file import Element

__all__ = ["system_of"]

_BUS = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})\.([0-9a-fA-F])")
_ARCH = MappingProxyType({"x86_64": CpuArch.X86, "arm64": CpuArch.ARM, "ppc64": CpuArch.POWER})
_VENDOR = MappingProxyType(
    {
        "GenuineIntel": CpuVendor.INTEL,
        "AuthenticAMD": CpuVendor.AMD,
        "CentaurHauls": CpuVendor.ZHAOXIN,
        "  Shanghai  ": CpuVendor.ZHAOXIN,
    }
)
# GPUs and NICs without a process, NVSwitches, POWER's bridges: the tree does not go on there.
_NO_BRIDGE = ("0x03", "0x02", "0x068000", "0x068001")
_KNOWN = frozenset(
    {"cpu", "pci", "gpu", "nvlink", "c2c", "nic", "net", "pcilink", "gin", "rma", "system"}
)


def system_of(
    root: Element,
    source: str,
    rules: Rules,
    *,
    ranks: Collection[int] | None = None,
    nets: bool = True,
) -> System:
    """Return the system that a topology describes.

    `ranks`: only these GPUs (others count as absent); `nets` False leaves the network out, as
    NCCL does for a group within the node.

    Raises:
        ScenarioError: an attribute is missing or wrong, or no GPU is left.
    """
    builder = _SystemBuilder(source, rules, ranks, nets)
    sockets = [(builder.add_cpu(cpu), cpu) for cpu in root.all("cpu")]
    for socket, cpu in sockets:
        builder.add_side_links(socket, cpu)
    builder.flatten_switches()
    builder.connect_cpus()
    builder.sort_links()
    system = builder.system
    if not system.gpus:
        raise ScenarioError(
            f"{source}: no GPU with a rank. Give a file that a job wrote with"
            " NCCL_TOPO_DUMP_FILE; files made for NCCL_TOPO_FILE often hold PCI switches alone."
        )
    system.seal()
    return system


class _SystemBuilder:
    """Adds the devices of one topology to a system."""

    def __init__(
        self, source: str, rules: Rules, ranks: Collection[int] | None, nets: bool
    ) -> None:
        self.system = System()
        self._source = source
        self._rules = rules
        self._ranks = ranks
        self._nets = nets
        self._ignored: dict[str, int] = {}

    def add_cpu(self, element: Element) -> TopologyDevice:
        """Add a NUMA domain and all that hangs on it, and return it."""
        host = self._host(element)
        numa = self._int(element, "numaid")
        cpu = self._new(element, DeviceKind.CPU, host, numa)
        arch = self._text(element, "arch")
        if arch not in _ARCH:
            raise self._wrong(element, "arch", arch, f"one of {', '.join(_ARCH)}")
        cpu.arch = _ARCH[arch]
        if cpu.arch == CpuArch.X86:
            cpu.vendor = _VENDOR.get(self._text(element, "vendor"), CpuVendor.INTEL)
            family, model = (self._count(element, name) for name in ("familyid", "modelid"))
            cpu.family = family, model
        cpu.cross_link = self._cpu_link(element, cpu)
        loose = 0
        for below in element.inside:
            if below.tag == "pci":
                self._add_pci(below, cpu, numa)
            elif below.tag == "nic" and self._nets:
                nic = self.system.add(DeviceKind.NIC, host, -1 - (numa << 16) - loose)
                nic.join(cpu, PathType.PIX, LOCAL_BANDWIDTH)
                self._add_nets(below, nic)
                loose += 1
            else:
                self._ignore(below)
        return cpu

    def _host(self, element: Element) -> int:
        digest = element.attributes.get("host_hash", "0")
        try:
            return self.system.host(int(digest, 16))
        except ValueError:
            raise self._wrong(element, "host_hash", digest, "a hexadecimal number") from None

    def _cpu_link(self, element: Element, cpu: TopologyDevice) -> int:
        rates = self._rules.cpu_link
        if cpu.arch != CpuArch.X86:
            return rates["power" if cpu.arch == CpuArch.POWER else "arm"]
        if cpu.vendor == CpuVendor.AMD:
            return rates["amd"]
        family, model = cpu.family
        if cpu.vendor == CpuVendor.ZHAOXIN:
            return rates["yongfeng" if (family, model) == (7, 0x5B) else "zhaoxin"]
        rows = self._rules.intel_link if family == 6 else self._rules.intel_link[:1]
        return [rate for first, rate in rows if first <= model][-1]

    def _add_pci(self, element: Element, parent: TopologyDevice, numa: int) -> None:
        gpus = list(element.all("gpu"))
        if len(gpus) > 1:
            raise ScenarioError(
                f"{self._source}:{gpus[1].line}: a second <gpu> on one device: several ranks on a"
                " GPU are not modelled. Leave one."
            )
        if gpus:
            self._add_gpu(element, gpus[0], parent)
            return
        bus, rate = self._bus(element, "busid"), self._pci_rate(element)
        nics = list(element.all("nic"))
        device: TopologyDevice | None
        if nics:
            if not self._nets:
                return
            # Ports of one card are functions of one PCI device.
            place = bus & ~0xF
            device = self.system.find(DeviceKind.NIC, parent.host, place)
            shared = device is not None
            device = device or self.system.add(DeviceKind.NIC, parent.host, place)
            device.device = self._int(element, "class", 0)
            self._add_nets(nics[0], device)
            if shared:
                return
        elif not self._text(element, "class").startswith(_NO_BRIDGE):
            device = self._new(element, DeviceKind.PCI, parent.host, bus)
            device.model = self._pci_model(element)
            for below in element.inside:
                if below.tag == "pci":
                    self._add_pci(below, device, numa)
                else:
                    self._ignore(below)
        else:
            return
        device.slot = self._slot(element)
        device.join(parent, PathType.PIX, rate)

    def _add_gpu(self, pci: Element, element: Element, parent: TopologyDevice) -> None:
        if "rank" not in element.attributes:
            return
        rank = self._int(element, "rank")
        if self._ranks is not None and rank not in self._ranks:
            return
        gpu = self._new(pci, DeviceKind.GPU, parent.host, self._bus(pci, "busid"))
        gpu.rank, gpu.number = rank, self._int(element, "dev")
        gpu.capability = self._count(element, "sm")
        gpu.gdr = self._int(element, "gdr", 0) != 0
        gpu.slot, gpu.device = self._slot(pci), self._int(pci, "device", 0)
        gpu.join(parent, PathType.PIX, self._pci_rate(pci))

    def _add_nets(self, element: Element, nic: TopologyDevice) -> None:
        for below in element.inside:
            if below.tag != "net":
                self._ignore(below)
            elif "dev" in below.attributes and self._int(below, "net", 1):
                self._add_net(below, nic)

    def _add_net(self, element: Element, nic: TopologyDevice) -> None:
        number = self._int(element, "dev")
        net = self._new(element, DeviceKind.NET, nic.host, number)
        speed = self._int(element, "speed", 0)
        net.number = number
        net.bandwidth = round((speed if speed > 0 else 10_000) / 8)
        net.latency = self._float(element, "latency", 0.0)
        net.port = self._int(element, "port", 0)
        net.gdr = self._int(element, "gdr", 0) != 0
        net.in_network = self._int(element, "coll", 0) != 0
        net.rail = self._int(element, "rail", -1)
        guid = element.attributes.get("guid")
        # Without a GUID each port is a card of its own.
        net.asic = self._int(element, "guid") if guid else -1 - (nic.host << 32) - number
        nic.join(net, PathType.NET, net.bandwidth)

    def add_side_links(self, socket: TopologyDevice, cpu: Element) -> None:
        """Add the NVLinks, then the C2C links, of the GPUs below a CPU."""
        found = list(self._side_links(cpu, socket.host))
        for gpu, element in found:
            if element.tag == "nvlink":
                self._add_nvlink(gpu, element, socket)
        for gpu, element in found:
            if element.tag == "c2c":
                rate = self._int(element, "bw") * self._int(element, "count")
                gpu.join(socket, PathType.C2C, rate)

    def _side_links(self, element: Element, host: int) -> Iterator[tuple[TopologyDevice, Element]]:
        for pci in element.all("pci"):
            for slot in pci.all("gpu"):
                gpu = self.system.find(DeviceKind.GPU, host, self._bus(pci, "busid"))
                if gpu is not None:
                    yield from ((gpu, link) for link in slot.inside)
            yield from self._side_links(pci, host)

    def _add_nvlink(self, gpu: TopologyDevice, element: Element, socket: TopologyDevice) -> None:
        count = self._int(element, "count")
        if count < 1:
            raise self._wrong(element, "count", str(count), "1 or more")
        rate = count * self._rules.nvlink_bandwidth(gpu.capability)
        kind = self._text(element, "tclass")
        if kind.startswith("0x03"):
            other = self.system.find(DeviceKind.GPU, gpu.host, self._bus(element, "target"))
            if other is gpu:
                raise self._wrong(element, "target", self._text(element, "target"), "another GPU")
            if other is not None:
                gpu.connect(other, PathType.NVL, rate)
        elif kind == "0x068001":
            gpu.join(socket, PathType.NVL, rate)
        else:
            switches = self.system.of(DeviceKind.NVS)
            switch = switches[0] if switches else self.system.add(DeviceKind.NVS, 0, 0)
            gpu.join(switch, PathType.NVL, rate)

    def flatten_switches(self) -> None:
        """Merge the two levels that Broadcom's PCIe 4 and 5 switches show into one."""
        done = False
        while not done:
            done = True
            for switch in self.system.of(DeviceKind.PCI):
                generation = _broadcom(switch.model, 0)
                if generation:
                    self._absorb(switch, generation)
                    switch.model |= 0xFFFF
                    done = False
                    break

    def _absorb(self, switch: TopologyDevice, generation: int) -> None:
        """Put what hangs under a switch's own second level directly under the switch."""
        subs = [
            link.remote
            for link in switch.links
            if link.remote.kind == DeviceKind.PCI and _broadcom(link.remote.model, 1) == generation
        ]
        switch.links = [link for link in switch.links if link.remote not in subs]
        for sub in subs:
            for link in sub.links:
                if link.remote is switch:
                    continue
                switch.links.append(link)
                for back in link.remote.links:
                    if back.remote is sub:
                        back.remote = switch
                        break
            self.system.remove(sub)

    def connect_cpus(self) -> None:
        """Join all CPUs of a machine with each other."""
        for one in self.system.cpus:
            for other in self.system.cpus:
                if one is not other and one.host == other.host:
                    one.connect(other, PathType.SYS, one.cross_link)

    def sort_links(self) -> None:
        """Put the link upwards last on every PCI device: NVLink, PCI down, PCI up."""
        for cpu in self.system.cpus:
            self._sort(cpu, None)
        if self._ignored:
            listed = ", ".join(f"<{tag}> ({count})" for tag, count in self._ignored.items())
            self.system.notes.append(f"{self._source}: passed over, as NCCL does: {listed}.")

    def _sort(self, device: TopologyDevice, above: TopologyDevice | None) -> None:
        if above is not None:
            up = next(link for link in device.links if link.remote is above)
            device.links = [link for link in device.links if link is not up] + [up]
        for link in device.links:
            if link.type == PathType.PIX and link.remote is not above:
                self._sort(link.remote, device)

    def _new(self, element: Element, kind: DeviceKind, host: int, bus: int) -> TopologyDevice:
        if self.system.find(kind, host, bus) is not None:
            raise ScenarioError(
                f"{self._source}:{element.line}: a second {kind.name} at the same address."
                " Addresses must differ within a machine."
            )
        return self.system.add(kind, host, bus)

    def _ignore(self, element: Element) -> None:
        if element.tag not in _KNOWN:
            self._ignored[element.tag] = self._ignored.get(element.tag, 0) + 1

    def _pci_rate(self, element: Element) -> int:
        """Return MB/s of a slot: width x lane / 80 GB/s; a width of 0 counts as 16."""
        speed, width = self._slot(element)
        lane = self._rules.pci_lane.get(speed, self._rules.pci_lane_default)
        return round(width * lane * 1000 / 80)

    def _slot(self, element: Element) -> tuple[str, int]:
        width = self._int(element, "link_width") or 16
        if not 0 < width <= 32:
            raise self._wrong(element, "link_width", str(width), "0 to 32")
        return self._text(element, "link_speed"), width

    def _pci_model(self, element: Element) -> int:
        names = ("vendor", "device", "subsystem_vendor", "subsystem_device")
        number = 0
        for name in names:
            number = (number << 16) + self._int(element, name, 0)
        return number

    def _bus(self, element: Element, name: str) -> int:
        text = self._text(element, name)
        found = _BUS.fullmatch(text)
        if found is None:
            raise self._wrong(element, name, text, "a PCI address such as 0000:1b:00.0")
        domain, bus, slot, function = (int(part or "0", 16) for part in found.groups())
        return (domain << 20) + (bus << 12) + (slot << 4) + function

    def _text(self, element: Element, name: str) -> str:
        if name not in element.attributes:
            raise ScenarioError(
                f"{self._source}:{element.line}: <{element.tag}> lacks `{name}`. Give a file that"
                " NCCL wrote with NCCL_TOPO_DUMP_FILE."
            )
        return element.attributes[name]

    def _int(self, element: Element, name: str, default: int | None = None) -> int:
        if default is not None and name not in element.attributes:
            return default
        text = self._text(element, name)
        try:
            number = int(text, 16 if text.lower().startswith("0x") else 10)
        except ValueError:
            raise self._wrong(element, name, text, "a whole number") from None
        if abs(number) >= 1 << 64:
            raise self._wrong(element, name, text, "a number of at most 64 bits")
        return number

    def _count(self, element: Element, name: str) -> int:
        number = self._int(element, name)
        if number < 0:
            raise self._wrong(element, name, str(number), "0 or more")
        return number

    def _float(self, element: Element, name: str, default: float) -> float:
        text = element.attributes.get(name, str(default))
        try:
            return float(text)
        except ValueError:
            raise self._wrong(element, name, text, "a number") from None

    def _wrong(self, element: Element, name: str, found: str, wanted: str) -> ScenarioError:
        return ScenarioError(
            f"{self._source}:{element.line}: <{element.tag} {name}={found[:40]!r}>: {name} must be"
            f" {wanted}."
        )


def _broadcom(model: int, level: int) -> int:
    """Return the generation of a Broadcom switch whose two levels are one; 0 for any other."""
    if model >> 12 == 0x1000C0101000A:
        return 4
    if model >> 12 == (0x1000C03010000000 | level * 0x1000) >> 12:
        return 5
    return 0
