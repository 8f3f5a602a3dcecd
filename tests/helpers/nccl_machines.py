"""Machines made by hand, in the elements of NCCL's topology files."""

from __future__ import annotations

from commsim.libraries.nccl.topology.xml_file import Element

__all__ = ["bridge", "c2c", "cpu", "gpu", "net", "nic", "nvlink", "pci", "root"]

GEN3 = "8.0 GT/s PCIe"


def root(*cpus: Element) -> Element:
    """Return a topology of these CPUs."""
    return Element("system", {"version": "1"}, list(cpus))


def cpu(*inside: Element, numa: int | str = 0, host: str = "0x0", **attributes: str) -> Element:
    """Return a NUMA domain, of an Intel CPU unless `attributes` say otherwise."""
    own = {"host_hash": host, "numaid": str(numa), "arch": "x86_64", "vendor": "GenuineIntel",
           "familyid": "6", "modelid": "85"}  # fmt: skip
    return Element("cpu", own | attributes, list(inside))


def pci(busid: str, *inside: Element, **attributes: str) -> Element:
    """Return a PCI device on PCIe 3 x16: a bridge unless `class_` says otherwise."""
    own = {"busid": busid, "class": "0x060400", "link_speed": GEN3, "link_width": "16"}
    if "class_" in attributes:
        own["class"] = attributes.pop("class_")
    return Element("pci", own | attributes, list(inside))


def bridge(bus: int, *inside: Element, **attributes: str) -> Element:
    """Return a PCIe switch by the number of its bus."""
    return pci(f"0000:{bus:02x}:00.0", *inside, **attributes)


def gpu(
    rank: int | None, *links: Element, bus: int | None = None, dev: int | None = None,
    sm: int = 80, gdr: str = "1", **attributes: str,
) -> Element:  # fmt: skip
    """Return a GPU in its slot (bus 0x80 + rank); `links` are its NVLinks and C2C links."""
    number = bus if bus is not None else 0x80 + (rank or 0)
    own = {"dev": str(rank or 0 if dev is None else dev), "sm": str(sm), "gdr": gdr}
    if rank is not None:
        own["rank"] = str(rank)
    slot = {"class_": "0x030200", "device": "0x20f1"} | attributes
    return pci(f"0000:{number:02x}:00.0", Element("gpu", own, list(links)), **slot)


def net(number: int, *, speed: int | None = 100_000, **attributes: str) -> Element:
    """Return a port; without GPUDirect unless `gdr` says otherwise."""
    own = {"name": f"mlx5_{number}", "dev": str(number)}
    if speed is not None:
        own["speed"] = str(speed)
    return Element("net", own | attributes)


def nic(bus: int, *ports: Element, function: int = 0, **attributes: str) -> Element:
    """Return a NIC in its slot with these ports."""
    slot = {"class_": "0x020700"} | attributes
    return pci(f"0000:{bus:02x}:00.{function}", Element("nic", {}, list(ports)), **slot)


def nvlink(target: int | None, count: int = 1) -> Element:
    """Return NVLinks to the GPU on a bus, or to the NVSwitch (None)."""
    kind = "0x068000" if target is None else "0x030200"
    at = 5 if target is None else target
    given = {"target": f"0000:{at:02x}:00.0", "count": str(count), "tclass": kind}
    return Element("nvlink", given)


def c2c(bandwidth: int, count: int = 1) -> Element:
    """Return C2C links to the CPU, of so many MB/s each."""
    return Element("c2c", {"bw": str(bandwidth), "count": str(count)})
