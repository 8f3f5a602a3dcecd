"""
Deadlock: nothing can run and work is left; the error says which rank waits for which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from commsim.engine.recorder import Recorder
from commsim.errors import DeadlockError
from commsim.graph import Graph

__all__ = ["deadlock", "sends_wait"]

_SHOWN = 16  # waiting ops that the message lists


class MetSoFar(Protocol):
    """A collective or message for which some members have arrived."""

    @property
    def ops(self) -> dict[int, int]:
        """The ops that have arrived, by member."""

    def missing(self) -> list[int]:
        """Return the members that have not arrived."""


class Stopped(Protocol):
    """An engine with no event left."""

    @property
    def graph(self) -> Graph:
        """What it ran."""

    @property
    def recorder(self) -> Recorder:
        """What has happened."""

    @property
    def rendezvous(self) -> Mapping[tuple[int, int], MetSoFar]:
        """What has been met for: (0, row) collectives, (1, row) messages."""


def sends_wait(engine: Stopped) -> bool:
    """Return whether some send has been posted and not received."""
    return any(
        kind == 1 and list(rendezvous.ops) == [0]
        for (kind, _), rendezvous in engine.rendezvous.items()
    )


def deadlock(engine: Stopped, *, eager: bool = False) -> DeadlockError:
    """Return the error for an engine that has stopped with work left.

    It names each waiting rank, its op and the ranks it waits for, and a cycle if there is one.
    `eager`: the same work ends if sends return before they are received.
    """
    waits = _waiting(engine)
    lines = [
        f"  {engine.graph.describe(op)}, waits for {_ranks(peers)}" for op, peers in waits[:_SHOWN]
    ]
    if len(waits) > _SHOWN:
        lines.append(f"  ... and {len(waits) - _SHOWN} more")
    cycle = _cycle(_edges(engine, waits))
    if cycle:
        closed = " -> ".join(f"rank {rank}" for rank in [*cycle, cycle[0]])
        lines.append(f"Cycle: {closed}.")
    else:
        lines.append("No cycle: a rank waits for an op that no rank issues.")
    if eager:
        lines.append(
            "It hangs only because its messages are too large to be buffered: with small ones,"
            " which NCCL sends before they are received, it runs by luck. (Gloo buffers none.)"
        )
    lines.append(
        "Post sends and receives in matching order (or use isend/irecv and wait), and issue the"
        " same collectives on every rank of a group."
    )
    head = f"deadlock: {len(waits)} ops wait and nothing can run."
    return DeadlockError("\n".join([head, *lines]))


def _waiting(engine: Stopped) -> list[tuple[int, list[int]]]:
    """Return (op, ranks it waits for) for every op that has arrived and not begun, by op."""
    graph, recorder = engine.graph, engine.recorder
    found = []
    for (kind, row), rendezvous in sorted(engine.rendezvous.items()):
        if kind == 0:
            ranks = graph.groups[graph.collectives.group[row]].ranks
        else:
            ranks = (int(graph.messages.source[row]), int(graph.messages.target[row]))
        peers = [ranks[member] for member in rendezvous.missing()]
        found += [(op, peers) for op in rendezvous.ops.values() if recorder.end[op] < 0]
    return sorted(found)


def _edges(engine: Stopped, waits: list[tuple[int, list[int]]]) -> dict[int, list[int]]:
    """Return, per rank, the ranks that it waits for."""
    graph = engine.graph
    edges: dict[int, list[int]] = {}
    for op, peers in waits:
        edges.setdefault(int(graph.lane_rank[graph.lane[op]]), []).extend(peers)
    return edges


def _cycle(edges: dict[int, list[int]]) -> list[int]:
    """Return the ranks of a shortest cycle through the first rank that is on one; else nothing."""
    import networkx

    graph = networkx.DiGraph((rank, peer) for rank in sorted(edges) for peer in sorted(edges[rank]))
    for start in sorted(graph):
        ways = networkx.single_source_shortest_path(graph, start)
        ends = [list(ways[rank]) for rank in sorted(graph.predecessors(start)) if rank in ways]
        if ends:
            return min(ends, key=len)
    return []


def _ranks(peers: list[int]) -> str:
    if not peers:
        return "an earlier op of its group"
    listed = ", ".join(str(rank) for rank in peers[:8]) + (", ..." if len(peers) > 8 else "")
    return f"rank {listed}" if len(peers) == 1 else f"ranks {listed}"
