"""
From a node's NVLink section to facts: a port to the NVSwitch, or a mesh of direct links.
"""

from __future__ import annotations

from typing import NamedTuple

from commsim.cluster.nodes.gpus import GpuSpec
from commsim.cluster.nodes.node import C2cSection, NvlinkSection
from commsim.cluster.nodes.reader import Reader, defaults
from commsim.cluster.nodes.spec import Wire

__all__ = ["Nvlink", "c2c_wire", "nvlink_spec"]

_NVLINK4 = 90  # the compute capability that brought it
_PORT = ("bandwidth", "switch_latency", "domain_nodes")


class Nvlink(NamedTuple):
    """One direct link and the counts per pair, or a GPU's port to the NVSwitch, or neither.

    The port holds `port_links` links (0: unknown); `domain_nodes` nodes share the switch.
    """

    link: Wire | None = None
    mesh: tuple[tuple[int, ...], ...] = ()
    port: Wire | None = None
    port_links: int = 0
    domain_nodes: int = 1


def nvlink_spec(read: Reader, own: NvlinkSection | None, *, gpu: GpuSpec, gpus: int) -> Nvlink:
    """Return the NVLink of a node. Raises ScenarioError for an impossible one."""
    if own is None:
        return Nvlink()
    is_mesh = isinstance(own.links, tuple) or own.per_link is not None
    kind = own.kind or ("mesh" if is_mesh else "switch")
    _refuse_idle(read, own, kind)
    if kind == "none":
        return Nvlink()
    wanted: tuple[str, ...] = ("efficiency", "latency")
    if kind == "switch":
        wanted += ("switch_latency",)
    usual = defaults().nvlink4 if gpu.sm >= _NVLINK4 else defaults().nvlink
    section = read.filled(own, usual, "nvlink", wanted)
    efficiency = read.share(section.efficiency, "nvlink.efficiency")
    latency = int(read.need(section.latency, "nvlink.latency"))
    if kind == "switch":
        rate = float(read.need(section.bandwidth, "nvlink.bandwidth"))
        # The two links through the switch share the delay of the way.
        half = (latency + int(section.switch_latency or 0)) // 2
        port = Wire(rate, efficiency, half)
        return Nvlink(port=port, port_links=_port_links(read, own), domain_nodes=_domain(read, own))
    rate = float(read.need(section.per_link, "nvlink.per_link"))
    return Nvlink(Wire(rate, efficiency, latency), _mesh(read, section, gpus))


def c2c_wire(read: Reader, own: C2cSection | None) -> Wire | None:
    """Return the link between a GPU and its CPU, if the node has one."""
    if own is None:
        return None
    return read.wire(read.filled(own, defaults().c2c, "c2c", ("efficiency", "latency")), "c2c")


def _refuse_idle(read: Reader, own: NvlinkSection, kind: str) -> None:
    """Refuse settings that change nothing with this kind of NVLink."""
    idle: tuple[str, ...] = {
        "none": (*_PORT, "per_link", "links", "efficiency", "latency"),
        "switch": ("per_link",),
        "mesh": _PORT,
    }[kind]
    for field in idle:
        if getattr(own, field) is not None:
            raise read.place.error(
                f"nvlink.{field}", f"means nothing with kind: {kind}. Leave it out."
            )


def _port_links(read: Reader, own: NvlinkSection) -> int:
    if isinstance(own.links, tuple):
        raise read.place.error(
            "nvlink.links", "must be one count with kind: switch, a GPU's links to the switches."
        )
    return 0 if own.links is None else read.count(own.links, "nvlink.links")


def _domain(read: Reader, own: NvlinkSection) -> int:
    return 1 if own.domain_nodes is None else read.count(own.domain_nodes, "nvlink.domain_nodes")


def _mesh(read: Reader, section: NvlinkSection, gpus: int) -> tuple[tuple[int, ...], ...]:
    links = section.links
    if links is None:
        raise read.place.error("nvlink.links", "is missing. State it.")
    if isinstance(links, int):
        each = read.count(links, "nvlink.links")
        return tuple(tuple(0 if a == b else each for b in range(gpus)) for a in range(gpus))
    if len(links) != gpus or any(len(row) != gpus for row in links):
        raise read.place.error(
            "nvlink.links", f"must be {gpus} rows of {gpus} counts, one for each pair of GPUs."
        )
    for a, row in enumerate(links):
        for b, count in enumerate(row):
            if count < 0 or count != links[b][a] or (a == b and count):
                raise read.place.error(
                    "nvlink.links",
                    f"[{a}][{b}] is {count}, [{b}][{a}] is {links[b][a]}: counts are 0 or more,"
                    " equal both ways, and 0 from a GPU to itself.",
                )
    return links
