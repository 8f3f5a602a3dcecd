"""
The textbook library: alpha-beta costs of a named algorithm on the cluster's own links.

No protocol, no launch, no tuning: latency and bandwidth of the links on the route, and the
steps of the algorithm. It is the yardstick that real libraries are held against.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.collectives import (
    ALGORITHMS,
    Custom,
    Program,
    algorithms_for,
    is_msccl_file,
    is_switched,
    is_two_level,
    load_msccl,
    pair_sizes,
    program,
)
from commsim.errors import ScenarioError, did_you_mean
from commsim.libraries.expansion import (
    coupled,
    lay,
    part_of,
    per_byte,
    whole,
)
from commsim.libraries.ideal.exchange import Pairs, check_pairs, exchange_parts, in_turns
from commsim.libraries.ideal.pieces import Pipeline
from commsim.libraries.ideal.rings import Ring, ring_messages, ring_of
from commsim.libraries.ideal.shared_links import Spans, side_by_side
from commsim.libraries.ideal.torus import torus_dims
from commsim.libraries.plan import Plan, PlanPart, Request, RoutedProgram, Start, empty_phase
from commsim.libraries.routing import Router, channel_orders
from commsim.ops import ROOTED

__all__ = ["Ideal"]

_RING_ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
_PIPELINED = frozenset({"ring", "tree", "double_tree", "collnet_chain"})
_TREES = frozenset({"tree", "double_tree"})
_PREFERRED = ("ring", "direct", "halving_doubling", "tree")
_SMALL_RING = 16  # members; below, expanding the program is as quick as the closed form
_EXPANDED_RING = 64  # members; above, a ring whose edges share links is not expanded either
_SHARED = "ring: edges that share a link are timed with an even share of it each."


class Ideal:
    """Plans every op by one named algorithm, by an MSCCL XML file, or by the usual one of each.

    `channels` = 0 takes one per NIC of a node; `pieces` = 0 cuts a pipelined buffer into the
    least number of pieces whose fill costs no more than 0.5 % of the time.
    """

    name = "ideal"
    concurrency = 1

    def __init__(self, algo: str | None = None, *, channels: int = 0, pieces: int = 0) -> None:
        self._custom: Custom | None = None
        known = sorted({name for _, name in ALGORITHMS})
        if not isinstance(algo, str | None):
            raise ScenarioError(f"library.algo: {algo!r} is no name. Give text.")
        if algo is not None and is_msccl_file(algo):
            self._custom = load_msccl(algo)
        elif algo is not None and algo not in known:
            raise ScenarioError(
                f"library.algo: the ideal library has no algorithm {algo!r}."
                f"{did_you_mean(algo, known)} Known: {', '.join(known)}, or an MSCCL file.xml."
            )
        self._algo = algo
        self._channels = channels
        self._pieces = pieces
        self._cluster: Cluster | None = None
        self._plans: dict[Request, Plan] = {}
        self._last_pieces: tuple[object, int] = ((), 1)
        self._rings: dict[tuple[tuple[int, ...], int], Ring] = {}
        self._ways: dict[tuple[tuple[int, ...], tuple[int, ...]], Spans] = {}

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        """Return the plan of one op; plans are kept for as long as the cluster is the same."""
        if cluster is None:
            raise ScenarioError(
                f"{request.kind} of ranks {list(request.ranks)}: the ideal library needs a"
                " cluster to send over. Add a cluster section (or --cluster)."
            )
        if cluster is not self._cluster:
            self._cluster, self._router = cluster, Router(cluster)
            self._plans, self._rings, self._ways = {}, {}, {}
        if request not in self._plans:
            self._plans[request] = self._make(request, cluster)
        return self._plans[request]

    def _make(self, request: Request, cluster: Cluster) -> Plan:
        if request.kind == "send_recv":
            return self._message(request, cluster)
        members = len(request.ranks)
        if members == 1:
            nothing = np.zeros(1, np.int64)
            return Plan((PlanPart((empty_phase(0),), nothing, nothing),), Start.ALL, 1, (), "none")
        custom, note = self._custom_for(request)
        if custom is not None:
            return self._by_file(custom, request, cluster, note)
        algorithm, more = self._choose(request.kind)
        notes = dict.fromkeys((*note, *more))  # keeps the first of equal notes, in order
        orders = channel_orders(
            cluster,
            self._router,
            request.ranks,
            channels=self._channels if algorithm in _PIPELINED else 1,
        )
        start = Start.PATH if request.kind in ROOTED else Start.ALL
        parts: list[PlanPart] = []
        programs: list[Callable[[], RoutedProgram]] = []
        for channel, order in enumerate(orders):
            some, expand = self._channel(
                request, algorithm, order, (channel, len(orders)), cluster, notes
            )
            parts += some
            programs.append(expand)
        if len(orders) > 1:
            empty = replace(request, size=0)

            def spans(channel: int) -> Spans:
                if algorithm == "ring" and request.kind in _RING_ROUNDS:
                    return self._ring_spans(request.ranks, orders[channel], cluster)
                place = channel, len(orders)
                expand = self._channel(empty, algorithm, orders[channel], place, cluster, {})[1]
                return Spans.of(expand(), cluster.links)

            parts = side_by_side(parts, cluster.links.capacity, spans)
        return Plan(
            tuple(parts), start, members, tuple(programs), algorithm, len(orders), tuple(notes)
        )

    def _ring_spans(self, ranks: tuple[int, ...], order: list[int], cluster: Cluster) -> Spans:
        """Return the ways to and from the links of a ring; kept, as all sizes have them."""
        key = ranks, tuple(order)
        if key not in self._ways:
            ring = np.asarray(ranks)[order]
            edges = self._router.columns(ring, np.roll(ring, -1))
            self._ways[key] = Spans.of_ring(edges, len(cluster.links))
        return self._ways[key]

    def _custom_for(self, request: Request) -> tuple[Custom | None, tuple[str, ...]]:
        """Return the imported algorithm if it fits an op, and a note if it does not."""
        if self._custom is None:
            return None, ()
        made, members = self._custom.program, len(request.ranks)
        if (request.kind, members) != (made.op, made.n):
            return None, (
                f"{self._algo} is an {made.op} of {made.n} GPUs: not used for {request.kind} of"
                f" {members}.",
            )
        if max(request.root, 0) != max(made.root, 0):
            return None, (f"{self._algo} has root {made.root}: not used for root {request.root}.",)
        most = self._custom.most or request.size
        if not self._custom.least <= request.size <= most:
            return self._custom, (
                f"{self._algo} is meant for {self._custom.least:,} to {most:,} bytes.",
            )
        return self._custom, ()

    def _by_file(
        self, custom: Custom, request: Request, cluster: Cluster, notes: tuple[str, ...]
    ) -> Plan:
        """Return the plan of an imported algorithm; rank i of the group is its GPU i."""
        shape, members = custom.program, len(request.ranks)
        messages = lay(shape, request.size, range(members), request.ranks, self._router)
        together = request.kind not in ROOTED
        part = part_of(messages, shape.phase, members, cluster.links, together=together)
        start = Start.ALL if together else Start.PATH
        return Plan(
            (part,), start, members, (lambda: messages,), custom.name, custom.channels, notes
        )

    def _choose(self, kind: str) -> tuple[str, tuple[str, ...]]:
        """Return the algorithm for an op, and a note if it is not the one asked for."""
        possible = algorithms_for(kind, switched=True)
        usual = next(a for a in _PREFERRED if a in possible and (a, kind) != ("ring", "all_to_all"))
        if self._algo is None or self._custom is not None:
            return usual, ()
        if self._algo in possible:
            return self._algo, ()
        return usual, (f"{kind} has no {self._algo} algorithm: {usual} used.",)

    def _message(self, request: Request, cluster: Cluster) -> Plan:
        route = self._router.route(*request.ranks)
        alone = route.latency + request.size * per_byte(route, cluster.links)
        idle = whole(alone)
        flow = coupled([route], [request.size], idle, cluster.links)
        both = np.zeros(2, np.int64)
        part = PlanPart((flow,), both, np.full(2, idle, np.int64))

        def expand() -> RoutedProgram:
            one = np.zeros(1, np.int64)
            size = np.array([float(request.size)])
            return RoutedProgram(one, one + 1, size, one, (route,), np.zeros(2, np.int64), one[:0])

        return Plan((part,), Start.PAIR, 2, (expand,), "send_recv")

    def _channel(
        self,
        request: Request,
        algorithm: str,
        order: list[int],
        place: tuple[int, int],
        cluster: Cluster,
        notes: dict[str, None],
    ) -> tuple[list[PlanPart], Callable[[], RoutedProgram]]:
        """Return the parts of one channel, which carries an even share of the bytes.

        `place` is its number and the number of channels.
        """
        channel, channels = place
        size, members = request.size / channels, len(order)

        def laid(made: Program) -> RoutedProgram:
            return lay(made, size, order, request.ranks, self._router)

        if algorithm == "ring" and request.kind in _RING_ROUNDS and members > _SMALL_RING:
            ring = self._ring(request, size, order, channel)
            if ring is not None:
                notes.update({} if ring[1] else {_SHARED: None})
                rounds = _RING_ROUNDS[request.kind]
                return [ring[0]], lambda: ring_messages(
                    order, request.ranks, size, rounds, self._router
                )
        root = order.index(request.root) if request.root >= 0 else 0
        splits = None
        if request.splits is not None:
            splits = tuple(tuple(request.splits[a][b] for b in order) for a in order)
        per_node = _per_node(algorithm, order, request.ranks, cluster)
        dims = torus_dims(algorithm, [request.ranks[at] for at in order], per_node, cluster)

        def shape(pieces: int) -> Program:
            return program(
                request.kind,
                algorithm,
                members,
                root=root,
                pieces=pieces,
                splits=splits,
                per_node=per_node,
                dims=dims,
            )

        together = request.kind not in ROOTED
        if _in_pieces(request.kind, algorithm):
            pipeline = Pipeline(
                shape,
                lambda made, carried: lay(made, carried, order, request.ranks, self._router),
                size,
                cluster.links,
                algorithm in _TREES and request.kind != "broadcast",
            )
            pieces = self._pieces or self._best_pieces(pipeline, request, algorithm)
            part = pipeline.part(pieces, members, together=together)
            return [part], lambda: pipeline.messages(pieces)
        if request.kind in ("all_to_all", "all_to_all_v") and algorithm == "direct":
            check_pairs(members)
            sizes = pair_sizes(request.kind, members, size, splits)
            pairs = Pairs.of(order, request.ranks, sizes, self._router)
            return list(exchange_parts(pairs, members, cluster.links)), (
                lambda: in_turns(laid(shape(1)), members)
            )
        made = shape(1)
        messages = laid(made)
        return [part_of(messages, made.phase, members, cluster.links, together=together)], (
            lambda: messages
        )

    def _best_pieces(self, pipeline: Pipeline, request: Request, algorithm: str) -> int:
        """Return how many pieces are best; the same for all channels of a request."""
        key = (request, algorithm)
        if key != self._last_pieces[0]:
            self._last_pieces = (key, pipeline.best_count())
        return self._last_pieces[1]

    def _ring(
        self, request: Request, size: float, order: list[int], channel: int
    ) -> tuple[PlanPart, bool] | None:
        """Return the part of a ring in closed form, and whether it is exact.

        Where edges share a link the closed form gives each an even share of it; that is not
        what FIFO links do, so a ring that is small enough is left to the expanded program.
        """
        key = (request.ranks, channel)
        if key not in self._rings:
            self._rings[key] = ring_of(order, request.ranks, self._router)
        ring = self._rings[key]
        if not ring.exact and len(order) <= _EXPANDED_RING:
            return None
        return ring.part(size, _RING_ROUNDS[request.kind]), ring.exact


def _in_pieces(kind: str, algorithm: str) -> bool:
    """Return whether an algorithm sends the buffer of an op in pieces, one after the other."""
    if is_switched(algorithm):
        return kind != "barrier"
    pipelined = algorithm in _PIPELINED and kind in ("all_reduce", "broadcast", "reduce")
    return pipelined and (kind, algorithm) != ("all_reduce", "ring")


def _per_node(algorithm: str, order: list[int], ranks: tuple[int, ...], cluster: Cluster) -> int:
    """Return how many members stand on each node, for algorithms on two levels; else 0.

    Raises:
        ScenarioError: nodes hold different numbers of them.
    """
    if not is_two_level(algorithm):
        return 0
    counts: dict[int, int] = {}
    for member in order:
        domain = cluster.domain_of(ranks[member])
        counts[domain] = counts.get(domain, 0) + 1
    if len(set(counts.values())) > 1:
        raise ScenarioError(
            f"{algorithm}: needs equally many ranks on every node, and the group has"
            f" {min(counts.values())} on one and {max(counts.values())} on another."
        )
    if len(counts) == 1 and algorithm == "torus":
        return 0
    return next(iter(counts.values()))
