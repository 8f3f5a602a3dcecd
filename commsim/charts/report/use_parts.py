"""
Sections on what is used: bandwidth of collectives, links over time, memory over time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from commsim.charts.report.facts import Facts, Section
from commsim.charts.report.markup import Part, area, percent, stack, table, text, time_ticks
from commsim.charts.theme import op_label, shorten
from commsim.metrics import busiest, measured_window, use_over_time, utilization
from commsim.metrics.bubbles import lane_stages
from commsim.metrics.measure import CollectiveMetrics
from commsim.units import format_bandwidth, format_size, format_time

__all__ = ["bandwidth_section", "links_section", "memory_section"]

Floats = npt.NDArray[np.float64]

_LINKS = 8  # rows of links; those that do the same at the same time share one
_LOOKED = 48  # links that are looked at for them
_COLLECTIVES = 24
_SEPARATE = 8  # rows of collectives above which groups of one kind are joined
_LANES = 16
_POINTS = 300


def bandwidth_section(facts: Facts) -> Section | None:
    """Return what each collective achieved on each group, None where nobody communicates."""
    uses = sorted(_by_axis(facts.metrics.collectives), key=lambda use: -use.time_s)
    if not uses:
        return None
    highest = max((use.busbw_gbs or 0.0) for use in uses) or 1.0
    rows = []
    for use in uses[:_COLLECTIVES]:
        rate = use.busbw_gbs
        words = "–" if rate is None else format_bandwidth(rate * 1e9)
        look = "comm" if use.op in ("all_reduce", "reduce", "reduce_scatter") else "gather"
        look = "p2p" if use.op == "send_recv" else look
        rows.append([
            f"{text(op_label(use.op))} <span class=muted>{text(shorten(use.group, 24))}</span>",
            stack([Part(look, (rate or 0.0) / highest, words)]), words, f"{use.count:,}",
            format_size(use.bytes / max(1, use.count)), format_time(use.time_s * 1e12),
            format_time(use.wait_s * 1e12), format_time(use.exposed_s * 1e12),
        ])  # fmt: skip
    head = ["", "", "busbw", "count", "size", "time", "of it waiting", "exposed"]
    lead = "Bus bandwidth as nccl-tests defines it; times are sums over instances of the mean over ranks"
    if len(uses) > _COLLECTIVES:
        lead += f"; the {_COLLECTIVES} longest of {len(uses):,}"
    sheet = table(head, rows, right=range(2, 8), look="bars stacked")
    return Section("bandwidth", "Bandwidth of collectives", lead, sheet, wide=True)


def _by_axis(uses: Sequence[CollectiveMetrics]) -> list[CollectiveMetrics]:
    """Join the groups of one kind ("tp0", "tp1", ...) where the table would be long."""
    if len(uses) <= _SEPARATE:
        return list(uses)
    alike: dict[tuple[str, str], list[CollectiveMetrics]] = {}
    for use in uses:
        alike.setdefault((use.op, use.group.rstrip("0123456789")), []).append(use)
    return [
        same[0] if len(same) == 1 else _joined(f"{axis} ({len(same):,} groups)", same)
        for (_, axis), same in alike.items()
    ]


def _joined(name: str, same: list[CollectiveMetrics]) -> CollectiveMetrics:
    moved = [use for use in same if use.busbw_gbs is not None]
    transfer = sum(use.time_s - use.wait_s for use in moved)
    bus = sum((use.busbw_gbs or 0.0) * (use.time_s - use.wait_s) for use in moved)
    return CollectiveMetrics(
        same[0].op, name, sum(use.count for use in same), sum(use.bytes for use in same),
        sum(use.time_s for use in same), sum(use.wait_s for use in same),
        sum(use.exposed_s for use in same), bus / transfer if transfer > 0 else None,
    )  # fmt: skip


def links_section(facts: Facts) -> Section | None:
    """Return the busiest links by name, each with its use over time; None without links."""
    timeline = facts.timeline
    if not len(timeline.links.names):
        return None
    window = measured_window(timeline)
    use = utilization(timeline, window=window)
    chosen = busiest(timeline, use)
    if not len(chosen) or window.step_time <= 0:
        return None
    alike: dict[str, list[int]] = {}
    peaks: dict[str, float] = {}
    for link in chosen[:_LOOKED].tolist():
        over = use_over_time(timeline, np.array([link]), points=_POINTS, window=window)
        time = (over.time - window.first) / window.step_time
        drawn = area(
            time, np.minimum(over.share, 1.0), look=f"k-{text(timeline.links.kinds[link])}"
        )
        alike.setdefault(drawn, []).append(link)
        peaks[drawn] = float(over.share.max())
    rows = []
    for drawn, links in list(alike.items())[:_LINKS]:
        first = links[0]
        others = f" <span class=muted>and {len(links) - 1} alike</span>" if len(links) > 1 else ""
        rows.append([
            f"{text(shorten(timeline.links.names[first], 40))}{others}", drawn,
            percent(float(use.share[first])), percent(peaks[drawn]),
            format_size(float(use.bytes[first])),
            format_bandwidth(float(timeline.links.bandwidth[first])),
        ])  # fmt: skip
    rows.append(["", time_ticks(window.step_time), "", "", "", ""])
    head = ["link", "use over time", "mean", "peak", "carried", "could"]
    sheet = table(head, rows, right=range(2, 6), look="areas stacked")
    carried, names = len(chosen), len(timeline.links.names)
    lead = f"{carried:,} of {names:,} links carry something; these are used most. Full height is all of a link."
    return Section("links", "Busiest links", lead, sheet, wide=True)


def memory_section(facts: Facts) -> Section | None:
    """Return the bytes that each stage (or rank) holds over time, None where nobody counts them."""
    timeline, memory = facts.timeline, facts.timeline.memory
    if not len(memory.time):
        return None
    graph = timeline.graph
    begin, end = timeline.begin_time, max(timeline.end_time, timeline.begin_time + 1)
    lanes = len(graph.lane_rank)
    most = np.zeros(lanes, np.int64)
    np.maximum.at(most, memory.lane, memory.held)
    base, room = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    if facts.resident is not None:
        base, room = facts.resident.held, facts.resident.capacity
    top = float(max(int(room.max(initial=0)), int((base + most).max(initial=1))))
    rows, said = [], {}
    for label, lane in _memory_lanes(
        timeline.graph.lane_rank.tolist(), lane_stages(graph).tolist(), (base + most).tolist()
    ):
        mine = np.flatnonzero(memory.lane == lane)
        order = mine[np.argsort(memory.time[mine], kind="stable")]
        drawn = _held(
            memory.time[order], memory.held[order] + base[lane], (begin, end), int(base[lane]), top
        )
        if drawn in said:
            said[drawn][0] += 1
            continue
        peak = int(base[lane] + most[lane])
        said[drawn] = [0]
        rows.append((drawn, label, peak, int(base[lane]), int(most[lane]), int(room[lane])))
    lines = []
    for drawn, label, peak, fixed, moving, capacity in rows[:_LANES]:
        others = said[drawn][0]
        name = text(label) + (f" <span class=muted>and {others} alike</span>" if others else "")
        of = f" of {format_size(capacity)}" if capacity else ""
        lines.append(
            [
                name,
                drawn,
                f"{format_size(peak)}{of}",
                format_size(fixed) if fixed else "–",
                format_size(moving),
            ]
        )
    lines.append(["", time_ticks(end - begin), "", "", ""])
    head = ["", "bytes held over time", "peak", "all the time", "activations"]
    sheet = table(head, lines, right=range(2, 5), look="areas tall stacked")
    height = "a GPU's memory" if room.any() else format_size(top)
    lead = f"Full height is {height}. {_parts(facts)}".strip()
    return Section("memory", "Memory", lead, sheet, wide=True)


def _parts(facts: Facts) -> str:
    memory = facts.metrics.memory_gib
    if memory is None:
        return "Only what ops take and give back is known."
    named = ("parameters", "gradients", "optimizer", "activations", "buffers")
    parts = ", ".join(f"{name} {memory[name]:.1f}" for name in named if memory[name])
    verdict = "it fits" if memory["fits"] else "it does not fit"
    return f"The fullest GPU holds {memory['peak']:.1f} GiB ({parts}): {verdict}."


def _memory_lanes(ranks: list[int], stages: list[int], peak: list[int]) -> list[tuple[str, int]]:
    """Return (label, lane): the fullest lane of each stage, or the lanes by rank."""
    if len(set(stages)) > 1 and min(stages) >= 0:
        fullest: dict[int, int] = {}
        for lane in sorted(range(len(ranks)), key=lambda lane: (-peak[lane], ranks[lane])):
            fullest.setdefault(stages[lane], lane)
        return [(f"stage {stage}", fullest[stage]) for stage in sorted(fullest)]
    order = sorted(range(len(ranks)), key=lambda lane: ranks[lane])
    return [(f"rank {ranks[lane]}", lane) for lane in order[:64]]


def _held(
    time: npt.NDArray[np.int64], held: npt.NDArray[np.int64], limits: tuple[int, int], base: int,
    top: float,
) -> str:  # fmt: skip
    """Draw the highest level in each of at most _POINTS parts of the time."""
    begin, end = limits
    edges = np.unique(np.linspace(begin, end, _POINTS + 1).astype(np.int64))
    level = np.full(len(edges) - 1, float(base))
    before = np.searchsorted(time, edges[:-1], side="right") - 1
    level = np.where(before >= 0, held[np.maximum(before, 0)], base).astype(np.float64)
    cell = np.clip(np.searchsorted(edges, time, side="right") - 1, 0, len(level) - 1)
    np.maximum.at(level, cell, held.astype(np.float64))
    return area((edges - begin) / (end - begin), level / top, look="held", base=base / top)
