"""
Graphs joined: side by side on ranks of their own, or one after another on the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from commsim.arrays import Ints
from commsim.errors import ScenarioError
from commsim.graph.table import Collectives, Graph, Messages, OpKind, op_columns

__all__ = ["merged", "moved_to", "repeated"]

_TABLES = {"collectives": Collectives, "messages": Messages}


def moved_to(graph: Graph, ranks: Sequence[int]) -> Graph:
    """Return `graph` on other ranks: its rank r is `ranks[r]` then.

    Raises:
        ScenarioError: it is folded, or has a rank beyond them.
    """
    if graph.folding is not None:
        raise ScenarioError("graph: it is folded, and cannot be moved to other ranks.")
    last = max(
        [*graph.lane_rank.tolist(), *(rank for group in graph.groups for rank in group.ranks)],
        default=-1,
    )
    if last >= len(ranks):
        raise ScenarioError(f"the work has rank {last}, and {len(ranks)} ranks to run on.")
    to = np.append(np.asarray(ranks, dtype=np.int64), -1)  # -1, which is nobody, stays
    table, messages = graph.collectives, graph.messages
    return replace(
        graph,
        lane_rank=to[graph.lane_rank],
        groups=tuple(
            replace(group, ranks=tuple(to[list(group.ranks)].tolist())) for group in graph.groups
        ),
        collectives=replace(table, root=to[table.root]),
        messages=replace(messages, source=to[messages.source], target=to[messages.target]),
    )


def merged(graphs: Sequence[Graph], names: Sequence[str], offsets: Sequence[int]) -> Graph:
    """Return graphs side by side; graph i begins `offsets[i]` ps after zero.

    Groups are named after `names[i]`. Ops, lanes, groups, collectives and messages of one graph
    follow those of the one before. Steps and profiled windows are each graph's own, so the whole
    has none.

    Raises:
        ScenarioError: two graphs have a rank in common, or one is folded.
    """
    _check_apart(graphs, names)
    streams = list(dict.fromkeys(one for graph in graphs for one in graph.streams))
    texts = list(dict.fromkeys(one for graph in graphs for one in graph.names))
    place = {text: at for at, text in enumerate(texts)}
    ops, lanes, groups, rows, sent = (
        _starts(counts)
        for counts in zip(
            *(
                (len(g), len(g.lane_rank), len(g.groups), len(g.collectives), len(g.messages))
                for g in graphs
            ),
            strict=True,
        )
    )
    parts: dict[str, list[Any]] = {name: [] for name in op_columns()}
    for at, graph in enumerate(graphs):
        for name in parts:
            parts[name].append(getattr(graph, name))
        parts["lane"][at] = graph.lane + lanes[at]
        parts["stream"][at] = _index(streams, graph.streams)[graph.stream]
        parts["name"][at] = np.array([place[text] for text in graph.names])[graph.name]
        parts["item"][at] = _items(graph, rows[at], sent[at])
        parts["batch"][at] = np.where(graph.batch >= 0, graph.batch + ops[at], -1)
        parts["step"][at] = np.full(len(graph), -1)
    columns: dict[str, Any] = {name: np.concatenate(part) for name, part in parts.items()}
    return replace(
        graphs[0],
        **columns,
        dep_ptr=np.concatenate([[0], *(g.dep_ptr[1:] + d for g, d in _with_deps(graphs))]),
        dep_op=np.concatenate([g.dep_op + o for g, o in zip(graphs, ops, strict=True)]),
        dep_delay=np.concatenate([g.dep_delay for g in graphs]),
        lane_rank=np.concatenate([g.lane_rank for g in graphs]),
        multiplicity=np.concatenate([g.multiplicity for g in graphs]),
        lane_offset=np.concatenate(
            [g.lane_offset + by for g, by in zip(graphs, offsets, strict=True)]
        ),
        window=np.concatenate([np.full_like(g.window, -1) for g in graphs]),
        names=tuple(texts),
        streams=tuple(streams),
        groups=tuple(
            replace(group, name=f"{name}: {group.name}")
            for graph, name in zip(graphs, names, strict=True)
            for group in graph.groups
        ),
        collectives=_joined("collectives", graphs, groups, ops),
        messages=_joined("messages", graphs, groups, ops),
        meta={},
    )


def repeated(graph: Graph, times: int) -> Graph:
    """Return `graph` so many times, each rank beginning anew when it has ended all before.

    The ops of each time are a `step` of their own.
    """
    if times == 1:
        return replace(graph, step=np.zeros(len(graph), np.int64))
    count, rows, sent = len(graph), len(graph.collectives), len(graph.messages)
    columns: dict[str, Any] = {name: np.tile(getattr(graph, name), times) for name in op_columns()}
    by = np.repeat(np.arange(times), count)
    columns["step"] = by.astype(np.int64)
    columns["item"] = np.concatenate([_items(graph, at * rows, at * sent) for at in range(times)])
    columns["batch"] = np.where(columns["batch"] >= 0, columns["batch"] + by * count, -1)
    before = _ends_of_lanes(graph)
    ptr, op, delay = [0], list[int](), list[int]()
    for at in range(times):
        for one in range(count):
            first, last = int(graph.dep_ptr[one]), int(graph.dep_ptr[one + 1])
            op += (graph.dep_op[first:last] + at * count).tolist()
            delay += graph.dep_delay[first:last].tolist()
            if at and first == last:
                ends = before[int(graph.lane[one])]
                op += [end + (at - 1) * count for end in ends]
                delay += [0] * len(ends)
            ptr.append(len(op))
    copies = [graph] * times
    starts = [at * count for at in range(times)]
    return replace(
        graph,
        **columns,
        dep_ptr=np.array(ptr, dtype=np.int64),
        dep_op=np.array(op, dtype=np.int64),
        dep_delay=np.array(delay, dtype=np.int64),
        collectives=_joined("collectives", copies, [0] * times, starts),
        messages=_joined("messages", copies, [0] * times, starts),
    )


def _ends_of_lanes(graph: Graph) -> dict[int, list[int]]:
    """Return the last op of each stream of each lane."""
    last: dict[tuple[int, int], int] = {}
    for op, key in enumerate(zip(graph.lane.tolist(), graph.stream.tolist(), strict=True)):
        last[key] = op
    found: dict[int, list[int]] = {}
    for (lane, _), op in last.items():
        found.setdefault(lane, []).append(op)
    return found


def _check_apart(graphs: Sequence[Graph], names: Sequence[str]) -> None:
    taken: dict[int, str] = {}
    for graph, name in zip(graphs, names, strict=True):
        if graph.folding is not None:
            raise ScenarioError(f"{name}: its graph is folded, and cannot stand beside others.")
        for rank in graph.lane_rank.tolist():
            if rank in taken:
                raise ScenarioError(f"rank {rank} runs {taken[rank]} and {name}. Give it to one.")
            taken[rank] = name


def _joined(table: str, graphs: Sequence[Graph], groups: Sequence[int], ops: Sequence[int]) -> Any:
    """Return the rows of a table of all graphs, with their groups and ops renumbered."""
    kind: Any = _TABLES[table]
    columns: dict[str, Any] = {}
    for name in kind.__struct_fields__:
        parts = [getattr(getattr(graph, table), name) for graph in graphs]
        if name == "group":
            parts = [part + by for part, by in zip(parts, groups, strict=True)]
        if name in ("send_op", "recv_op"):
            parts = [np.where(p >= 0, p + by, -1) for p, by in zip(parts, ops, strict=True)]
        whole = isinstance(parts[0], tuple)
        columns[name] = sum(parts, ()) if whole else np.concatenate(parts)
    return kind(**columns)


def _items(graph: Graph, rows: int, sent: int) -> Ints:
    by = np.zeros(len(graph), np.int64)
    by[graph.kind == OpKind.COLLECTIVE] = rows
    by[(graph.kind == OpKind.SEND) | (graph.kind == OpKind.RECV)] = sent
    return graph.item + by


def _index(known: list[str], own: Sequence[str]) -> Ints:
    return np.array([known.index(one) for one in own], dtype=np.int64)


def _starts(counts: Sequence[int]) -> list[int]:
    starts: list[int] = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(int).tolist()
    return starts


def _with_deps(graphs: Sequence[Graph]) -> list[tuple[Graph, int]]:
    return list(zip(graphs, _starts([len(graph.dep_op) for graph in graphs]), strict=True))
