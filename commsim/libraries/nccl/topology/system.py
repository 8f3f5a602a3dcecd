"""
NCCL's view of a node (or of an NVLink domain): devices, and links with NCCL's own bandwidths.

All NVSwitches are one NVS node; a CPU is a NUMA domain; a NIC is a PCI device and a NET one of
its ports. The order of devices and of their links is NCCL's, for its search follows it.
Bandwidths are whole MB/s (see `topology_rules`).

The counterpart of ncclTopoSystem (src/graph/topo.h).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

import msgspec

from commsim.libraries.nccl.shapes import CpuArch, CpuVendor, PathType

__all__ = ["LOCAL_BANDWIDTH", "DeviceKind", "Link", "System", "TopologyDevice"]

LOCAL_BANDWIDTH = 5_000_000
"""NCCL's LOC_BW: within a GPU, and where nothing limits."""


class DeviceKind(IntEnum):
    """What a device is."""

    GPU = 0
    PCI = 1
    NVS = 2
    CPU = 3
    NIC = 4
    NET = 5


class Link(msgspec.Struct, eq=False):
    """One direction from a device to `remote`: NVL, C2C, PCI, SYS, or LOC and NET."""

    type: PathType
    remote: TopologyDevice
    bandwidth: int
    id: int = -1
    reverse: int = -1


class TopologyDevice(msgspec.Struct, eq=False):
    """A device; `links` best first, as NCCL sorts them. Fields of other kinds stay at their start.

    `host` numbers the machines of an NVLink domain, `bus` is the PCI address (or the NUMA domain,
    or the NET's number), `index` the place among devices of its kind.
    """

    kind: DeviceKind
    host: int
    bus: int
    index: int = -1
    number_of_all: int = -1
    """Among all devices of the system."""
    links: list[Link] = msgspec.field(default_factory=list)
    rank: int = -1
    """GPU: its rank."""
    number: int = -1
    """GPU: its NVML number; NET: its plugin number."""
    capability: int = 0
    gdr: bool = False
    """GPU, NET: GPUDirect RDMA works."""
    arch: CpuArch = CpuArch.X86
    vendor: CpuVendor = CpuVendor.INTEL
    slot: tuple[str, int] = ("", 0)
    """PCI, GPU, NIC: speed and width of the slot, as the file has them."""
    device: int = 0
    """GPU: its PCI device id; NIC: its PCI class."""
    family: tuple[int, int] = (0, 0)
    """CPU: family and model number, as CPUID counts them."""
    cross_link: int = 0
    """CPU: bandwidth to another CPU."""
    model: int = 0
    """PCI: vendor, device and subsystem in one number."""
    asic: int = 0
    port: int = 0
    rail: int = -1
    bandwidth: int = 0
    """NET: of the port."""
    latency: float = 0.0
    """NET: microseconds, as the plugin says."""
    in_network: bool = False
    """NET: can reduce in the network (CollNet)."""

    def connect(self, remote: TopologyDevice, type: PathType, bandwidth: int) -> None:
        """Add a link, or widen the one there is; keep the links sorted, widest first."""
        same = [i for i, x in enumerate(self.links) if x.remote is remote and x.type == type]
        if not same:
            same = [len(self.links)]
            self.links.append(Link(type, remote, 0))
        place = same[0]
        link = self.links[place]
        link.bandwidth += bandwidth
        while place and self.links[place - 1].bandwidth < link.bandwidth:
            self.links[place] = self.links[place - 1]
            place -= 1
        self.links[place] = link

    def join(self, other: TopologyDevice, type: PathType, bandwidth: int) -> None:
        """Connect both ways."""
        self.connect(other, type, bandwidth)
        other.connect(self, type, bandwidth)


class System:
    """The devices by kind, in NCCL's order; `seal` numbers the links once all are there."""

    def __init__(self) -> None:
        self._devices: dict[DeviceKind, list[TopologyDevice]] = {kind: [] for kind in DeviceKind}
        self._found: dict[tuple[DeviceKind, int, int], TopologyDevice] = {}
        self.links: list[Link] = []
        self.hosts: list[int] = []
        """The machines' hashes, in order of appearance."""
        self.notes: list[str] = []

    @property
    def gpus(self) -> Sequence[TopologyDevice]:
        """The GPUs that have ranks."""
        return self._devices[DeviceKind.GPU]

    @property
    def nets(self) -> Sequence[TopologyDevice]:
        """The network ports."""
        return self._devices[DeviceKind.NET]

    @property
    def cpus(self) -> Sequence[TopologyDevice]:
        """The NUMA domains."""
        return self._devices[DeviceKind.CPU]

    def of(self, kind: DeviceKind) -> Sequence[TopologyDevice]:
        """Return the devices of a kind, in NCCL's order."""
        return self._devices[kind]

    def all(self) -> Iterator[TopologyDevice]:
        """Yield every device, kind by kind."""
        return (device for devices in self._devices.values() for device in devices)

    @property
    def capability(self) -> tuple[int, int]:
        """The least and the greatest compute capability (x 10) of the GPUs."""
        found = [gpu.capability for gpu in self.gpus]
        return min(found), max(found)

    def host(self, digest: int) -> int:
        """Return the number of the machine with this hash."""
        if digest not in self.hosts:
            self.hosts.append(digest)
        return self.hosts.index(digest)

    def add(self, kind: DeviceKind, host: int, bus: int) -> TopologyDevice:
        """Return a new device."""
        device = TopologyDevice(kind, host, bus)
        self._devices[kind].append(device)
        self._found.setdefault((kind, host, bus), device)
        return device

    def find(self, kind: DeviceKind, host: int, bus: int) -> TopologyDevice | None:
        """Return the device at an address, None if there is none."""
        return self._found.get((kind, host, bus))

    def remove(self, device: TopologyDevice) -> None:
        """Take a device out; its links to others go, theirs to it must be gone."""
        self._devices[device.kind].remove(device)
        del self._found[device.kind, device.host, device.bus]

    def seal(self) -> None:
        """Number devices and links, and pair each link with its reverse."""
        for devices in self._devices.values():
            for index, device in enumerate(devices):
                device.index = index
        for number, device in enumerate(self.all()):
            device.number_of_all = number
        self.links = [link for device in self.all() for link in device.links]
        for number, link in enumerate(self.links):
            link.id = number
        for device in self.all():
            for link in device.links:
                back = [
                    x.id for x in link.remote.links if x.remote is device and x.type == link.type
                ]
                link.reverse = back[0] if back else -1
