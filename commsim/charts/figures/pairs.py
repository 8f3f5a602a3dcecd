"""
Data of the GPU-to-GPU matrices: bytes of a run, speeds of a cluster.
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Bools, Floats
from commsim.cluster import Cluster, Route
from commsim.engine import Planner
from commsim.graph import Graph
from commsim.libraries import Library, Plan, Request
from commsim.metrics import measured_window
from commsim.timeline import Timeline

__all__ = ["GpuMatrix", "pair_bytes", "pair_speeds"]


_DIRECT = ("all_to_all", "all_to_all_v")
_MOST_MEMBERS = 256  # a program of more members has millions of messages


class GpuMatrix(msgspec.Struct, frozen=True):
    """`values[i, j]` is from GPU i to GPU j, `labels` names them; `notes` say what is missing."""

    labels: tuple[str, ...]
    values: Floats
    notes: tuple[str, ...]


def pair_bytes(timeline: Timeline, cluster: Cluster | None, library: Library | None) -> GpuMatrix:
    """Return the bytes from rank to rank in the measured step of `timeline`."""
    graph = timeline.graph
    rows = _collective_rows(timeline)
    ranks = sorted(
        {int(rank) for rank in graph.lane_rank}
        | {rank for row in rows for rank in graph.groups[graph.collectives.group[row]].ranks}
    )
    place = {rank: i for i, rank in enumerate(ranks)}
    values = np.zeros((len(ranks), len(ranks)))
    _add_messages(timeline, place, values)
    left_out = ["no library to ask"] * len(rows)
    if library is not None and cluster is not None:
        left_out = _add_collectives(graph, rows, Planner(graph, cluster, library), place, values)
    notes = []
    if left_out:
        why = ", ".join(dict.fromkeys(left_out))
        count = f"{len(left_out):,} collective" + ("" if len(left_out) == 1 else "s")
        notes.append(f"without {count} ({why})")
    if graph.folding is not None:
        notes.append("equal ranks were simulated once: their groups alone")
    return GpuMatrix(tuple(str(rank) for rank in ranks), values, tuple(notes))


def _in_step(timeline: Timeline) -> Bools:
    """Return which ops have a span that ends in the measured step."""
    window = measured_window(timeline)
    inside = (timeline.end > window.first) & (timeline.end <= window.last)
    found = np.zeros(len(timeline.graph), np.bool_)
    found[timeline.op[inside]] = True
    return found


def _collective_rows(timeline: Timeline) -> list[int]:
    graph = timeline.graph
    if not len(graph.collectives):
        return []
    from commsim.graph import OpKind

    ops = np.flatnonzero(_in_step(timeline) & (graph.kind == OpKind.COLLECTIVE))
    rows: list[int] = np.unique(graph.item[ops]).tolist()
    return rows


def _add_messages(timeline: Timeline, place: dict[int, int], values: Floats) -> None:
    graph, messages = timeline.graph, timeline.graph.messages
    inside = _in_step(timeline)
    for row in range(len(messages)):
        ends = (int(messages.send_op[row]), int(messages.recv_op[row]))
        if min(ends) >= 0 and inside[ends[1]]:
            a, b = (place[int(graph.lane_rank[graph.lane[op]])] for op in ends)
            values[a, b] += max(0, int(graph.size[ends[0]]))


def _add_collectives(
    graph: Graph, rows: list[int], planner: Planner, place: dict[int, int], values: Floats
) -> list[str]:
    """Add what the chunk programs of collectives send; return why others have none."""
    known: dict[object, Floats | str] = {}
    left_out = []
    for row in rows:
        request = planner.collective_request(row)
        if request not in known:
            large = len(request.ranks) > _MOST_MEMBERS
            known[request] = f"over {_MOST_MEMBERS} ranks" if large else _sent(planner, row)
        sent = known[request]
        if isinstance(sent, str):
            left_out.append(sent)
            continue
        where = [place[rank] for rank in request.ranks]
        values[np.ix_(where, where)] += sent
    return left_out


def _sent(planner: Planner, row: int) -> Floats | str:
    """Return the bytes from member to member, or what runs if that cannot be told."""
    request = planner.collective_request(row)
    if request.kind in _DIRECT:
        return _direct_bytes(request)
    plan = planner.collective(row)
    sent = _plan_bytes(plan)
    return f"{plan.algorithm}: no messages to expand" if sent is None else sent


def _direct_bytes(request: Request) -> Floats:
    """Return what each member has for each other, which is what an all-to-all sends."""
    n = len(request.ranks)
    sent = np.full((n, n), request.size / n)
    if request.splits is not None:
        sent = np.array(request.splits, dtype=np.float64)
    np.fill_diagonal(sent, 0.0)
    return sent


def _plan_bytes(plan: Plan) -> Floats | None:
    """Return the bytes from member to member; None if a plan has no program to expand."""
    if not plan.programs:
        return None
    sent = np.zeros((plan.members, plan.members))
    for expand in plan.programs:
        messages = expand()
        between = (messages.source >= 0) & (messages.target >= 0)  # no switch
        ends = (messages.source[between], messages.target[between])
        np.add.at(sent, ends, messages.size[between])
    return sent


def pair_speeds(cluster: Cluster, most: int) -> GpuMatrix:
    """Return the payload bytes/s between the GPUs of the first nodes, `most` GPUs at most.

    0 if there is no way, and from a GPU to itself.
    """
    count = _whole_nodes(cluster, most)
    values = np.zeros((count, count))
    for a in range(count):
        for b in range(count):
            if a != b:
                values[a, b] = _speed(cluster, _way(cluster, a, b))
    notes = (
        () if count == cluster.world_size else (f"first {count} of {cluster.world_size:,} GPUs",)
    )
    return GpuMatrix(tuple(str(rank) for rank in range(count)), values, notes)


def _whole_nodes(cluster: Cluster, most: int) -> int:
    ends = [int(first) for first in cluster.first_rank[1:]] + [cluster.world_size]
    return max([end for end in ends if end <= most], default=min(most, cluster.world_size))


def _way(cluster: Cluster, a: int, b: int) -> Route | None:
    local = cluster.local_route(a, b)
    if local is not None:
        return local
    out, into = cluster.nics_of(a), cluster.nics_of(b)
    if not out or not into:
        return None
    fabric = cluster.fabric_route(out[0], into[0])
    if fabric is None:
        return None
    return cluster.to_nic(a, out[0]) + fabric + cluster.from_nic(into[0], b)


def _speed(cluster: Cluster, route: Route | None) -> float:
    if route is None:
        return 0.0
    capacity = cluster.links.capacity
    pairs = zip(route.link, route.share, strict=True)
    return min(float(capacity[link]) / share for link, share in pairs)
