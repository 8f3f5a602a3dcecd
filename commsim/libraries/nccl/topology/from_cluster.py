"""
From a cluster's nodes to the topology file that NCCL would write there.

One file describes an NVLink domain: a node, or the nodes of a rack that share their NVSwitch.
PCI addresses are made up, for a cluster knows none: the first two digits count the buses.

Elements and attributes as ncclTopoGetXmlFromSys and its siblings write them (src/graph/xml.cc).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from commsim.cluster import Cluster, NicSpec, NodeSpec, PcieSwitch
from commsim.errors import ScenarioError
from commsim.libraries.nccl.topology.devices import device_of, nvlink_rate
from commsim.libraries.nccl.topology.xml_file import Element, write_xml

__all__ = ["UNKNOWN_CAPABILITY", "cluster_xml", "devices_per_nic", "domain_xml"]

_LANE = {1: "2.5 GT/s PCIe", 2: "5.0 GT/s PCIe", 3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe",
         5: "32.0 GT/s PCIe", 6: "64.0 GT/s PCIe"}  # fmt: skip
_VENDOR = {"intel": "GenuineIntel", "amd": "AuthenticAMD", "zhaoxin": "CentaurHauls"}
_BRIDGE = {"class": "0x060400", "vendor": "0x10b5", "device": "0x8764"}
_GPU = {"class": "0x030200", "vendor": "0x10de"}
_NIC = {"vendor": "0x15b3", "device": "0x101b"}
_NIC_CLASS = {"infiniband": "0x020700"}
_ETHERNET = "0x020000"
_GUID = 0xA000_0000
_MERGES = ("ib", "roce")


UNKNOWN_CAPABILITY = 70
"""What a GPU counts as that states no compute capability: Volta, NCCL's oldest row."""


def domain_xml(
    specs: Sequence[NodeSpec],
    used: Sequence[Mapping[int, int]],
    *,
    collnet: bool = False,
    merged: bool = True,
) -> Element:
    """Return the topology of a domain.

    Args:
        specs: its nodes.
        used: per node the GPUs (local numbers) that have ranks, and their ranks.
        collnet: InfiniBand NICs can reduce in the network.
        merged: the ports of a NIC are one device (see `devices_per_nic`).
    """
    root = Element("system", {"version": "1"})
    for host, (spec, ranks) in enumerate(zip(specs, used, strict=True)):
        _NodeWriter(root, host, spec, ranks, collnet, merged).add()
    return root


def devices_per_nic(nic: NicSpec, *, merged: bool) -> int:
    """Return how many network devices NCCL has of a NIC: one, or each port if not `merged`.

    Its InfiniBand transport alone merges (makeVDevice of net_ib.cc).
    """
    return 1 if merged and nic.transport in _MERGES else nic.ports


def cluster_xml(cluster: Cluster, *, domain: int = 0) -> str:
    """Return the topology file of an NVLink domain of a cluster (a node, mostly), all GPUs used.

    Raises:
        ScenarioError: there is no such domain.
    """
    nodes = [n for n, own in enumerate(cluster.domain_of_node.tolist()) if own == domain]
    if not nodes:
        last = int(cluster.domain_of_node[-1])
        raise ScenarioError(
            f"there is no NVLink domain {domain}: they are counted from 0 to {last}."
        )
    specs = [cluster.specs[cluster.spec_of[node]] for node in nodes]
    used, count = [], 0
    for spec in specs:
        used.append({gpu: count + gpu for gpu in range(spec.gpus)})
        count += spec.gpus
    return write_xml(domain_xml(specs, used))


class _NodeWriter:
    """Writes one node: sockets, then switches, GPUs and NICs as they hang on each other."""

    def __init__(
        self,
        root: Element,
        host: int,
        spec: NodeSpec,
        ranks: Mapping[int, int],
        collnet: bool,
        merged: bool,
    ) -> None:
        self._devices = devices_per_nic(spec.nic, merged=merged) if spec.nic else 1
        self._root = root
        self._host = host
        self._spec = spec
        self._ranks = ranks
        self._collnet = collnet
        pcie = spec.pcie
        self._behind_gpu = {g for switch in pcie.switches for g in switch.gpus}
        self._behind_nic = {n for switch in pcie.switches for n in switch.nics}

    def add(self) -> None:
        """Append the node's CPUs, and all below them, to the root."""
        for socket in range(self._spec.sockets):
            cpu = self._cpu(socket)
            for index, switch in enumerate(self._spec.pcie.switches):
                if switch.under < 0 and switch.socket == socket:
                    self._switch(cpu, index, switch)
            for gpu, own in enumerate(self._spec.gpu_socket):
                if own == socket and gpu not in self._behind_gpu:
                    self._gpu(cpu, gpu)
            for nic, own in enumerate(self._spec.nic_socket):
                if own == socket and nic not in self._behind_nic:
                    self._nic(cpu, nic)

    def _cpu(self, socket: int) -> Element:
        cpu = self._spec.cpu
        element = self._root.add(
            "cpu",
            host_hash=f"{self._host:#x}",
            numaid=socket,
            affinity="00000000,ffffffff",
            arch=cpu.arch or "x86_64",
        )
        if (cpu.arch or "x86_64") == "x86_64":
            element.attributes["vendor"] = _VENDOR.get(cpu.vendor, "GenuineIntel")
            element.attributes["familyid"] = str(cpu.family)
            element.attributes["modelid"] = str(cpu.model_id)
        return element

    def _switch(self, above: Element, index: int, switch: PcieSwitch) -> None:
        pcie = self._spec.pcie
        # The uplink's own width follows from its rate, of the generation that the node has.
        width = max(1, round(pcie.width * switch.bandwidth / pcie.bandwidth))
        element = self._slot(above, 0x40 + index, _BRIDGE, width=min(width, 32))
        for below, other in enumerate(pcie.switches):
            if other.under == index:
                self._switch(element, below, other)
        for gpu in switch.gpus:
            self._gpu(element, gpu)
        for nic in switch.nics:
            self._nic(element, nic)

    def _slot(
        self, above: Element, bus: int, kind: Mapping[str, str], *, width: int | None = None
    ) -> Element:
        pcie = self._spec.pcie
        return above.add(
            "pci",
            busid=_address(bus),
            **kind,
            subsystem_vendor="0x10de",
            subsystem_device="0x134f",
            link_speed=_LANE[pcie.generation],
            link_width=width or pcie.width,
        )

    def _gpu(self, above: Element, gpu: int) -> None:
        spec = self._spec
        slot = self._slot(above, 0x80 + gpu, {**_GPU, "device": device_of(spec.gpu.name)})
        if gpu not in self._ranks:
            return
        element = slot.add(
            "gpu",
            dev=gpu,
            sm=spec.gpu.sm or UNKNOWN_CAPABILITY,
            rank=self._ranks[gpu],
            gdr=int(spec.nic is None or spec.nic.gdr),
        )
        if spec.switch is not None:
            per_link = nvlink_rate(spec.gpu.sm)
            links = spec.switch_links or max(1, round(spec.switch.bandwidth / per_link))
            element.add("nvlink", target="0000:05:00.0", count=links, tclass="0x068000")
        for other, count in enumerate(spec.mesh[gpu] if spec.mesh else ()):
            if count:
                target = _address(0x80 + other)
                element.add("nvlink", target=target, count=count, tclass="0x030200")
        if spec.c2c is not None:
            element.add("c2c", bw=round(spec.c2c.bandwidth / 1e6), count=1)

    def _nic(self, above: Element, nic: int) -> None:
        have = self._spec.nic
        if have is None:
            return
        kind = {"class": _NIC_CLASS.get(have.medium, _ETHERNET), **_NIC}
        slot = self._slot(above, 0xC0 + nic, kind)
        card = slot.add("nic")
        for port in range(self._devices):
            number = nic * self._devices + port
            card.add(
                "net",
                name=_name(have, number),
                dev=number,
                speed=round(have.wire.bandwidth / self._devices * 8 / 1e6),
                port=port + 1,
                latency="0.000000",
                guid=f"{_GUID + (self._host << 12) + 16 * nic:#x}",
                maxconn=131072,
                gdr=int(have.gdr),
            )
            if self._collnet and have.medium == "infiniband":
                card.inside[-1].attributes["coll"] = "1"


def _name(nic: NicSpec, index: int) -> str:
    return f"mlx5_{index}" if nic.medium == "infiniband" else f"eth{index}"


def _address(bus: int) -> str:
    """Return a made-up PCI address; more than 256 buses go on in the next domain."""
    return f"{bus >> 8:04x}:{bus & 0xFF:02x}:00.0"
