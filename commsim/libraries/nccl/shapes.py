"""
Data types shared by NCCL's topology, search and tuning: graphs, and the communicator after init.

Topology and search make a `Communicator`; the tuner reads it to choose an algorithm, a protocol
and channels for each op; the timing model reads both. The names follow NCCL's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import msgspec
import numpy as np

from commsim.arrays import Ints32

__all__ = [
    "Algorithm",
    "Channel",
    "Choice",
    "Communicator",
    "CpuArch",
    "CpuVendor",
    "NetEnds",
    "PathType",
    "Pattern",
    "Protocol",
    "SearchGraph",
    "TreeLinks",
    "Trees",
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

    @property
    def in_network(self) -> bool:
        """Whether switches add up or multicast for it."""
        return self.name.startswith(("CollNet", "NVLS"))


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


class Channel(msgspec.Struct, frozen=True):
    """One channel of a graph within a node: local ranks in order, and its (in, out) NET devices."""

    intra: tuple[int, ...]
    inter: tuple[int, int] | None = None


class SearchGraph(msgspec.Struct, frozen=True):
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

    @property
    def n_heads(self) -> int:
        """How many ranks of a node are first on a channel: the heads of NVLS and CollNet."""
        return len(dict.fromkeys(channel.intra[0] for channel in self.channels))


class TreeLinks(msgspec.Struct, frozen=True):
    """A rank's place in a tree: `up` is -1 at the root, `down` has no -1 entries."""

    up: int
    down: tuple[int, ...]


class Trees(msgspec.Struct, frozen=True, eq=False):
    """Every rank's links in every channel's tree; -1 if there is none.

    `up` has the shape (channels, ranks), `down` (channels, ranks, 3): filled from the front.
    """

    up: Ints32
    down: Ints32

    @property
    def channels(self) -> int:
        """How many trees there are."""
        return len(self.up)

    def at(self, channel: int, rank: int) -> TreeLinks:
        """Return the links of one rank in one channel."""
        down = tuple(peer for peer in self.down[channel, rank].tolist() if peer >= 0)
        return TreeLinks(int(self.up[channel, rank]), down)


def _no_rings() -> Ints32:
    return np.empty((0, 0), dtype=np.int32)


def _no_trees() -> Trees:
    return Trees(_no_rings(), np.empty((0, 0, 3), dtype=np.int32))


class NetEnds(msgspec.Struct, frozen=True, eq=False):
    """Which NICs the channels of a graph use in each node, and which rank hands data to them.

    Both have the shape (channels, nodes, 2). Ring: where the channel enters the node, where it
    leaves. Trees: the NIC of the chain's first rank, and of its second. NVLS and CollNet: the
    head's NIC, twice. `nics` numbers the cluster's NICs (of a topology file: node by node, by
    their number); `relays[c, n, i]` is the rank whose GPU sends to that NIC: the rank itself, or
    another one that it reaches over NVLink (PXN).
    """

    nics: Ints32
    relays: Ints32


class Communicator(msgspec.Struct, frozen=True, eq=False):
    """What NCCL knows of a group after init; ranks are positions in the group.

    `graphs` are those after all ranks agreed (minimum of channels and bandwidths), by pattern
    name: "ring", "tree", "nvls", "collnet_chain", "collnet_direct"; their channels are those of
    node 0, in local ranks. `channels` execution channels (`nChannels`); `rings[c]` the ranks of
    channel c in ring order from rank 0, shape (channels, ranks); `trees` likewise. `nets` per
    graph name: what the network carries, for the channels of that graph (a copied channel c uses
    those of c modulo their count); empty on one node. A "node" is an NVLink domain, or what is
    left of it if NCCL prefers the network within. `node_of[rank]` numbers nodes by first
    appearance.
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
    rings: Ints32 = msgspec.field(default_factory=_no_rings)
    trees: Trees = msgspec.field(default_factory=_no_trees)
    nets: Mapping[str, NetEnds] = msgspec.field(default_factory=dict)
    gdr: bool = True
    """NICs move the memory of every GPU that sends or receives by itself."""
    peer_access: bool = True
    """Neighbours on a node's rings read and write each other's memory, not the host's."""
    nvls_support: bool = False
    collnet_support: bool = False
    net_bandwidth: float = 0.0
    """GB/s of the slowest NIC that a GPU uses, as far as the GPU reaches it; 0 without one."""
    local_nets: int = 0
    """NICs that one GPU uses (as many as its own link can fill)."""
    peer_nvlinks: int = 0
    """NVLinks that the slowest path between two GPUs of a node is worth; 0: a pair has none."""
    notes: tuple[str, ...] = msgspec.field(default=())

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


class Choice(msgspec.Struct, frozen=True):
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
