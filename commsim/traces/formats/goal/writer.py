"""
Write a graph as GOAL: its collectives become the sends of an algorithm, which GOAL can say.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from commsim.collectives import dependencies, program
from commsim.errors import TraceError
from commsim.graph import Graph, OpKind

__all__ = ["write_goal"]

_ALGORITHMS = {
    "all_reduce": "ring", "all_gather": "ring", "reduce_scatter": "ring", "broadcast": "tree",
    "reduce": "tree", "gather": "direct", "scatter": "direct", "all_to_all": "direct",
    "all_to_all_v": "direct", "barrier": "tree",
}  # fmt: skip
_MAX_SENDS = 5_000_000
_LAST_CPU = 255  # LogGOPSim keeps a cpu's number in a byte


class _WrittenRank(msgspec.Struct):
    """The statements of one rank; `last[op]` are the labels that stand for the end of an op."""

    lines: list[str] = msgspec.field(default_factory=list)
    count: int = 0
    ends: dict[int, list[int]] = msgspec.field(default_factory=dict)
    cpus: dict[int, int] = msgspec.field(default_factory=dict)

    def add(self, text: str, needs: list[int], stream: int) -> int:
        """Add a statement of a stream that requires others; return its label.

        A stream is a `cpu` of GOAL: statements of two of them run at once (LogGOPSim's default is
        cpu 0 for all, which undoes every overlap).
        """
        self.count += 1
        cpu = self.cpus.setdefault(stream, min(len(self.cpus), _LAST_CPU))
        self.lines.append(f"l{self.count}: {text} cpu {cpu}")
        self.lines += [f"l{self.count} requires l{need}" for need in dict.fromkeys(needs)]
        return self.count


def write_goal(graph: Graph, path: Path) -> list[str]:
    """Write `graph` to `path`; return what the format could not carry.

    Raises:
        TraceError: work without a duration, or more sends than such a file should have.
    """
    last = max([*graph.lane_rank.tolist(), *(r for g in graph.groups for r in g.ranks)], default=0)
    ranks = [_WrittenRank() for _ in range(last + 1)]
    writer = _Writer(graph, ranks)
    for op in writer.in_issue_order():
        writer.write(op)
    with path.open("w", encoding="ascii") as file:
        file.write(f"num_ranks {len(ranks)}\n")
        for number, rank in enumerate(ranks):
            file.write(f"\nrank {number} {{\n")
            file.writelines(f"{line}\n" for line in rank.lines)
            file.write("}\n")
    return writer.notes()


class _Writer:
    """Turns ops into statements, in an order in which each follows what it needs."""

    def __init__(self, graph: Graph, ranks: list[_WrittenRank]) -> None:
        self._graph, self._ranks = graph, ranks
        self._rank_of = graph.lane_rank[graph.lane].tolist()
        self._before = _before(graph)
        self._tags: dict[tuple[int, int], int] = {}
        self._message_tags: dict[int, int] = {}
        self._pending: dict[int, list[int]] = {}
        self._members = _member_counts(graph)
        self._collectives: dict[str, str] = {}
        self._sends = 0

    def in_issue_order(self) -> Iterator[int]:
        """Yield the ops so that a collective's members stand before whatever waits for one."""
        graph = self._graph
        ptr, members = graph.members()
        groups = [
            members[a:b].tolist() for a, b in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True)
        ]
        of = {op: group for group in groups for op in group}
        waiting, following = _waiting(graph, self._before)
        ready = [op for op in range(len(graph)) if not waiting[op]]
        come: dict[int, int] = {}
        while ready:
            fresh: list[int] = []
            for op in ready:
                group = of.get(op)
                if group is None:
                    done = [op]
                else:
                    row = int(graph.item[op])
                    come[row] = come.get(row, 0) + 1
                    done = group if come[row] == len(group) else []
                for ended in done:
                    yield ended
                    for later in following[ended]:
                        waiting[later] -= 1
                        if not waiting[later]:
                            fresh.append(later)
            ready = fresh

    def write(self, op: int) -> None:
        """Write one op; a collective when the last of its members comes."""
        graph, kind = self._graph, int(self._graph.kind[op])
        rank = self._ranks[self._rank_of[op]]
        if kind == OpKind.COLLECTIVE:
            row = int(graph.item[op])
            waiting = self._pending.setdefault(row, [])
            waiting.append(op)
            if len(waiting) == self._members[row]:
                self._expand(row, waiting)
        elif kind in (OpKind.SEND, OpKind.RECV):
            rank.ends[op] = [rank.add(self._message(op), self._needs(op), self._stream(op))]
        else:
            work = f"calc {self._nanoseconds(op)}"
            rank.ends[op] = [rank.add(work, self._needs(op), self._stream(op))]

    def _stream(self, op: int) -> int:
        return int(self._graph.stream[op])

    def notes(self) -> list[str]:
        """Return what the format could not carry."""
        notes = [
            "GOAL: names (a stream is a cpu), memory, tags of phases and the latencies"
            " of launches are not carried; times are whole nanoseconds."
        ]
        if self._collectives:
            chosen = ", ".join(f"{op} by {how}" for op, how in self._collectives.items())
            notes.append(f"GOAL: collectives are written as the sends of an algorithm: {chosen}.")
        return notes

    def _needs(self, op: int) -> list[int]:
        """Return the labels that op requires: of its dependencies and its stream's last op."""
        graph, rank = self._graph, self._ranks[self._rank_of[op]]
        deps = graph.dep_op[graph.dep_ptr[op] : graph.dep_ptr[op + 1]].tolist()
        if self._before[op] >= 0:
            deps.append(self._before[op])
        return [label for dep in deps for label in rank.ends.get(dep, ())]

    def _nanoseconds(self, op: int) -> int:
        duration = int(self._graph.duration[op])
        if duration < 0:
            raise TraceError(
                f"{self._graph.describe(op)}: has FLOPs and no duration, which GOAL cannot say."
            )
        return (duration + 500) // 1000

    def _message(self, op: int) -> str:
        messages, row = self._graph.messages, int(self._graph.item[op])
        source, target = int(messages.source[row]), int(messages.target[row])
        if row not in self._message_tags:
            self._message_tags[row] = self._next_tag(source, target)
        size, tag = max(0, int(messages.size[row])), self._message_tags[row]
        if self._graph.kind[op] == OpKind.SEND:
            return f"send {size}b to {target} tag {tag}"
        return f"recv {size}b from {source} tag {tag}"

    def _next_tag(self, source: int, target: int) -> int:
        self._tags[source, target] = self._tags.get((source, target), 0) + 1
        return self._tags[source, target]

    def _expand(self, row: int, ops: list[int]) -> None:
        """Write a collective as the sends of an algorithm among all members of its group."""
        graph, table = self._graph, self._graph.collectives
        ranks = graph.groups[int(table.group[row])].ranks
        kind = table.kind[row]
        algorithm = _ALGORITHMS.get(kind)
        if algorithm is None:  # a call outside torch.distributed, of which one rank alone is known
            rank, op = self._ranks[self._rank_of[ops[0]]], ops[0]
            work = f"calc {max(0, int(table.recorded[row]) + 500) // 1000}"
            rank.ends[op] = [rank.add(work, self._needs(op), self._stream(op))]
            return
        self._collectives[kind] = algorithm
        root = ranks.index(int(table.root[row])) if table.root[row] >= 0 else 0
        made = program(kind, algorithm, len(ranks), root=root, splits=table.splits[row])
        self._sends += len(made)
        if self._sends > _MAX_SENDS:
            raise TraceError(
                f"GOAL: the collectives come to more than {_MAX_SENDS:,} sends. Write fewer ranks"
                " or steps, or another format."
            )
        at = {self._rank_of[op]: op for op in ops}
        needs = {rank: self._needs(op) for rank, op in at.items()}
        stream = self._stream(ops[0])
        total = max(0, int(table.size[row]))
        sizes = np.rint(made.message_share * total).astype(np.int64).tolist()
        ptr, on = dependencies(made)
        arrived: list[int] = []
        sent: dict[int, list[int]] = {rank: [] for rank in ranks}
        rows = zip(made.source.tolist(), made.target.tolist(), sizes, strict=True)
        for number, (source, target, size) in enumerate(rows):
            one, other = ranks[source], ranks[target]
            tag = self._next_tag(one, other)
            before = [arrived[i] for i in on[ptr[number] : ptr[number + 1]].tolist()]
            sender, receiver = self._ranks[one], self._ranks[other]
            first = before or needs.get(one, [])
            send, recv = f"send {size}b to {other} tag {tag}", f"recv {size}b from {one} tag {tag}"
            sent[one].append(sender.add(send, first, stream))
            arrived.append(receiver.add(recv, needs.get(other, []), stream))
            sent[other].append(arrived[-1])
        for rank, op in at.items():
            self._ranks[rank].ends[op] = sent[rank] or needs[rank]


def _before(graph: Graph) -> list[int]:
    """Return the op before each on its stream, -1 for the first."""
    last: dict[tuple[int, int], int] = {}
    before = []
    for op, queue in enumerate(zip(graph.lane.tolist(), graph.stream.tolist(), strict=True)):
        before.append(last.get(queue, -1))
        last[queue] = op
    return before


def _member_counts(graph: Graph) -> list[int]:
    ptr, _ = graph.members()
    counts: list[int] = np.diff(ptr).tolist()
    return counts


def _waiting(graph: Graph, before: list[int]) -> tuple[list[int], list[list[int]]]:
    """Return how many ops each waits for, and who waits for each."""
    following: list[list[int]] = [[] for _ in range(len(graph))]
    waiting = [0] * len(graph)
    ptr, deps = graph.dep_ptr.tolist(), graph.dep_op.tolist()
    for op in range(len(graph)):
        for dep in dict.fromkeys([*deps[ptr[op] : ptr[op + 1]], *before[op : op + 1]]):
            if dep >= 0:
                following[dep].append(op)
                waiting[op] += 1
    return waiting, following
