"""
What the parts of NCCL's decision hand to each other: graphs, and the communicator after init.

Topology and search make a `Communicator`; the tuner reads it to choose an algorithm, a protocol
and channels for each op; the timing model reads both. The names follow NCCL's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

__all__ = [
    "Algorithm",
    "Channel",
    "Choice",
    "Communicator",
    "CpuArch",
    "CpuVendor",
    "PathType",
    "Pattern",
    "Protocol",
    "SearchGraph",
    "TreeLinks",
]


class PathType(IntEnum):
    """How two devices reach each other, best first: NCCL's order since 2.27."""

    LOC = 0
    NVL = 1
    NVB = 2
    C2C = 3
    PIX = 4
    PXB = 5
    P2C = 6
    PXN = 7
    PHB = 8
    SYS = 9
    NET = 10
    DIS = 11


class Pattern(IntEnum):
    """What a search looks for; trees differ in which GPUs of a node talk to the network."""

    BALANCED_TREE = 1
    SPLIT_TREE = 2
    TREE = 3
    RING = 4
    NVLS = 5
    COLLNET_DIRECT = 6


class Algorithm(IntEnum):
    """NCCL's algorithms by their ids: the tuner scans them in this order."""

    Tree = 0
    Ring = 1
    CollNetDirect = 2
    CollNetChain = 3
    NVLS = 4
    NVLSTree = 5
    PAT = 6


class Protocol(IntEnum):
    """NCCL's protocols by their ids."""

    LL = 0
    LL128 = 1
    Simple = 2


class CpuArch(IntEnum):
    """NCCL_TOPO_CPU_ARCH_*."""

    X86 = 1
    POWER = 2
    ARM = 3
    MIXED = 4


class CpuVendor(IntEnum):
    """NCCL_TOPO_CPU_VENDOR_*."""

    INTEL = 1
    AMD = 2
    ZHAOXIN = 3
    MIXED = 4


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel of a graph within a node: local ranks in order, and its (in, out) NET devices."""

    intra: tuple[int, ...]
    inter: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class SearchGraph:
    """What the search found for one pattern, in a node. Bandwidths in GB/s, latency in us."""

    pattern: Pattern
    channels: tuple[Channel, ...]
    bw_intra: float
    bw_inter: float
    type_intra: PathType
    type_inter: PathType
    cross_nic: int = 0
    same_channels: bool = False
    latency_inter: float = 0.0

    @property
    def n_channels(self) -> int:
        """How many channels the search found."""
        return len(self.channels)


@dataclass(frozen=True, slots=True)
class TreeLinks:
    """A rank's place in a tree: `up` is -1 at the root, `down` has no -1 entries."""

    up: int
    down: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Communicator:
    """What NCCL knows of a group after init; ranks are positions in the group.

    `graphs` are those after all ranks agreed (minimum of channels and bandwidths), by pattern
    name: "ring", "tree", "nvls", "collnet_chain", "collnet_direct". `channels` execution channels
    (`nChannels`); `rings[c]` the ranks of channel c in ring order starting anywhere, one entry per
    execution channel; `nets[c]` per node the (in, out) NET of channel c. A "node" is an NVLink
    domain. `trees[c][rank]` likewise. `node_of[rank]` numbers nodes by first appearance.
    """

    version: str
    node_of: tuple[int, ...]
    local_ranks: tuple[int, ...]
    """Ranks of each node (count)."""
    min_compute_capability: int
    max_compute_capability: int
    cpu_arch: CpuArch
    cpu_vendor: CpuVendor
    nvswitch: bool
    max_bw: float
    total_bw: float
    graphs: Mapping[str, SearchGraph]
    channels: int
    rings: tuple[tuple[int, ...], ...] = ()
    trees: tuple[tuple[TreeLinks, ...], ...] = ()
    nvls_support: bool = False
    collnet_support: bool = False
    net_bandwidth: float = 0.0
    """GB/s of one NIC; 0 without one."""
    local_nets: int = 0
    """NICs local to one GPU."""
    notes: tuple[str, ...] = field(default=())

    @property
    def n_ranks(self) -> int:
        """How many ranks there are."""
        return len(self.node_of)

    @property
    def n_nodes(self) -> int:
        """How many nodes (NVLink domains) there are."""
        return len(self.local_ranks)

    @property
    def ranks_per_node(self) -> int:
        """NCCL's ppn: ranks / nodes, integer division."""
        return self.n_ranks // self.n_nodes


@dataclass(frozen=True, slots=True)
class Choice:
    """What NCCL runs for one collective: `selection_us` is what its own model says of it."""

    op: str
    size: int
    algorithm: Algorithm
    protocol: Protocol
    channels: int
    """Channels that carry data."""
    max_channels: int
    threads: int
    chunk: int
    """Bytes of one chunk."""
    slice: int
    """Bytes of one slice, the unit of pipelining."""
    selection_us: float
    """What NCCL's tuning model says of its choice."""
    count_lo: int = 0
    """Elements on the first channel (bytes for all_gather and broadcast, as in NCCL)."""
    count_mid: int = 0
    """Elements on each channel between the first and the last; 0 with fewer than three."""
    count_hi: int = 0
    """Elements on the last channel; 0 with one."""
    notes: tuple[str, ...] = ()
