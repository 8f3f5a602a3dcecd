"""
Use of the busiest links over time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from commsim.arrays import Floats, Ints
from commsim.charts.theme import LINES, base_layout, markup, plain_axis, time_unit
from commsim.metrics import UseOverTime, busiest, measured_window, use_over_time, utilization
from commsim.timeline import Timeline

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["link_use"]


def link_use(timeline: Timeline, *, top: int = 8) -> Figure:
    """Draw the utilization of the `top` busiest links over the measured step, as steps."""
    from plotly.graph_objects import Figure

    window = measured_window(timeline)
    use = utilization(timeline, window=window)
    chosen = busiest(timeline, use)[:top]
    title, subtitle = _words(timeline, use.share, chosen)
    layout = base_layout(title, subtitle, 480)
    layout["margin"] |= {"l": 60, "t": 128}
    unit, size = time_unit(window.step_time)
    traces: list[dict[str, Any]] = []
    for at, (equal, over_time) in enumerate(_curves(timeline, chosen)):
        more = f" and {len(equal) - 1} equal" if len(equal) > 1 else ""
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": markup(timeline.links.names[equal[0]] + more),
                "x": ((over_time.time - window.first) / size).tolist(),
                "y": [*over_time.share.tolist(), 0.0],
                "hovertemplate": "%{y:.1%}",
                "line": {"shape": "hv", "width": 1.5, "color": LINES[at % len(LINES)]},
            }
        )
    layout["xaxis"] = plain_axis(f"time ({unit})") | {"range": [0, max(window.step_time, 1) / size]}
    layout["yaxis"] = plain_axis("utilization") | {"tickformat": ".0%", "rangemode": "tozero"}
    layout["showlegend"] = True
    layout["hovermode"] = "x unified"
    return Figure(data=traces, layout=layout)


def _curves(timeline: Timeline, chosen: Ints) -> list[tuple[list[int], UseOverTime]]:
    """Return the use over time of each of the chosen links, those with the same use once."""
    found: dict[tuple[bytes, bytes], tuple[list[int], UseOverTime]] = {}
    for link in chosen.tolist():
        use = use_over_time(timeline, np.array([link]))
        # Equal links should not be told apart by the last bit of a sum of floats.
        key = (use.time.tobytes(), np.round(use.share, 9).tobytes())
        found.setdefault(key, ([], use))[0].append(link)
    return list(found.values())


def _words(timeline: Timeline, share: Floats, chosen: Ints) -> tuple[str, str]:
    if not len(chosen):
        return "No link carries anything", ""
    name = timeline.links.names[int(chosen[0])]
    return (
        f"Busiest link: {name}, {share[int(chosen[0])]:.1%} of the step",
        f"{len(chosen)} busiest of {len(timeline.links.names):,} links",
    )
