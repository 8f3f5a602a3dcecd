"""
What the timing model needs to know of a cluster: one communicator's wires, and its runs on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from commsim.cluster import Cluster
from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Algorithm, Choice, Communicator, PathType
from commsim.libraries.nccl.timing.constants import TRANSPORTS
from commsim.libraries.nccl.timing.runs import LinkKind, Runs, Shape, Way

__all__ = ["PAIRWISE", "Wires", "runs_of", "wires_of"]

_FIRST_CAPABILITY = (80, 90, 100)  # of Ampere, Hopper, Blackwell; anything older is Volta
_SHAPES: Mapping[Algorithm, Shape] = MappingProxyType(
    {
        Algorithm.Tree: Shape.TREE,
        Algorithm.Ring: Shape.RING,
        Algorithm.CollNetDirect: Shape.COLLNET,
        Algorithm.CollNetChain: Shape.COLLNET,
        Algorithm.NVLS: Shape.NVLS,
        Algorithm.NVLSTree: Shape.NVLS_TREE,
        Algorithm.PAT: Shape.PAT,
    }
)
PAIRWISE: Mapping[str, Shape] = MappingProxyType(
    {
        "all_to_all": Shape.EXCHANGE,
        "send_recv": Shape.PAIR,
        "gather": Shape.FAN,
        "scatter": Shape.FAN,
    }
)
"""What NCCL makes of grouped sends and receives, for which the tuner is not asked."""


@dataclass(frozen=True, slots=True)
class Wires:
    """What carries a communicator's bytes; the fields are those of `Runs`."""

    ranks: int
    domains: int
    generation: int
    link: LinkKind
    port: float
    nics: int
    nic_rate: float
    transport: str
    way: Way


def wires_of(
    cluster: Cluster, gpus: Sequence[int], comm: Communicator, knobs: Knobs | None = None
) -> Wires:
    """Return the wires of a communicator whose rank r is GPU `gpus[r]` of the cluster."""
    knobs = knobs or Knobs()
    members = _members(cluster, gpus)
    link = _link_kind(cluster, members, comm, knobs)
    nics = _nics(cluster, members) if comm.n_nodes > 1 else ()
    first = cluster.nics[nics[0]] if nics else None
    return Wires(
        ranks=comm.n_ranks,
        domains=comm.n_nodes,
        generation=sum(comm.min_compute_capability >= c for c in _FIRST_CAPABILITY),
        link=link,
        port=_port(cluster, members, link),
        nics=len(nics),
        nic_rate=first.bandwidth if first else 0.0,
        transport=first.transport if first else TRANSPORTS[0],
        way=_way(cluster, members, comm, knobs) if first else Way.DIRECT,
    )


def runs_of(
    wires: Wires,
    op: str,
    sizes: Sequence[int],
    choices: Sequence[Choice] | None,
    *,
    channels: int = 1,
    gpus_per_process: int = 0,
    old: bool = False,
    repeated: bool = True,
) -> Runs:
    """Return runs of `op` at `sizes` with NCCL's `choices`.

    Pairwise ops have no choices: they use `channels` and Simple. `gpus_per_process` is 0 where
    each GPU has its own process, `old` means NCCL before 2.12.
    """
    count = len(sizes)
    if choices is None:
        shapes, used, protocols = [PAIRWISE[op]] * count, [channels] * count, [2] * count
    else:
        chain = op in ("broadcast", "reduce")
        shapes = [Shape.CHAIN if chain else _shape(c.algorithm, wires.domains) for c in choices]
        used = [choice.channels for choice in choices]
        protocols = [int(choice.protocol) for choice in choices]

    def every(value: float) -> np.ndarray:
        return np.full(count, value)

    return Runs(
        shape=np.array(shapes, dtype=np.int64),
        size=np.array(sizes, dtype=np.float64),
        ranks=every(float(wires.ranks)),
        domains=every(float(wires.domains)),
        rounds=every(2.0 if op == "all_reduce" else 1.0),
        channels=np.array(used, dtype=np.float64),
        protocol=np.array(protocols, dtype=np.int64),
        generation=every(wires.generation),
        link=every(wires.link),
        port=every(wires.port),
        nics=every(float(wires.nics)),
        nic_rate=every(wires.nic_rate),
        transport=every(TRANSPORTS.index(wires.transport)),
        way=every(wires.way),
        gpus_per_process=every(float(gpus_per_process)),
        old=every(old),
        repeated=every(repeated),
    )


def _shape(algorithm: Algorithm, domains: int) -> Shape:
    """Return how an algorithm's chunks travel; NVLS between nodes needs SHARP, as CollNet does."""
    if algorithm == Algorithm.NVLS and domains > 1:
        return Shape.COLLNET
    return _SHAPES[algorithm]


def _members(cluster: Cluster, gpus: Sequence[int]) -> tuple[int, ...]:
    """Return the GPUs of the group in the domain that has the most of them (the first such)."""
    domains: dict[int, list[int]] = {}
    for gpu in gpus:
        domains.setdefault(cluster.domain_of(gpu), []).append(gpu)
    largest = max(domains.values(), key=len)
    return tuple(largest)


def _link_kind(
    cluster: Cluster, members: Sequence[int], comm: Communicator, knobs: Knobs
) -> LinkKind:
    """Return what a ring within a domain runs on."""
    kind = comm.graphs["ring"].type_intra
    if kind <= PathType.C2C:
        return LinkKind.NVLINK
    if not cluster.node_spec(members[0]).pcie.p2p or knobs.p2p_disable:
        return LinkKind.SHM
    level = PathType.PXB if knobs.p2p_level is None else knobs.p2p_level
    return LinkKind.PCIE if kind <= level else LinkKind.SHM


def _port(cluster: Cluster, members: Sequence[int], link: LinkKind) -> float:
    """Return what the first GPU's links to the other members carry, in bytes/s one way."""
    spec = cluster.node_spec(members[0])
    if link == LinkKind.SHM:
        return spec.pcie.bandwidth / _sharing_an_uplink(cluster, members)
    if link == LinkKind.PCIE:
        return spec.pcie.bandwidth
    if spec.switch is not None:
        return spec.switch.bandwidth
    if spec.nvlink is None:
        return spec.pcie.bandwidth
    local = [int(cluster.local_of[gpu]) for gpu in members]
    links = max(sum(spec.mesh[a][b] for b in local) for a in local)
    return spec.nvlink.bandwidth * links if links else spec.pcie.bandwidth


def _sharing_an_uplink(cluster: Cluster, members: Sequence[int]) -> int:
    """Return how many members reach host memory by the lanes above one PCIe switch, at most."""
    switches = cluster.node_spec(members[0]).pcie.switches
    top = list(range(len(switches)))
    for index, switch in enumerate(switches):
        top[index] = index if switch.under < 0 else top[switch.under]
    local = {int(cluster.local_of[gpu]) for gpu in members}
    counts = Counter(
        top[index] for index, switch in enumerate(switches) for gpu in switch.gpus if gpu in local
    )
    return max(counts.values(), default=1)


def _nics(cluster: Cluster, members: Sequence[int]) -> tuple[int, ...]:
    """Return the NICs dealt to the members, each once."""
    own: dict[int, None] = {}
    for gpu in members:
        dealt = cluster.node_spec(gpu).nic
        count = len(dealt.own[int(cluster.local_of[gpu])]) if dealt else 0
        own.update(dict.fromkeys(cluster.nics_of(gpu)[:count]))
    return tuple(own)


def _way(cluster: Cluster, members: Sequence[int], comm: Communicator, knobs: Knobs) -> Way:
    """Return how bytes reach a NIC: by GPUDirect up to NCCL's level, else through the host."""
    spec = cluster.node_spec(members[0])
    if spec.nic is None or not spec.nic.gdr:
        return Way.STAGED
    kind = comm.graphs["ring"].type_inter
    if spec.c2c is not None or kind < PathType.PHB:
        return Way.DIRECT
    level = PathType.PXB if knobs.net_gdr_level is None else knobs.net_gdr_level
    return Way.ROOT if kind <= level else Way.STAGED
