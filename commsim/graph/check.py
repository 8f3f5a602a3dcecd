"""Validation of a graph: its columns, its tables, and no cycle of dependencies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commsim.arrays import Ints
from commsim.errors import ScenarioError
from commsim.graph.table import CopyDirection, Graph, OpKind, member_lanes, op_columns
from commsim.units import MOST_BYTES

__all__ = ["validate"]


def validate(graph: Graph) -> None:
    """Check everything about a graph that does not need it to run.

    Raises:
        ScenarioError: an index out of range, a negative duration or size, a root outside its
            group, an op on a group without its rank, or dependencies that form a cycle (named by
            their ops).
    """
    _check_columns(graph)
    _check_tables(graph)
    _check_members(graph)
    _check_acyclic(graph)


def _check_columns(graph: Graph) -> None:
    count, lanes = len(graph), len(graph.lane_rank)
    for column in op_columns():
        if len(getattr(graph, column)) != count:
            raise ScenarioError(f"graph: column {column!r} does not have one entry per op.")
    ranges: Sequence[tuple[str, Ints, int]] = (
        ("lane", graph.lane, lanes),
        ("stream", graph.stream, len(graph.streams)),
        ("name", graph.name, len(graph.names)),
        ("dependency", graph.dep_op, count),
    )
    for what, column_values, limit in ranges:
        if column_values.size and (column_values.min() < 0 or column_values.max() >= limit):
            raise ScenarioError(f"graph: a {what} index is outside 0..{limit - 1}.")
    if len(set(graph.lane_rank.tolist())) != lanes:
        raise ScenarioError("graph: two lanes have the same rank.")
    timed = (graph.kind == OpKind.COMPUTE) | (graph.kind == OpKind.COPY)
    by_links = (graph.kind == OpKind.COPY) & (graph.item != CopyDirection.NONE) & (graph.size >= 0)
    unknown = np.flatnonzero(timed & (graph.duration < 0) & (graph.flops < 0) & ~by_links)
    if unknown.size:
        raise ScenarioError(f"graph: {graph.describe(int(unknown[0]))} has no duration.")
    for what, values in (("delay", graph.dep_delay), ("lane offset", graph.lane_offset)):
        if values.size and values.min() < 0:
            raise ScenarioError(f"graph: a {what} is negative.")


def _check_tables(graph: Graph) -> None:
    for group in graph.groups:
        if len(set(group.ranks)) != len(group.ranks) or not group.ranks:
            raise ScenarioError(f"group {group.name!r}: ranks must be distinct and not empty.")
    for what, sizes in (("collective", graph.collectives.size), ("message", graph.messages.size)):
        wrong = sizes[(sizes < -1) | (sizes > MOST_BYTES)]  # -1 is unknown
        if wrong.size:
            raise ScenarioError(f"graph: a {what} of {wrong[0]:,} bytes: give 0 to 4 EiB.")
    for row, kind in enumerate(graph.collectives.kind):
        root = int(graph.collectives.root[row])
        group = graph.groups[graph.collectives.group[row]]
        if root >= 0 and root not in group.ranks:
            raise ScenarioError(
                f"{kind} on group {group.name!r}: root {root} is not one of its ranks"
                f" {list(group.ranks)}."
            )


def _check_members(graph: Graph) -> None:
    """Whoever takes part in a collective must be a member of its group."""
    ops = np.flatnonzero(graph.kind == OpKind.COLLECTIVE)
    groups, lanes = graph.collectives.group[graph.item[ops]], len(graph.lane_rank)
    first = np.unique(groups * lanes + graph.lane[ops], return_index=True)[1]
    members = member_lanes(graph) if len(first) else []
    for at in first.tolist():
        group, lane = int(groups[at]), int(graph.lane[ops[at]])
        if lane not in members[group]:
            raise ScenarioError(
                f"graph: {graph.describe(int(ops[at]))} is on group {graph.groups[group].name!r},"
                f" which rank {graph.lane_rank[lane]} is not in."
            )


def _check_acyclic(graph: Graph) -> None:
    """Dependencies and stream order together must leave some order to run in."""
    targets = np.repeat(np.arange(len(graph)), np.diff(graph.dep_ptr))
    if not np.any(graph.dep_op >= targets):
        return  # every dependency points to an earlier op, as stream order does: no cycle
    following: list[list[int]] = [[] for _ in range(len(graph))]
    for source, target in zip(graph.dep_op.tolist(), targets.tolist(), strict=True):
        following[source].append(target)
    last: dict[tuple[int, int], int] = {}
    for op, queue in enumerate(zip(graph.lane.tolist(), graph.stream.tolist(), strict=True)):
        if queue in last:
            following[last[queue]].append(op)
        last[queue] = op
    waiting = [0] * len(graph)
    for targets_of in following:
        for target in targets_of:
            waiting[target] += 1
    ready = [op for op, count in enumerate(waiting) if count == 0]
    while ready:
        for target in following[ready.pop()]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    stuck = [op for op, count in enumerate(waiting) if count > 0]
    if stuck:
        shown = "; ".join(graph.describe(op) for op in stuck[:4])
        raise ScenarioError(f"graph: dependencies form a cycle through {shown}.")
