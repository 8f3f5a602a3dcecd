"""
Whether the bytes of each op go where it needs them: what comes to a switch leaves it again, and
each member of a collective gets and gives at least what it cannot do without.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import commsim as cs
from commsim.arrays import Bools, Floats, Ints
from commsim.engine import Planner
from commsim.graph import OpKind
from commsim.libraries import Request
from commsim.study.run.guard import in_network
from commsim.timeline import Timeline

__all__ = ["lost_bytes"]

_ROUNDED = 1e-4  # of the bytes: services are rounded to whole picoseconds
_FEW = 16.0  # bytes: parts of a buffer are whole elements
_ENDS = ("gpu", "cpu", "mem")  # devices at which data may begin or end


def lost_bytes(result: cs.Result) -> Iterator[str]:
    """Yield where bytes are lost, or come from nowhere; nothing of a run that is folded."""
    links = result.timeline.links
    if result.cluster is None or result.library is None:
        return
    if not len(links.flow) or len(links.like):
        return
    moved = _moved(result.timeline)
    yield from _at_switches(result.timeline, result.cluster, moved)
    if result.cluster.gpu(0).device != "cpu":
        yield from _at_members(result, moved)


class _Moved(NamedTuple):
    """Bytes that one collective, message or copy, by its first op, moved over one link."""

    op: Ints
    link: Ints
    bytes: Floats


def _moved(timeline: Timeline) -> _Moved:
    links, first = timeline.links, _first_ops(timeline)
    flows = len(links.load_ptr) - 1
    pairs, row = np.unique(first[links.op] * flows + links.flow, return_inverse=True)
    progress = np.bincount(row, weights=(links.end - links.start) * links.rate)
    flow = pairs % flows
    count = np.diff(links.load_ptr)[flow]
    entry = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    entry += np.repeat(links.load_ptr[flow], count)
    moved = links.load_bytes[entry] * np.repeat(progress, count)
    return _Moved(np.repeat(pairs // flows, count), links.load_link[entry], moved)


def _first_ops(timeline: Timeline) -> Ints:
    """Return, per op, the first one of its collective or message, itself for others."""
    graph = timeline.graph
    found = np.arange(len(graph))
    for kinds in ((OpKind.COLLECTIVE,), (OpKind.SEND, OpKind.RECV)):
        ops = np.flatnonzero(np.isin(graph.kind, kinds))
        _, first, row = np.unique(graph.item[ops], return_index=True, return_inverse=True)
        found[ops] = ops[first[row]]
    return found


def _at_switches(timeline: Timeline, cluster: cs.Cluster, moved: _Moved) -> Iterator[str]:
    """What an op brings to a NIC or a switch that does not add up, it takes away again."""
    graph, ends = timeline.graph, cluster.ends
    known = (moved.link < len(ends.source)) & ~_in_network(timeline)[moved.op]
    op, link, load = (column[known] for column in moved)
    many = len(ends.number)
    places = np.concatenate((op * many + ends.target[link], op * many + ends.source[link]))
    place, row = np.unique(places, return_inverse=True)
    whole = np.bincount(row, weights=np.concatenate((load, load)))
    left = np.bincount(row, weights=np.concatenate((load, -load)))
    wrong = (np.abs(left) > _ROUNDED * whole + _FEW) & ~ends.of_type(*_ENDS)[place % many]
    for found in np.flatnonzero(wrong).tolist():
        device, what = list(ends.number)[int(place[found]) % many], int(place[found]) // many
        lost = f"{left[found]:.0f} of {whole[found]:.0f} bytes"
        yield f"{graph.describe(what)}: {lost} stay in {device}"


def _in_network(timeline: Timeline) -> Bools:
    """Return, per op, whether it is of a collective that switches add up or multicast."""
    graph = timeline.graph
    rows = [in_network(timeline.choices.get(row, "")) for row in range(len(graph.collectives))]
    found: Bools = graph.kind == OpKind.COLLECTIVE
    found[found] = np.array(rows, np.bool_)[graph.item[found]]
    return found


def _at_members(result: cs.Result, moved: _Moved) -> Iterator[str]:
    timeline, cluster, library = result.timeline, result.cluster, result.library
    assert cluster is not None
    assert library is not None
    planner, table = Planner(timeline.graph, cluster, library), timeline.graph.collectives
    into, out = _by_collective(timeline, cluster, moved)
    for row in range(len(table)):
        if table.recorded[row] >= 0:
            continue
        request = planner.collective_request(row)
        if request.on_host or len(request.ranks) < 2:
            continue
        ranks = list(request.ranks)
        needs = _needs(request, switches=in_network(timeline.choices.get(row, "")))
        for what, has, need in zip(
            ("in", "out"), (into[row, ranks], out[row, ranks]), needs, strict=True
        ):
            less = has < need * (1 - _ROUNDED) - _FEW
            if less.any():
                member = int(np.flatnonzero(less)[0])
                yield (
                    f"{request.kind} of {request.size} B, rank {ranks[member]}: {has[member]:.0f}"
                    f" bytes {what}, it needs {need[member]:.0f}"
                )


def _by_collective(timeline: Timeline, cluster: cs.Cluster, moved: _Moved) -> tuple[Floats, Floats]:
    """Return the bytes into and out of each GPU, per collective: shape (collectives, ranks)."""
    graph, ends = timeline.graph, cluster.ends
    rank_of = np.full(len(ends.number), -1)
    rank_of[_gpus(cluster)] = np.arange(cluster.world_size)
    mine = (graph.kind[moved.op] == OpKind.COLLECTIVE) & (moved.link < len(ends.source))
    row, found = graph.item[moved.op[mine]], []
    for end in (ends.target, ends.source):
        rank = rank_of[end[moved.link[mine]]]
        made = np.zeros((len(graph.collectives), cluster.world_size))
        np.add.at(made, (row[rank >= 0], rank[rank >= 0]), moved.bytes[mine][rank >= 0])
        found.append(made)
    return found[0], found[1]


def _gpus(cluster: cs.Cluster) -> Ints:
    """Return the device of each rank's GPU, as the cluster's links number them."""
    places = zip(cluster.node_of.tolist(), cluster.local_of.tolist(), strict=True)
    names = (f"{cluster.node_names[node]}/gpu{local}" for node, local in places)
    return np.array([cluster.ends.number[name] for name in names])


def _needs(request: Request, *, switches: bool) -> tuple[Floats, Floats]:
    """Return the least bytes that each member has to get, and to give, by any algorithm."""
    n, size = len(request.ranks), float(request.size)
    every, part = np.ones(n), np.ones(n) / n
    root = np.zeros(n)
    root[max(request.root, 0)] = 1
    if request.splits is not None:
        sent = np.array(request.splits, np.float64)
        np.fill_diagonal(sent, 0)
        return sent.sum(axis=0), sent.sum(axis=1)
    into, out = {
        "all_reduce": (every - part, every - part) if switches else (every, every),
        "all_gather": (every - part, part),
        "reduce_scatter": (part, every - part),
        "all_to_all": (every - part, every - part),
        "broadcast": (every - root, root),
        "reduce": (root, every - root),
        "scatter": ((every - root) / n, root * (n - 1) / n),
        "gather": (root * (n - 1) / n, (every - root) / n),
        "barrier": (0 * every, 0 * every),
    }[request.kind]
    return into * size, out * size
