"""
From a graph and its plans to the tables of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from commsim.arrays import Ints
from commsim.cluster import Cluster, Links
from commsim.engine.columns.state import (
    BATCHED,
    COMPUTES,
    DEPENDS,
    IN_GROUP,
    IN_MEMORY,
    ON_GPU,
    RECEIVES,
    RELEASES,
    WORKS,
    table,
)  # fmt: skip
from commsim.engine.execution_plan import ExecutionPlan
from commsim.engine.faults import TimedChanges
from commsim.engine.sharing import PS, is_in_memory
from commsim.graph import Device, Graph, OpKind, member_lanes
from commsim.libraries import PlanPhase, Start

__all__ = [
    "Phases",
    "fill_changes",
    "fill_gpus",
    "fill_links",
    "fill_ops",
    "fill_plans",
    "fill_rows",
]

_WHOM = {Start.EAGER: 1}
_NOTHING = 2  # the target of the record that begins a series of changes


class Phases:
    """The phases of plans by number; a phase that several plans share has one."""

    def __init__(self) -> None:
        self.known: dict[PlanPhase, int] = {}

    def number(self, phase: PlanPhase) -> int:
        """Return the number of a phase."""
        return self.known.setdefault(phase, len(self.known))

    def tables(self) -> tuple[Any, Any]:
        """Return the tables of phases and of what they load."""
        phases = list(self.known)
        made = table("phase", len(phases))
        loads = np.array([len(one.link) for one in phases], np.int64)
        load = table("load", int(loads.sum()))
        for name in ("lead", "idle", "tail"):
            made[name][: len(phases)] = [getattr(one, name) for one in phases]
        made.cap[: len(phases)] = [1.0 / max(one.idle, 1) for one in phases]
        made.loads[: len(phases)] = loads
        made.first[: len(phases)] = np.cumsum(loads) - loads
        made.template, made.epoch, made.free = -1, -1, -1
        if loads.sum():
            load.link[:] = np.concatenate([one.link for one in phases])
            load.bytes[:] = np.concatenate([one.load for one in phases])
            load.conns[:] = np.concatenate([one.conns for one in phases])
        return made, load


def fill_ops(graph: Graph, cluster: Cluster | None) -> dict[str, Any]:
    """Return the tables of ops, of streams and of who waits for whom."""
    count = len(graph)
    op = table("op", count + 1)
    for name, column in (
        ("duration", graph.duration), ("row", _rows(graph)), ("lane", graph.lane),
        ("batch", graph.batch),
    ):  # fmt: skip
        op[name][:count] = column
    waits = np.diff(graph.dep_ptr)
    op.waits[:count] = waits
    op.arrive, op.start, op.end, op.cause, op.ready_by = -1, -1, -1, -1, -1
    op.facts[:count] = _facts(graph, waits, cluster)
    order = np.argsort(graph.dep_op, kind="stable")
    dependent = table("dependent", len(order))
    dependent.op[: len(order)] = np.repeat(np.arange(count, dtype=np.int32), waits)[order]
    dependent.delay[: len(order)] = graph.dep_delay[order]
    op.facts[graph.dep_op] |= RELEASES
    counts = np.bincount(graph.dep_op, minlength=count)
    op.dependents[1:] = np.cumsum(counts)
    key = graph.lane * len(graph.streams) + graph.stream
    queued = table("queued", count)
    queued[:count] = np.argsort(key, kind="stable")
    keys = key[queued[:count]]
    begins = np.diff(keys, prepend=-1) != 0
    first = np.flatnonzero(begins)
    op.stream[queued[:count]] = np.cumsum(begins) - 1
    keys = keys[first]
    stream = table("stream", len(keys))
    stream.first[: len(keys)] = stream.at[: len(keys)] = first
    stream.last[: len(keys)] = np.append(first[1:], count)
    stream.lane[: len(keys)] = keys // max(len(graph.streams), 1)
    stream.op, stream.before = -1, -1
    return {"op": op, "dependent": dependent, "queued": queued, "stream": stream}


def _rows(graph: Graph) -> Ints:
    """Return the row of each op that meets others: messages stand behind collectives."""
    messages = (graph.kind == OpKind.SEND) | (graph.kind == OpKind.RECV)
    found: Ints = graph.item + len(graph.collectives) * messages
    return found


def _facts(graph: Graph, waits: Ints, cluster: Cluster | None) -> Ints:
    computes = graph.kind == OpKind.COMPUTE
    found = (
        DEPENDS * (waits > 0)
        + BATCHED * (graph.batch >= 0)
        + WORKS * (computes | (graph.kind == OpKind.COPY))
        + COMPUTES * computes
        + ON_GPU * (computes & (graph.device == Device.CUDA))
        + IN_GROUP * (graph.kind == OpKind.COLLECTIVE)
        + RECEIVES * (graph.kind == OpKind.RECV)
    )
    if cluster is not None:
        found += IN_MEMORY * is_in_memory(graph, cluster)
    return found


def fill_rows(
    graph: Graph, limits: Sequence[int], plans: Ints, of_messages: Ints
) -> dict[str, Any]:
    """Return the tables of collectives and messages, and of their groups and members.

    `limits` says of each group how many of its collectives run at once (0: as many as there are),
    `plans` and `of_messages` the number of each row's plan.
    """
    lanes = member_lanes(graph)
    group = table("group", len(lanes))
    sizes = np.array([len(one) for one in lanes], np.int64)
    group.count[: len(lanes)] = sizes
    group.first[: len(lanes)] = np.cumsum(sizes) - sizes
    lane_slot, slot_member = table("lane_slot", sizes.sum()), table("slot_member", sizes.sum())
    for at, one in enumerate(lanes):
        span = slice(group.first[at], group.first[at] + sizes[at])
        of = np.fromiter(one, np.int64, len(one))
        order = np.argsort(of)
        lane_slot.lane[span], lane_slot.slot[span] = of[order], order
        slot_member[span] = np.fromiter(one.values(), np.int64, len(one))
    rows, in_group = len(graph.collectives), graph.collectives.group
    row = table("row", rows + len(graph.messages))
    row.group, row.last, row.frame = -1, -1, -1
    row.group[:rows], row.plan[:rows] = in_group, plans
    row.plan[rows : rows + len(of_messages)] = of_messages
    row.count[:rows], row.count[rows:] = sizes[in_group] if rows else 0, 2
    row.first[:] = np.cumsum(row.count) - row.count
    turn = table("turn", rows)
    turn[:rows] = np.argsort(in_group, kind="stable")
    turns = np.bincount(in_group, minlength=len(group))
    group.turns[:] = turns
    group.first_turn[:] = np.cumsum(turns) - turns
    group.free[: len(lanes)] = [limit or -1 for limit in limits]
    group.ended = -1
    slot = table("slot", int(row.count.sum()))
    slot.op = -1
    return {
        "group": group, "lane_slot": lane_slot, "slot_member": slot_member, "row": row,
        "turn": turn, "slot": slot,
    }  # fmt: skip


def fill_plans(
    plans: Sequence[ExecutionPlan | None], phases: Phases, copy_of: Callable[[Any], int]
) -> dict[str, Any]:
    """Return the tables of plans; None is one that cannot be made.

    `copy_of` returns the number of the phase of a copy.
    """
    plan = table("plan", len(plans))
    plan.seen, plan.join, plan.only, plan.copies_in, plan.copies_out = -1, -1, -1, -1, -1
    columns: dict[str, list[Any]] = {
        "join": [],
        "copy": [],
        "part": [],
        "part_phase": [],
        "stop": [],
    }
    for at, run_as in enumerate(plans):
        if run_as is None:
            plan.bad[at] = 1
            continue
        made, whole = plan[at], run_as.plan
        made.start, made.members = int(whole.start), whole.members
        made.sms, made.late = whole.sms, run_as.late
        made.moved = whole.touched / whole.idle * PS if whole.sms and whole.idle else 0.0
        made.first = _WHOM.get(whole.start, 2 if run_as.late else 0)
        if run_as.late:
            made.join = len(columns["join"])
            columns["join"] += run_as.joins
        if run_as.only is not None:
            made.only = phases.number(run_as.only)
        else:
            _parts(made, run_as, phases, columns)
        made.copies_in = _copies(whole.copies_in, columns["copy"], copy_of)
        made.copies_out = _copies(whole.copies_out, columns["copy"], copy_of)
    tables: dict[str, Any] = {"plan": plan}
    for name, entries in columns.items():
        tables[name] = table(name, len(entries))
        if entries:
            tables[name][:] = np.array(entries, tables[name].dtype)
    return tables


def _parts(made: Any, run_as: ExecutionPlan, phases: Phases, columns: dict[str, list[Any]]) -> None:
    made.first_part, made.parts = len(columns["part"]), len(run_as.plan.parts)
    for part, stops in zip(run_as.plan.parts, run_as.stops, strict=True):
        first = len(columns["part_phase"])
        columns["part_phase"] += [phases.number(phase) for phase in part.phases]
        flat = [(when, member, joins) for when, many in stops for joins, member in many]
        columns["part"].append((first, len(part.phases), len(columns["stop"]), len(flat)))
        columns["stop"] += flat


def _copies(copies: Sequence[Any], found: list[Any], copy_of: Callable[[Any], int]) -> int:
    if not copies:
        return -1
    first = len(found)
    found += [(-1, 0) if one is None else (copy_of(one), one.lead) for one in copies]
    return first


def fill_links(links: Links | None) -> Any:
    """Return the table of links, in bytes per ps."""
    link = table("link", len(links.capacity) if links else 0)
    link.head = -1
    if links is not None and len(links.capacity):
        link.capacity[:] = link.whole[:] = links.capacity * 1e-12
    return link


def fill_gpus(graph: Graph, cluster: Cluster | None) -> Any:
    """Return the table of the lanes' GPUs."""
    lanes = len(graph.lane_rank)
    gpu = table("gpu", lanes)
    gpu.pace, gpu.held, gpu.last_held, gpu.job, gpu.last_job = 1.0, -1, -1, -1, -1
    gpu.offset[:lanes] = graph.lane_offset
    if cluster is not None:
        found = [cluster.gpu(rank) for rank in graph.lane_rank.tolist()]
        gpu.sms[:lanes] = [one.sm_count for one in found]
        gpu.bandwidth[:lanes] = [one.memory_bandwidth for one in found]
    return gpu


def fill_changes(every: Sequence[TimedChanges]) -> tuple[Any, list[int]]:
    """Return the table of changes of the cluster, and with which each series begins."""
    rows: list[tuple[int, float, int, int, int, bool]] = []
    begins = []
    for series in every:
        begins.append(len(rows))
        rows.append((0, 1.0, -1, _NOTHING, len(rows) + 1, False))
        for change in series.changes:
            for at, place in enumerate(change.places):
                more = at + 1 < len(change.places)
                target = int(change.target)
                rows.append((change.after, change.left, place, target, len(rows) + 1, more))
        after, left, place, target, _, more = rows[-1]
        rows[-1] = (after, left, place, target, -1, more)
    made = table("change", len(rows))
    if rows:
        made[:] = np.array(rows, made.dtype)
    return made, begins
