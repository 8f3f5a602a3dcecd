"""
NCCL's trees as messages: pieces go up a channel's tree, added up on their way, and down again.

The closed form has a piece pass each edge faster while it meets no other, and counts one depth for
all trees. Here all pieces have the pace of the rest, and go in parts small enough to leave room for
the latencies; these are then such that the last part of this very tree ends when the model says.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Ints
from commsim.libraries.nccl.plans.group import NcclGroup
from commsim.libraries.nccl.plans.idle_clocks import TreeClock, factor_at
from commsim.libraries.nccl.plans.routes import route_of
from commsim.libraries.nccl.shapes import Choice
from commsim.libraries.nccl.timing import ProgramEdges
from commsim.libraries.plan import Delays, RoutedProgram

__all__ = ["MOST_PIECES", "tree_program"]

MOST_PIECES = 256
"""Messages over an edge of a tree or chain: more cost time and show nothing."""


def tree_program(
    group: NcclGroup, choice: Choice, channel: int, timed: ProgramEdges, *, lead: int
) -> RoutedProgram:
    """Return the program of a channel of an all-reduce; `lead` is the launch in ps."""
    up = group.comm.trees.up[channel % group.comm.trees.channels].astype(np.int64)
    child = np.flatnonzero(up >= 0)
    source, target = np.concatenate((child, up[child])), np.concatenate((up[child], child))
    connections = group.edges.along("tree", source, target, channel)
    routes = tuple(route_of(group, connections, at) for at in range(len(source)))
    crosses = np.array(group.edges.node[source] != group.edges.node[target])
    on_links = np.array([route.latency for route in routes], dtype=np.float64)
    latency = np.where(crosses, timed.reach[0], timed.hop[0]) * 1e12
    software = np.maximum(latency - on_links, 1.0)
    whole = np.where(crosses, timed.net_service[0], timed.local_service[0]) * 1e12
    wanted = float(group.timing(choice.op, [choice.size], [choice]).program[0]) * 1e12
    clock, exact = TreeClock(up), float(timed.count[0])
    count = max(round(min(exact * _parts(timed), MOST_PIECES)), 1)
    while True:
        pace = exact / count * whole
        ends = clock.ends(on_links + pace, software, (count - 1) * float(pace.max()))
        if ends(0.0) <= wanted or count == MOST_PIECES:
            break
        count = min(2 * count, MOST_PIECES)
    after = factor_at(ends, wanted) * software
    edge = np.repeat(np.arange(len(source)), count)
    ptr, dep = _needs(up, count)
    delays = Delays(
        hold=np.full(len(edge), float(lead)),
        after=after[edge],
        dep=np.zeros(len(dep)),
        pace=pace[edge],
    )
    size = np.full(len(edge), choice.size / choice.channels / count)
    return RoutedProgram(source[edge], target[edge], size, edge, routes, ptr, dep, delays)


def _parts(timed: ProgramEdges) -> float:
    """Return in how many parts a message passes the slowest edge as fast as one that is alone."""
    services = (timed.local_service[0], timed.net_service[0])
    transits = (timed.local_transit[0], timed.net_transit[0])
    at = int(np.argmax(services))
    return float(services[at] / transits[at]) if transits[at] > 0 else 1.0


def _needs(parent: Ints, pieces: int) -> tuple[Ints, Ints]:
    """Return CSR (ptr, messages): what each piece waits for, edge by edge, up and then down.

    Up it goes after those of the children, down after the one from above.
    """
    child = np.flatnonzero(parent >= 0)
    edge_up = np.full(len(parent), -1)
    edge_up[child] = np.arange(len(child))
    below: list[list[int]] = [[] for _ in range(len(parent))]
    for number, above in enumerate(parent[child].tolist()):
        below[above].append(number)
    down = len(child)
    needs = [below[rank] for rank in child.tolist()]
    for rank in child.tolist():
        above = int(parent[rank])
        needs.append(below[above] if parent[above] < 0 else [down + int(edge_up[above])])
    counts = np.repeat([len(of) for of in needs], pieces)
    dep = np.array(
        [on * pieces + k for of in needs for k in range(pieces) for on in of], dtype=np.int64
    )
    ptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return ptr, dep
