"""
One NCCL communicator on a cluster: what it knows, what it would choose, and what that takes.

    group = NcclGroup(Site(cluster), range(16))
    choice = group.choose("all_reduce", 1 << 20)
    group.seconds("all_reduce", [choice])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from commsim.arrays import Ints
from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.libraries.expansion import Connections
from commsim.libraries.nccl.communicator import Communicators, NicTable
from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.plans.detours import used_by
from commsim.libraries.nccl.plans.edges import CommunicatorEdges
from commsim.libraries.nccl.plans.loads import LARGEST_EXCHANGE, OpLoads, OpLoadsOf
from commsim.libraries.nccl.shapes import Algorithm, Choice, Communicator, Protocol
from commsim.libraries.nccl.timing import (
    Latency,
    LinkKind,
    LinkSeconds,
    NicWay,
    PredictedTime,
    Runs,
    Wires,
    latency_of,
    runs_of,
    time_runs,
    use_of,
    wires_of,
)
from commsim.libraries.nccl.tuning import (
    PeerToPeer,
    Reduction,
    Tuner,
    release_of,
    starts_channels_slowly,
)
from commsim.libraries.routing import Router
from commsim.ops import element_bytes, element_type

__all__ = ["CHAINED", "LAUNCHES", "NcclGroup", "Site"]


CHAINED = ("broadcast", "reduce")
"""What goes along the ring from its root or to it."""
_ROOTED = ("broadcast", "reduce", "gather", "scatter")

_NO_LINES = "efa_v1"
_PLUGIN = (
    "EFA of the first version does not keep 128 bytes in order: its plugin sets NCCL_PROTO=Simple."
)

LAUNCHES = ("gpu", "process")
"""A process per GPU, as torch starts them, or one process that drives all GPUs of a node."""


class Site:
    """A cluster with one NCCL release and environment on it: what all its groups share.

    `launch` is one of `LAUNCHES`.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        version: str = "2.27",
        knobs: Knobs | None = None,
        launch: str = "gpu",
    ) -> None:
        release, self.notes = release_of(version)
        self.old = starts_channels_slowly(version)
        self.knobs, self.launch = _with_plugin(knobs or Knobs(), cluster), launch
        self.cluster = cluster
        self.router = Router(cluster, pxn=not self.knobs.pxn_disable)
        self.communicators = Communicators(cluster, version=release, knobs=self.knobs)
        self.nics = NicTable(cluster)


def _with_plugin(knobs: Knobs, cluster: Cluster) -> Knobs:
    """Return what the environment asks for, and the network's plugin if it says nothing.

    aws-ofi-nccl sets NCCL_PROTO=simple if EFA does not keep the 128 bytes of a line in order,
    as its first version does not (configure_nccl_proto; its log on p4d says so).
    """
    keeps_order = all(spec.nic is None or spec.nic.transport != _NO_LINES for spec in cluster.specs)
    if knobs.proto or keeps_order:
        return knobs
    return replace(knobs, proto="Simple", notes=(*knobs.notes, _PLUGIN))


class NcclGroup:
    """The group of `gpus` (global numbers; rank r on `gpus[r]`) at a site.

    Raises:
        ScenarioError: see `communicator_of`.
    """

    def __init__(self, site: Site, gpus: Sequence[int]) -> None:
        self.cluster: Cluster = site.cluster
        self.gpus: Ints = np.asarray(gpus, dtype=np.int64)
        self.comm = site.communicators.of(gpus)
        self.wires: Wires = wires_of(self.cluster, gpus, self.comm, site.knobs)
        used = used_by(self.cluster, self.comm, self.wires.way, site.knobs)
        self.router = site.router if used is site.cluster else Router(used, pxn=site.router.pxn)
        self.notes = (
            *site.notes,
            *self.comm.notes,
            *site.knobs.notes,
            *_replaced(self.cluster, int(gpus[0]), self.comm, self.wires, site.knobs),
            *_averaged(self.cluster, len(gpus)),
        )
        self.tuner = Tuner(self.comm, site.knobs)
        self.pairwise = PeerToPeer(self.comm, site.knobs)
        self.edges = CommunicatorEdges(
            self.comm, self.gpus, used, site.nics, pxn=not site.knobs.pxn_disable
        )
        self._together = max(self.comm.local_ranks) if site.launch == "process" else 0
        self._old = site.old
        self._loads = OpLoadsOf(self.edges, self.router, self.cluster)
        self._uses: dict[OpLoads, LinkSeconds] = {}
        self._latencies: dict[tuple[str, Algorithm | None], Latency] = {}

    def choose(self, op: str, size: int, *, dtype: str = "", redop: str = "") -> Choice:
        """Return what NCCL runs, on one channel at least: it launches none for no element.

        Raises:
            ScenarioError: nothing that is allowed works, or a type that NCCL does not have.
        """
        width, reduction = _elements(op, dtype, redop)
        choice = self.tuner.choose(op, size, dtype_size=width, reduction=reduction)
        return _on_a_channel(choice)

    def candidates(
        self, op: str, size: int, *, dtype: str = "", redop: str = ""
    ) -> dict[tuple[Algorithm, Protocol], Choice]:
        """Return what NCCL would run under each algorithm and protocol. Raises as `choose`."""
        width, reduction = _elements(op, dtype, redop)
        found = self.tuner.candidates(op, [size], dtype_size=width, reduction=reduction)
        return {pair: _on_a_channel(choice) for pair, (choice,) in found.items()}

    def pairs(self, op: str, dtype: str = "") -> list[tuple[Algorithm, Protocol]]:
        """Return the algorithms and protocols that NCCL has for an op. Raises as `choose`."""
        return list(self.tuner.costs(op, _elements(op, dtype, "")[1]))

    def timing(
        self,
        op: str,
        sizes: Sequence[int],
        choices: Sequence[Choice] | None = None,
        *,
        root: int = -1,
        repeated: bool = False,
    ) -> PredictedTime:
        """Return the times of `op` on the idle cluster; `choices` None for what has none.

        `repeated`: the time per iteration of nccl-tests, which does not wait for the last rank.
        """
        return time_runs(self.runs(op, sizes, choices, root=root, repeated=repeated))

    def runs(
        self,
        op: str,
        sizes: Sequence[int],
        choices: Sequence[Choice] | None = None,
        *,
        root: int = -1,
        repeated: bool = False,
    ) -> Runs:
        """Return what is to be timed, as columns. An op with a root has rank 0 if none is given."""
        root = max(root, 0) if op in _ROOTED else -1
        asked: Sequence[Choice | None] = [None] * len(sizes) if choices is None else choices
        uses = [(self._use(op, choice, root), self._latency(op, choice)) for choice in asked]
        return runs_of(
            self.wires,
            op,
            sizes,
            choices,
            uses,
            sends=self.pairwise,
            crossings=[self._crossings(op, choice, root) for choice in asked],
            gpus_per_process=self._together,
            old=self._old,
            repeated=repeated,
        )

    def send_timing(self, sizes: Sequence[int], source: int, target: int) -> PredictedTime:
        """Return the times of a send between members, all others sending to the next as well.

        What many sends put on one link is not in it: that shows where they meet.
        """
        whole = self.runs("send_recv", sizes)
        timing = time_runs(whole)
        if self.edges.node[source] != self.edges.node[target]:
            return timing
        near = time_runs(replace(whole, domains=np.ones(len(sizes))))
        return PredictedTime(timing.launch, near.program)

    def predict(
        self,
        op: str,
        sizes: Sequence[int],
        choices: Sequence[Choice] | None = None,
        *,
        root: int = -1,
        repeated: bool = False,
    ) -> PredictedTime:
        """Return what `op` takes on the idle cluster: the one prediction, of plans and of bench.

        The program's own time, or what the busiest link needs, whichever is more.
        `choices` None for sends and receives; `repeated` as for `timing`.
        """
        timing = self.timing(op, sizes, choices, root=root, repeated=repeated)
        capacity = self.cluster.links.capacity
        needs = [
            self.loads(op, choices[at] if choices else None, root).seconds_per_byte(capacity) * size
            for at, size in enumerate(sizes)
        ]
        return PredictedTime(timing.launch, np.maximum(timing.program, np.array(needs)))

    def _crossings(self, op: str, choice: Choice | None, root: int) -> int:
        """Return how often a chain crosses the network, on the channel that does so most often.

        A ring enters and leaves each node once; the chain leaves out the edge at its root. From a
        root in the middle of its node it comes back there, to those before the root on the ring.
        """
        domains = self.comm.n_nodes
        if choice is None or op not in CHAINED or domains < 2:
            return domains - 1
        rings = self.comm.rings[: choice.channels]
        node = self.edges.node[rings]
        crosses = node != np.roll(node, -1, axis=1)
        # Edge i leaves place i of a ring: a broadcast has no edge into its root, a reduce none out.
        place = np.argmax(rings == root, axis=1) - (op == "broadcast")
        left_out = crosses[np.arange(len(rings)), place]
        return int((crosses.sum(axis=1) - left_out).max())

    def _use(self, op: str, choice: Choice | None, root: int) -> LinkSeconds:
        """Return what an op asks of the links, by its algorithm and channels."""
        loads = self.loads(op, choice, root)
        if loads not in self._uses:
            # An NVSwitch adds up over NVLink, also where GPUs do not read each other's memory.
            kind = LinkKind.NVLINK if loads.multicast.any() else self.wires.link
            self._uses[loads] = use_of(loads.link, loads.share, self.cluster, kind)
        return self._uses[loads]

    def _latency(self, op: str, choice: Choice | None) -> Latency:
        """Return the latencies of the routes that an algorithm uses."""
        algorithm = None if choice is None else choice.algorithm
        key = "" if choice else op, algorithm
        if key not in self._latencies:
            own = latency_of(self._routed(op, algorithm), self.router)
            if not (own.hop and own.reach):
                ring = latency_of(self.edges.of(Algorithm.Ring, "all_gather", 1, -1), self.router)
                own = Latency(
                    own.hop or ring.hop,
                    own.reach or ring.reach,
                    own.longest or ring.longest,
                    own.longest_hop or ring.longest_hop,
                )
            sends = algorithm is None
            self._latencies[key] = replace(own, hop=own.longest_hop) if sends else own
        return self._latencies[key]

    def _routed(self, op: str, algorithm: Algorithm | None) -> Connections:
        """Return connections that show which routes an algorithm takes."""
        if algorithm is None:
            ranks = np.arange(len(self.gpus))
            away = 1 if op == "send_recv" else max(1, len(ranks) // 2)
            return self.edges.pairs(ranks, np.roll(ranks, -away), 1.0)
        if algorithm in (Algorithm.Ring, Algorithm.PAT):
            return self.edges.of(Algorithm.Ring, "all_gather", self.comm.channels, -1)
        return self.edges.of(algorithm, "all_reduce", self.comm.channels, -1)

    def loads(self, op: str, choice: Choice | None, root: int) -> OpLoads:
        """Return what an op does to the links, as shares of its size."""
        return self._loads.of(op, choice, root)


def _on_a_channel(choice: Choice) -> Choice:
    return choice if choice.channels else replace(choice, channels=1)


def _elements(op: str, dtype: str, redop: str) -> tuple[int, Reduction]:
    """Return the bytes of an element, and what its type leaves of NCCL's algorithms.

    Raises:
        ScenarioError: no such type, or one that NCCL does not have.
    """
    kind = element_type(dtype or "float32")
    if kind is not None and kind.nccl is None:
        raise ScenarioError(
            f"{op} of {dtype}: NCCL has no such type, and torch refuses it. Use gloo, or a type"
            " that NCCL has."
        )
    return element_bytes(dtype), Reduction(dtype, redop)


def _averaged(cluster: Cluster, ranks: int) -> list[str]:
    """Say where the paths that connections take by their hash are not looked at one by one."""
    if cluster.fabric.spec.ecmp != "hash" or ranks <= LARGEST_EXCHANGE:
        return []
    return [
        f"NCCL: of an all-to-all among more than {LARGEST_EXCHANGE} ranks, ecmp hash gives every"
        " path its even share."
    ]


def _replaced(
    cluster: Cluster, gpu: int, comm: Communicator, wires: Wires, knobs: Knobs
) -> list[str]:
    """Say what the hardware of `gpu` and its like makes NCCL do in another way."""
    remarks = []
    if wires.way == NicWay.STAGED and comm.n_nodes > 1:
        nic = cluster.node_spec(gpu).nic
        path = comm.graphs["ring"].type_inter.name
        why = (
            f"a NIC is further from its GPU ({path}) than NCCL uses GPUDirect over; sites that"
            f" have it working set NCCL_NET_GDR_LEVEL={path}"
            if nic is not None and nic.gdr
            else "no GPUDirect"
        )
        remarks.append(
            f"NCCL: NICs do not reach GPU memory here ({why}): data between nodes goes through"
            " host memory."
        )
    if wires.link == LinkKind.SHM and max(comm.local_ranks) > 1:
        remarks.append(
            "NCCL: GPUs of a node have no peer-to-peer access: data goes through host memory."
        )
    if knobs.nvls_enable == 1 and not comm.nvls_support:
        remarks.append(
            "NCCL_NVLS_ENABLE=1 changes nothing: NVLS needs Hopper GPUs or newer behind an"
            " NVSwitch, and three or more of them in the group."
        )
    return remarks
