"""
From the rows of a graph to plans: what the engine asks of a library, and for which op.
"""

from __future__ import annotations

from commsim.cluster import Cluster
from commsim.graph import Graph
from commsim.libraries import Library, Phase, Plan, Request

__all__ = ["Planner"]


class Planner:
    """Asks `library` for the plan of each collective and message of a graph."""

    def __init__(self, graph: Graph, cluster: Cluster | None, library: Library) -> None:
        self._graph = graph
        self._cluster = cluster
        self._library = library
        self._index = [{rank: i for i, rank in enumerate(g.ranks)} for g in graph.groups]

    def collective(self, row: int) -> Plan:
        """Return the plan of collective `row`."""
        return self._library.plan(self.collective_request(row), self._cluster)

    def message(self, row: int) -> Plan:
        """Return the plan of message `row`."""
        return self._library.plan(self.message_request(row), self._cluster)

    def copy(self, op: int) -> Phase | None:
        """Return the flow of a copy to or from host memory; None: that of its rank's own route."""
        return None

    def collective_request(self, row: int) -> Request:
        """Return what the graph wants of collective `row`."""
        table = self._graph.collectives
        group, root = int(table.group[row]), int(table.root[row])
        return Request(
            table.kind[row],
            int(table.size[row]),
            self._graph.groups[group].ranks,
            root=self._index[group][root] if root >= 0 else -1,
            splits=table.splits[row],
            recorded=int(table.recorded[row]),
        )

    def message_request(self, row: int) -> Request:
        """Return what the graph wants of message `row`."""
        table = self._graph.messages
        ranks = (int(table.source[row]), int(table.target[row]))
        return Request("send_recv", int(table.size[row]), ranks, recorded=int(table.recorded[row]))
