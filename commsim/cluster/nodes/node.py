"""
What a user writes about one node, as strict typed sections.

Every field may be left out. The same sections serve as a node, as the overrides of a preset's
node, and as the defaults: `merged` lays one over the other, and `spec` demands what must be
there. Bandwidths are per direction. `sources` says of fields where their values are from.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from commsim.sections import Section
from commsim.units import Bandwidth, Duration, Size

__all__ = [
    "C2cSection",
    "CpuSection",
    "GpuSection",
    "HostSection",
    "Medium",
    "NicSection",
    "NodeSection",
    "NvlinkSection",
    "PcieSection",
    "PcieSwitchSection",
    "PowerSection",
    "Transport",
    "merged",
]

S = TypeVar("S", bound=Section)

Medium = Literal["infiniband", "ethernet", "slingshot"]
Transport = Literal[
    "ib", "roce", "efa_v1", "efa_v2", "efa_v3", "efa_v4", "slingshot", "tcpx", "tcpxo", "tcp"
]


class GpuSection(Section, frozen=True):
    """The GPUs of a node: so many of the table's `spec`, with any fact given otherwise.

    `tflops` are dense 1e12 FLOP/s by precision. With `spec: cpu` a slot is a process on a CPU.
    """

    count: int | None = None
    spec: str | None = None
    memory: Size | None = None
    memory_bandwidth: Bandwidth | None = None
    tflops: dict[str, float] = {}
    sm_count: int | None = None
    compute_capability: str | None = None
    sources: dict[str, str] = {}


class NvlinkSection(Section, frozen=True):
    """What joins the GPUs: nothing, a switch (`bandwidth` per GPU), or a mesh of direct links.

    Behind a switch a GPU has `links` links, `bandwidth` together; up to `domain_nodes` nodes in a
    row share the switch (18 of a GB200 NVL72; 1 by default), equally many in each domain. A mesh
    has `links[i][j]` links of bandwidth `per_link` from GPU i to GPU j, or one count of `links`
    between each two. `latency` is from GPU to GPU over a direct link; crossing the switch adds
    `switch_latency`.
    """

    kind: Literal["none", "switch", "mesh"] | None = None
    bandwidth: Bandwidth | None = None
    per_link: Bandwidth | None = None
    links: int | tuple[tuple[int, ...], ...] | None = None
    domain_nodes: int | None = None
    efficiency: float | None = None
    latency: Duration | None = None
    switch_latency: Duration | None = None
    sources: dict[str, str] = {}


class C2cSection(Section, frozen=True):
    """The link between a GPU and the CPU of its superchip; it replaces the GPU's PCIe."""

    bandwidth: Bandwidth | None = None
    efficiency: float | None = None
    latency: Duration | None = None
    sources: dict[str, str] = {}


class PcieSwitchSection(Section, frozen=True):
    """A PCIe switch: what hangs under it, and the CPU socket or the switch it hangs under."""

    gpus: tuple[int, ...] = ()
    nics: tuple[int, ...] = ()
    socket: int | None = None
    under: int | None = None
    generation: int | None = None
    width: int | None = None


class PcieSection(Section, frozen=True):
    """The PCIe tree. GPUs and NICs under no switch hang directly on a socket.

    Latencies: of one link, of passing a switch, of passing a CPU's root complex. `p2p`: GPUs may
    read and write each other's memory over PCIe; if not, they go through host memory.
    """

    generation: int | None = None
    width: int | None = None
    p2p: bool | None = None
    efficiency: float | None = None
    link_latency: Duration | None = None
    switch_latency: Duration | None = None
    root_latency: Duration | None = None
    switches: tuple[PcieSwitchSection, ...] | None = None
    sources: dict[str, str] = {}


class CpuSection(Section, frozen=True):
    """CPU sockets (NUMA domains), the link between each two, and which slots are whose.

    `gpus` and `nics` list, per socket, those directly on it; without a list they are dealt
    evenly in order. `memory_bandwidth` is what a process on a CPU reaches, per slot;
    `dram_bandwidth` that of a socket's memory, reads and writes together (without it, memory
    never is the bottleneck). `arch`, `vendor`, `family` and `model_id` are what NCCL's tables
    ask for; family and model as CPUID counts them.
    """

    model: str | None = None
    arch: Literal["x86_64", "arm64", "ppc64"] | None = None
    vendor: Literal["intel", "amd", "zhaoxin", "arm", "ibm"] | None = None
    family: int | None = None
    model_id: int | None = None
    sockets: int | None = None
    gpus: tuple[tuple[int, ...], ...] | None = None
    nics: tuple[tuple[int, ...], ...] | None = None
    bandwidth: Bandwidth | None = None
    efficiency: float | None = None
    latency: Duration | None = None
    memory_bandwidth: Bandwidth | None = None
    dram_bandwidth: Bandwidth | None = None
    dram_efficiency: float | None = None
    sources: dict[str, str] = {}


class NicSection(Section, frozen=True):
    """The NICs. One has `ports` ports, which share its `bandwidth`; NCCL may merge them to one
    device. `latency` is one NIC's share of the way (half of NIC to NIC, no switch).

    `transport` is the protocol that libraries speak over them; `gdr`: they reach GPU memory
    (GPUDirect), instead of passing through host memory.
    `rails[i]` is the rail of NIC i (default i); `gpu_to_nic[g]` the NIC (or NICs, nearest
    first) that GPU g uses (default: the nearest on PCIe, ties dealt evenly in order).
    """

    count: int | None = None
    ports: int | None = None
    bandwidth: Bandwidth | None = None
    efficiency: float | None = None
    latency: Duration | None = None
    medium: Medium | None = None
    transport: Transport | None = None
    gdr: bool | None = None
    model: str | None = None
    rails: tuple[int, ...] | None = None
    gpu_to_nic: tuple[int | tuple[int, ...], ...] | None = None
    sources: dict[str, str] = {}


class HostSection(Section, frozen=True):
    """The host. `launch`: from a collective's call to its kernel's first message.

    Without it NCCL takes the value that was fitted to many hosts; measured ones differ by 2 to 4.
    """

    launch: Duration | None = None
    sources: dict[str, str] = {}


class PowerSection(Section, frozen=True):
    """What a node draws at most, in watts."""

    watts: float
    source: str


class NodeSection(Section, frozen=True):
    """One node: one chassis with one operating system."""

    name: str | None = None
    gpu: GpuSection | None = None
    nvlink: NvlinkSection | None = None
    c2c: C2cSection | None = None
    pcie: PcieSection | None = None
    cpu: CpuSection | None = None
    nic: NicSection | None = None
    host: HostSection | None = None
    power: PowerSection | None = None
    sources: dict[str, str] = {}


def merged(base: S | None, over: S | None) -> S | None:
    """Return `base` with everything that `over` states laid over it, section by section."""
    if base is None or over is None:
        return base if over is None else over
    changes: dict[str, Any] = {}
    for name in base.__struct_fields__:
        below, above = getattr(base, name), getattr(over, name)
        if isinstance(below, dict):
            changes[name] = below | above
        elif isinstance(below, Section) and isinstance(above, Section):
            changes[name] = merged(below, above)
        elif above is not None:
            changes[name] = above
    return msgspec.structs.replace(base, **changes)
