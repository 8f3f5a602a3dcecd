"""
From a node's NVLink section to facts: a port to the NVSwitch, or a mesh of direct links.
"""

from __future__ import annotations

from typing import NamedTuple

from commsim.cluster.node import C2cSection, NvlinkSection
from commsim.cluster.reader import Reader, defaults
from commsim.cluster.spec import Wire

__all__ = ["Nvlink", "c2c_wire", "nvlink_spec"]


class Nvlink(NamedTuple):
    """One direct link and the counts per pair, or a GPU's port to the NVSwitch, or neither."""

    link: Wire | None = None
    mesh: tuple[tuple[int, ...], ...] = ()
    port: Wire | None = None


def nvlink_spec(read: Reader, own: NvlinkSection | None, *, gpus: int) -> Nvlink:
    """Return the NVLink of a node. Raises ScenarioError for an impossible one."""
    if own is None:
        return Nvlink()
    kind = own.kind or ("mesh" if own.links is not None else "switch")
    _refuse_idle(read, own, kind)
    if kind == "none":
        return Nvlink()
    wanted: tuple[str, ...] = ("efficiency", "latency")
    if kind == "switch":
        wanted += ("switch_latency",)
    section = read.filled(own, defaults().nvlink, "nvlink", wanted)
    efficiency = read.share(section.efficiency, "nvlink.efficiency")
    latency = int(read.need(section.latency, "nvlink.latency"))
    if kind == "switch":
        rate = float(read.need(section.bandwidth, "nvlink.bandwidth"))
        # The two links through the switch share the delay of the way.
        half = (latency + int(section.switch_latency or 0)) // 2
        return Nvlink(port=Wire(rate, efficiency, half))
    rate = float(read.need(section.per_link, "nvlink.per_link"))
    return Nvlink(Wire(rate, efficiency, latency), _mesh(read, section, gpus))


def c2c_wire(read: Reader, own: C2cSection | None) -> Wire | None:
    """Return the link between a GPU and its CPU, where the node has one."""
    if own is None:
        return None
    return read.wire(read.filled(own, defaults().c2c, "c2c", ("efficiency", "latency")), "c2c")


def _refuse_idle(read: Reader, own: NvlinkSection, kind: str) -> None:
    """Refuse settings that change nothing with this kind of NVLink."""
    idle: tuple[str, ...] = {
        "none": ("bandwidth", "per_link", "links", "efficiency", "latency", "switch_latency"),
        "switch": ("per_link", "links"),
        "mesh": ("bandwidth", "switch_latency"),
    }[kind]
    for field in idle:
        if getattr(own, field) is not None:
            raise read.place.error(
                f"nvlink.{field}", f"means nothing with kind: {kind}. Leave it out."
            )


def _mesh(read: Reader, section: NvlinkSection, gpus: int) -> tuple[tuple[int, ...], ...]:
    links = read.need(section.links, "nvlink.links")
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
