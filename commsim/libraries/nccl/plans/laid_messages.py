"""
NVLS, NVLSTree, CollNet and PAT as messages: their chunk programs (proven by the checker) on the
routes that NCCL takes.

The timing model has one time for all of such a program. So all messages add latency and are handed
out below the rate of their routes by one factor each, so that on an idle cluster the program
without bytes takes what the model's latency is, and with them what the model says.

What NCCL gives to channels or warps of their own goes over connections of its own here too: the
two trees of NVLSTree, and the sums and the results that a GPU has its NVSwitch make. On a shared
connection a message would wait behind one that waits for the network.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from commsim.arrays import Bools, Floats
from commsim.cluster import Route
from commsim.collectives import Program, program
from commsim.libraries.expansion import lay, per_byte
from commsim.libraries.nccl.plans.group import NcclGroup
from commsim.libraries.nccl.plans.idle_clocks import ProgramClock, factor_at
from commsim.libraries.nccl.plans.network_sums import (
    between_ranks,
    chains_over_nodes,
    direct_over_nodes,
    nvls_over_nodes,
)
from commsim.libraries.nccl.plans.routes import routes_between
from commsim.libraries.nccl.shapes import Algorithm, Choice
from commsim.libraries.nccl.timing import default_terms, hop_latency, reach_latency
from commsim.libraries.plan import Delays, RoutedProgram
from commsim.libraries.routing import Router

__all__ = ["has_program", "laid_programs"]

_MOST_MESSAGES = 16_384
_MOST_PIECES = 32
_OVER_NODES = (Algorithm.NVLS, Algorithm.NVLSTree, Algorithm.CollNetDirect)


def has_program(group: NcclGroup, op: str, choice: Choice) -> bool:
    """Return whether an algorithm's messages are known for a group."""
    ranks, nodes = group.comm.local_ranks, group.comm.n_nodes
    if choice.algorithm == Algorithm.PAT:
        return max(ranks) == 1
    if choice.algorithm == Algorithm.NVLS and nodes == 1:
        return True
    over_nodes = op == "all_reduce" and nodes > 1 and len(set(ranks)) == 1
    if choice.algorithm == Algorithm.CollNetChain:
        return over_nodes and all(len(chain) == ranks[0] for chain in _chains(group))
    return over_nodes and choice.algorithm in _OVER_NODES


def laid_programs(
    group: NcclGroup, op: str, choice: Choice, *, lead: int, idle: int
) -> tuple[Callable[[], RoutedProgram], ...]:
    """Return the programs of a choice that `has_program`; `lead` (launch) and `idle` in ps.

    Those of NVLSTree are its two trees, which know nothing of each other.
    """
    kept: list[tuple[RoutedProgram, ...]] = []

    def program(number: int) -> Callable[[], RoutedProgram]:
        def expand() -> RoutedProgram:
            if not kept:
                kept.append(_laid(group, op, choice, lead, idle))
            return kept[0][number]

        return expand

    count = 2 if choice.algorithm == Algorithm.NVLSTree else 1
    return tuple(program(number) for number in range(count))


def _laid(
    group: NcclGroup, op: str, choice: Choice, lead: int, idle: int
) -> tuple[RoutedProgram, ...]:
    order = np.argsort(group.edges.node, kind="stable").tolist()
    made = _shape(group, op, choice)
    # The way to a switch is over NVLink, also where GPUs do not read each other's memory.
    router = Router(group.cluster, pxn=group.router.pxn)
    plain = lay(made, float(choice.size), order, group.gpus.tolist(), router)
    messages = replace(plain, routes=_by_nics(group, plain))
    if choice.algorithm != Algorithm.NVLSTree:
        return (_timed(group, choice, messages, lead, idle),)
    return tuple(_timed(group, choice, tree, lead, idle) for tree in _trees(made, messages, group))


def _timed(
    group: NcclGroup, choice: Choice, messages: RoutedProgram, lead: int, idle: int
) -> RoutedProgram:
    """Return messages with the delays and the pace at which they end when the model says."""
    no_bytes = float(group.timing(choice.op, [0], [choice]).program[0]) * 1e12
    clock = ProgramClock(messages)
    links = np.array([route.latency for route in messages.routes], dtype=np.float64)
    links = links[messages.route]
    more, still = _software(group, choice, messages, links), np.zeros(len(links))
    factor = factor_at(lambda x: clock.ends(links + x * more, still), min(no_bytes, idle))
    after = factor * more
    cost = np.array([per_byte(route, group.cluster.links) for route in messages.routes])
    alone = messages.size * cost[messages.route]
    slower = factor_at(lambda x: clock.ends(links + after, x * alone), idle)
    hold = np.full(len(links), float(lead))
    return replace(
        messages, delays=Delays(hold, after, np.zeros(len(messages.dep)), slower * alone)
    )


def _trees(
    made: Program, messages: RoutedProgram, group: NcclGroup
) -> tuple[RoutedProgram, RoutedProgram]:
    """Return the two trees of NVLSTree, with connections of their own for sums and results.

    A chunk belongs to the first or the second half of its head's part (`collectives.switches`).
    """
    heads = group.comm.local_ranks[0]
    cuts = len(made.share) // heads
    first = np.unique(made.message, return_index=True)[1]
    second = made.chunk[first] % cuts >= cuts // 2
    carried = np.bincount(made.message)
    up, down = messages.target < 0, messages.source < 0
    results = np.where(up, ~made.reduce, carried > 1) & (up | down)
    apart = np.where(results, len(made.switches), 0)  # the switch once more, by another number
    both = replace(
        messages,
        source=messages.source - np.where(down, apart, 0),
        target=messages.target - np.where(up, apart, 0),
    )
    return _only(both, ~second), _only(both, second)


def _only(messages: RoutedProgram, chosen: Bools) -> RoutedProgram:
    """Return some messages of a program, none of which waits for one of the others."""
    number = np.cumsum(chosen) - 1
    counts = np.diff(messages.dep_ptr)
    needs = messages.dep[np.repeat(chosen, counts)]
    return replace(
        messages,
        source=messages.source[chosen],
        target=messages.target[chosen],
        size=messages.size[chosen],
        route=messages.route[chosen],
        dep_ptr=np.concatenate(([0], np.cumsum(counts[chosen]))).astype(np.int64),
        dep=number[needs].astype(np.int64),
    )


def _shape(group: NcclGroup, op: str, choice: Choice) -> Program:
    n, m = group.comm.n_ranks, group.comm.local_ranks[0]
    if choice.algorithm == Algorithm.PAT:
        return program(op, "pat", n)
    if choice.algorithm == Algorithm.NVLS and n == m:
        return program(op, "nvls", n, pieces=_pieces(4 * n))
    if choice.algorithm == Algorithm.NVLS:
        return between_ranks(nvls_over_nodes(n, m, _pieces(5 * n)), m)
    if choice.algorithm == Algorithm.CollNetDirect:
        return between_ranks(direct_over_nodes(n, m, _pieces((2 * m - 1) * n)), m)
    if choice.algorithm == Algorithm.CollNetChain:
        chains = _chains(group)
        each = len(chains) * (2 * m - 1) * group.comm.n_nodes
        return between_ranks(chains_over_nodes(n, chains, _pieces(each)), m)
    between = 2 * (group.comm.n_nodes - 1) * m
    return program(op, "nvls_tree", n, per_node=m, pieces=_pieces(2 * (4 * n + between)))


def _chains(group: NcclGroup) -> list[list[int]]:
    """Return the places of a node along each channel of CollNetChain, from the network on."""
    graph = group.comm.graphs["collnet_chain"]
    return [list(channel.intra) for channel in graph.channels]


def _pieces(messages: int) -> int:
    """Return in how many pieces a program goes that sends so many messages for each."""
    return max(2, min(_MOST_PIECES, _MOST_MESSAGES // messages))


def _by_nics(group: NcclGroup, messages: RoutedProgram) -> tuple[Route, ...]:
    """Return the routes of messages, those between ranks by the NICs that NCCL gives them."""
    first = np.unique(messages.route, return_index=True)[1]
    source, target = messages.source[first], messages.target[first]
    between = np.flatnonzero((source >= 0) & (target >= 0))
    routes = list(messages.routes)
    found = routes_between(group, source[between], target[between])
    for at, route in zip(between.tolist(), found, strict=True):
        routes[at] = route
    return tuple(routes)


def _software(group: NcclGroup, choice: Choice, messages: RoutedProgram, links: Floats) -> Floats:
    """Return the latency of each message beyond that of its links, in ps, up to a factor."""
    runs, terms = group.runs(choice.op, [choice.size], [choice]), default_terms()
    size = np.array([float(messages.size.max(initial=0.0))])
    reach = float(reach_latency(runs, terms, size)[0]) * 1e12
    hop = float(hop_latency(runs, terms)[0]) * 1e12
    node, switched = group.edges.node, (messages.source < 0) | (messages.target < 0)
    crosses = (node[messages.source] != node[messages.target]) & ~switched
    return np.maximum(np.where(crosses, reach, np.where(switched, hop / 2, hop)) - links, 1.0)
