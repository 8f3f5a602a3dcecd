"""
NCCL's rings and chains as messages: what `network: steps` sends, one program per channel. Trees are
in `tree_messages`, what runs on switches and PAT in `laid_messages`, sends in `exchange_messages`.

An edge's latency and pace are those of the timing model; what the links of its route add is in
them already. So on an idle cluster the messages take what the closed form says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from commsim.arrays import Ints
from commsim.libraries.nccl.plans.group import CHAINED, NcclGroup
from commsim.libraries.nccl.plans.laid_messages import has_program, laid_programs
from commsim.libraries.nccl.plans.routes import route_of
from commsim.libraries.nccl.plans.tree_messages import MOST_PIECES, tree_program
from commsim.libraries.nccl.shapes import Algorithm, Choice
from commsim.libraries.nccl.timing import (
    ProgramEdges,
    chain_edges,
    default_terms,
    ring_edges,
    tree_edges,
)
from commsim.libraries.plan import Delays, RoutedProgram

__all__ = ["programs_of"]


_MAKE = {Algorithm.Ring: ring_edges, Algorithm.Tree: tree_edges}


class _Shape(NamedTuple):
    """A channel's program: edges between members, and the messages over them.

    Message i goes over `edge[i]`; its dependencies are `dep[ptr[i]:ptr[i + 1]]`.
    """

    source: Ints
    target: Ints
    edge: Ints
    ptr: Ints
    dep: Ints


def programs_of(
    group: NcclGroup, op: str, choice: Choice, root: int, *, lead: int, idle: int
) -> tuple[Callable[[], RoutedProgram], ...]:
    """Return the programs of the channels of a ring, chain or tree, or of all channels; maybe none.

    `lead` is the launch and `idle` the time after it, in ps; `root` a member index.
    """
    if has_program(group, op, choice) and group.comm.n_ranks > 1:
        return laid_programs(group, op, choice, lead=lead, idle=idle)
    make = chain_edges if op in CHAINED else _MAKE.get(choice.algorithm)
    if make is None or group.comm.n_ranks < 2:
        return ()

    def program(channel: int) -> Callable[[], RoutedProgram]:
        def expand() -> RoutedProgram:
            timed = make(group.runs(op, [choice.size], [choice], root=root), default_terms())
            if make is tree_edges:
                return tree_program(group, choice, channel, timed, lead=lead)
            return _channel(group, op, choice, channel, root, timed, lead)

        return expand

    return tuple(program(channel) for channel in range(choice.channels))


def _channel(
    group: NcclGroup,
    op: str,
    choice: Choice,
    channel: int,
    root: int,
    timed: ProgramEdges,
    lead: int,
) -> RoutedProgram:
    around = choice.algorithm == Algorithm.Ring and op not in CHAINED
    exact = float(timed.count[0])
    count = max(round(exact if around else min(exact, MOST_PIECES)), 1)
    together = 1.0 if around else exact / count  # small messages go together
    ring = group.comm.rings[channel % len(group.comm.rings)].astype(np.int64)
    shape = _chain(ring, root, count, op) if op in CHAINED else _ring(ring, count)
    connections = group.edges.along("ring", shape.source, shape.target, channel)
    routes = tuple(route_of(group, connections, at) for at in range(len(shape.source)))
    crosses = np.array(group.edges.node[shape.source] != group.edges.node[shape.target])
    latency = np.where(crosses, timed.reach[0], timed.hop[0]) * 1e12
    pace = np.where(crosses, timed.net_service[0], timed.local_service[0]) * 1e12
    alone = np.where(crosses, timed.net_transit[0], timed.local_transit[0]) * 1e12
    # A hop takes what the first message does, and the last one comes no later than when whole.
    latency += alone - together * pace
    pace *= together
    more = np.maximum(latency - np.array([route.latency for route in routes]), 0.0)
    size = np.full(len(shape.edge), choice.size / choice.channels)
    size *= 1 / group.comm.n_ranks if around else 1 / count
    delays = Delays(
        hold=np.full(len(shape.edge), lead + float(timed.start[0]) * 1e12),
        after=more[shape.edge],
        dep=np.zeros(len(shape.dep)),
        pace=pace[shape.edge],
    )
    return RoutedProgram(
        shape.source[shape.edge],
        shape.target[shape.edge],
        size,
        shape.edge,
        routes,
        shape.ptr,
        shape.dep,
        delays,
    )


def _ring(order: Ints, steps: int) -> _Shape:
    """Return `steps` messages over every edge; each waits for the one before on the edge before."""
    n = len(order)
    at = np.arange(n * steps)
    edge, step = at % n, at // n
    before = (step - 1) * n + (edge - 1) % n
    ptr = np.concatenate((np.zeros(n, np.int64), np.arange(n * (steps - 1) + 1)))
    return _Shape(order, np.roll(order, -1), edge, ptr, before[n:])


def _chain(order: Ints, root: int, pieces: int, op: str) -> _Shape:
    """Return the pieces along the ring from the root on, or towards it."""
    turned = np.roll(order, -int(np.flatnonzero(order == root)[0]))
    if op == "reduce":
        turned = np.roll(turned, -1)
    edges = len(order) - 1
    edge = np.repeat(np.arange(edges), pieces)
    dep = np.arange((edges - 1) * pieces)
    ptr = np.concatenate((np.zeros(pieces, np.int64), np.arange(len(dep) + 1)))
    return _Shape(turned[:-1], turned[1:], edge, ptr, dep)
