"""
Gloo as torch.distributed uses it: plans of its algorithms over TCP and host memory.

Two worker threads run two ops of a group at once. Data in GPU memory is copied to host memory
before an op and back after it; sends and receives of GPU memory are refused, as they fail there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from commsim.cluster import Cluster, Links
from commsim.collectives import Program
from commsim.errors import ScenarioError, did_you_mean
from commsim.libraries.expansion import part_of, split_by_kind
from commsim.libraries.gloo import large, programs, rings
from commsim.libraries.gloo.constants import GlooConstants, constants
from commsim.libraries.gloo.hosts import Hosts
from commsim.libraries.gloo.protocol import Discipline, lay
from commsim.libraries.gloo.rings import RingSchedule
from commsim.libraries.gloo.staging import STAGED, bytes_in, bytes_out
from commsim.libraries.plan import Copy, Plan, PlanPart, Request, RoutedProgram, Start, empty_phase
from commsim.ops import ROOTED, element_bytes

__all__ = ["ALGORITHMS", "Gloo"]

ALGORITHMS = ("ring", "bcube", "halving_doubling", "ring_chunked")
"""Of the all_reduce; ProcessGroupGloo takes the ring, the others exist in Gloo's own interface."""

_MOST_MESSAGES = 4096  # a ring of more is timed by recurrence
_IN_PAIRS = Discipline(window=2)
_BY_ROUND = Discipline(window=1)
_AT_ONCE = Discipline(window=0)
_OLD_RING = Discipline(window=2, announced=False)
_OLD = Discipline(window=0, announced=False)


class _Made(NamedTuple):
    """An op as Gloo runs it: its name, its program (or its ring), and how it posts."""

    algorithm: str
    discipline: Discipline
    program: Callable[[], Program]
    ring: RingSchedule | None = None


class Gloo:
    """Plans every op as Gloo does it; `algo` chooses another all_reduce.

    `interface` is the NIC of each node (by its number there) that the host name stands for.
    """

    name = "gloo"
    concurrency = 2

    def __init__(
        self, algo: str | None = None, *, interface: int = 0, costs: GlooConstants | None = None
    ) -> None:
        if algo is not None and algo not in ALGORITHMS:
            raise ScenarioError(
                f"library.algo: Gloo has no algorithm {algo!r}.{did_you_mean(algo, ALGORITHMS)}"
                f" Known: {', '.join(ALGORITHMS)}."
            )
        if interface < 0:
            raise ScenarioError(f"library.interface: {interface}: NICs are counted from 0.")
        self._algo = algo or "ring"
        self._interface = interface
        self._costs = costs or constants()
        self._cluster: Cluster | None = None
        self._plans: dict[Request, Plan] = {}
        self._pairs: dict[tuple[int, ...], large.RankPairs] = {}

    def links(self, cluster: Cluster) -> Links:
        """Return the cluster's links and, after them, the threads that copy into and out of TCP."""
        return self._hosts_of(cluster).links

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        """Return the plan of one op; plans are kept for as long as the cluster is the same.

        Raises:
            ScenarioError: no cluster, or an op that Gloo refuses.
            TopologyError: two nodes cannot reach each other by their interfaces.
        """
        if cluster is None:
            raise ScenarioError(
                f"{request.kind} of ranks {list(request.ranks)}: Gloo needs a cluster to send"
                " over. Add a cluster section (or --cluster)."
            )
        hosts = self._hosts_of(cluster)
        if request not in self._plans:
            self._plans[request] = self._make(request, cluster, hosts)
        return self._plans[request]

    def _hosts_of(self, cluster: Cluster) -> Hosts:
        if cluster is not self._cluster:
            self._cluster, self._plans, self._pairs = cluster, {}, {}
            self._hosts = Hosts(cluster, self._costs, interface=self._interface)
        return self._hosts

    def _make(self, request: Request, cluster: Cluster, hosts: Hosts) -> Plan:
        on_gpu = not request.on_host and any(
            cluster.gpu(rank).device != "cpu" for rank in request.ranks
        )
        _refuse(request, on_gpu=on_gpu)
        made = self._algorithm(request)
        parts, programs_ = self._parts(request, made, hosts)
        start = Start.PATH if request.kind in ROOTED else Start.ALL
        into, out = self._copies(request, cluster) if on_gpu else ((), ())
        return Plan(
            parts,
            Start.PAIR if request.kind == "send_recv" else start,
            len(request.ranks),
            programs_,
            made.algorithm,
            notes=tuple(_notes(request, staged=bool(into))),
            copies_in=into,
            copies_out=out,
        )

    def _algorithm(self, request: Request) -> _Made:
        """Return how an op is done."""
        n, size, kind = len(request.ranks), request.size, request.kind
        element = element_bytes(request.dtype)
        root = max(request.root, 0)
        if kind in ("all_reduce", "reduce_scatter"):
            return self._all_reduce(n, size, element)
        if kind == "all_gather":
            return _of_ring(rings.all_gather(n, size), _IN_PAIRS)
        if kind == "broadcast":
            return _Made("binomial", _AT_ONCE, lambda: programs.broadcast(n, root))
        if kind == "reduce":
            ring = rings.reduce_scatter(n, size, element)
            return _Made("ring", _IN_PAIRS, lambda: programs.reduce(n, root, size, element), ring)
        if kind == "barrier":
            return _Made("dissemination", _BY_ROUND, lambda: programs.barrier(n))
        if kind == "send_recv":
            return _Made("send_recv", _AT_ONCE, lambda: programs.message())
        if kind in ("gather", "scatter"):
            make = programs.gather if kind == "gather" else programs.scatter
            return _Made("direct", _AT_ONCE, lambda: make(n, root))
        return _Made("direct", _AT_ONCE, lambda: programs.all_to_all(n, request.splits))

    def _all_reduce(self, n: int, size: int, element: int) -> _Made:
        if self._algo == "ring_chunked":
            return _of_ring(rings.chunked_all_reduce(n, size, element), _OLD_RING)
        if self._algo == "bcube":
            return _Made("bcube", _BY_ROUND, lambda: programs.bcube_all_reduce(n))
        if self._algo == "halving_doubling":
            return _Made("halving_doubling", _OLD, lambda: programs.halving_doubling(n))
        return _of_ring(rings.all_reduce(n, size, element), _IN_PAIRS)

    def _parts(
        self, request: Request, made: _Made, hosts: Hosts
    ) -> tuple[tuple[PlanPart, ...], tuple[Callable[[], RoutedProgram], ...]]:
        n = len(request.ranks)
        if n == 1 or (request.size == 0 and request.kind != "barrier"):
            zero = np.zeros(n, np.int64)
            idle = int(self._costs.op_overhead)
            return (PlanPart((empty_phase(idle),), zero, zero + idle),), ()

        def expand() -> RoutedProgram:
            return lay(
                made.program(), request.size, request.ranks, hosts, self._costs, made.discipline
            )

        part = self._large_part(request, made, hosts)
        if part is not None:
            return (part,), (expand,)
        messages = expand()
        if request.kind in ("all_to_all", "all_to_all_v"):
            return split_by_kind(messages, n, hosts.links), (lambda: messages,)
        together = request.kind not in ROOTED
        phase = np.zeros_like(messages.source)
        part = part_of(messages, phase, n, hosts.links, together=together)
        return (part,), (lambda: messages,)

    def _large_part(self, request: Request, made: _Made, hosts: Hosts) -> PlanPart | None:
        """Return the part of an op with more messages than are run one by one, None for others."""
        n, costs = len(request.ranks), self._costs
        if request.kind == "all_to_all" and n * n > _MOST_MESSAGES:
            if request.ranks not in self._pairs:
                self._pairs[request.ranks] = large.pairs_of(request.ranks, hosts)
            pairs = self._pairs[request.ranks]
            return large.pairs_part(pairs, request.size / n, n, hosts.links, costs)
        if made.ring is None or _messages_of(made.ring) <= _MOST_MESSAGES:
            return None
        if request.kind == "reduce":
            return large.reduce_part(
                made.ring, request.root, request.ranks, made.discipline, hosts, costs
            )
        return large.ring_part(made.ring, request.ranks, made.discipline, hosts, costs)

    def _copies(
        self, request: Request, cluster: Cluster
    ) -> tuple[tuple[Copy | None, ...], tuple[Copy | None, ...]]:
        """Return what each member copies to host memory first, and back at the end."""
        if request.kind not in STAGED:
            return (), ()
        lead, into, out = int(self._costs.copy_overhead), [], []
        for member, rank in enumerate(request.ranks):
            first, last = bytes_in(request, member), bytes_out(request, member)
            into.append(Copy(cluster.to_host(rank), first, lead) if first else None)
            out.append(Copy(cluster.from_host(rank), last, lead) if last else None)
        return tuple(into), tuple(out)


def _of_ring(ring: RingSchedule, discipline: Discipline) -> _Made:
    return _Made(ring.algorithm, discipline, lambda: rings.program_of(ring), ring)


def _messages_of(ring: RingSchedule) -> int:
    return ring.n * sum(phase.rounds for phase in ring.phases)


def _refuse(request: Request, *, on_gpu: bool) -> None:
    """Refuse what ProcessGroupGloo refuses."""
    if request.redop == "premul_sum":
        raise ScenarioError(
            f"{request.kind} with op premul_sum: Gloo cannot (torch: Cannot use"
            " ReduceOp.PREMUL_SUM with Gloo). Multiply first and take sum, or use NCCL."
        )
    if request.kind == "send_recv" and on_gpu:
        raise ScenarioError(
            f"a message from rank {request.ranks[0]} to rank {request.ranks[1]}: Gloo sends host"
            " memory only; torch does not stage the sends and receives of GPU tensors. Give the"
            " calls device: cpu (and copy by copy_to_host), or use a group with NCCL."
        )


def _notes(request: Request, *, staged: bool) -> list[str]:
    notes = []
    if staged:
        notes.append(
            "gloo: GPU data is staged: copied to host memory before each op, and back after it."
        )
    if request.kind == "reduce_scatter":
        notes.append("gloo: reduce_scatter is done as an all_reduce of the whole buffer.")
    return notes
