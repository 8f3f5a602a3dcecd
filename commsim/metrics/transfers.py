"""
Kinds of transfers (one op on the groups of one axis with one size): which kind of link limits
each, and how much of its time is bandwidth.

The library that planned a transfer is asked what the fewest bytes would take: that is latency. The
rest is bandwidth, filling a pipeline of chunks over a slow link included.

    share = 1 - time(least)/time(S)

What faster links inside a node would save is asked in the same way, of the cluster that has them:
NCCL copies with so many SMs and channels, which faster NVLink does not add to. A faster NIC is
taken to halve the bandwidth's part, until another kind of link is full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from commsim.arrays import Floats, Ints
from commsim.cluster import Cluster, ScaleSection, nodes_scaled
from commsim.errors import CommsimError
from commsim.graph import Graph, OpKind
from commsim.libraries import Library, Request, library_of
from commsim.metrics.bandwidth import MESSAGE, instance_numbers
from commsim.metrics.bottleneck import bottlenecks, link_resource
from commsim.metrics.critical_path import CriticalPath
from commsim.timeline import Timeline

__all__ = ["TransferLimits", "transfer_limits"]

_LEAST = 16  # bytes per rank: what NCCL aligns blocks to
_NOTICED = 0.02  # of the path: what takes less is not planned again on faster links
_HOST = ScaleSection(host_memory=2)
_FASTER = MappingProxyType(
    {
        "nvlink": ScaleSection(nvlink=2),
        "c2c": ScaleSection(pcie=2),
        "pcie": ScaleSection(pcie=2),
        "cpu": _HOST,
        "memory": _HOST,
    }
)
"""Twice the bandwidth of links inside a node, by their kind."""


class TransferLimits(NamedTuple):
    """Per span: the kind of link that limits it (a number into `names`, -1 for no transfer), the
    share of its time that is bandwidth, and the share that it would lose on a link twice as fast:
    half of that, or less where a link of another kind fills up first, or the library gains less.
    """

    resource: Ints
    share: Floats
    doubled: Floats
    names: tuple[str, ...]


def transfer_limits(
    timeline: Timeline, path: CriticalPath, library: Library | None, cluster: Cluster | None
) -> TransferLimits:
    """Return what limits each transfer.

    One transfer of each kind is examined, on the path if there is one. A transfer of unknown
    links (a recording) counts as all bandwidth of "unknown" links.
    """
    spans = np.flatnonzero(timeline.communicates)
    sort = _kinds_of_transfers(timeline, spans)
    links, used, other, chosen = _samples(timeline, path, spans, sort)
    halved = 1 - np.clip(other / np.maximum(used, 1e-12), 0.5, 1.0)
    names: dict[str, int] = {}
    texts, sorts = timeline.links.names, timeline.links.kinds
    kinds = [
        "unknown" if link < 0 else link_resource(texts[link], sorts[link])
        for link in links.tolist()
    ]
    asks: dict[int, _Ask] = {}
    if not len(timeline.links.op):
        used[:] = 1.0
    elif library is not None and cluster is not None:
        for one in np.flatnonzero(chosen >= 0).tolist():
            ask = _ask_of(timeline.graph, int(timeline.op[chosen[one]]), library, cluster)
            if ask is not None:
                asks[one], used[one] = ask, ask.bandwidth
    halved *= used
    if asks and cluster is not None:
        for one, saved in _on_faster_links(_long(asks, path, spans, sort), kinds, cluster).items():
            halved[one] = min(halved[one], saved)
    number = np.array([names.setdefault(kind, len(names)) for kind in kinds], dtype=np.int64)
    resource, share = np.full(len(timeline), -1, np.int64), np.zeros(len(timeline))
    doubled = np.zeros(len(timeline))
    resource[spans], share[spans], doubled[spans] = number[sort], used[sort], halved[sort]
    return TransferLimits(resource, share, doubled, tuple(names))


class _Ask(NamedTuple):
    """A transfer as its library was asked for it: how long (ps) it takes alone, and which share of
    that is bandwidth.
    """

    planner: Library
    request: Request
    idle: int
    bandwidth: float


def _long(asks: Mapping[int, _Ask], path: CriticalPath, spans: Ints, sort: Ints) -> dict[int, _Ask]:
    """Return those of the kinds of transfers that the path spends some time on."""
    kind = np.full(int(spans.max(initial=-1)) + 2, -1, dtype=np.int64)
    kind[spans] = sort
    of_path = kind[np.minimum(path.span, len(kind) - 1)]
    lasted = np.bincount(of_path + 1, weights=path.end - path.start)[1:]
    least = _NOTICED * float((path.end - path.start).sum())
    return {one: ask for one, ask in asks.items() if lasted[one] > least}


def _on_faster_links(
    asks: Mapping[int, _Ask], kinds: Sequence[str], cluster: Cluster
) -> dict[int, float]:
    """Return the share of its time that each transfer loses on links of its kind twice as fast;
    without those whose links are not inside a node.
    """
    found: dict[int, float] = {}
    for resource in dict.fromkeys(kinds[one] for one in asks):
        if resource not in _FASTER:
            continue
        faster = nodes_scaled(cluster, _FASTER[resource])
        # A library keeps what it knows of one cluster: a copy leaves the original its own.
        planners = {id(ask.planner): copy(ask.planner) for ask in asks.values()}
        for one, ask in asks.items():
            if kinds[one] == resource:
                idle = planners[id(ask.planner)].plan(ask.request, faster).idle
                found[one] = max(0.0, 1 - idle / ask.idle)
    return found


def _ask_of(graph: Graph, op: int, library: Library, cluster: Cluster) -> _Ask | None:
    """Return an op as its library plans it; None if it cannot be asked for it."""
    item, table, messages = int(graph.item[op]), graph.collectives, graph.messages
    if graph.kind[op] == OpKind.COLLECTIVE:
        group, kind, size = graph.groups[int(table.group[item])], table.kind[item], table.size[item]
        ranks, root = group.ranks, int(table.root[item])
        root = ranks.index(root) if root in ranks else -1
        dtype = table.dtype[item]
    else:
        group, kind, size = graph.groups[int(messages.group[item])], MESSAGE, messages.size[item]
        ranks, root, dtype = (int(messages.source[item]), int(messages.target[item])), -1, ""
    if kind == "all_to_all_v" or size < 2:
        return None
    planner = library_of(library, group.library)
    try:
        request = Request(kind, int(size), ranks, root=root, dtype=dtype)
        least = replace(request, size=min(_LEAST * len(ranks), int(size)))
        few, all_of_it = (planner.plan(asked, cluster).idle for asked in (least, request))
    except CommsimError:
        return None
    if not all_of_it:
        return None
    return _Ask(planner, request, all_of_it, min(1.0, max(0.0, 1 - few / all_of_it)))


def _kinds_of_transfers(timeline: Timeline, spans: Ints) -> Ints:
    """Number the transfers by op, axis of the group (its name without one), and bytes.

    The numbers follow the order of spans.
    """
    graph = timeline.graph
    ops = timeline.op[spans]
    collective = graph.kind[ops] == OpKind.COLLECTIVE
    table, messages = graph.collectives, graph.messages
    axes = [group.axis or group.name for group in graph.groups]
    called = zip(table.kind, table.group.tolist(), table.size.tolist(), strict=True)
    sent = zip(messages.group.tolist(), messages.size.tolist(), strict=True)
    known: dict[tuple[str, str, int], int] = {}
    of_call = [known.setdefault((kind, axes[at], size), len(known)) for kind, at, size in called]
    of_message = [known.setdefault((MESSAGE, axes[at], size), len(known)) for at, size in sent]
    number = np.array([*of_call, *of_message], dtype=np.int64)
    item = graph.item[ops] + np.where(collective, 0, len(table))
    _, first, found = np.unique(number[item], return_index=True, return_inverse=True)
    by_first = np.empty(len(first), dtype=np.int64)
    by_first[np.argsort(first)] = np.arange(len(first))
    return by_first[found]


def _samples(
    timeline: Timeline, path: CriticalPath, spans: Ints, sort: Ints
) -> tuple[Ints, Floats, Floats, Ints]:
    """Return, per kind, of one of its transfers the busiest link, its use, the highest use of
    links of other kinds, and the span.

    The span is -1 if no transfer of the kind is on the path: those need no second look.
    """
    sorts = int(sort.max(initial=-1)) + 1
    first = np.full(sorts, -1, dtype=np.int64)
    first[sort[::-1]] = spans[::-1]
    links = np.full(sorts, -1, dtype=np.int64)
    used, other = np.zeros(sorts), np.zeros(sorts)
    if sorts:
        number = instance_numbers(timeline.graph, timeline.op[first])
        begin, end = timeline.start[first], timeline.end[first]
        links, used, other = bottlenecks(timeline, number, begin, end)
    at = np.full(len(timeline), -1, dtype=np.int64)
    at[spans] = sort
    moving = np.flatnonzero((at[path.span] >= 0) & (path.end > path.start))
    moving = moving[np.argsort((path.end - path.start)[moving], kind="stable")]
    chosen = np.full(sorts, -1, dtype=np.int64)
    chosen[at[path.span[moving]]] = path.span[moving]  # the longest of each kind
    moving = moving[path.link[moving] >= 0]
    rows = at[path.span[moving]]
    links[rows], used[rows] = path.link[moving], path.used[moving]
    other[rows] = path.other[moving]
    return links, used, other, chosen
