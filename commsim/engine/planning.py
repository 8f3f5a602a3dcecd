"""
Planning: the rows of a graph become requests to a library, and their plans.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from commsim.arrays import Bools, Ints
from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.graph import Device, Graph, OpKind
from commsim.libraries import Library, Plan, PlanPhase, Request, Start, library_of, plan_of

__all__ = ["EagerPlanner", "Planner"]

_SPEAKS = (OpKind.COLLECTIVE, OpKind.SEND, OpKind.RECV)


def _checked(request: Request) -> Request:
    if request.size < 0 and request.recorded < 0 and request.splits is None:
        raise ScenarioError(
            f"{request.kind} among {len(request.ranks)} ranks: neither its size is known nor how"
            " long it took."
        )
    return request


class Planner:
    """Asks `library` for the plan of each collective and message of a graph."""

    def __init__(self, graph: Graph, cluster: Cluster | None, library: Library) -> None:
        self._graph = graph
        self._cluster = cluster
        self._libraries = [library_of(library, group.library) for group in graph.groups]
        self._on_host = _on_host(graph, OpKind.COLLECTIVE, len(graph.collectives))
        self._sent_from_host = _on_host(graph, OpKind.SEND, len(graph.messages))
        self._index = [{rank: i for i, rank in enumerate(g.ranks)} for g in graph.groups]
        self._late = self._lateness()
        self._asks: list[int] | None = None  # by collective, equal for equal questions
        self._known: dict[int, Plan] = {}

    def collective(self, row: int) -> Plan:
        """Return the plan of collective `row`: that of the first that asks for the same."""
        if self._asks is None:
            self._asks = self.equivalent_collectives()[1].tolist()
        ask = self._asks[row]
        plan = self._known.get(ask)
        if plan is None:
            plan = self._known[ask] = self._planned(row)
        return plan

    def _planned(self, row: int) -> Plan:
        request = self.collective_request(row)
        try:
            return plan_of(
                self._libraries[int(self._graph.collectives.group[row])], request, self._cluster
            )
        except IndexError:
            if self._cluster is None or max(request.ranks) < self._cluster.world_size:
                raise
            raise ScenarioError(
                f"{request.kind}: its group has rank {max(request.ranks)}, the cluster"
                f" {self._cluster.world_size} GPUs. Use more nodes."
            ) from None

    def message(self, row: int) -> Plan:
        """Return the plan of message `row`."""
        library = self._libraries[int(self._graph.messages.group[row])]
        return plan_of(library, self.message_request(row), self._cluster)

    def equivalent_collectives(self) -> tuple[Ints, Ints]:
        """Return the first row of each different request, and the number of every row's."""
        table = self._graph.collectives
        return _distinct_rows(
            table.group,
            table.size,
            table.root,
            table.recorded,
            table.eager,
            self._on_host,
            *map(_codes, (table.kind, table.dtype, table.redop, table.splits)),
            _codes([self._late[0].get(row, ()) for row in range(len(table))]),
        )

    def equivalent_messages(self) -> tuple[Ints, Ints]:
        """Return the first row of each different request, and the number of every row's."""
        table = self._graph.messages
        return _distinct_rows(
            table.group,
            table.source,
            table.target,
            table.size,
            table.recorded,
            self._sent_from_host,
            table.eager,
            _codes([self._late[1].get(row, ()) for row in range(len(table))]),
        )

    def equivalent_links(self) -> Ints:
        """Return per link the one that its use is recorded on; empty if each has its own."""
        return np.zeros(0, np.int64)

    def copy(self, op: int) -> PlanPhase | None:
        """Return the flow of a copy to or from host memory; None: that of its rank's own route."""
        return None

    def collective_request(self, row: int) -> Request:
        """Return the request of collective `row`.

        Raises:
            ScenarioError: neither its size is known nor how long it took.
        """
        table = self._graph.collectives
        group, root = int(table.group[row]), int(table.root[row])
        return _checked(
            Request(
                table.kind[row],
                int(table.size[row]),
                self._graph.groups[group].ranks,
                root=self._index[group][root] if root >= 0 else -1,
                splits=table.splits[row],
                recorded=int(table.recorded[row]),
                dtype=table.dtype[row],
                redop=table.redop[row],
                on_host=bool(self._on_host[row]),
                late=self._late[0].get(row, ()),
                eager=int(table.eager[row]),
            )
        )

    def _lateness(self) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
        """Return, by collective and by message, how long each member was recorded to stay on."""
        graph = self._graph
        collectives: dict[int, list[int]] = {}
        messages: dict[int, list[int]] = {}
        ops = np.flatnonzero((graph.duration > 0) & (graph.item >= 0))
        for op in ops[np.isin(graph.kind[ops], _SPEAKS)].tolist():
            row, late = int(graph.item[op]), int(graph.duration[op])
            if graph.kind[op] == OpKind.COLLECTIVE:
                index = self._index[int(graph.collectives.group[row])]
                of_row = collectives.setdefault(row, [0] * len(index))
                of_row[index[int(graph.lane_rank[graph.lane[op]])]] = late
            else:
                messages.setdefault(row, [0, 0])[int(graph.kind[op] == OpKind.RECV)] = late
        return (
            {row: tuple(late) for row, late in collectives.items()},
            {row: tuple(late) for row, late in messages.items()},
        )

    def message_request(self, row: int) -> Request:
        """Return the request of message `row`. Raises as `collective_request`."""
        table = self._graph.messages
        ranks = (int(table.source[row]), int(table.target[row]))
        return _checked(
            Request(
                "send_recv",
                int(table.size[row]),
                ranks,
                recorded=int(table.recorded[row]),
                on_host=bool(self._sent_from_host[row]),
                late=self._late[1].get(row, ()),
                eager=int(table.eager[row]),
            )
        )


class EagerPlanner(Planner):
    """Plans as another planner does, but lets every send go before it is received."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def equivalent_collectives(self) -> tuple[Ints, Ints]:
        """Return the first row of each different request, and the number of every row's."""
        return self._planner.equivalent_collectives()

    def equivalent_messages(self) -> tuple[Ints, Ints]:
        """Return the first row of each different request, and the number of every row's."""
        return self._planner.equivalent_messages()

    def collective(self, row: int) -> Plan:
        """Return the plan of collective `row`."""
        return self._planner.collective(row)

    def message(self, row: int) -> Plan:
        """Return the plan of message `row`, which waits for no receiver."""
        return replace(self._planner.message(row), start=Start.EAGER)

    def copy(self, op: int) -> PlanPhase | None:
        """Return the flow of a copy."""
        return self._planner.copy(op)


def _distinct_rows(*columns: npt.NDArray[np.generic]) -> tuple[Ints, Ints]:
    """Return the first of each set of rows that are equal in all columns, and each row's set."""
    number = np.zeros(len(columns[0]), np.int64)
    first = np.arange(min(len(number), 1))
    for column in columns:
        if (column == column[:1]).all():
            continue
        code = np.unique(column, return_inverse=True)[1].reshape(-1)
        _, first, number = np.unique(
            number * (int(code.max(initial=0)) + 1) + code, return_index=True, return_inverse=True
        )
    return first, number.reshape(-1)


def _codes(values: Sequence[Hashable]) -> Ints:
    """Number values by first appearance."""
    known = {value: code for code, value in enumerate(dict.fromkeys(values))}
    return np.fromiter(map(known.__getitem__, values), np.int64, len(values))


def _on_host(graph: Graph, kind: OpKind, rows: int) -> Bools:
    """Return, per collective or message, whether its data is in host memory."""
    ops = np.flatnonzero(graph.kind == kind)
    found = np.zeros(rows, dtype=np.bool_)
    found[graph.item[ops]] = graph.device[ops] == Device.CPU
    return found
