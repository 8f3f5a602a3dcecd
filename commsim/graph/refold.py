"""
Refolding: a folded graph again with fewer ranks per lane, from nothing but itself.

A lane holds the ops of all ranks that it stands for, a group the ranks of all groups; so a graph
with finer classes is made by writing a lane's ops once per class.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from commsim.errors import ScenarioError
from commsim.graph.builder import GraphBuilder, Tags
from commsim.graph.fold import Fold
from commsim.graph.table import Device, Folding, Graph, Group, Ints, OpKind, Phase, Way

__all__ = ["refold"]


def refold(graph: Graph, roles: Ints) -> Graph:
    """Return `graph` with ranks of different `roles` kept apart, a number per rank.

    Ranks on different lanes stay apart too. A graph that is not folded comes back as it is.

    Raises:
        ScenarioError: ops depend on ops of other lanes.
    """
    folding = graph.folding
    if folding is None:
        return graph
    groups = {f"group {at}": rows for at, rows in enumerate(folding.groups)}
    pairs = {f"pair {at}": rows for at, rows in enumerate(folding.pairs)}
    both = np.stack((folding.lane_of, np.asarray(roles, dtype=np.int64)), axis=1)
    classes = np.unique(both, axis=0, return_inverse=True)[1].reshape(-1)
    fold = Fold.of(classes, groups, pairs)
    build = GraphBuilder(fold)
    for rank in fold.representatives:
        _Copy(graph, folding, build, rank).emit()
    made = build.build(graph.meta)
    return replace(made, groups=_named(graph, made.groups))


class _Copy:
    """Writes the ops of a lane once more, for one of the ranks that it stood for."""

    def __init__(self, graph: Graph, folding: Folding, build: GraphBuilder, rank: int) -> None:
        self.graph, self.folding, self.build, self.rank = graph, folding, build, rank
        self.old = int(folding.lane_of[rank])
        self.lane = build.lane(rank, offset=int(graph.lane_offset[self.old]))
        self.new: dict[int, int] = {}
        self.batches: dict[int, int] = {}

    def emit(self) -> None:
        """Add all ops of the lane, and its window."""
        graph = self.graph
        for op in np.flatnonzero(graph.lane == self.old).tolist():
            self.new[op] = self._op(op)
        first, last = graph.window[self.old].tolist()
        if first >= 0:
            self.build.window(self.lane, self.new[first], self.new[last])

    def _op(self, op: int) -> int:
        graph, kind = self.graph, OpKind(int(self.graph.kind[op]))
        common: dict[str, Any] = {
            "stream": graph.streams[graph.stream[op]], "name": graph.names[graph.name[op]],
            "after": self._causes(op), "tags": self._tags(op),
        }  # fmt: skip
        if kind == OpKind.COMPUTE:
            return self.build.compute(
                self.lane, int(graph.duration[op]), device=Device(int(graph.device[op])),
                flops=float(graph.flops[op]), traffic=float(graph.traffic[op]),
                alloc=int(graph.alloc[op]), free=int(graph.free[op]), **common,
            )  # fmt: skip
        if kind == OpKind.COPY:
            return self._copy(op, common)
        common["device"] = Device(int(graph.device[op]))
        if kind == OpKind.COLLECTIVE:
            return self._collective(op, common)
        return self._message(op, kind, common)

    def _copy(self, op: int, common: dict[str, Any]) -> int:
        graph, size = self.graph, int(self.graph.size[op])
        if graph.item[op] != Way.NONE and graph.duration[op] < 0:
            return self.build.host_copy(self.lane, size, way=Way(int(graph.item[op])), **common)
        return self.build.copy(self.lane, int(graph.duration[op]), size=size, **common)

    def _collective(self, op: int, common: dict[str, Any]) -> int:
        graph, table = self.graph, self.graph.collectives
        row = int(graph.item[op])
        old = int(table.group[row])
        group = self._group(old)
        place = self._place(old)
        root, splits = int(table.root[row]), table.splits[row]
        if root >= 0:
            root = self._members(old)[graph.groups[old].ranks.index(root)]
        return self.build.collective(
            self.lane, group, table.kind[row], int(table.size[row]), root=root,
            dtype=table.dtype[row], redop=table.redop[row],
            splits=splits[place] if splits is not None else None,
            recorded=int(table.recorded[row]), **common,
        )  # fmt: skip

    def _message(self, op: int, kind: OpKind, common: dict[str, Any]) -> int:
        graph, table = self.graph, self.graph.messages
        row = int(graph.item[op])
        batch = int(graph.batch[op])
        if batch >= 0:
            if batch not in self.batches:
                self.batches[batch] = self.build.batch()
            batch = self.batches[batch]
        sends = kind == OpKind.SEND
        if common["name"] == (
            f"send to {table.target[row]}" if sends else f"recv from {table.source[row]}"
        ):
            common["name"] = ""  # it names the old rank: let the builder name the new one
        post = self.build.send if sends else self.build.recv
        return post(
            self.lane, f"pair {int(self.folding.pair[row])}", int(graph.size[op]),
            group=self._group(int(table.group[row])), tag=int(table.tag[row]), batch=batch,
            recorded=int(table.recorded[row]), **common,
        )  # fmt: skip

    def _group(self, old: int) -> int:
        group = self.graph.groups[old]
        return self.build.orbit(f"group {old}", self.rank, library=group.library)

    def _members(self, old: int) -> list[int]:
        """Return the real group of this rank that a group of the graph stands for."""
        rows = self.folding.groups[old]
        members: list[int] = rows[(rows == self.rank).any(axis=1)][0].tolist()
        return members

    def _place(self, old: int) -> int:
        return self._members(old).index(self.rank)

    def _causes(self, op: int) -> list[tuple[int, int]]:
        graph = self.graph
        part = slice(int(graph.dep_ptr[op]), int(graph.dep_ptr[op + 1]))
        causes = zip(graph.dep_op[part].tolist(), graph.dep_delay[part].tolist(), strict=True)
        try:
            return [(self.new[on], delay) for on, delay in causes]
        except KeyError:
            raise ScenarioError(
                f"graph: {graph.describe(op)} depends on another lane's op, or on a later one;"
                " such a graph can not be folded anew."
            ) from None

    def _tags(self, op: int) -> Tags:
        graph = self.graph
        return Tags(
            Phase(int(graph.phase[op])), int(graph.step[op]), int(graph.microbatch[op]),
            int(graph.stage[op]), int(graph.layer[op]),
        )  # fmt: skip


def _named(graph: Graph, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """Give groups the names and axes of those that they are parts of."""
    found = []
    for group in groups:
        old = int(group.axis.removeprefix("group "))
        number = group.name.removeprefix(group.axis)
        name = graph.groups[old].name
        found.append(
            replace(
                group,
                name=name if number == "0" else f"{name}.{number}",
                axis=graph.groups[old].axis,
            )
        )
    return tuple(found)
