"""
From NCCL's topology file to a cluster of such machines.

What the file does not say is taken: the GPU's own facts by its PCI device id, NVLink's rate by
its generation, latencies and efficiencies by commsim's defaults. The cluster's notes say what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from commsim.cluster import (
    C2cSection,
    Cluster,
    ClusterSection,
    CpuSection,
    FabricSection,
    GpuSection,
    NicSection,
    NodeSection,
    NvlinkSection,
    PcieSection,
    PcieSwitchSection,
    build_cluster,
)
from commsim.errors import ScenarioError
from commsim.libraries.nccl.shapes import CpuArch, CpuVendor, PathType
from commsim.libraries.nccl.topology.build import system_of
from commsim.libraries.nccl.topology.devices import gpu_name, nvlink_rate
from commsim.libraries.nccl.topology.rules import rules_of
from commsim.libraries.nccl.topology.system import DeviceKind, System, TopologyDevice
from commsim.libraries.nccl.topology.xml_file import read_xml
from commsim.sections import decode
from commsim.units import Bandwidth

__all__ = ["cluster_from_xml"]

_GENERATION = MappingProxyType({15: 1, 30: 2, 60: 3, 120: 4, 240: 5, 480: 6})
_ARCH: Mapping[CpuArch, Literal["x86_64", "arm64", "ppc64"]] = MappingProxyType(
    {CpuArch.X86: "x86_64", CpuArch.ARM: "arm64", CpuArch.POWER: "ppc64"}
)
_Vendor = Literal["intel", "amd", "zhaoxin", "arm", "ibm"]
_VENDOR: Mapping[CpuVendor, _Vendor] = MappingProxyType(
    {
        CpuVendor.INTEL: "intel",
        CpuVendor.AMD: "amd",
        CpuVendor.ZHAOXIN: "zhaoxin",
    }
)
_MAKER: Mapping[CpuArch, _Vendor] = MappingProxyType({CpuArch.ARM: "arm", CpuArch.POWER: "ibm"})
_NEWEST = "2.30.7"


def cluster_from_xml(
    text: str,
    *,
    nodes: int = 1,
    fabric: Mapping[str, Any] | None = None,
    source: str = "topology",
) -> Cluster:
    """Return a cluster of `nodes` machines (or NVLink domains of several) that look like this.

    `fabric`: the settings of a scenario's `cluster.fabric`.

    Raises:
        ScenarioError: the text is no topology, or describes what a cluster cannot hold.
    """
    if nodes < 1:
        raise ScenarioError(f"{nodes} is not a count of nodes. Give 1 or more.")
    system = system_of(read_xml(text, source), source, rules_of(_NEWEST))
    hosts = [_Host(system, host, source) for host in range(len(system.hosts))]
    sections = [host.section(len(hosts)) for host in hosts]
    if any(section != sections[0] for section in sections[1:]):
        raise ScenarioError(
            f"{source}: its {len(hosts)} machines differ. A cluster's NVLink domain is made of"
            " machines of one kind; give the file of one of them."
        )
    settings = decode(dict(fabric), FabricSection, source) if fabric is not None else None
    section = ClusterSection(
        nodes=nodes * len(hosts),
        node=sections[0],
        fabric=settings,
    )
    cluster = build_cluster(section, source, path="")
    notes = [*system.notes, *(note for host in hosts for note in host.notes)]
    cluster.notes = (*cluster.notes, *dict.fromkeys(notes))
    return cluster


class _Host:
    """One machine of a topology, turned into the sections of a cluster's node."""

    def __init__(self, system: System, host: int, source: str) -> None:
        self._source = source
        self.notes: list[str] = []
        self._gpus = sorted((g for g in system.gpus if g.host == host), key=lambda g: g.rank)
        self._cpus = [cpu for cpu in system.cpus if cpu.host == host]
        self._nets = self._fastest([net for net in system.nets if net.host == host])
        self._switches = [pci for pci in system.of(DeviceKind.PCI) if pci.host == host]
        self._lanes = rules_of(_NEWEST)
        if not self._gpus or not self._cpus:
            raise ScenarioError(f"{source}: machine {host} has no GPU with a rank.")

    def _fastest(self, nets: Sequence[TopologyDevice]) -> list[TopologyDevice]:
        """Return the NETs that channels would use: the fastest ones."""
        best = max((net.bandwidth for net in nets), default=0)
        slower = [net for net in nets if net.bandwidth < best]
        if slower:
            rates = ", ".join(f"{net.number} ({net.bandwidth / 1000:g} GB/s)" for net in slower)
            self.notes.append(f"{self._source}: slower NETs left out: {rates}.")
        return sorted((net for net in nets if net.bandwidth == best), key=lambda net: net.number)

    def section(self, domain: int) -> NodeSection:
        """Return the node; `domain` machines share its NVSwitch."""
        name, known = gpu_name(self._gpus[0].device, self._gpus[0].capability)
        if not known:
            self.notes.append(
                f"{self._source}: PCI device {self._gpus[0].device:#06x} (sm"
                f" {self._gpus[0].capability}) is taken for a {name}."
            )
        return NodeSection(
            name=self._source.rpartition("/")[2].removesuffix(".xml"),
            gpu=GpuSection(count=len(self._gpus), spec=name),
            nvlink=self._nvlink(domain),
            c2c=self._c2c(),
            pcie=self._pcie(),
            cpu=self._cpu(),
            nic=self._nic(),
        )

    def _nvlink(self, domain: int) -> NvlinkSection:
        rate = nvlink_rate(self._gpus[0].capability)
        counts = [[self._links(one, other) for other in self._gpus] for one in self._gpus]
        switch = self._links(self._gpus[0], None)
        if switch:
            return NvlinkSection(
                kind="switch",
                bandwidth=Bandwidth(switch * rate),
                links=switch,
                domain_nodes=domain if domain > 1 else None,
            )
        if not any(any(row) for row in counts):
            return NvlinkSection(kind="none")
        both = [
            [min(row[j], counts[j][i]) for j in range(len(row))] for i, row in enumerate(counts)
        ]
        links = tuple(tuple(row) for row in both)
        return NvlinkSection(kind="mesh", per_link=Bandwidth(rate), links=links)

    def _links(self, gpu: TopologyDevice, other: TopologyDevice | None) -> int:
        """Return the NVLinks from a GPU to another, or to the switch (None)."""
        found = [
            link.bandwidth
            for link in gpu.links
            if link.type == PathType.NVL
            and (link.remote is other or (other is None and link.remote.kind == DeviceKind.NVS))
        ]
        return round(sum(found) / self._lanes.nvlink_bandwidth(gpu.capability))

    def _c2c(self) -> C2cSection | None:
        rates = [x.bandwidth for x in self._gpus[0].links if x.type == PathType.C2C]
        return C2cSection(bandwidth=Bandwidth(rates[0] * 1e6)) if rates else None

    def _pcie(self) -> PcieSection:
        slots = list(dict.fromkeys(gpu.slot for gpu in self._gpus))
        if len(slots) > 1:
            self.notes.append(f"{self._source}: GPUs' slots differ; all count as the first.")
        generation, width = self._slot(slots[0])
        others = [nic for nic in map(self._card, self._nets) if nic.slot != slots[0]]
        if others:
            self.notes.append(f"{self._source}: NICs' slots count as the GPUs'.")
        order = self._from_the_top()
        return PcieSection(
            generation=generation,
            width=width,
            p2p=True,
            switches=tuple(self._switch(pci, order) for pci in order),
        )

    def _slot(self, slot: tuple[str, int]) -> tuple[int, int]:
        """Return generation and width; an odd width counts as the next below."""
        lane = self._lanes.pci_lane.get(slot[0], self._lanes.pci_lane_default)
        return _GENERATION[lane], 1 << (slot[1].bit_length() - 1)

    def _from_the_top(self) -> list[TopologyDevice]:
        """Return the PCI switches, each after the one that it hangs under."""
        order = [pci for pci in self._switches if _above(pci).kind == DeviceKind.CPU]
        for pci in order:
            order += [other for other in self._switches if _above(other) is pci]
        return order

    def _switch(self, pci: TopologyDevice, order: Sequence[TopologyDevice]) -> PcieSwitchSection:
        above = _above(pci)
        generation, width = self._slot(pci.slot)
        root = above.kind == DeviceKind.CPU
        return PcieSwitchSection(
            gpus=self._gpus_on(pci),
            nics=self._nics_on(pci),
            generation=generation,
            width=width,
            socket=self._cpus.index(above) if root else None,
            under=None if root else order.index(above),
        )

    def _gpus_on(self, device: TopologyDevice) -> tuple[int, ...]:
        return tuple(i for i, gpu in enumerate(self._gpus) if _above(gpu) is device)

    def _nics_on(self, device: TopologyDevice) -> tuple[int, ...]:
        return tuple(i for i, net in enumerate(self._nets) if _above(self._card(net)) is device)

    @staticmethod
    def _card(net: TopologyDevice) -> TopologyDevice:
        return next(link.remote for link in net.links if link.type == PathType.NET)

    def _cpu(self) -> CpuSection:
        cpu = self._cpus[0]
        x86 = cpu.arch == CpuArch.X86
        return CpuSection(
            arch=_ARCH[cpu.arch],
            vendor=_VENDOR[cpu.vendor] if x86 else _MAKER[cpu.arch],
            family=cpu.family[0] if x86 else None,
            model_id=cpu.family[1] if x86 else None,
            sockets=len(self._cpus),
            gpus=tuple(self._gpus_on(socket) for socket in self._cpus),
            nics=tuple(self._nics_on(socket) for socket in self._cpus) if self._nets else None,
            bandwidth=Bandwidth(cpu.cross_link * 1e6) if len(self._cpus) > 1 else None,
        )

    def _nic(self) -> NicSection | None:
        if not self._nets:
            return None
        infiniband = self._card(self._nets[0]).device >> 8 == 0x0207
        return NicSection(
            count=len(self._nets),
            bandwidth=Bandwidth(self._nets[0].bandwidth * 1e6),
            medium="infiniband" if infiniband else "ethernet",
            gdr=all(device.gdr for device in (*self._nets, *self._gpus)),
            gpu_to_nic=None if self._deals_evenly() else self._near(),
        )

    def _deals_evenly(self) -> bool:
        return len(self._gpus) % len(self._nets) == 0 or len(self._nets) % len(self._gpus) == 0

    def _near(self) -> tuple[int, ...]:
        """Return a NIC per GPU, in turns, if the counts do not divide."""
        return tuple(gpu % len(self._nets) for gpu in range(len(self._gpus)))


def _above(device: TopologyDevice) -> TopologyDevice:
    """Return what a device hangs under on the PCI tree: its link upwards is the last of them."""
    ways = [link for link in device.links if link.type == PathType.PIX]
    return ways[-1].remote
