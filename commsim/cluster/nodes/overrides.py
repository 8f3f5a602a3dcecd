"""
Laying overrides over a node: also counts, where other settings speak of the things counted.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from commsim.cluster.nodes.node import NodeSection, PcieSwitchSection, merged
from commsim.cluster.nodes.place import NodePlace
from commsim.cluster.nodes.spec import MAX_GPUS
from commsim.cluster.nodes.transports import RDMA

__all__ = ["overridden"]

_Numbers = tuple[int, ...]


def overridden(
    base: NodeSection, changes: NodeSection | None, place: NodePlace
) -> tuple[NodeSection, tuple[str, ...]]:
    """Return the node with `changes` laid over it, and notes on what that made necessary.

    Fewer GPUs: the first ones stay. Another count of NICs: they spread over the places of the
    old ones; with fewer GPUs over those beside the GPUs that stay. Another kind of NVLink
    replaces the old one's settings. RDMA stays RDMA on another medium, and without it there is no
    GPUDirect.
    """
    if changes is None:
        return base, ()
    over, under = changes.nvlink, base.nvlink
    if over is not None and over.kind is not None and under and over.kind != under.kind:
        base = replace(base, nvlink=None)
    notes: list[str] = []
    base = _fewer_gpus(base, changes, place, notes)
    base = _other_nics(base, changes, notes)
    base = _other_network(base, changes, notes)
    return merged(base, changes) or base, tuple(notes)


def _fewer_gpus(
    base: NodeSection, changes: NodeSection, place: NodePlace, notes: list[str]
) -> NodeSection:
    count = changes.gpu.count if changes.gpu else None
    have = base.gpu.count if base.gpu else None
    if count is None or have is None or count == have or count < 1:
        return base
    if count > have and (_placed(base) or _has_matrix(base)):
        raise place.error("gpu.count", f"{count} GPUs, but the node has places for {have}.")
    base = _moved(base, lambda gpus: tuple(g for g in gpus if g < count), None)
    if base.nvlink is not None and isinstance(base.nvlink.links, tuple):
        square = tuple(row[:count] for row in base.nvlink.links[:count])
        base = replace(base, nvlink=replace(base.nvlink, links=square))
    notes.append(f"gpu.count: the first {count} of the node's {have} GPUs are there.")
    return base


def _has_matrix(base: NodeSection) -> bool:
    return base.nvlink is not None and isinstance(base.nvlink.links, tuple)


def _other_nics(base: NodeSection, changes: NodeSection, notes: list[str]) -> NodeSection:
    count = changes.nic.count if changes.nic else None
    have = base.nic.count if base.nic else None
    if base.nic is None or count is None or have is None or count == have:
        return base
    if not 1 <= count <= MAX_GPUS:  # what reads it says so
        return base
    fewer = bool(changes.gpu and changes.gpu.count)
    places = (_beside_gpus(base) if fewer else []) or list(range(have))
    old = [places[nic * len(places) // count] for nic in range(count)]
    base = _moved(base, None, lambda nics: tuple(n for n in range(count) if old[n] in nics))
    if base.nic is not None:
        base = replace(base, nic=replace(base.nic, rails=None, gpu_to_nic=None))
    of = f"the node's {have}" if len(places) == have else "those beside the GPUs that stay"
    notes.append(f"nic.count: {count} NICs spread over the places of {of}.")
    return base


def _beside_gpus(base: NodeSection) -> list[int]:
    """Return the NICs below a switch or socket that has GPUs, the nearest kind of place."""
    switches = base.pcie.switches if base.pcie else None
    found = {nic for switch in switches or () if switch.gpus for nic in switch.nics}
    if not found and base.cpu and base.cpu.gpus and base.cpu.nics:
        pairs = zip(base.cpu.gpus, base.cpu.nics, strict=False)
        found = {nic for gpus, nics in pairs if gpus for nic in nics}
    return sorted(found)


def _other_network(base: NodeSection, changes: NodeSection, notes: list[str]) -> NodeSection:
    """Return the node with the transport and GPUDirect that its new NICs leave possible."""
    nic, over = base.nic, changes.nic
    if nic is None or over is None:
        return base
    medium = over.medium or nic.medium or ""
    if over.transport is None and nic.transport in RDMA.values():
        transport = RDMA[medium]
        if transport != nic.transport:
            notes.append(f"nic.transport: {transport}, RDMA as before, but over {medium}.")
        nic = replace(nic, transport=transport)
    if over.transport == "tcp" and over.gdr is None:
        nic = replace(nic, gdr=False)
    return replace(base, nic=nic)


def _placed(base: NodeSection) -> bool:
    return bool((base.pcie and base.pcie.switches) or (base.cpu and base.cpu.gpus))


def _moved(
    base: NodeSection,
    gpus: Callable[[_Numbers], _Numbers] | None,
    nics: Callable[[_Numbers], _Numbers] | None,
) -> NodeSection:
    """Return the node with the lists of GPUs and NICs in its PCIe tree and sockets renumbered."""

    def switch(old: PcieSwitchSection) -> PcieSwitchSection:
        return replace(
            old,
            gpus=gpus(old.gpus) if gpus else old.gpus,
            nics=nics(old.nics) if nics else old.nics,
        )

    if base.pcie is not None and base.pcie.switches is not None:
        switches = tuple(switch(old) for old in base.pcie.switches)
        base = replace(base, pcie=replace(base.pcie, switches=switches))
    cpu = base.cpu
    if cpu is not None and cpu.gpus is not None and gpus is not None:
        cpu = replace(cpu, gpus=tuple(gpus(members) for members in cpu.gpus))
    if cpu is not None and cpu.nics is not None and nics is not None:
        cpu = replace(cpu, nics=tuple(nics(members) for members in cpu.nics))
    return base if cpu is base.cpu else replace(base, cpu=cpu)
