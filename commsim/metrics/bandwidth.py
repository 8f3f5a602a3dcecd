"""
Achieved bandwidth of communication: algbw and busbw as nccl-tests defines them, without waits.

An instance is one collective of all its members, or one message of its two ends ("send_recv").
Its time is the mean over members of arrival to end, of which wait is arrival to start; the
bandwidths are those of the rest, the transfer:

    algbw = S / transfer        busbw = algbw * factor(op, n)
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Floats, Ints
from commsim.graph import Graph, OpKind
from commsim.metrics.breakdown import compute_time
from commsim.metrics.intervals import before
from commsim.metrics.window import Window, arrivals, measured_window
from commsim.ops import bus_factor
from commsim.timeline import Timeline

__all__ = ["MESSAGE", "GroupUse", "Instances", "bandwidths", "instance_numbers", "instances"]


MESSAGE = "send_recv"
"""What a message counts as among the collectives, the name that nccl-tests has for it."""


class Instances(msgspec.Struct, frozen=True, eq=False):
    """One row per collective or message, as columns, in order of their rows in the graph.

    `item` is the row in the graph's collectives, or in its messages if `op` is "send_recv".
    `size` in bytes, `factor` of busbw; `arrive` (first member), `start` (first), `end` (last) in
    ps; `time`, `wait` and `exposed` (under no compute of the rank) in ps, means over members.
    """

    op: tuple[str, ...]
    group: Ints
    item: Ints
    size: Ints
    factor: Floats
    arrive: Ints
    start: Ints
    end: Ints
    time: Floats
    wait: Floats
    exposed: Floats

    def __len__(self) -> int:
        return len(self.op)

    @property
    def transfer(self) -> Floats:
        """The time without the wait, in ps."""
        return self.time - self.wait


class GroupUse(msgspec.Struct, frozen=True):
    """All instances of one op on the groups of one name; times in ps, summed over instances.

    `algbw` and `busbw` in bytes/s, None if nothing moved or it took no time.
    """

    op: str
    group: str
    count: int
    bytes: int
    time: float
    wait: float
    exposed: float
    algbw: float | None
    busbw: float | None


def bandwidths(timeline: Timeline, *, window: Window | None = None) -> tuple[GroupUse, ...]:
    """Return what each kind of communication on each group achieved, in order of appearance."""
    found = instances(timeline, window=window)
    names = [timeline.graph.groups[group].name for group in found.group.tolist()]
    rows: dict[tuple[str, str], list[int]] = {}
    for row, key in enumerate(zip(found.op, names, strict=True)):
        rows.setdefault(key, []).append(row)
    return tuple(
        _group_use(found, op, group, np.array(chosen)) for (op, group), chosen in rows.items()
    )


def instances(timeline: Timeline, *, window: Window | None = None) -> Instances:
    """Return every collective and message of `timeline` that ends in its measured step."""
    graph = timeline.graph
    window = window or measured_window(timeline)
    spans = np.flatnonzero(timeline.communicates)
    number = instance_numbers(graph, timeline.op[spans])
    ended = _latest(number, timeline.end[spans], len(graph.collectives) + len(graph.messages))
    lane, end = timeline.lane[spans], timeline.end[spans]
    inside = (window.begin[lane] <= end) & (end <= window.end[lane])
    counts = np.zeros(len(ended), dtype=np.bool_)
    counts[number[inside]] = True
    if window.step >= 0:
        counts &= (ended > window.first) & (ended <= window.last)
    kept = counts[number]
    spans, (found, row) = spans[kept], np.unique(number[kept], return_inverse=True)
    return _measure(timeline, spans, row, found)


def instance_numbers(graph: Graph, ops: Ints) -> Ints:
    """Return, per communicating op, the number of its instance: collectives first, then messages.

    A message has its row in the graph's messages plus the count of collectives.
    """
    messages = graph.kind[ops] != OpKind.COLLECTIVE
    return graph.item[ops] + np.where(messages, len(graph.collectives), 0)


def _measure(timeline: Timeline, spans: Ints, row: Ints, found: Ints) -> Instances:
    """Reduce `spans`, each of instance `row`, to columns over the instances numbered `found`."""
    graph, count = timeline.graph, len(found)
    arrive, start, end = arrivals(timeline)[spans], timeline.start[spans], timeline.end[spans]
    compute, lane = compute_time(timeline), timeline.lane[spans]
    hidden = before(compute, lane, end) - before(compute, lane, arrive)
    ranks = graph.multiplicity[lane].astype(np.float64)
    weight = np.bincount(row, weights=ranks, minlength=count)

    def mean(values: Ints) -> Floats:
        return np.bincount(row, weights=values * ranks, minlength=count) / weight

    op, group, size, factor = _what(graph, found)
    return Instances(
        op=op,
        group=group,
        item=np.where(found < len(graph.collectives), found, found - len(graph.collectives)),
        size=size,
        factor=factor,
        arrive=-_latest(row, -arrive, count, least=np.iinfo(np.int64).min),
        start=-_latest(row, -start, count, least=np.iinfo(np.int64).min),
        end=_latest(row, end, count),
        time=mean(end - arrive),
        wait=mean(start - arrive),
        exposed=mean(end - arrive - hidden),
    )


def _latest(row: Ints, values: Ints, count: int, *, least: int = -1) -> Ints:
    latest = np.full(count, least, dtype=np.int64)
    np.maximum.at(latest, row, values)
    return latest


def _what(graph: Graph, found: Ints) -> tuple[tuple[str, ...], Ints, Ints, Floats]:
    """Return op, group, bytes and bus factor of the instances numbered `found`."""
    table, messages = graph.collectives, graph.messages
    op = tuple(table.kind[n] if n < len(table) else MESSAGE for n in found.tolist())
    group = np.concatenate((table.group, messages.group))[found]
    size = np.maximum(np.concatenate((table.size, messages.size))[found], 0)
    members = [len(one.ranks) for one in graph.groups]
    calls = [(kind, members[row]) for kind, row in zip(op, group.tolist(), strict=True)]
    factors = {call: bus_factor(*call) for call in dict.fromkeys(calls)}
    return op, group, size, np.array([factors[call] for call in calls], dtype=np.float64)


def _group_use(found: Instances, op: str, group: str, rows: Ints) -> GroupUse:
    size, transfer = int(found.size[rows].sum()), float(found.transfer[rows].sum())
    moved = size > 0 and transfer > 0
    bus = float((found.size[rows] * found.factor[rows]).sum())
    return GroupUse(
        op=op,
        group=group,
        count=len(rows),
        bytes=size,
        time=float(found.time[rows].sum()),
        wait=float(found.wait[rows].sum()),
        exposed=float(found.exposed[rows].sum()),
        algbw=size / transfer * 1e12 if moved else None,
        busbw=bus / transfer * 1e12 if moved else None,
    )
