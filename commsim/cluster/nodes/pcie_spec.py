"""
From a node's PCIe section to facts: bandwidths from generation and width, a checked tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from commsim.cluster.nodes.gpus import GpuSpec
from commsim.cluster.nodes.node import PcieSection, PcieSwitchSection
from commsim.cluster.nodes.reader import Reader, defaults
from commsim.cluster.nodes.spec import PcieSpec, PcieSwitch

__all__ = ["pcie_spec"]

_LANE_GTS = MappingProxyType({1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0})
_WIDTHS = (1, 2, 4, 8, 16, 32)


def pcie_spec(
    read: Reader, own: PcieSection | None, *, gpu: GpuSpec, gpus: int, nics: int, sockets: int
) -> PcieSpec:
    """Return the PCIe of a node. Raises ScenarioError for an impossible one."""
    own = own or PcieSection()
    wanted: tuple[str, ...] = ("width", "efficiency", "link_latency", "root_latency", "p2p")
    if own.switches:
        wanted += ("switch_latency",)
    section = read.filled(own, defaults().pcie, "pcie", wanted)
    generation = section.generation
    if generation is None:
        generation = gpu.pcie_generation or None
        read.taken.append("pcie.generation (the GPU's)")
    generation = read.need(generation, "pcie.generation")
    width = read.need(section.width, "pcie.width")
    switches = section.switches or ()
    _check_members(read, "GPU", gpus, [switch.gpus for switch in switches])
    _check_members(read, "NIC", nics, [switch.nics for switch in switches])
    return PcieSpec(
        generation=generation,
        width=width,
        bandwidth=_rate(read, generation, width),
        efficiency=read.share(section.efficiency, "pcie.efficiency"),
        link_latency=int(section.link_latency or 0),
        switch_latency=int(section.switch_latency or 0),
        root_latency=int(section.root_latency or 0),
        p2p=bool(section.p2p),
        switches=tuple(
            _switch(read, index, switch, generation, width, sockets)
            for index, switch in enumerate(switches)
        ),
    )


def _rate(read: Reader, generation: int, width: int) -> float:
    """Return bytes/s of a slot: GT/s x lanes x coding / 8 (8b/10b up to generation 2)."""
    if generation not in _LANE_GTS:
        raise read.place.error("pcie.generation", f"{generation} is not one of 1 to 6.")
    if width not in _WIDTHS:
        raise read.place.error("pcie.width", f"{width} is not one of 1, 2, 4, 8, 16, 32.")
    # Generation 6 sends flits of 256 B that hold 242 B of packets, instead of 128b/130b.
    coding = 0.8 if generation <= 2 else 128 / 130 if generation <= 5 else 242 / 256
    return _LANE_GTS[generation] * 1e9 * width * coding / 8


def _switch(
    read: Reader,
    index: int,
    switch: PcieSwitchSection,
    generation: int,
    width: int,
    sockets: int,
) -> PcieSwitch:
    field, under, socket = "pcie.switches", switch.under, switch.socket
    if under is not None and (socket is not None or not 0 <= under < index):
        raise read.place.error(
            field, f"[{index}]: under: {under} must name an earlier switch, without a socket."
        )
    if not 0 <= (socket or 0) < sockets:
        raise read.place.error(
            field, f"[{index}]: there is no socket {socket}: {sockets} are counted from 0."
        )
    return PcieSwitch(
        gpus=switch.gpus,
        nics=switch.nics,
        socket=socket or 0,
        under=-1 if under is None else under,
        bandwidth=_rate(read, switch.generation or generation, switch.width or width),
    )


def _check_members(read: Reader, what: str, count: int, lists: Sequence[tuple[int, ...]]) -> None:
    """Refuse devices that do not exist, or that hang under two switches."""
    seen: dict[int, int] = {}
    for index, members in enumerate(lists):
        for member in members:
            if not 0 <= member < count:
                raise read.place.error(
                    "pcie.switches",
                    f"[{index}]: there is no {what} {member}: {count} are counted from 0.",
                )
            if member in seen:
                raise read.place.error(
                    "pcie.switches",
                    f"[{index}]: {what} {member} hangs under switch {seen[member]} already.",
                )
            seen[member] = index
