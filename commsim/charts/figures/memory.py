"""
Memory over time: what each rank or stage holds, as steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from commsim.arrays import Ints
from commsim.charts.theme import LINES, base_layout, plain_axis, time_unit
from commsim.metrics import Window, lane_stages, measured_window
from commsim.timeline import Timeline
from commsim.units import format_size

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["memory"]


_MOST_LINES = 8  # as many colours as there are; the fullest lanes are drawn
_POINTS = 4_000


def memory(timeline: Timeline, *, lines: int = _MOST_LINES) -> Figure:
    """Draw the bytes that lanes hold over the measured step: the `lines` fullest, by peak.

    What the timeline records: what ops take and give back (activations, buffers).
    """
    from plotly.graph_objects import Figure

    held = timeline.memory
    window = measured_window(timeline)
    peak = np.zeros(len(timeline.graph.lane_rank), np.int64)
    np.maximum.at(peak, held.lane, held.held)
    order = np.lexsort((timeline.graph.lane_rank, -peak))[: int(np.count_nonzero(peak))]
    unit, size = time_unit(window.step_time)
    curves = _curves(timeline, order, window)
    layout = base_layout(*_words(timeline, peak, curves[:lines], len(order)), 460)
    layout["margin"] |= {"l": 60, "t": 128}
    layout |= {
        "xaxis": plain_axis(f"time ({unit})") | {"range": [0, max(window.step_time, 1) / size]},
        "yaxis": plain_axis("held (GiB)") | {"rangemode": "tozero"},
        "hovermode": "x unified",
        "showlegend": True,
    }
    traces = []
    for at, (equal, when, what) in enumerate(curves[:lines]):
        more = f" and {len(equal) - 1:,} equal" if len(equal) > 1 else ""
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": _name(timeline, equal[0]) + more,
                "x": ((when - window.first) / size).tolist(),
                "y": (what / 2**30).tolist(),
                "hovertemplate": "%{y:.4g} GiB",
                "line": {"shape": "hv", "width": 1.75, "color": LINES[at % len(LINES)]},
            }
        )
    return Figure(data=traces, layout=layout)


def _curves(timeline: Timeline, lanes: Ints, window: Window) -> list[tuple[list[int], Ints, Ints]]:
    """Return (lanes, times, bytes from then on), fullest first; lanes that are equal once."""
    found: dict[tuple[bytes, bytes], tuple[list[int], Ints, Ints]] = {}
    for lane in lanes.tolist():
        when, what = _steps(timeline, lane, window.first, window.last)
        found.setdefault((when.tobytes(), what.tobytes()), ([], when, what))[0].append(lane)
    return list(found.values())


def _words(
    timeline: Timeline, peak: Ints, curves: list[tuple[list[int], Ints, Ints]], lanes: int
) -> tuple[str, str]:
    if not curves:
        return "No op of this run takes memory", ""
    fullest = int(np.argmax(peak))
    name = _name(timeline, fullest)
    counted = "what ops take and give back; parameters and optimizer states come on top"
    drawn = sum(len(equal) for equal, _, _ in curves)
    shown = f" · the {drawn} fullest of {lanes:,}" if lanes > drawn else ""
    return f"Peak: {format_size(int(peak[fullest]))} on {name}", counted + shown


def _name(timeline: Timeline, lane: int) -> str:
    graph = timeline.graph
    stages = lane_stages(graph)
    rank, stage = int(graph.lane_rank[lane]), int(stages[lane])
    return f"rank {rank}" if stage < 0 else f"stage {stage}, rank {rank}"


def _steps(timeline: Timeline, lane: int, first: int, last: int) -> tuple[Ints, Ints]:
    """Return (times, bytes from then on) of a lane within the window, both ends included.

    Above 4,000 steps: the largest of as many equal parts, so that peaks stay.
    """
    held = timeline.memory
    mine = held.lane == lane
    time, value = held.time[mine], held.held[mine]
    before = np.searchsorted(time, first, side="right") - 1
    level = int(value[before]) if before >= 0 else 0
    inside = (time > first) & (time <= last)
    time = np.concatenate(([first], time[inside], [last]))
    value = np.concatenate(([level], value[inside]))
    value = np.append(value, value[-1])
    if len(time) <= _POINTS:
        return time, value
    edges = np.linspace(0, len(time), _POINTS, endpoint=False).astype(np.int64)
    return time[edges], np.maximum.reduceat(value, edges)
