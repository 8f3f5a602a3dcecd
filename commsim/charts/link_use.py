"""
How full the busiest links are over time, and all links of a kind together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from commsim.charts.theme import GRID, LINES, MUTED, base_layout, markup, time_unit
from commsim.metrics.links import busiest, use_over_time, utilization
from commsim.timeline import Timeline

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["link_use"]


def link_use(timeline: Timeline, *, top: int = 8) -> Figure:
    """Draw the utilization of the `top` busiest links over the measured step, as steps."""
    from plotly.graph_objects import Figure

    use = utilization(timeline)
    chosen = busiest(timeline, use)[:top]
    title, subtitle = _words(timeline, use.share, chosen)
    layout = base_layout(title, subtitle, 480)
    layout["margin"] |= {"t": 128}
    traces: list[dict[str, Any]] = []
    for at, link in enumerate(chosen.tolist()):
        over_time = use_over_time(timeline, np.array([link]))
        begin = int(over_time.time[0])
        unit, size = time_unit(int(over_time.time[-1]) - begin)
        traces.append({
            "type": "scatter", "mode": "lines", "name": markup(timeline.links.names[link]),
            "x": ((over_time.time - begin) / size).tolist(),
            "y": [*over_time.share.tolist(), 0.0], "hovertemplate": "%{y:.1%}",
            "line": {"shape": "hv", "width": 1.5, "color": LINES[at % len(LINES)]},
        })  # fmt: skip
        layout["xaxis"] = _axis(f"time ({unit})")
    layout["yaxis"] = _axis("utilization") | {"tickformat": ".0%", "rangemode": "tozero"}
    layout["hovermode"] = "x unified"
    return Figure(data=traces, layout=layout)


def _words(
    timeline: Timeline, share: np.ndarray[Any, np.dtype[np.float64]], chosen: Any
) -> tuple[str, str]:
    if not len(chosen):
        return "No link carries anything", ""
    name = timeline.links.names[int(chosen[0])]
    return (
        f"Busiest link: {name}, {share[int(chosen[0])]:.1%} of the step",
        f"{len(chosen)} busiest of {len(timeline.links.names):,} links",
    )


def _axis(title: str) -> dict[str, Any]:
    return {
        "title": {"text": title, "font": {"size": 12, "color": MUTED}},
        "gridcolor": GRID,
        "zeroline": False,
        "tickfont": {"size": 11, "color": MUTED},
        "automargin": True,
    }
