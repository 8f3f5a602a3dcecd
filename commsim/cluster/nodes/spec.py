"""
All there is to know about a node, its NVLink, its PCIe, its NICs: every value there.

Bandwidths are raw bytes/s in one direction, latencies are in ps.
"""

from __future__ import annotations

import msgspec

from commsim.cluster.nodes.gpus import GpuSpec
from commsim.cluster.nodes.node import PowerSection

__all__ = ["MAX_GPUS", "CpuSpec", "NicSpec", "NodeSpec", "PcieSpec", "PcieSwitch", "Wire"]

MAX_GPUS = 2**20


class Wire(msgspec.Struct, frozen=True):
    """Raw bandwidth (bytes/s, one direction), payload share, latency (ps)."""

    bandwidth: float
    efficiency: float
    latency: int


class PcieSwitch(msgspec.Struct, frozen=True):
    """A PCIe switch, what hangs under it, where it hangs, and its own lanes upwards."""

    gpus: tuple[int, ...]
    nics: tuple[int, ...]
    socket: int
    under: int
    bandwidth: float


class PcieSpec(msgspec.Struct, frozen=True):
    """The PCIe of a node: a device's raw bandwidth, and latencies in ps.

    `p2p`: GPUs reach each other's memory over it.
    """

    generation: int
    width: int
    bandwidth: float
    efficiency: float
    link_latency: int
    switch_latency: int
    root_latency: int
    p2p: bool
    switches: tuple[PcieSwitch, ...]


class CpuSpec(msgspec.Struct, frozen=True):
    """What the CPUs of a node are; `family` and `model_id` as CPUID counts them.

    `memory`: that of a socket, reads and writes sharing its bandwidth; None if it never is
    the bottleneck.
    """

    model: str
    arch: str
    vendor: str
    family: int
    model_id: int
    memory: Wire | None


class NicSpec(msgspec.Struct, frozen=True):
    """The NICs of a node, each with so many `ports` on its wire.

    `own[g]` lists the NICs dealt to GPU g, `listed` if the user did. `gdr`: they reach GPU memory
    without passing through the host's. `numbers[n]` is what the node calls NIC n where others
    are gone; empty: all are there.
    """

    count: int
    wire: Wire
    medium: str
    transport: str
    gdr: bool
    model: str
    rails: tuple[int, ...]
    own: tuple[tuple[int, ...], ...]
    listed: bool
    ports: int = 1
    numbers: tuple[int, ...] = ()

    def number(self, nic: int) -> int:
        """Return what the node calls a NIC: its number among all that it was built with."""
        return self.numbers[nic] if self.numbers else nic


class NodeSpec(msgspec.Struct, frozen=True):
    """All there is to know about one node.

    `mesh[i][j]` counts direct NVLinks, `nvlink` being one of them; `switch` is a GPU's port of
    `switch_links` NVLinks (0: unknown) to the NVSwitch with half the latency of the way, and
    `domain_nodes` such nodes in a row share that switch. `gpu_socket`, `nic_socket`: the socket
    of those under no PCIe switch. `c2c` replaces the GPUs' PCIe.
    """

    name: str
    gpu: GpuSpec
    gpus: int
    cpu: CpuSpec
    sockets: int
    socket_link: Wire
    memory_bandwidth: float
    gpu_socket: tuple[int, ...]
    nic_socket: tuple[int, ...]
    pcie: PcieSpec
    nvlink: Wire | None
    mesh: tuple[tuple[int, ...], ...]
    switch: Wire | None
    switch_links: int
    domain_nodes: int
    c2c: Wire | None
    nic: NicSpec | None
    launch: int | None
    """From a collective's call to its first message, in ps; None: what NCCL was fitted to."""
    power: PowerSection | None
    notes: tuple[str, ...]
