"""
What limits a step: what each part of it would save if it were gone, and if it were half.

Parts are looked for on the critical path. What each would save is found by timing the run's own
plan again without it (`retime`), not by adding up the time spent in it:

    bandwidth    of a kind of link: the transfers on it, but for what the fewest bytes would take
    latency      of those transfers: the rest of their time
    pipeline     stages wait for each other: each runs by itself instead
    p2p          what travels between stages for a time that is given: it is there at once
    imbalance    a stage or a rank computes longer than the mean of those that it communicates
                 with: all compute the mean instead
    copy         to and from host memory
    host         the CPU launches or computes while the GPU has nothing to do
    compute      of the GPUs
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from commsim.arrays import Bools, Floats, Ints, distinct
from commsim.cluster import Cluster
from commsim.graph import HOST_STREAM, OpKind, joined_lanes
from commsim.libraries import Library
from commsim.metrics.bandwidth import MESSAGE
from commsim.metrics.bottleneck import copy_resource
from commsim.metrics.breakdown import computes
from commsim.metrics.critical_path import critical_path
from commsim.metrics.intervals import Intervals, lengths
from commsim.metrics.retime import Change, Retiming
from commsim.metrics.stages import lane_stages
from commsim.metrics.transfers import transfer_limits
from commsim.metrics.window import Window, clip, measured_window
from commsim.timeline import Timeline
from commsim.units import PS_PER_SECOND

__all__ = ["Limit", "limits"]

_NOTICED = 0.005  # of the step: a part below this is not looked at
_UNEVEN = 0.02  # compute within this share of the mean counts as equal


class Limit(msgspec.Struct, frozen=True):
    """A part of the step: what it is, and what the step (s) would save without it.

    `kind` is bandwidth, latency, pipeline, p2p, imbalance, copy, host or compute; `resource` the
    kind of link for bandwidth, latency and copies, else "". `where` names what is meant: the ops
    and groups that move, the link that holds them back, the stage or the rank. `removed_s` is saved
    if the part took no time, `halved_s` if it took half (None if half has no meaning). `ratio`
    is, of an imbalance, the longest compute over the mean. `setting` changes the run so that it
    saves about `halved_s`: "cluster.scale.nic=2"; None if no single setting does.
    """

    kind: str
    resource: str
    where: str
    link: str | None
    removed_s: float
    halved_s: float | None = None
    ratio: float | None = None
    setting: str | None = None


def limits(
    timeline: Timeline,
    *,
    window: Window | None = None,
    library: Library | None = None,
    cluster: Cluster | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Limit, ...]:
    """Return the parts that the step would be shorter without, those that save most first.

    `library` and `cluster`, those of the run, tell the bandwidth of a transfer from its latency;
    without them the use of its busiest link does. `settings` has, per kind of link and for
    "compute", the setting that makes it twice as fast.
    """
    window = window or measured_window(timeline)
    step = window.step_time
    if step <= 0:
        return ()
    search = _LimitSearch(timeline, window, library, cluster)
    found = [one for one in search.all() if one.removed_s * PS_PER_SECOND > _NOTICED * step]
    found.sort(key=lambda one: -one.removed_s)
    return tuple(replace(one, setting=settings.get(_faster(one))) for one in found)


def _faster(limit: Limit) -> str:
    """Return what would have to be twice as fast to halve a limit, "" if nothing does."""
    if limit.kind == "compute":
        return limit.kind
    return limit.resource if limit.kind in ("bandwidth", "copy") else ""


class _Weighed(NamedTuple):
    """A part of the step, and the changes that tell what it is worth: gone, and half of it.

    `busy` (ps) is what the step takes whatever is changed.
    """

    limit: Limit
    changes: tuple[Change, ...]
    busy: float = 0.0


class _LimitSearch:
    """One timeline's critical path and what to change; all changes are timed at once."""

    def __init__(
        self,
        timeline: Timeline,
        window: Window,
        library: Library | None,
        cluster: Cluster | None,
    ) -> None:
        self._timeline, self._window = timeline, window
        self._path = critical_path(timeline, window=window)
        self._step = window.step_time
        self._transfers = transfer_limits(timeline, self._path, library, cluster)
        self._copies: Bools = timeline.kind == OpKind.COPY
        self._copied_over = copy_resource(timeline) if self._copies.any() else ""

    def all(self) -> Iterator[Limit]:
        """Yield a limit per part that the critical path or the stages show."""
        asked: list[tuple[Limit, int, float]] = []
        steps = Retiming(self._timeline, window=self._window).steps(self._changes(asked))
        step, times = steps[0], iter(steps[1:])
        for limit, count, busy in asked:
            most = max(0.0, step - busy)
            saved = [min(most, step - next(times)) / PS_PER_SECOND for _ in range(count)]
            halved = saved[1] if len(saved) > 1 else None
            yield replace(limit, removed_s=saved[0], halved_s=halved)

    def _changes(self, asked: list[tuple[Limit, int, float]]) -> Iterator[Change]:
        """Yield no change, then those of each part; note the parts and how many changes they have.

        They are made one part after the other: each is columns over all spans.
        """
        yield Change(np.ones(len(self._timeline)))
        for limit, changes, busy in self._parts():
            asked.append((limit, len(changes), busy))
            yield from changes

    def _parts(self) -> Iterator[_Weighed]:
        shared = yield from self._links()
        if not shared:
            yield from self._by_factor("copy", self._copies, self._copied_over)
        yield from self._host()
        yield from self._by_factor("compute", computes(self._timeline))
        yield from self._pipeline()
        yield from self._imbalance()

    def _on_path(self, spans: Bools) -> float:
        """Return the time (ps) that the critical path spends on the flagged spans."""
        path = self._path
        return float((path.end - path.start)[spans[path.span]].sum())

    def _links(self) -> Generator[_Weighed, None, bool]:
        """Weigh bandwidth and latency of each kind of link that the path was held back by.

        Returns whether the copies to and from host memory were weighed with it: they and transfers
        over the same links hold each other up, and faster links serve both.
        """
        found, with_copies = self._transfers, False
        for at, resource in enumerate(found.names):
            mine = found.resource == at
            if self._on_path(mine) <= _NOTICED * self._step:
                continue
            moved, link = self._moved(mine)
            where = moved
            gone, half = found.share * mine, found.doubled * mine
            if resource == self._copied_over and self._on_path(self._copies):
                with_copies = True
                gone, half = gone + self._copies, half + self._copies / 2
                where = f"{where}, copies to and from host memory"
            latency = (1 - found.share) * mine
            for kind, what, parts in (
                ("bandwidth", where, (gone, half)),
                ("latency", moved, (latency, latency / 2)),
            ):
                if float(parts[0].max()) > 0:
                    limit = Limit(kind, resource, what, link, 0.0)
                    yield _Weighed(limit, tuple(Change(1 - share) for share in parts))
        return with_copies

    def _moved(self, mine: Bools) -> tuple[str, str | None]:
        """Name the ops and groups on the path among `mine`, and the link that held most back."""
        path, graph = self._path, self._timeline.graph
        table, messages = graph.collectives, graph.messages
        ops: dict[tuple[str, str], int] = {}
        links: dict[int, int] = {}
        for row in np.flatnonzero(mine[path.span]).tolist():
            op = int(self._timeline.op[path.span[row]])
            item = int(graph.item[op])
            collective = graph.kind[op] == OpKind.COLLECTIVE
            group = graph.groups[int((table if collective else messages).group[item])]
            kind = table.kind[item] if collective else MESSAGE
            lasted = int(path.end[row] - path.start[row])
            key = kind.replace("_", "-"), group.axis or group.name
            ops[key] = ops.get(key, 0) + lasted
            if path.link[row] >= 0:
                links[int(path.link[row])] = links.get(int(path.link[row]), 0) + lasted
        names = _listed(ops)
        link = max(links, key=lambda one: links[one]) if links else None
        return names, None if link is None else self._timeline.links.names[link]

    def _by_factor(self, kind: str, spans: Bools, resource: str = "") -> Iterator[_Weighed]:
        if self._on_path(spans) > _NOTICED * self._step:
            changes = Change(_scaled(spans, 1.0)), Change(_scaled(spans, 0.5))
            yield _Weighed(Limit(kind, resource, "", None, 0.0), changes)

    def _host(self) -> Iterator[_Weighed]:
        """Weigh the CPU's work next to a GPU, with the latency of what it launches.

        A CPU of twice the speed halves its work, not that latency; a captured program's work is the
        delay with which it issues each op.
        """
        cpu = ~self._timeline.on_gpu
        delayed = np.array([kind == "delay" for kind in self._path.kind], dtype=np.bool_)
        held = self._on_path(cpu) + float(
            (self._path.end - self._path.start)[delayed].sum() if cpu.any() else 0.0
        )
        if held > _NOTICED * self._step:
            issues = cpu & self._of_program()
            changes = (
                Change(_scaled(cpu, 1.0), delays=_scaled(cpu, 1.0)),
                Change(_scaled(cpu, 0.5), delays=_scaled(issues, 0.5)),
            )
            yield _Weighed(Limit("host", "", "", None, 0.0), changes, self._at_work())

    def _of_program(self) -> Bools:
        """Say which spans are a captured program's own, from which it issues with a delay each."""
        graph = self._timeline.graph
        if "capture" not in graph.meta or HOST_STREAM not in graph.streams:
            return np.zeros(len(self._timeline), dtype=np.bool_)
        found: Bools = graph.stream[self._timeline.op] == graph.streams.index(HOST_STREAM)
        return found

    def _at_work(self) -> float:
        """Return how long (ps) the busiest GPU computes or moves data: no host saves any of it.

        Where a recording does not say what waits for what across streams, retiming alone would let
        their work overlap once its launches come earlier.
        """
        timeline, work = self._timeline, self._timeline.on_gpu
        spans = Intervals(timeline.lane[work], timeline.start[work], timeline.end[work])
        busy = lengths(clip(spans, self._window), len(timeline.graph.lane_rank))
        return float(busy.max(initial=0))

    def _pipeline(self) -> Iterator[_Weighed]:
        """Weigh the waits of stages for each other: messages between them then delay no stage."""
        timeline, graph = self._timeline, self._timeline.graph
        stage = lane_stages(graph)
        stages = len(distinct(stage[stage >= 0]))
        if stages < 2:
            return
        between = np.zeros(len(timeline), dtype=np.bool_)
        spans = np.flatnonzero(timeline.communicates)
        ops = timeline.op[spans]
        message = graph.kind[ops] != OpKind.COLLECTIVE
        between[spans[message]] = True
        # Without messages (a pure delay between stages) work itself depends on other lanes.
        between |= timeline.kind == OpKind.COMPUTE
        # A message moves during the work, so it holds its own stage up neither.
        factor = np.where(between & timeline.communicates, 0.0, 1.0)
        limit = Limit("pipeline", "", f"{stages} stages", None, 0.0)
        yield _Weighed(limit, (Change(factor, detached=between),))
        lane = graph.lane[graph.dep_op], np.repeat(graph.lane, np.diff(graph.dep_ptr))
        if graph.dep_delay[lane[0] != lane[1]].any():
            travels = Change(
                np.ones(len(timeline)), delays=_scaled(timeline.kind == OpKind.COMPUTE, 1.0)
            )
            yield _Weighed(Limit("p2p", "", limit.where, None, 0.0), (travels,))

    def _imbalance(self) -> Iterator[_Weighed]:
        """Weigh compute that is longer on some stage or rank than on the mean one."""
        timeline, graph = self._timeline, self._timeline.graph
        lanes, work = len(graph.lane_rank), computes(timeline)
        spans = Intervals(timeline.lane[work], timeline.start[work], timeline.end[work])
        spent = lengths(clip(spans, self._window), lanes).astype(np.float64)
        at_work = spent > 0
        if not at_work.any():
            return
        if spent.max() <= (1 + _UNEVEN) * spent[at_work].min():
            return
        # Lanes that exchange nothing (several jobs) wait for each other in nothing.
        part = joined_lanes(graph)
        ranks = np.where(at_work, graph.multiplicity, 0)
        of_part = np.bincount(part, weights=spent * ranks) / np.maximum(np.bincount(part, ranks), 1)
        mean = np.where(at_work, of_part[part], 1.0)
        longest = int(np.argmax(spent / mean))
        if spent[longest] <= (1 + _UNEVEN) * mean[longest]:
            return
        scale = np.where(at_work, mean / np.where(at_work, spent, 1.0), 1.0)
        # Another step recorded beside the measured one may be uneven in another way.
        factor = np.where(work & self._measured(), scale[timeline.lane], 1.0)
        where = _culprit(graph.lane_rank, lane_stages(graph), spent, longest)
        ratio = float(spent[longest] / mean[longest])
        limit = Limit("imbalance", "", where, None, 0.0, ratio=ratio)
        yield _Weighed(limit, (Change(factor),))

    def _measured(self) -> Bools:
        """Say which spans lie in a recorded step; in all other windows every step is alike."""
        timeline, window = self._timeline, self._window
        if window.step >= 0:
            return np.ones(len(timeline), dtype=np.bool_)
        inside: Bools = timeline.start < window.end[timeline.lane]
        return inside & (timeline.end > window.begin[timeline.lane])


def _scaled(spans: Bools, part: float) -> Floats:
    """Return a factor per span: the flagged ones lose `part` of their duration."""
    return np.where(spans, 1.0 - part, 1.0)


def _culprit(rank: Ints, stage: Ints, spent: Floats, longest: int) -> str:
    """Name the stage that computes longest, or the rank if it is longer than its stage."""
    same = stage == stage[longest]
    others = spent[same & (spent > 0)]
    detached = float(others.min()) < (1 - _UNEVEN) * spent[longest]
    if stage[longest] < 0 or detached:
        return f"rank {int(rank[longest])}"
    return f"stage {int(stage[longest])}"


def _listed(ops: dict[tuple[str, str], int]) -> str:
    """Return "all-gather and reduce-scatter on tp", the longest first; what is little is left."""
    order = sorted(ops, key=lambda key: -ops[key])
    whole = sum(ops.values())
    told = [key for key in order if ops[key] >= 0.2 * whole][:3] or order[:1]
    groups: dict[str, list[str]] = {}
    for op, group in told:
        groups.setdefault(group, []).append(op)
    return ", ".join(f"{' and '.join(names)} on {group}" for group, names in groups.items())
