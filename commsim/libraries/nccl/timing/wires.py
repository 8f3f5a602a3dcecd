"""
What the timing model needs to know of a communicator, and its runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec
import numpy as np

from commsim.arrays import Floats
from commsim.cluster import Cluster, NodeSpec
from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Algorithm, Choice, Communicator, PathType, Protocol
from commsim.libraries.nccl.timing.constants import TRANSPORTS
from commsim.libraries.nccl.timing.link_use import Latency, LinkSeconds
from commsim.libraries.nccl.timing.runs import ChunkShape, LinkKind, NicWay, Runs
from commsim.libraries.nccl.tuning import PeerToPeer
from commsim.units import PS_PER_SECOND

__all__ = ["PAIRWISE", "Wires", "runs_of", "wires_of"]

_FIRST_CAPABILITY = (80, 90, 100)  # of Ampere, Hopper, Blackwell; anything older is Volta
_SHAPES: Mapping[Algorithm, ChunkShape] = MappingProxyType(
    {
        Algorithm.Tree: ChunkShape.TREE,
        Algorithm.Ring: ChunkShape.RING,
        Algorithm.CollNetDirect: ChunkShape.COLLNET,
        Algorithm.CollNetChain: ChunkShape.COLLNET,
        Algorithm.NVLS: ChunkShape.NVLS,
        Algorithm.NVLSTree: ChunkShape.NVLS_TREE,
        Algorithm.PAT: ChunkShape.PAT,
    }
)
PAIRWISE: Mapping[str, ChunkShape] = MappingProxyType(
    {
        "all_to_all": ChunkShape.EXCHANGE,
        "send_recv": ChunkShape.PAIR,
        "gather": ChunkShape.FAN,
        "scatter": ChunkShape.FAN,
    }
)
"""What NCCL makes of grouped sends and receives, for which the tuner is not asked."""
_LL_THREAD, _LL128_THREAD = 8.0, 15.0
"""Bytes of payload that a thread sends at once: LL's 8 of 16, LL128's 120 of 128 for 8 threads."""


class Wires(msgspec.Struct, frozen=True):
    """What carries a communicator's bytes; the fields are those of `Runs`."""

    ranks: int
    domains: int
    generation: int
    link: LinkKind
    transport: str
    way: NicWay
    heads: int
    """GPUs of a domain that NVLS gives a part of S each."""
    host_launch: float


def wires_of(
    cluster: Cluster, gpus: Sequence[int], comm: Communicator, knobs: Knobs | None = None
) -> Wires:
    """Return the wires of a communicator whose rank r is GPU `gpus[r]` of the cluster.

    Where nodes differ, the worst kind of link and way is that of the group.
    """
    knobs = knobs or Knobs()
    kinds = dict.fromkeys(cluster.spec_of[node] for node in cluster.node_of[list(gpus)].tolist())
    specs = [cluster.specs[kind] for kind in kinds]
    spoken = {spec.nic.transport for spec in specs if spec.nic} if comm.n_nodes > 1 else set()
    nvls = comm.graphs.get("nvls")
    return Wires(
        ranks=comm.n_ranks,
        domains=comm.n_nodes,
        generation=sum(comm.min_compute_capability >= c for c in _FIRST_CAPABILITY),
        link=_link_kind(comm),
        transport=max(spoken, key=TRANSPORTS.index, default=TRANSPORTS[0]),
        way=max((_way(spec, comm, knobs) for spec in specs), default=NicWay.DIRECT)
        if comm.n_nodes > 1
        else NicWay.DIRECT,
        heads=max(1, nvls.n_heads) if nvls else 1,
        host_launch=_host_launch(specs),
    )


def runs_of(
    wires: Wires,
    op: str,
    sizes: Sequence[int],
    choices: Sequence[Choice] | None,
    uses: Sequence[tuple[LinkSeconds, Latency]],
    *,
    sends: PeerToPeer | None = None,
    crossings: Sequence[int] | None = None,
    gpus_per_process: int = 0,
    old: bool = False,
    repeated: bool = True,
) -> Runs:
    """Return runs of `op` at `sizes` with NCCL's `choices`, and what each asks of the links.

    Ops made of sends have no choices: `sends` says which channels and protocol they take.
    `crossings`: how often a chain goes from domain to domain; once to each if not given.
    `gpus_per_process` is 0 if each GPU has its own process, `old` means NCCL before 2.12.
    """
    count = len(sizes)
    rows = (
        [_send(wires, op, size, sends) for size in sizes]
        if choices is None
        else [_collective(wires, op, choice) for choice in choices]
    )
    shape, channels, peer_channels, protocol, window, loop = zip(*rows, strict=True)

    def every(value: float) -> np.ndarray:
        return np.full(count, value)

    def each(values: Sequence[float]) -> Floats:
        return np.array(values, dtype=np.float64)

    return Runs(
        shape=np.array(shape, dtype=np.int64),
        size=each(sizes),
        ranks=every(float(wires.ranks)),
        domains=every(float(wires.domains)),
        rounds=every(2.0 if op == "all_reduce" else 1.0),
        channels=each(channels),
        peer_channels=each(peer_channels),
        protocol=np.array(protocol, dtype=np.int64),
        window=each(window),
        loop=each(loop),
        generation=every(wires.generation),
        link=every(wires.link),
        transport=every(TRANSPORTS.index(wires.transport)),
        way=every(wires.way),
        local=each([use.local for use, _ in uses]),
        net=each([use.net for use, _ in uses]),
        leaving=each([use.leaving for use, _ in uses]),
        hop=each([latency.hop for _, latency in uses]),
        reach=each([latency.reach for _, latency in uses]),
        longest=each([latency.longest for _, latency in uses]),
        crossings=every(float(wires.domains - 1)) if crossings is None else each(crossings),
        gpus_per_process=every(float(gpus_per_process)),
        host_launch=every(wires.host_launch),
        old=every(old),
        repeated=every(repeated),
    )


_Row = tuple[ChunkShape, int, int, Protocol, float, float]
"""Shape, channels, channels of a peer, protocol, window, loop."""


def _collective(wires: Wires, op: str, choice: Choice) -> _Row:
    shape = _shape(choice.algorithm, wires.domains)
    if op in ("broadcast", "reduce"):
        shape = ChunkShape.CHAIN
    loop = float(choice.channels * wires.heads * choice.chunk)
    return shape, choice.channels, 1, choice.protocol, _window(shape, choice), loop


def _window(shape: ChunkShape, choice: Choice) -> float:
    """Return the bytes that arrive before the next rank goes on.

    LL and LL128 mark each line, so that what a block of threads has on the way is enough; Simple
    waits for a slice of a ring or a chunk of a tree.
    """
    if choice.protocol is Protocol.LL:
        return _LL_THREAD * choice.threads
    if choice.protocol is Protocol.LL128:
        return _LL128_THREAD * choice.threads
    return float(choice.chunk if shape is ChunkShape.TREE else choice.slice)


def _send(wires: Wires, op: str, size: int, sends: PeerToPeer | None) -> _Row:
    """Return how sends run: S/n to each peer, or S to the next rank."""
    assert sends is not None
    remote = wires.domains > 1
    each = size if op == "send_recv" else size // max(wires.ranks, 1)
    message = sends.message(each, remote=remote)
    shape = PAIRWISE[op]
    return shape, sends.channels, message.channels, message.protocol, float(message.chunk), 0.0


def _shape(algorithm: Algorithm, domains: int) -> ChunkShape:
    """Return how an algorithm's chunks travel; NVLS between nodes needs SHARP, as CollNet does."""
    if algorithm == Algorithm.NVLS and domains > 1:
        return ChunkShape.COLLNET
    return _SHAPES[algorithm]


def _link_kind(comm: Communicator) -> LinkKind:
    """Return what a ring within a domain runs on: NVLink, PCIe, or host memory without P2P."""
    if comm.graphs["ring"].type_intra <= PathType.C2C:
        return LinkKind.NVLINK
    return LinkKind.PCIE if comm.peer_access else LinkKind.SHM


def _host_launch(specs: Sequence[NodeSpec]) -> float:
    """Return the seconds of the slowest host that says what it takes; NaN if none does."""
    stated = [spec.launch for spec in specs if spec.launch is not None]
    return max(stated) / PS_PER_SECOND if stated else math.nan


def _way(spec: NodeSpec, comm: Communicator, knobs: Knobs) -> NicWay:
    """Return how bytes reach a NIC: by GPUDirect up to NCCL's level, else through the host."""
    if spec.nic is None or not spec.nic.gdr:
        return NicWay.STAGED
    kind = comm.graphs["ring"].type_inter
    if spec.c2c is not None or kind < PathType.PHB:
        return NicWay.DIRECT
    level = PathType.PXB if knobs.net_gdr_level is None else knobs.net_gdr_level
    return NicWay.ROOT if kind <= level else NicWay.STAGED
