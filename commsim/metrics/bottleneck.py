"""
The bottleneck link of each transfer: the busiest of its links under all traffic.

It is read at one moment of each transfer, the middle of its longest stretch at one rate.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from commsim.arrays import Floats, Ints, distinct
from commsim.graph import OpKind
from commsim.metrics.bandwidth import instance_numbers
from commsim.timeline import LinkUse, Timeline
from commsim.units import PS_PER_SECOND

__all__ = ["Bottlenecks", "bottlenecks", "link_resource"]


_Names = npt.NDArray[np.str_]
_COMMUNICATION = (OpKind.COLLECTIVE, OpKind.SEND, OpKind.RECV)


class Bottlenecks(NamedTuple):
    """Per transfer: its busiest link (-1 for none), the share of it in use, and the highest use
    of its links of other kinds, which bound what a faster link of that kind would save.
    """

    link: Ints
    used: Floats
    other: Floats


def bottlenecks(timeline: Timeline, instance: Ints, begin: Ints, end: Ints) -> Bottlenecks:
    """Return the link that was busiest for each transfer, and the share of it that was in use.

    `instance` is a number by `instance_numbers`; only its traffic between `begin` and `end` (ps)
    counts as its own. A transfer of latency alone has no link.
    """
    found = np.full(len(instance), -1, dtype=np.int64)
    used, other = np.zeros(len(instance)), np.zeros(len(instance))
    links = timeline.links
    if not len(links.op):
        return Bottlenecks(found, used, other)
    kinds = zip(links.names, links.kinds, strict=True)
    resources = np.array([link_resource(name, kind) for name, kind in kinds])
    owner = _owners(timeline)
    moments = _moments(links, owner, instance, begin, end)
    asked = np.flatnonzero(moments >= 0)
    asked = asked[np.argsort(moments[asked], kind="stable")]
    memo: dict[tuple[bytes, bytes, bytes], tuple[int, float, float]] = {}
    for row, active in zip(asked.tolist(), _active(links, moments[asked]), strict=True):
        own = active[owner[active] == instance[row]]
        key = links.flow[own].tobytes(), links.flow[active].tobytes(), links.rate[active].tobytes()
        if key not in memo:
            memo[key] = _busiest(links, resources, own, active)
        found[row], used[row], other[row] = memo[key]
    return Bottlenecks(found, used, other)


def link_resource(name: str, kind: str) -> str:
    """Return the kind of a link; links between switches of the network are its "fabric"."""
    return "fabric" if kind == "network" and "/nic" not in name else kind


def copy_resource(timeline: Timeline) -> str:
    """Return the kind of link that holds copies to and from host memory back, "" if unknown."""
    links = timeline.links
    known = np.flatnonzero(links.op >= 0)
    copies = known[timeline.graph.kind[links.op[known]] == OpKind.COPY]
    entries, owner = _entries(links, copies)
    if not len(entries):
        return ""
    moved = links.rate[copies] * (links.end[copies] - links.start[copies])
    load = np.bincount(links.load_link[entries], weights=links.load_bytes[entries] * moved[owner])
    link = int(np.argmax(load / links.bandwidth[: len(load)]))
    return link_resource(links.names[link], links.kinds[link])


def _owners(timeline: Timeline) -> Ints:
    """Return the instance that each segment moves data for, -1 for none known and for copies."""
    op, kind = timeline.links.op, timeline.graph.kind
    owner = np.full(len(op), -1, dtype=np.int64)
    known = np.flatnonzero(op >= 0)
    known = known[np.isin(kind[op[known]], _COMMUNICATION)]
    owner[known] = instance_numbers(timeline.graph, op[known])
    return owner


def _moments(links: LinkUse, owner: Ints, instance: Ints, begin: Ints, end: Ints) -> Ints:
    """Return the middle of each transfer's longest segment in ps, -1 if it has none."""
    order = np.argsort(owner, kind="stable")
    first = np.searchsorted(owner[order], instance)
    last = np.searchsorted(owner[order], instance, side="right")
    moments = np.full(len(instance), -1, dtype=np.int64)
    for row in np.flatnonzero(last > first).tolist():
        own = order[first[row] : last[row]]
        start = np.maximum(links.start[own], begin[row])
        length = np.minimum(links.end[own], end[row]) - start
        longest = int(np.argmax(length))
        if length[longest] > 0:
            moments[row] = start[longest] + length[longest] // 2
    return moments


def _active(links: LinkUse, moments: Ints) -> list[Ints]:
    """Return the segments that moved at each of the sorted `moments`, by segment id."""
    first = np.searchsorted(moments, links.start)
    count = np.searchsorted(moments, links.end) - first
    segment = np.repeat(np.arange(len(count)), count)
    within = np.arange(len(segment)) - np.repeat(np.cumsum(count) - count, count)
    moment = np.repeat(first, count) + within
    order = np.argsort(moment, kind="stable")
    edges = np.searchsorted(moment[order], np.arange(len(moments) + 1))
    segment = segment[order]
    return [segment[a:b] for a, b in itertools.pairwise(edges.tolist())]


def _busiest(
    links: LinkUse, resources: _Names, own: Ints, active: Ints
) -> tuple[int, float, float]:
    """Return, of the links of the segments `own`, the busiest under `active`, its use, and the
    highest use of those of other resources.
    """
    entries, owner = _entries(links, active)
    traffic = links.load_bytes[entries] * links.rate[active][owner]
    level = np.bincount(links.load_link[entries], weights=traffic, minlength=len(links.names))
    mine = distinct(links.load_link[_entries(links, own)[0]])
    if not len(mine):
        return -1, 0.0, 0.0
    # Equal links should not be told apart by the last bit of a sum of floats.
    share = level[mine] * PS_PER_SECOND / links.bandwidth[mine]
    at = int(np.argmax(share >= share.max() * (1 - 1e-9)))
    resource = resources[mine[at]]
    # Switches are built for the NICs on them; faster switches leave the NICs as they are.
    along = ("network", "fabric") if resource == "network" else (resource,)
    others = share[~np.isin(resources[mine], along)]
    return int(mine[at]), min(1.0, float(share[at])), min(1.0, float(others.max(initial=0.0)))


def _entries(links: LinkUse, segments: Ints) -> tuple[Ints, Ints]:
    """Return the load entries of `segments`, and the position of the segment of each."""
    first = links.load_ptr[links.flow[segments]]
    count = links.load_ptr[links.flow[segments] + 1] - first
    owner = np.repeat(np.arange(len(segments)), count)
    return np.arange(len(owner)) - np.repeat(np.cumsum(count) - count - first, count), owner
