"""Validation of a graph: its columns, its tables, its windows, and no cycle of dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from commsim.arrays import Floats, Ints, distinct, distinct_columns
from commsim.errors import ScenarioError
from commsim.graph.table import CopyDirection, Graph, Group, OpKind, member_lanes, op_columns
from commsim.ops import COLLECTIVES, ROOTED
from commsim.units import MOST_BYTES, MOST_PICOSECONDS

__all__ = ["validate"]

_MOST = 2**31
"""Of a tag, of a batch, and of the ranks that a lane stands for: products of two still fit."""
_SHOWN = 16  # ranks of a group that messages list
_MOST_WORK = 1e30  # FLOPs, bytes: finite in every sum

_LIMITS = MappingProxyType(
    {"duration": (-1, MOST_PICOSECONDS)}
    | {"size": (-1, MOST_BYTES), "alloc": (0, MOST_BYTES), "free": (0, MOST_BYTES)}
    | dict.fromkeys(("step", "microbatch", "stage", "layer", "batch"), (-1, _MOST))
    | {"dep_delay": (0, MOST_PICOSECONDS), "lane_offset": (0, MOST_PICOSECONDS)}
    | {"lane_rank": (0, 2**63 - 1), "multiplicity": (1, _MOST)}
)
"""What the columns of whole numbers hold, with both ends; -1 is unknown or none."""

Splits: TypeAlias = tuple[tuple[int, ...], ...]


def validate(graph: Graph) -> None:
    """Check everything about a graph that does not need it to run.

    Raises:
        ScenarioError: an index out of range, a time, size or tag that is none, a window that ends
            before it starts, a root or an end of a message outside its group, an op on a group
            without its rank, or dependencies that form a cycle (named by their ops).
    """
    _check_columns(graph)
    _check_limits(graph)
    _check_windows(graph)
    _check_tables(graph)
    _check_messages(graph)
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
    quiet = (graph.kind == OpKind.COMPUTE) | (graph.kind == OpKind.COPY)
    if np.any(quiet & (graph.batch >= 0)):
        raise ScenarioError("graph: 'batch' is of calls; an op that is none has one.")
    if len(set(graph.lane_rank.tolist())) != lanes:
        raise ScenarioError("graph: two lanes have the same rank.")
    ways = graph.item[graph.kind == OpKind.COPY]
    if ways.size and (ways.min() < CopyDirection.NONE or ways.max() > CopyDirection.FROM_HOST):
        raise ScenarioError("graph: a copy goes neither to the host nor from it.")
    by_links = (graph.kind == OpKind.COPY) & (graph.item != CopyDirection.NONE) & (graph.size >= 0)
    unknown = np.flatnonzero(quiet & (graph.duration < 0) & (graph.flops < 0) & ~by_links)
    if unknown.size:
        raise ScenarioError(f"graph: {graph.describe(int(unknown[0]))} has no duration.")


def _check_limits(graph: Graph) -> None:
    for name, (least, most) in _LIMITS.items():
        values: Ints = getattr(graph, name)
        low, high = int(values.min(initial=most)), int(values.max(initial=least))
        if low < least or high > most:
            wrong = low if low < least else high
            raise ScenarioError(f"graph: {name!r} holds {wrong}; it goes from {least} to {most}.")
    for name in ("flops", "traffic"):
        work: Floats = getattr(graph, name)
        if not np.all((work >= -1) & (work <= _MOST_WORK)):
            raise ScenarioError(f"graph: {name!r} holds what is no amount of work.")
    for name in ("alloc", "free"):
        if float(getattr(graph, name).sum(dtype=np.float64)) > MOST_BYTES:
            raise ScenarioError(f"graph: {name!r} comes to more than 4 EiB.")


def _check_windows(graph: Graph) -> None:
    """A profiled step begins and ends with ops of its own lane, in this order."""
    lanes = np.flatnonzero((graph.window >= 0).all(axis=1))
    first, last = graph.window[lanes].T
    wrong = lanes[(graph.lane[first] != lanes) | (graph.lane[last] != lanes) | (first > last)]
    if wrong.size:
        rank = graph.lane_rank[wrong[0]]
        raise ScenarioError(
            f"graph: the window of rank {rank} does not go from one op of it to a later one."
        )


def _check_tables(graph: Graph) -> None:
    for group in graph.groups:
        if len(set(group.ranks)) != len(group.ranks) or not group.ranks:
            raise ScenarioError(f"group {group.name!r}: ranks must be distinct and not empty.")
        if min(group.ranks) < 0 or max(group.ranks) >= 2**63:
            raise ScenarioError(f"group {group.name!r}: has a rank that is no rank.")
    for what, sizes in (("collective", graph.collectives.size), ("message", graph.messages.size)):
        wrong = sizes[(sizes < -1) | (sizes > MOST_BYTES)]  # -1 is unknown
        if wrong.size:
            raise ScenarioError(f"graph: a {what} of {wrong[0]:,} bytes: give 0 to 4 EiB.")
    for table, most in ((graph.collectives, 2), (graph.messages, 1)):
        for name, limit in (("recorded", MOST_PICOSECONDS), ("eager", most)):
            values: Ints = getattr(table, name)
            if values.size and (values.min() < -1 or values.max() > limit):
                raise ScenarioError(f"graph: {name!r} has an entry outside -1..{limit}.")
    for row, kind in enumerate(graph.collectives.kind):
        root = int(graph.collectives.root[row])
        group = graph.groups[graph.collectives.group[row]]
        _check_splits(graph.collectives.splits[row], kind, group)
        planned = kind in COLLECTIVES and graph.collectives.recorded[row] < 0
        if planned and (kind in ROOTED) != (root >= 0):
            needs = "needs a root" if kind in ROOTED else "has no root"
            raise ScenarioError(f"{kind} on group {group.name!r}: {needs}.")
        if root != -1 and root not in group.ranks:
            raise ScenarioError(
                f"{kind} on group {group.name!r}: root {root} is not one of its ranks"
                f" {_listed(group.ranks)}."
            )


def _listed(ranks: Sequence[int]) -> str:
    more = f", and {len(ranks) - _SHOWN:,} more" if len(ranks) > _SHOWN else ""
    return f"{list(ranks[:_SHOWN])}{more}"


def _check_splits(splits: Splits | None, kind: str, group: Group) -> None:
    if splits is None:
        return
    count, each = len(group.ranks), [size for row in splits for size in row]
    square = len(splits) == count and all(len(row) == count for row in splits)
    if not square or min(each) < 0 or sum(each) > MOST_BYTES:
        raise ScenarioError(
            f"{kind} on group {group.name!r}: its splits are not {count} x {count} sizes of 4 EiB"
            " in all."
        )


def _check_messages(graph: Graph) -> None:
    """Both ends of a message are in its group, and its ops are those that name it."""
    messages = graph.messages
    used = {group: set(graph.groups[group].ranks) for group in distinct(messages.group).tolist()}
    for kind, ends, posted in (
        (OpKind.SEND, messages.source, messages.send_op),
        (OpKind.RECV, messages.target, messages.recv_op),
    ):
        name = kind.name.lower()
        for group, rank in zip(*_distinct_pairs(messages.group, ends), strict=True):
            if rank not in used[group]:
                raise ScenarioError(
                    f"graph: a {name} of rank {rank} on group {graph.groups[group].name!r}, which"
                    " it is not in."
                )
        ops = np.flatnonzero(graph.kind == kind)
        if len(ops) != np.count_nonzero(posted >= 0) or np.any(posted[graph.item[ops]] != ops):
            raise ScenarioError(f"graph: a {name} is not the op that its message names.")


def _distinct_pairs(one: Ints, other: Ints) -> tuple[list[int], list[int]]:
    at, _ = distinct_columns((one, other))
    return one[at].tolist(), other[at].tolist()


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
