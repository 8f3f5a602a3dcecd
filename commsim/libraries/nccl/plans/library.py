"""
NCCL as a library of the engine: each op becomes what NCCL would choose, and takes what the
calibrated timing model says, on the links that its rings, trees and switches use.

Two different things: NCCL's own tuning model chooses (`Choice.selection_us` is what it computed),
the timing model predicts. The plan of an op is one coupled flow: after the launch all its
channels progress together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from commsim.arrays import Floats, Ints
from commsim.cluster import Cluster, Route
from commsim.collectives import Custom
from commsim.errors import ScenarioError, did_you_mean
from commsim.libraries.expansion import loads_of, whole
from commsim.libraries.nccl.env import Knobs, knobs_of
from commsim.libraries.nccl.plans.custom import custom_plan
from commsim.libraries.nccl.plans.exchange_messages import exchange_program, message_program
from commsim.libraries.nccl.plans.group import LAUNCHES, NcclGroup, Site
from commsim.libraries.nccl.plans.loads import OpLoads
from commsim.libraries.nccl.plans.messages import programs_of
from commsim.libraries.nccl.plans.routes import routes_between
from commsim.libraries.nccl.shapes import Choice, Protocol
from commsim.libraries.nccl.timing import PAIRWISE, PredictedTime
from commsim.libraries.plan import (
    Plan,
    PlanPart,
    PlanPhase,
    Request,
    RoutedProgram,
    Start,
    empty_phase,
)
from commsim.ops import REDUCING

__all__ = ["Nccl"]


_REFUSED = frozenset({"band", "bor", "bxor"})
_BUS = {"all_reduce": 2.0}
_BARRIER_BYTES = 4  # torch's barrier is an all_reduce of one element


class Nccl:
    """Plans every op as NCCL `version` does under an environment of NCCL_ variables.

    `launch`: "gpu" if each GPU has its process, "process" if one drives a node's GPUs.
    `custom`: an algorithm from a file, for the op that it does.

    Raises:
        ScenarioError: an unknown variable, version or launch.
    """

    name = "nccl"
    concurrency = 1

    def __init__(
        self,
        *,
        version: str = "2.27",
        env: Mapping[str, str | int | bool] | None = None,
        launch: str = "gpu",
        custom: Custom | None = None,
    ) -> None:
        if launch not in LAUNCHES:
            raise ScenarioError(
                f"library.launch: {launch!r}.{did_you_mean(launch, LAUNCHES)}"
                f" Known: {', '.join(LAUNCHES)}."
            )
        self.launch = launch
        self._custom = custom
        self.version = version
        self.knobs: Knobs = knobs_of(env or {})
        self._site: Site | None = None
        self._groups: dict[tuple[int, ...], NcclGroup] = {}
        self._plans: dict[Request, Plan] = {}
        self._pairs: dict[tuple[object, ...], tuple[PredictedTime, Protocol]] = {}

    def group(self, ranks: tuple[int, ...], cluster: Cluster) -> NcclGroup:
        """Return the communicator of some ranks; it is kept for as long as the cluster is."""
        site = self._at(cluster)
        if ranks not in self._groups:
            self._groups[ranks] = NcclGroup(site, ranks)
        return self._groups[ranks]

    def _at(self, cluster: Cluster) -> Site:
        """Return what is known of a cluster; what was known of another one is forgotten."""
        if self._site is None or cluster is not self._site.cluster:
            self._site = Site(cluster, version=self.version, knobs=self.knobs, launch=self.launch)
            self._groups, self._plans, self._pairs = {}, {}, {}
        return self._site

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        """Return the plan of one op; plans are kept for as long as the cluster is the same.

        Raises:
            ScenarioError: no cluster, data in host memory, or nothing that is allowed works.
            TopologyError: two ranks cannot reach each other.
        """
        if cluster is None:
            raise ScenarioError(
                f"{request.kind} of ranks {list(request.ranks)}: NCCL needs a cluster to send over."
                " Add a cluster section (or --cluster)."
            )
        if request.on_host or cluster.gpu(request.ranks[0]).device == "cpu":
            raise ScenarioError(
                f"{request.kind} of ranks {list(request.ranks)}: NCCL moves the memory of GPUs"
                " alone. Use library gloo for data in host memory."
            )
        if request.redop.lower() in _REFUSED:
            raise ScenarioError(
                f"{request.kind}: NCCL has no reduction {request.redop!r}, as torch says too."
                " Use gloo for it, or another reduction."
            )
        self._at(cluster)
        if request not in self._plans:
            self._plans[request] = self._make(request, cluster)
        return self._plans[request]

    def _make(self, request: Request, cluster: Cluster) -> Plan:
        if len(request.ranks) == 1:
            nothing = np.zeros(1, np.int64)
            return Plan((PlanPart((empty_phase(0),), nothing, nothing),), Start.ALL, 1, (), "none")
        if request.kind == "send_recv":
            return self._message(request, cluster)
        group = self.group(request.ranks, cluster)
        if self._custom is not None and self._custom.program.op == request.kind:
            return custom_plan(self._custom, request, group)
        notes = group.notes
        if request.kind == "all_to_all_v":
            return self._uneven(request, group, notes)
        kind = "all_reduce" if request.kind == "barrier" else request.kind
        size = _BARRIER_BYTES if request.kind == "barrier" else request.size
        if kind in PAIRWISE:
            timing = group.predict(kind, [size], root=request.root)
            loads = group.loads(kind, None, request.root)
            return _plan(request, group, timing, loads, size, None, notes)
        choice = group.choose(kind, size, dtype=request.dtype, redop=request.redop)
        timing = group.predict(kind, [size], [choice], root=request.root)
        loads = group.loads(kind, choice, request.root)
        return _plan(request, group, timing, loads, size, choice, (*notes, *choice.notes))

    def _message(self, request: Request, cluster: Cluster) -> Plan:
        """Return the plan of a send."""
        if request.communicator:
            group = self.group(request.communicator, cluster)
            source, target = (request.communicator.index(rank) for rank in request.ranks)
            (route,) = routes_between(group, np.array([source]), np.array([target]))
            remote = bool(group.edges.node[source] != group.edges.node[target])
            protocol = group.pairwise.message(request.size, remote=remote).protocol
            timing = group.send_timing([request.size, 0], source, target)
        else:
            route = self._at(cluster).router.route(*request.ranks)
            timing, protocol = self._alone(request, route, cluster)
        return _sent(request, route, timing, protocol, cluster)

    def _alone(
        self, request: Request, route: Route, cluster: Cluster
    ) -> tuple[PredictedTime, Protocol]:
        """Return how a send over a communicator of its own runs, once for all equal placements."""
        source, target = request.ranks
        key = (
            request.size,
            cluster.links.capacity[_shares(route)[0]].tobytes(),
            *(_place(cluster, rank) for rank in request.ranks),
            _apart(cluster, source, target),
        )
        if key not in self._pairs:
            group = self.group(request.ranks, cluster)
            message = group.pairwise.message(request.size, remote=group.comm.n_nodes > 1)
            self._pairs[key] = (group.timing("send_recv", [request.size, 0]), message.protocol)
        return self._pairs[key]

    def _uneven(self, request: Request, group: NcclGroup, notes: tuple[str, ...]) -> Plan:
        """Return the plan of sends of unequal sizes: as long as the busiest rank's even ones."""
        assert request.splits is not None
        sizes = np.array(request.splits, dtype=np.float64)
        np.fill_diagonal(sizes, 0.0)
        source, target = np.nonzero(sizes)
        n = len(request.ranks)
        most = max(float(sizes.sum(axis=0).max()), float(sizes.sum(axis=1).max()))
        size = round(most * n / max(n - 1, 1))
        timing = group.timing("all_to_all", [size])
        latency = group.timing("all_to_all", [0]).program
        connections = group.edges.pairs(source, target, sizes[source, target])
        loads = OpLoads.plain(loads_of(connections, group.router))
        needed = latency + loads.seconds_per_byte(group.cluster.links.capacity)
        timing = PredictedTime(timing.launch, np.maximum(timing.program, needed))
        return _plan(request, group, timing, loads, 1, None, notes)


def _sent(
    request: Request, route: Route, timing: PredictedTime, protocol: Protocol, cluster: Cluster
) -> Plan:
    """Return the plan of a send; `timing` has its time and that of no bytes."""
    link, share = _shares(route)
    # LL writes into a buffer of the receiver's, whether it has come or not.
    start = Start.EAGER if protocol is Protocol.LL else Start.PAIR
    lead, idle = (whole(float(t[0]) * 1e12) for t in (timing.launch, timing.program))
    wires = float(np.max(share / cluster.links.capacity[link], initial=0.0)) * request.size
    idle = max(idle, route.latency + whole(wires * 1e12))
    both = np.zeros(2, np.int64)
    flow = PlanPhase(idle, link, share * request.size, share, lead)
    part = PlanPart((flow,), both, np.full(2, lead + idle, np.int64))
    latency = min(whole(float(timing.program[1]) * 1e12), idle)
    program = message_program(
        route, request.size, cluster.links, lead=lead, idle=idle, latency=latency
    )
    return Plan((part,), start, 2, (program,), "send_recv", sms=1, touched=2.0 * request.size)


def _plan(
    request: Request,
    group: NcclGroup,
    timing: PredictedTime,
    loads: OpLoads,
    size: int,
    choice: Choice | None,
    notes: tuple[str, ...],
) -> Plan:
    """Return a plan of one coupled flow; `loads` are shares of `size`."""
    lead, idle = (whole(float(seconds[0]) * 1e12) for seconds in (timing.launch, timing.program))
    flow = _flow(group, loads, size, idle, lead)
    joins, leaves = _joins_and_leaves(request, group, choice, lead, idle)
    bus = _BUS.get(request.kind, 1.0) * request.size
    return Plan(
        (PlanPart((flow,), joins, leaves),),
        Start.PATH if request.kind in ("broadcast", "reduce") else Start.ALL,
        len(request.ranks),
        _programs(request, group, choice, lead, idle),
        "pairwise" if choice is None else f"{choice.algorithm.name} {choice.protocol.name}",
        group.pairwise.channels if choice is None else choice.channels,
        tuple(dict.fromkeys(notes)),
        sms=group.pairwise.channels if choice is None else choice.channels,
        touched=bus * (3.0 if request.kind in REDUCING else 2.0),
    )


def _programs(
    request: Request, group: NcclGroup, choice: Choice | None, lead: int, idle: int
) -> tuple[Callable[[], RoutedProgram], ...]:
    """Return what `network: steps` sends."""
    if choice is not None:
        return programs_of(group, choice.op, choice, request.root, lead=lead, idle=idle)
    splits = None if request.splits is None else np.array(request.splits, dtype=np.float64)

    def sizes(source: Ints, target: Ints) -> Floats:
        if splits is not None:
            return splits[source, target]
        return np.full(len(source), request.size / len(request.ranks))

    op = "all_to_all" if splits is not None else request.kind
    return (exchange_program(group, op, sizes, request.root, lead=lead, idle=idle),)


def _flow(group: NcclGroup, loads: OpLoads, size: int, idle: int, lead: int) -> PlanPhase:
    """Return the flow. Bytes per connection are made equal on all links: one fair share exists."""
    load = loads.bytes_in(size, idle * 1e-12, group.cluster.links.capacity)
    moves = load > 0
    conns = loads.share * (loads.conns.sum() / loads.share.sum() if loads.share.any() else 1.0)
    if moves.all():  # of thousands of plans that are kept, none has links of its own
        return PlanPhase(idle, loads.link, load, conns, lead)
    return PlanPhase(idle, loads.link[moves], load[moves], conns[moves], lead)


def _joins_and_leaves(
    request: Request, group: NcclGroup, choice: Choice | None, lead: int, idle: int
) -> tuple[Ints, Ints]:
    """Return when the data reaches each member, and when it is done with the last of it.

    A collective of all ends for all at once; along the chain of a broadcast or reduce each
    member comes one hop after the one before it.
    """
    n = len(request.ranks)
    if request.kind not in ("broadcast", "reduce"):
        return np.zeros(n, np.int64), np.full(n, lead + idle, np.int64)
    ring = group.comm.rings[0].astype(np.int64)
    after_root = np.roll(ring, -int(np.flatnonzero(ring == request.root)[0]))
    order = after_root if request.kind == "broadcast" else np.roll(after_root, -1)
    assert choice is not None
    still = group.timing(request.kind, [0], [choice], root=request.root).program
    latency = float(still[0]) * 1e12
    hop = min(latency, idle) / (n - 1)
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    joins = np.where(place > 0, lead + np.floor(place * hop), 0).astype(np.int64)
    leaves = lead + idle - np.floor((n - 1 - np.maximum(place, 1)) * hop).astype(np.int64)
    return joins, np.maximum(leaves, joins)


def _shares(route: Route) -> tuple[Ints, Floats]:
    """Return the links of a route, ascending, and the share of its bytes that each carries.

    A link that it crosses twice (host memory) counts twice.
    """
    link, where = np.unique(np.array(route.link, dtype=np.int64), return_inverse=True)
    return link, np.bincount(where, weights=route.share).astype(np.float64)


def _place(cluster: Cluster, rank: int) -> tuple[int, int]:
    return cluster.spec_of[int(cluster.node_of[rank])], int(cluster.local_of[rank])


def _apart(cluster: Cluster, a: int, b: int) -> tuple[bool, bool]:
    same_node = bool(cluster.node_of[a] == cluster.node_of[b])
    return same_node, cluster.domain_of(a) == cluster.domain_of(b)
