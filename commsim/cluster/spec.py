"""
A node as facts: every value there, checked, counted, and the defaults it took named.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TypeVar

from commsim.cluster.files import HERE, read_mapping
from commsim.cluster.gpus import GpuSpec, gpu_spec
from commsim.cluster.node import (
    C2cSection,
    CpuSection,
    GpuSection,
    NicSection,
    NodeSection,
    NvlinkSection,
    PcieSection,
    PcieSwitchSection,
    PowerSection,
    PriceSection,
    merged,
)
from commsim.cluster.place import Place
from commsim.errors import ScenarioError
from commsim.sections import Section, decode

__all__ = ["MAX_GPUS", "NicSpec", "NodeSpec", "PcieSpec", "PcieSwitch", "Wire", "node_spec"]

S = TypeVar("S", bound=Section)
T = TypeVar("T")

MAX_GPUS = 2**20
_LANE_GTS = MappingProxyType({1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0})
_WIDTHS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class Wire:
    """Raw bandwidth (bytes/s, one direction), payload share, latency (ps)."""

    bandwidth: float
    efficiency: float
    latency: int


@dataclass(frozen=True, slots=True)
class PcieSwitch:
    """A PCIe switch, what hangs under it, where it hangs, and its own lanes upwards."""

    gpus: tuple[int, ...]
    nics: tuple[int, ...]
    socket: int
    under: int
    bandwidth: float


@dataclass(frozen=True, slots=True)
class PcieSpec:
    """The PCIe of a node: a device's raw bandwidth, and latencies in ps."""

    bandwidth: float
    efficiency: float
    link_latency: int
    switch_latency: int
    root_latency: int
    switches: tuple[PcieSwitch, ...]


@dataclass(frozen=True, slots=True)
class NicSpec:
    """The NICs of a node; `own[g]` lists the NICs dealt to GPU g, `listed` if the user did."""

    count: int
    wire: Wire
    medium: str
    model: str
    rails: tuple[int, ...]
    own: tuple[tuple[int, ...], ...]
    listed: bool


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """All there is to know about one node.

    `mesh[i][j]` counts direct NVLinks, `nvlink` being one of them; `switch` is a GPU's port to
    the NVSwitch with half the latency of the way. `gpu_socket`, `nic_socket`: the socket of
    those under no PCIe switch. `c2c` replaces the GPUs' PCIe.
    """

    name: str
    gpu: GpuSpec
    gpus: int
    sockets: int
    socket_link: Wire
    memory_bandwidth: float
    gpu_socket: tuple[int, ...]
    nic_socket: tuple[int, ...]
    pcie: PcieSpec
    nvlink: Wire | None
    mesh: tuple[tuple[int, ...], ...]
    switch: Wire | None
    c2c: Wire | None
    nic: NicSpec | None
    power: PowerSection | None
    price: PriceSection | None
    notes: tuple[str, ...]


@cache
def _defaults() -> NodeSection:
    return decode(read_mapping(HERE / "defaults.yaml"), NodeSection, "defaults.yaml")


def node_spec(node: NodeSection, place: Place, *, name: str = "") -> NodeSpec:
    """Return the facts of a node.

    Raises:
        ScenarioError: something is missing, impossible or contradicts itself; names the field.
    """
    return _Reader(node, place, name or node.name or "node").spec()


class _Reader:
    """Reads one node's sections, remembering which defaults it took."""

    def __init__(self, node: NodeSection, place: Place, name: str) -> None:
        self.node, self.place, self.name = node, place, name
        self.taken: list[str] = []

    def spec(self) -> NodeSpec:
        node, name = self.node, self.name
        gpu, gpus = self.gpu()
        cpu = self.filled(CpuSection(), node.cpu, _defaults().cpu, "cpu", ("sockets",))
        sockets = self.count(cpu.sockets, "cpu.sockets", MAX_GPUS)
        is_cpu = gpu.device == "cpu"
        needed = ("memory_bandwidth",) if is_cpu else ()
        if sockets > 1:
            needed += ("bandwidth", "efficiency", "latency")
        cpu = self.filled(cpu, node.cpu, _defaults().cpu, "cpu", needed)
        nic = self.nic(gpus)
        pcie = self.pcie(gpu, gpus, nic.count if nic else 0, sockets)
        nvlink, mesh, switch = self.nvlink(gpus)
        return NodeSpec(
            name=name, gpu=gpu, gpus=gpus, sockets=sockets,
            socket_link=self.wire(cpu, "cpu") if sockets > 1 else Wire(0.0, 1.0, 0),
            memory_bandwidth=float(cpu.memory_bandwidth or 0.0),
            gpu_socket=self.sockets_of(cpu.gpus, gpus, sockets, "cpu.gpus"),
            nic_socket=self.sockets_of(cpu.nics, nic.count if nic else 0, sockets, "cpu.nics"),
            pcie=pcie, nvlink=nvlink, mesh=mesh, switch=switch, c2c=self.c2c(),
            nic=nic, power=node.power, price=node.price, notes=self.notes(),
        )  # fmt: skip

    def notes(self) -> tuple[str, ...]:
        if not self.taken:
            return ()
        return (f"node {self.name}: taken by default: {', '.join(self.taken)}.",)

    def filled(
        self, base: S, own: S | None, defaults: S | None, part: str, fields: tuple[str, ...]
    ) -> S:
        """Return `own` with the default of each of `fields` that it leaves out."""
        section = own if own is not None else base
        changes = {}
        for name in fields:
            if getattr(section, name) is None and getattr(defaults, name) is not None:
                changes[name] = getattr(defaults, name)
                self.taken.append(f"{part}.{name}")
        patch = type(section)(**changes)
        return merged(section, patch) or section

    def need(self, value: T | None, field: str) -> T:
        if value is None:
            raise self.place.error(field, "is missing. State it.")
        return value

    def count(self, value: int | None, field: str, most: int) -> int:
        value = self.need(value, field)
        if value < 1:
            raise self.place.error(field, f"{value} is not a count. Give 1 or more.")
        if value > most:
            raise self.place.error(field, f"{value} is more than commsim can hold ({most}).")
        return value

    def share(self, value: float | None, field: str) -> float:
        value = self.need(value, field)
        if not 0 < value <= 1:
            raise self.place.error(field, f"{value:g} is not a share above 0 and up to 1.")
        return value

    def wire(self, section: CpuSection | C2cSection | NicSection, part: str) -> Wire:
        return Wire(
            float(self.need(section.bandwidth, f"{part}.bandwidth")),
            self.share(section.efficiency, f"{part}.efficiency"),
            int(self.need(section.latency, f"{part}.latency")),
        )

    def gpu(self) -> tuple[GpuSpec, int]:
        section = self.need(self.node.gpu, "gpu")
        count = self.count(section.count, "gpu.count", MAX_GPUS)
        for precision, rate in section.tflops.items():
            if not rate > 0:
                raise self.place.error("gpu.tflops", f"{precision}: {rate:g} is not above zero.")
        if section.memory is not None and section.memory < 1:
            raise self.place.error("gpu.memory", f"{section.memory} bytes hold nothing.")
        if section.spec is None:
            return self._own_gpu(section), count
        try:
            spec = gpu_spec(section.spec)
        except ScenarioError as error:
            raise self.place.error("gpu.spec", str(error)) from None
        return _adapted(spec, section), count

    def _own_gpu(self, section: GpuSection) -> GpuSpec:
        """Return a GPU that is in no table: memory and its bandwidth are needed."""
        if section.memory is None:
            raise self.place.error(
                "gpu", "give a `spec` (`commsim presets gpus`), or at least `memory`."
            )
        return GpuSpec(
            name="own",
            memory_bytes=int(section.memory),
            memory_bandwidth=float(section.memory_bandwidth or 0.0),
            tflops=MappingProxyType(dict(section.tflops)),
            sm_count=section.sm_count or 0,
            compute_capability=section.compute_capability or "",
            source=MappingProxyType(dict(section.sources)),
        )

    def nic(self, gpus: int) -> NicSpec | None:
        own = self.node.nic
        if own is None:
            return None
        defaults = ("efficiency", "latency", "medium")
        section = self.filled(own, own, _defaults().nic, "nic", defaults)
        count = self.count(section.count, "nic.count", MAX_GPUS)
        rails = section.rails or tuple(range(count))
        if len(rails) != count or min(rails) < 0:
            raise self.place.error(
                "nic.rails", f"{list(rails)} must give each of {count} NICs a rail from 0 on."
            )
        return NicSpec(
            count=count, wire=self.wire(section, "nic"), medium=section.medium or "",
            model=section.model or "", rails=rails, own=self._own_nics(section, gpus, count),
            listed=section.gpu_to_nic is not None,
        )  # fmt: skip

    def _own_nics(self, section: NicSection, gpus: int, count: int) -> tuple[tuple[int, ...], ...]:
        listed = section.gpu_to_nic
        if listed is not None:
            lists = tuple(n if isinstance(n, tuple) else (n,) for n in listed)
            wrong = [n for nics in lists for n in nics if not 0 <= n < count]
            if len(lists) != gpus or wrong or not all(lists):
                raise self.place.error(
                    "nic.gpu_to_nic",
                    f"{len(lists)} entries for {gpus} GPUs"
                    + (f", and no NIC {wrong[0]} among {count}" if wrong else "")
                    + f". Give one NIC from 0 to {count - 1} (or a list) per GPU.",
                )
            return lists
        if gpus % count and count % gpus:
            divisors = ", ".join(str(d) for d in range(1, gpus + 1) if gpus % d == 0)
            raise self.place.error(
                "nic.count",
                f"{count} NICs do not divide {gpus} GPUs evenly."
                f" Give a divisor of {gpus} ({divisors}), or list gpu_to_nic explicitly.",
            )
        if count <= gpus:
            return tuple((g * count // gpus,) for g in range(gpus))
        each = count // gpus
        return tuple(tuple(range(g * each, (g + 1) * each)) for g in range(gpus))

    def sockets_of(
        self, listed: tuple[tuple[int, ...], ...] | None, count: int, sockets: int, field: str
    ) -> tuple[int, ...]:
        """Return the socket of each GPU (or NIC): as listed, else dealt evenly in order."""
        if listed is None:
            return tuple(i * sockets // count for i in range(count))
        if len(listed) != sockets:
            raise self.place.error(field, f"{len(listed)} lists for {sockets} sockets.")
        found = {i: socket for socket, members in enumerate(listed) for i in members}
        named = sorted(i for members in listed for i in members)
        if len(named) != len(found) or any(not 0 <= i < count for i in named):
            raise self.place.error(
                field, f"{named}: each from 0 to {count - 1} may stand once at most."
            )
        return tuple(found.get(i, i * sockets // count) for i in range(count))

    def pcie(self, gpu: GpuSpec, gpus: int, nics: int, sockets: int) -> PcieSpec:
        own = self.node.pcie
        defaults: tuple[str, ...] = ("width", "efficiency", "link_latency", "root_latency")
        if own is not None and own.switches:
            defaults += ("switch_latency",)
        section = self.filled(PcieSection(), own, _defaults().pcie, "pcie", defaults)
        generation = section.generation
        if generation is None:
            generation = gpu.pcie_generation or None
            self.taken.append("pcie.generation")
        rate = self._pcie_rate(self.need(generation, "pcie.generation"), section.width or 16)
        switches = section.switches or ()
        self._check_switches(switches, gpus, nics)
        return PcieSpec(
            bandwidth=rate,
            efficiency=self.share(section.efficiency, "pcie.efficiency"),
            link_latency=int(section.link_latency or 0),
            switch_latency=int(section.switch_latency or 0),
            root_latency=int(section.root_latency or 0),
            switches=tuple(
                self._switch(i, s, generation or 0, section.width or 16, sockets)
                for i, s in enumerate(switches)
            ),
        )

    def _pcie_rate(self, generation: int, width: int) -> float:
        """Return bytes/s of a slot: GT/s x lanes x coding / 8 (8b/10b up to gen 2)."""
        if generation not in _LANE_GTS:
            raise self.place.error("pcie.generation", f"{generation} is not one of 1 to 6.")
        if width not in _WIDTHS:
            raise self.place.error("pcie.width", f"{width} is not one of 1, 2, 4, 8, 16, 32.")
        # Generation 6 sends flits of 256 B that hold 242 B of packets, instead of 128b/130b.
        coding = 0.8 if generation <= 2 else 128 / 130 if generation <= 5 else 242 / 256
        return _LANE_GTS[generation] * 1e9 * width * coding / 8

    def _switch(
        self, index: int, switch: PcieSwitchSection, generation: int, width: int, sockets: int
    ) -> PcieSwitch:
        field = "pcie.switches"
        if switch.under is not None:
            if switch.socket is not None or not 0 <= switch.under < index:
                raise self.place.error(
                    field,
                    f"[{index}]: `under: {switch.under}` must name an earlier switch,"
                    " and leaves out `socket`.",
                )
        elif not 0 <= (switch.socket or 0) < sockets:
            raise self.place.error(
                field, f"[{index}]: no socket {switch.socket} among {sockets} (0 to {sockets - 1})."
            )
        rate = self._pcie_rate(switch.generation or generation, switch.width or width)
        under = -1 if switch.under is None else switch.under
        return PcieSwitch(switch.gpus, switch.nics, switch.socket or 0, under, rate)

    def _check_switches(
        self, switches: tuple[PcieSwitchSection, ...], gpus: int, nics: int
    ) -> None:
        for what, count, lists in (
            ("GPU", gpus, [s.gpus for s in switches]),
            ("NIC", nics, [s.nics for s in switches]),
        ):
            seen: dict[int, int] = {}
            for index, members in enumerate(lists):
                for member in members:
                    if not 0 <= member < count:
                        raise self.place.error(
                            "pcie.switches", f"[{index}]: no {what} {member} among {count}."
                        )
                    if member in seen:
                        raise self.place.error(
                            "pcie.switches",
                            f"[{index}]: {what} {member} hangs under switch {seen[member]} already.",
                        )
                    seen[member] = index

    def c2c(self) -> Wire | None:
        own = self.node.c2c
        if own is None:
            return None
        filled = self.filled(own, own, _defaults().c2c, "c2c", ("efficiency", "latency"))
        return self.wire(filled, "c2c")

    def nvlink(self, gpus: int) -> tuple[Wire | None, tuple[tuple[int, ...], ...], Wire | None]:
        """Return one direct link, the mesh of counts, and a GPU's port to the NVSwitch."""
        own = self.node.nvlink
        kind = own.kind if own else "none"
        if own is None or kind == "none":
            return None, (), None
        if kind is None:
            kind = "mesh" if own.links is not None else "switch"
        wanted = ("efficiency", "latency", *(("switch_latency",) if kind == "switch" else ()))
        section = self.filled(own, own, _defaults().nvlink, "nvlink", wanted)
        self._check_nvlink(section, kind)
        efficiency = self.share(section.efficiency, "nvlink.efficiency")
        latency = int(self.need(section.latency, "nvlink.latency"))
        if kind == "switch":
            rate = float(self.need(section.bandwidth, "nvlink.bandwidth"))
            half = (latency + int(section.switch_latency or 0)) // 2
            return None, (), Wire(rate, efficiency, half)
        rate = float(self.need(section.per_link, "nvlink.per_link"))
        return Wire(rate, efficiency, latency), self._mesh(section, gpus), None

    def _check_nvlink(self, section: NvlinkSection, kind: str) -> None:
        """Refuse settings that this kind of NVLink would ignore."""
        idle = ("per_link", "links") if kind == "switch" else ("bandwidth", "switch_latency")
        for field in idle:
            if getattr(section, field) is not None:
                raise self.place.error(
                    f"nvlink.{field}", f"means nothing with kind: {kind}. Leave it out."
                )

    def _mesh(self, section: NvlinkSection, gpus: int) -> tuple[tuple[int, ...], ...]:
        links = self.need(section.links, "nvlink.links")
        square = len(links) == gpus and all(len(row) == gpus for row in links)
        if not square:
            raise self.place.error(
                "nvlink.links", f"must be {gpus} rows of {gpus} counts, one per pair of GPUs."
            )
        for i in range(gpus):
            for j in range(gpus):
                if links[i][j] < 0 or links[i][j] != links[j][i] or (i == j and links[i][j]):
                    raise self.place.error(
                        "nvlink.links",
                        f"[{i}][{j}] is {links[i][j]}, [{j}][{i}] is {links[j][i]}: counts must be"
                        " 0 or more, equal both ways, and 0 from a GPU to itself.",
                    )
        return links


def _adapted(spec: GpuSpec, section: GpuSection) -> GpuSpec:
    """Return the table's GPU with what the section states otherwise."""
    changes: dict[str, object] = {}
    if section.memory is not None:
        changes["memory_bytes"] = int(section.memory)
    if section.memory_bandwidth is not None:
        changes["memory_bandwidth"] = float(section.memory_bandwidth)
    if section.tflops:
        changes["tflops"] = MappingProxyType(dict(spec.tflops) | section.tflops)
    if section.sm_count is not None:
        changes["sm_count"] = section.sm_count
    if section.compute_capability is not None:
        changes["compute_capability"] = section.compute_capability
    if not changes:
        return spec
    source = dict(spec.source) | dict.fromkeys(changes, "stated in the cluster's description")
    source |= section.sources
    changes["source"] = MappingProxyType(source)
    return dataclasses.replace(spec, **changes)  # type: ignore[arg-type]
