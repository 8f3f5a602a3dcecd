"""
One NCCL communicator on a cluster: what it knows, what it would choose, and what that takes.

    group = NcclGroup(Site(cluster), range(16))
    choice = group.choose("all_reduce", 1 << 20)
    group.seconds("all_reduce", [choice])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from commsim.arrays import Ints
from commsim.cluster import Cluster
from commsim.libraries.expansion import LinkLoads, loads_of
from commsim.libraries.nccl.communicator import Communicators, NicTable
from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.plans.edges import Edges
from commsim.libraries.nccl.plans.exchange import alike_nodes, exchange_loads
from commsim.libraries.nccl.shapes import Algorithm, Choice, Communicator
from commsim.libraries.nccl.timing import (
    PAIRWISE,
    LinkKind,
    Runs,
    Timing,
    Way,
    Wires,
    runs_of,
    time_runs,
    wires_of,
)
from commsim.libraries.nccl.tuning import (
    FLOAT_SUM,
    PeerToPeer,
    Reduction,
    Tuner,
    release_of,
    starts_channels_slowly,
)
from commsim.libraries.routing import Router

__all__ = ["LAUNCHES", "NcclGroup", "Site"]


_LARGEST_EXCHANGE = 256  # ranks; beyond, all pairs would be too many to route one by one

_IN_SWITCHES = (Algorithm.NVLS, Algorithm.NVLSTree)

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
        self.knobs, self.launch = knobs or Knobs(), launch
        self.router = Router(cluster, pxn=not self.knobs.pxn_disable)
        self.communicators = Communicators(cluster, version=release, knobs=self.knobs)
        self.nics = NicTable(cluster)


class NcclGroup:
    """The group of `gpus` (global numbers; rank r on `gpus[r]`) at a site.

    Raises:
        ScenarioError: see `communicator_of`.
    """

    def __init__(self, site: Site, gpus: Sequence[int]) -> None:
        self.router = site.router
        self.cluster: Cluster = site.router.cluster
        self.gpus: Ints = np.asarray(gpus, dtype=np.int64)
        self.comm = site.communicators.of(gpus)
        self.wires: Wires = wires_of(self.cluster, gpus, self.comm, site.knobs)
        self.notes = (
            *site.notes, *self.comm.notes, *site.knobs.notes,
            *_replaced(self.cluster, int(gpus[0]), self.comm, self.wires, site.knobs),
            *_averaged(self.cluster, len(gpus)),
        )  # fmt: skip
        self.tuner = Tuner(self.comm, site.knobs)
        self.pairwise = PeerToPeer(self.comm, site.knobs)
        self.edges = Edges(
            self.comm, self.gpus, self.cluster, site.nics, pxn=not site.knobs.pxn_disable
        )
        self.trunks = self.cluster.fabric.first_trunk
        self._together = max(self.comm.local_ranks) if site.launch == "process" else 0
        self._old = site.old
        self._loads: dict[tuple[str, Algorithm | None, int, int], LinkLoads] = {}

    def choose(
        self, op: str, size: int, *, dtype_size: int = 4, reduction: Reduction = FLOAT_SUM
    ) -> Choice:
        """Return what NCCL runs, on one channel at least: it launches none for no element.

        Raises:
            ScenarioError: nothing that is allowed works.
        """
        choice = self.tuner.choose(op, size, dtype_size=dtype_size, reduction=reduction)
        return choice if choice.channels else replace(choice, channels=1)

    def timing(
        self,
        op: str,
        sizes: Sequence[int],
        choices: Sequence[Choice] | None = None,
        *,
        repeated: bool = False,
    ) -> Timing:
        """Return the times of `op` on the idle cluster; `choices` None for what has none.

        `repeated`: the time per iteration of nccl-tests, which does not wait for the last rank.
        """
        return time_runs(self.runs(op, sizes, choices, repeated=repeated))

    def runs(
        self,
        op: str,
        sizes: Sequence[int],
        choices: Sequence[Choice] | None = None,
        *,
        repeated: bool = False,
    ) -> Runs:
        """Return what is to be timed, as columns."""
        channels = self.pairwise.channels if op in PAIRWISE else 1
        return runs_of(
            self.wires, op, sizes, choices, channels=channels, gpus_per_process=self._together,
            old=self._old, repeated=repeated,
        )  # fmt: skip

    def least(self, op: str, choice: Choice | None, root: int) -> float:
        """Return the seconds per byte of S that the busiest link needs at least.

        What a reducing switch moves is not what its ports are counted to carry: they are left
        to the timing model.
        """
        return self.busiest(self.loads(op, choice, root), choice)

    def busiest(self, loads: LinkLoads, choice: Choice | None) -> float:
        """Return the seconds per byte that the busiest link of some loads needs. See `least`."""
        in_switches = choice is not None and choice.algorithm in _IN_SWITCHES
        real = loads.link >= self.trunks if in_switches else np.ones(len(loads.link), dtype=bool)
        capacity = self.cluster.links.capacity[loads.link[real]]
        return float(np.max(loads.share[real] / capacity, initial=0.0))

    def loads(self, op: str, choice: Choice | None, root: int) -> LinkLoads:
        """Return what an op does to the links, as shares of its size."""
        algorithm = None if choice is None else choice.algorithm
        channels = 1 if choice is None else choice.channels
        key = (op, algorithm, channels, root)
        if key not in self._loads:
            self._loads[key] = self._make_loads(op, algorithm, channels, root)
        return self._loads[key]

    def _make_loads(
        self, op: str, algorithm: Algorithm | None, channels: int, root: int
    ) -> LinkLoads:
        if algorithm is None:
            return self._pairwise_loads(op, root)
        found = loads_of(self.edges.of(algorithm, op, channels, root), self.router)
        into, out = self.edges.switch_shares(algorithm, op)
        return self._with_switches(found, into, out) if into else found

    def _pairwise_loads(self, op: str, root: int) -> LinkLoads:
        if op == "all_to_all":
            nodes = alike_nodes(self.edges) if len(self.gpus) > _LARGEST_EXCHANGE else []
            if nodes:
                return exchange_loads(self.edges, nodes, self.router)
            return loads_of(self.edges.exchange(), self.router)
        if op == "send_recv":
            ranks = np.arange(len(self.gpus))
            return loads_of(self.edges.pairs(ranks, np.roll(ranks, -1), 1.0), self.router)
        return loads_of(self.edges.fan(root, gather=op == "gather"), self.router)

    def _with_switches(self, loads: LinkLoads, into: float, out: float) -> LinkLoads:
        """Add what each GPU sends into and takes out of the switch of its domain."""
        ports = np.array([self._port(at) for at in range(len(self.gpus))], dtype=np.int64)
        link = np.concatenate((loads.link, ports[:, 0], ports[:, 1]))
        share = np.concatenate((loads.share, np.full(len(ports), into), np.full(len(ports), out)))
        conns = np.concatenate((loads.conns, np.ones(2 * len(ports))))
        used, where = np.unique(link, return_inverse=True)
        return LinkLoads(
            used,
            np.bincount(where, weights=share).astype(np.float64),
            np.bincount(where, weights=conns).astype(np.float64),
        )

    def _port(self, at: int) -> tuple[int, int]:
        """Return the links of a member into its NVSwitch and out of it."""
        beside = np.flatnonzero(self.edges.node == self.edges.node[at])
        peer = int(beside[beside != at][0])
        route = self.cluster.local_route(int(self.gpus[at]), int(self.gpus[peer]))
        back = self.cluster.local_route(int(self.gpus[peer]), int(self.gpus[at]))
        assert route is not None
        assert back is not None
        return route.link[0], back.link[-1]


def _averaged(cluster: Cluster, ranks: int) -> list[str]:
    """Say where the paths that connections take by their hash are not looked at one by one."""
    if cluster.fabric.spec.ecmp != "hash" or ranks <= _LARGEST_EXCHANGE:
        return []
    return [
        f"NCCL: of an all-to-all among more than {_LARGEST_EXCHANGE} ranks, ecmp hash gives every"
        " path its even share."
    ]


def _replaced(
    cluster: Cluster, gpu: int, comm: Communicator, wires: Wires, knobs: Knobs
) -> list[str]:
    """Say what the hardware of `gpu` and its like makes NCCL do in another way."""
    said = []
    if wires.way == Way.STAGED and comm.n_nodes > 1:
        nic = cluster.node_spec(gpu).nic
        path = comm.graphs["ring"].type_inter.name
        why = (
            f"a NIC is further from its GPU ({path}) than NCCL uses GPUDirect over; sites that"
            f" have it working set NCCL_NET_GDR_LEVEL={path}"
            if nic is not None and nic.gdr
            else "no GPUDirect"
        )
        said.append(
            f"NCCL: NICs do not reach GPU memory here ({why}): data between nodes goes through"
            " host memory."
        )
    if wires.link == LinkKind.SHM and max(comm.local_ranks) > 1:
        said.append(
            "NCCL: GPUs of a node have no peer-to-peer access: data goes through host memory."
        )
    if knobs.nvls_enable == 1 and not comm.nvls_support:
        said.append(
            "NCCL_NVLS_ENABLE=1 changes nothing: NVLS needs Hopper GPUs or newer behind an"
            " NVSwitch, and three or more of them in the group."
        )
    return said
