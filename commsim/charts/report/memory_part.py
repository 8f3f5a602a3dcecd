"""
The section on memory: what each stage, or each rank, holds over time.
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Ints, distinct
from commsim.charts.report.facts import ReportFacts, ReportSection, Residents
from commsim.charts.report.markup import HEIGHTS, and_equal, area, table, text, time_ticks
from commsim.metrics import lane_stages
from commsim.timeline import Timeline
from commsim.units import format_size

__all__ = ["memory_section"]


_ROWS = 16
_LOOKED = 64  # ranks that are looked at for them
_POINTS = 300


class _MemoryRow(msgspec.Struct, frozen=True):
    """What a lane holds, in bytes, drawn and in numbers; `equal` others do the same."""

    label: str
    drawn: str
    fixed: int
    moving: int
    capacity: int
    equal: int = 0


def memory_section(facts: ReportFacts) -> ReportSection | None:
    """Return the bytes that each stage (or rank) holds over time, None if they are not counted."""
    timeline = facts.timeline
    if not len(timeline.memory.time):
        return None
    lanes = len(timeline.graph.lane_rank)
    known = facts.resident or Residents(np.zeros(lanes, np.int64), np.zeros(lanes, np.int64))
    most = np.zeros(lanes, np.int64)
    np.maximum.at(most, timeline.memory.lane, timeline.memory.held)
    top, full = _height(known.capacity, known.held + most)
    rows: dict[str, _MemoryRow] = {}
    for label, lane in _lanes(timeline, known.held + most):
        drawn = _drawing(timeline, lane, int(known.held[lane]), top)
        made = _MemoryRow(
            label, drawn, int(known.held[lane]), int(most[lane]), int(known.capacity[lane])
        )
        before = rows.get(drawn)
        rows[drawn] = made if before is None else _again(before)
    lines = [_line(row) for row in list(rows.values())[:_ROWS]]
    begin, end = _limits(timeline)
    lines.append(["", time_ticks(end - begin), "", "", ""])
    head = ["", "bytes held over time", "peak", "all the time", "activations"]
    sheet = table(head, lines, right=range(2, 5), look="areas tall stacked")
    return ReportSection(
        "memory", "Memory", f"Full height is {full}. {_verdict(facts)}", sheet, wide=True
    )


def _height(capacity: Ints, peak: Ints) -> tuple[float, str]:
    """Return the bytes at which the drawings end, and in words: a part of a GPU if known."""
    room, most = int(capacity.max()), max(int(peak.max()), 1)
    if not room:
        return most, format_size(most)
    part = next((height for height in HEIGHTS if height * room >= most), most / room)
    return part * room, "a GPU's memory" if part == 1 else f"{part:.0%} of a GPU's memory"


def _again(row: _MemoryRow) -> _MemoryRow:
    return _MemoryRow(row.label, row.drawn, row.fixed, row.moving, row.capacity, row.equal + 1)


def _line(row: _MemoryRow) -> list[str]:
    of = f" of {format_size(row.capacity)}" if row.capacity else ""
    fixed = format_size(row.fixed) if row.fixed else "–"
    peak = format_size(row.fixed + row.moving)
    name = text(row.label) + and_equal(row.equal)
    return [name, row.drawn, f"{peak}{of}", fixed, format_size(row.moving)]


def _verdict(facts: ReportFacts) -> str:
    memory = facts.metrics.memory_gib
    if memory is None:
        return "Only what ops take and give back is known."
    named = ("parameters", "gradients", "optimizer", "activations", "buffers", "runtime", "slack")
    parts = ", ".join(f"{name} {memory[name]:.1f}" for name in named if memory[name])
    fits = "it fits" if memory["fits"] else "it does not fit"
    return f"The fullest GPU holds {memory['peak']:.1f} GiB ({parts}): {fits}."


def _lanes(timeline: Timeline, peak: Ints) -> list[tuple[str, int]]:
    """Return (label, lane): the fullest lane of each stage, or the lanes by rank."""
    ranks, stages = timeline.graph.lane_rank.tolist(), lane_stages(timeline.graph).tolist()
    if len(set(stages)) == 1 or min(stages) < 0:
        order = sorted(range(len(ranks)), key=lambda lane: ranks[lane])
        return [(f"rank {ranks[lane]}", lane) for lane in order[:_LOOKED]]
    fullest: dict[int, int] = {}
    for lane in sorted(range(len(ranks)), key=lambda lane: (-peak[lane], ranks[lane])):
        fullest.setdefault(stages[lane], lane)
    return [(f"stage {stage}", fullest[stage]) for stage in sorted(fullest)]


def _limits(timeline: Timeline) -> tuple[int, int]:
    return timeline.begin_time, max(timeline.end_time, timeline.begin_time + 1)


def _drawing(timeline: Timeline, lane: int, base: int, top: float) -> str:
    """Draw the highest level of a lane in each of _POINTS parts of the time, over `base`."""
    begin, end = _limits(timeline)
    memory = timeline.memory
    mine = np.flatnonzero(memory.lane == lane)
    mine = mine[np.argsort(memory.time[mine], kind="stable")]
    time, held = memory.time[mine], memory.held[mine] + base
    edges = distinct(np.linspace(begin, end, _POINTS + 1).astype(np.int64))
    before = np.searchsorted(time, edges[:-1], side="right") - 1
    level = np.concatenate((held, [base]))[before].astype(np.float64)  # -1: before all
    cell = np.searchsorted(edges, time, side="right") - 1
    np.maximum.at(level, np.clip(cell, 0, len(level) - 1), held.astype(np.float64))
    share = (edges - begin) / (end - begin)
    return area(share, level / top, look="held", base=base / top)
