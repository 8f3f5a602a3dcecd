"""
A calibration: of each table what was measured, what the figures given say, and the fitted ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from commsim.charts.theme import GRID, LINES, base_layout, markup

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["calibration_figures"]

_US = 1e6


def calibration_figures(data: Mapping[str, Any]) -> list[Figure]:
    """Return a figure for each table of a calibration (`Calibration.to_dict`)."""
    return [_table(data, table) for table in data["tables"]]


def _table(data: Mapping[str, Any], table: Mapping[str, Any]) -> Figure:
    from plotly.graph_objects import Figure, Scatter

    found = data["finding"]
    told = (
        f"median error {data['before']:.1%} as given, {data['after']:.1%} fitted, over all tables"
    )
    if found is not None:
        told += f"; found: {found['name']}"
    layout = base_layout(markup(table["name"]), markup(told), 420)
    layout["xaxis"] = _axis("bytes")
    layout["yaxis"] = _axis("time (us)")
    layout["legend"] = {**layout.get("legend", {}), "x": 0, "xanchor": "left"}
    lines = (
        ("measured", "measured_s", "markers", LINES[7], "solid"),
        ("as given", "given_s", "lines", LINES[1], "dot"),
        ("fitted", "fitted_s", "lines", LINES[0], "solid"),
    )
    traces = [
        Scatter(
            x=table["sizes"],
            y=[seconds * _US for seconds in table[key]],
            mode=mode,
            name=name,
            line={"color": colour, "dash": dash},
            marker={"color": colour, "size": 8},
            hovertemplate="%{x:,} B: %{y:.4g} us<extra>" + name + "</extra>",
        )
        for name, key, mode, colour, dash in lines
    ]
    return Figure(data=traces, layout=layout)


def _axis(title: str) -> dict[str, Any]:
    return {
        "title": {"text": title}, "gridcolor": GRID, "zeroline": False, "automargin": True,
        "type": "log", "dtick": 1,
    }  # fmt: skip
