"""
All metrics of a run, with the names and units of its JSON.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from commsim.metrics.bandwidth import GroupUse, bandwidths
from commsim.metrics.breakdown import PARTS, Breakdown, breakdown
from commsim.metrics.bubbles import bubbles
from commsim.metrics.critical_path import CriticalPath, critical_path
from commsim.metrics.links import busiest, utilization
from commsim.metrics.stages import lane_stages
from commsim.metrics.window import Window, measured_window
from commsim.timeline import Timeline
from commsim.units import PS_PER_SECOND

__all__ = [
    "CollectiveMetrics",
    "LinkMetrics",
    "Metrics",
    "PathPiece",
    "RankTimes",
    "Times",
    "measure",
]


class Times(msgspec.Struct, frozen=True):
    """Where the time goes, in seconds, as the mean over ranks.

    The first six are the account (`metrics.breakdown`) and add up to the window. `comm_s` is the
    time in which bytes move, under compute or not.
    """

    compute_s: float
    exposed_transfer_s: float
    exposed_copy_s: float
    waiting_s: float
    host_s: float
    idle_s: float
    comm_s: float

    @property
    def whole_s(self) -> float:
        """The window that the account adds up to."""
        return float(sum(getattr(self, f"{part}_s") for part in PARTS))


class RankTimes(msgspec.Struct, frozen=True):
    """Where the time of one lane goes, in seconds; `stage` is its first pipeline stage."""

    rank: int
    multiplicity: int
    stage: int | None
    compute_s: float
    exposed_transfer_s: float
    exposed_copy_s: float
    waiting_s: float
    host_s: float
    idle_s: float
    comm_s: float

    @property
    def whole_s(self) -> float:
        """The rank's window, which the account adds up to."""
        return float(sum(getattr(self, f"{part}_s") for part in PARTS))


class CollectiveMetrics(msgspec.Struct, frozen=True):
    """All instances of one op on one group; times in seconds are sums of means over members."""

    op: str
    group: str
    count: int
    bytes: int
    time_s: float
    wait_s: float
    exposed_s: float
    busbw_gbs: float | None


class LinkMetrics(msgspec.Struct, frozen=True):
    """A link that carried something in the measured step."""

    name: str
    kind: str
    utilization: float
    bytes: float


class PathPiece(msgspec.Struct, frozen=True):
    """A piece of the critical path: what ran on which rank, and the link that held it back."""

    rank: int
    op: str
    kind: str
    link: str | None
    seconds: float


class Metrics(msgspec.Struct, frozen=True):
    """What a timeline says, with the keys of the run JSON; None if it does not apply."""

    step_time_s: float
    bubble_fraction: float | None
    bubble_ratio: float | None
    breakdown: Times
    ranks: tuple[RankTimes, ...]
    mfu: float | None
    hfu: float | None
    tflops_per_gpu: float | None
    tokens_per_s: float | None
    tokens_per_s_per_gpu: float | None
    memory_gib: dict[str, Any] | None
    collectives: tuple[CollectiveMetrics, ...]
    links: tuple[LinkMetrics, ...]
    critical_path: tuple[PathPiece, ...]
    cost: dict[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics as plain dicts, lists, text and numbers."""
        return {field: _plain(getattr(self, field)) for field in self.__struct_fields__}


def measure(
    timeline: Timeline,
    *,
    model_flops: float | None = None,
    hardware_flops: float | None = None,
    peak_flops: float | None = None,
    tokens: float | None = None,
) -> Metrics:
    """Return all metrics of `timeline`.

    `model_flops` and `hardware_flops` (with recomputation) are those of one step of all ranks,
    `tokens` likewise; `peak_flops` is what one GPU could do per second. All optional.
    """
    window = measured_window(timeline)
    parts = breakdown(timeline, window=window)
    bubble = bubbles(timeline, window=window)
    ranks = int(timeline.graph.multiplicity.sum())
    step = window.step_time / PS_PER_SECOND
    possible = step * ranks * peak_flops if peak_flops else None
    per_gpu = _ratio(model_flops, step * ranks)
    return Metrics(
        step_time_s=step,
        bubble_fraction=bubble.fraction if bubble else None,
        bubble_ratio=bubble.ratio if bubble else None,
        breakdown=_mean_times(timeline, parts),
        ranks=_rank_times(timeline, parts),
        mfu=_ratio(model_flops, possible),
        hfu=_ratio(hardware_flops, possible),
        tflops_per_gpu=None if per_gpu is None else per_gpu * 1e-12,
        tokens_per_s=_ratio(tokens, step),
        tokens_per_s_per_gpu=_ratio(tokens, step * ranks),
        memory_gib=None,
        collectives=tuple(_collective(use) for use in bandwidths(timeline, window=window)),
        links=_links(timeline, window),
        critical_path=_path(timeline, critical_path(timeline, window=window)),
        cost=None,
    )


_COLUMNS = (*PARTS, "comm")


def _mean_times(timeline: Timeline, parts: Breakdown) -> Times:
    weight = timeline.graph.multiplicity
    if not len(weight):
        return Times(*(0.0 for _ in _COLUMNS))
    means = (np.average(getattr(parts, part), weights=weight) for part in _COLUMNS)
    return Times(*(float(mean) / PS_PER_SECOND for mean in means))


def _rank_times(timeline: Timeline, parts: Breakdown) -> tuple[RankTimes, ...]:
    """Return the lanes in order of rank."""
    graph = timeline.graph
    stages = [stage if stage >= 0 else None for stage in lane_stages(graph).tolist()]
    columns = [(getattr(parts, part) / PS_PER_SECOND).tolist() for part in _COLUMNS]
    rank, multiplicity = graph.lane_rank.tolist(), graph.multiplicity.tolist()
    rows = zip(rank, multiplicity, stages, *columns, strict=True)
    return tuple(RankTimes(*row) for row in sorted(rows, key=lambda row: row[0]))


def _collective(use: GroupUse) -> CollectiveMetrics:
    return CollectiveMetrics(
        op=use.op,
        group=use.group,
        count=use.count,
        bytes=use.bytes,
        time_s=use.time / PS_PER_SECOND,
        wait_s=use.wait / PS_PER_SECOND,
        exposed_s=use.exposed / PS_PER_SECOND,
        busbw_gbs=None if use.busbw is None else use.busbw * 1e-9,
    )


def _links(timeline: Timeline, window: Window) -> tuple[LinkMetrics, ...]:
    use, links = utilization(timeline, window=window), timeline.links
    chosen = busiest(timeline, use)
    columns = (chosen.tolist(), use.share[chosen].tolist(), use.bytes[chosen].tolist())
    return tuple(
        LinkMetrics(links.names[link], links.kinds[link], share, carried)
        for link, share, carried in zip(*columns, strict=True)
    )


def _path(timeline: Timeline, path: CriticalPath) -> tuple[PathPiece, ...]:
    """Return the chain, with neighbours that say the same joined."""
    graph, ops = timeline.graph, timeline.op[path.span]
    joined: list[tuple[tuple[int, str, str, str | None], int]] = []
    columns = (ops.tolist(), path.link.tolist(), (path.end - path.start).tolist())
    for kind, op, link, time in zip(path.kind, *columns, strict=True):
        rank, name = int(graph.lane_rank[graph.lane[op]]), graph.op_name(op)
        what = (rank, name, kind, timeline.links.names[link] if link >= 0 else None)
        before = joined.pop()[1] if joined and joined[-1][0] == what else 0
        joined.append((what, before + time))
    return tuple(PathPiece(*what, time / PS_PER_SECOND) for what, time in joined)


def _ratio(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    return value
