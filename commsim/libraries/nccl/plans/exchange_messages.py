"""
NCCL's sends and receives as messages: all-to-all, gather, scatter, and a single send.

Every rank goes through its peers in the order of NCCL's rounds (`tuning.p2p`), in which each pair
meets once and nobody gets two messages at a time; those to its own node and those beyond it go
side by side, on channels of their own. What a rank hands out in a round it hands out at the pace
that the timing model gives the whole, so that on an idle cluster they end when it says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from commsim.arrays import Bools, Floats, Ints
from commsim.cluster import Links, Route
from commsim.libraries.expansion import per_byte
from commsim.libraries.nccl.plans.group import NcclGroup
from commsim.libraries.nccl.plans.routes import routes_between
from commsim.libraries.nccl.timing import default_terms, hop_latency, reach_latency
from commsim.libraries.plan import Delays, RoutedProgram

__all__ = ["exchange_program", "message_program", "rounds_of"]


def rounds_of(group: NcclGroup, op: str, root: int) -> tuple[Ints, Ints, Ints]:
    """Return (round, source, target) of all messages of an op, round by round; `root` a member."""
    rows = [
        (number, rank, turn.send)
        for rank in range(group.comm.n_ranks)
        for number, turn in enumerate(group.pairwise.schedule(rank))
        if turn.send != rank
        and (op != "scatter" or rank == root)
        and (op != "gather" or turn.send == root)
    ]
    turn, source, target = np.array(sorted(rows), dtype=np.int64).reshape(-1, 3).T
    return turn, source, target


def exchange_program(
    group: NcclGroup, op: str, sizes: Callable[[Ints, Ints], Floats], root: int, *,
    lead: int, idle: int,
) -> Callable[[], RoutedProgram]:  # fmt: skip
    """Return the program of an op of sends and receives.

    `sizes(source, target)` are the bytes between members, `lead` the launch and `idle` the time
    after it, in ps.
    """

    def expand() -> RoutedProgram:
        _, source, target = rounds_of(group, op, root)
        size = sizes(source, target)
        routes = routes_between(group, source, target)
        far = group.edges.node[source] != group.edges.node[target]
        first = _first(group, op, size, far)
        time = np.maximum(idle - first, 0.0)
        hold, pace = _turns(target if op == "gather" else source, size, far, time)
        # Rounds overlap where a message takes longer on its links than a turn is.
        cost = np.array([per_byte(route, group.cluster.links) for route in routes])
        work = size * cost
        if (work > pace).any():
            pace = np.maximum(pace, work)
            latest = time - pace - _behind(routes, size, hold, group.cluster.links)
            hold = np.minimum(hold, np.maximum(latest, 0.0))
        on_links = np.array([route.latency for route in routes], dtype=np.float64)
        delays = Delays(lead + hold, np.maximum(first - on_links, 0.0), np.zeros(0), pace)
        none = np.zeros(len(source) + 1, np.int64)
        numbers = np.arange(len(source))
        return RoutedProgram(source, target, size, numbers, routes, none, none[:0], delays)

    return expand


def message_program(
    route: Route, size: int, links: Links, *, lead: int, idle: int, latency: int
) -> Callable[[], RoutedProgram]:
    """Return the program of one send: a message that trickles in at the pace of its channels.

    `lead` is the launch, `idle` the time after it and `latency` what of it no byte takes, in ps.
    """

    def expand() -> RoutedProgram:
        pace = max(idle - max(latency, route.latency), size * per_byte(route, links))
        after = max(idle - pace - route.latency, 0.0)
        one, none = np.ones(1), np.zeros(2, np.int64)
        delays = Delays(lead * one, after * one, np.zeros(0), pace * one)
        return RoutedProgram(
            np.zeros(1, np.int64), np.ones(1, np.int64), size * one, np.zeros(1, np.int64),
            (route,), none, none[:0], delays,
        )  # fmt: skip

    return expand


def _first(group: NcclGroup, op: str, size: Floats, far: Bools) -> Floats:
    """Return the latency of each message in ps."""
    runs, terms = group.runs(op, [round(float(size.mean()) * len(group.gpus))]), default_terms()
    near = float(hop_latency(runs, terms)[0])
    message = np.array([float(size.mean())])
    beyond = float(reach_latency(runs, terms, message, route=runs.longest)[0])
    return np.where(far, beyond, near) * 1e12


def _behind(routes: Sequence[Route], size: Floats, hold: Floats, links: Links) -> Floats:
    """Return the ps for which messages that leave later keep a link of each message busy."""
    behind, later = np.zeros(len(size)), np.zeros(len(links))
    for message in np.argsort(-hold, kind="stable").tolist():
        route = routes[message]
        link = np.array(route.link, dtype=np.int64)
        behind[message] = later[link].max(initial=0.0)
        later[link] += size[message] * np.array(route.share) / links.capacity[link] * 1e12
    return behind


def _turns(end: Ints, size: Floats, far: Bools, time: Floats) -> tuple[Floats, Floats]:
    """Return when each message may leave, and how long it takes to be handed out, in ps.

    The messages of one `end`, near and far ones apart, follow one another; the end with most bytes
    takes all of the `time`.
    """
    hold, pace = np.zeros(len(end)), np.zeros(len(end))
    for kind in (False, True):
        chosen = np.flatnonzero(far == kind)
        totals = np.bincount(end[chosen], weights=size[chosen])
        if not totals.any():
            continue
        pace[chosen] = size[chosen] / totals.max() * time[chosen]
        by_end = chosen[np.argsort(end[chosen], kind="stable")]
        before = np.cumsum(pace[by_end]) - pace[by_end]
        starts = np.flatnonzero(np.diff(end[by_end], prepend=-1))
        counts = np.diff(np.append(starts, len(by_end)))
        hold[by_end] = before - np.repeat(before[starts], counts)
    return hold, pace
