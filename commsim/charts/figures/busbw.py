"""
Busbw against size: ring or tree, and from which size on.

One row of the picture per op: the curves, below them two ribbons that say which algorithm is
fastest and which the library would choose. Colour is the algorithm, dashes are the protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commsim.charts.figures.busbw_parts import Bench, bounds, choice, curves, marks, ribbons
from commsim.charts.theme import GRID, INK, MUTED, base_layout, markup
from commsim.metrics import op_label
from commsim.units import format_size

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["busbw"]

_TOP, _BOTTOM, _PLOT, _RIBBON, _GAP = 150, 60, 360, 44, 70  # pixels


def busbw(bench: dict[str, Any]) -> Figure:
    """Draw the JSON of `commsim bench`: curves, the library's choice, crossovers, both bounds.

    Rows without a busbw (barriers) are left out. Where each op has one row per size, the ops
    share one plot.
    """
    from plotly.graph_objects import Figure

    data = Bench.of(bench)
    ribbon = (_RIBBON if data.chooses else _RIBBON // 2) if data.contested else 0
    plots = data.ops if data.contested else ["" for _ in data.ops[:1]]
    row = _PLOT + ribbon
    height = _TOP + _BOTTOM + len(plots) * row + (len(plots) - 1) * _GAP
    layout = base_layout(_title(bench, data), _subtitle(bench), height)
    layout["margin"] |= {"l": 60, "t": _TOP, "b": _BOTTOM}
    layout["legend"] |= {
        "traceorder": "normal",
        "font": {"size": 11},
        "itemsizing": "trace",
    }
    layout |= {"hovermode": "closest", "shapes": [], "annotations": [], "meta": {"log": []}}
    inside = max(height - _TOP - _BOTTOM, 1)
    traces: list[dict[str, Any]] = []
    for at, op in enumerate(plots):
        top = 1 - at * (row + _GAP) / inside
        axes = (f"{2 * at + 1}".replace("1", "", at == 0), f"{2 * at + 2}")
        layout |= _axes(
            data, axes, top, _PLOT / inside, ribbon / inside, op if len(plots) > 1 else ""
        )
        mine = [*bounds(data, op), *curves(data, op), *choice(data, op)]
        traces += [trace | _on(axes[0]) for trace in mine]
        layout["meta"]["log"].append(f"yaxis{axes[0]}")
        if ribbon:
            traces += [trace | _on(axes[0], axes[1]) for trace in ribbons(data, op)]
            shapes, labels = marks(data, op, axes[0])
            layout["shapes"] += shapes
            layout["annotations"] += labels
    return Figure(data=_named_once(traces), layout=layout)


def _on(axis: str, y: str | None = None) -> dict[str, str]:
    return {"xaxis": f"x{axis}", "yaxis": f"y{axis if y is None else y}"}


def _named_once(traces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Let curves of one name in several plots share one entry of the legend."""
    seen: dict[str, None] = {}
    for trace in traces:
        name = trace["name"]
        trace["legendgroup"] = name
        if name in seen:
            trace["showlegend"] = False
        elif trace.get("showlegend", True):
            seen[name] = None
    return traces


def _title(bench: dict[str, Any], data: Bench) -> str:
    what = ", ".join(op_label(op) for op in data.ops)
    ways = len({(r["algo"], r["proto"]) for r in data.rows})
    if not data.contested or ways < 2 or len(data.ops) > 1:
        best = max((row["busbw_gbs"] for row in data.rows), default=0.0)
        return f"{what}: up to {best:.4g} GB/s"
    changes = bench["crossovers"]
    if not changes:
        first = min(data.rows, key=lambda row: row["time_us"])
        return f"{what}{_asked(data)}: {data.way(first)} is fastest at every size"
    last = changes[-1]
    asked = _asked(data)
    return f"{what}{asked}: {last['to']} is fastest from {format_size(last['size'])} on"


def _asked(data: Bench) -> str:
    """Return ", ring or tree" where two or three algorithms compete; more are in the legend."""
    names = sorted({str(row["algo"]) for row in data.rows}, key=lambda name: (len(name), name))
    plain = [name.lower() if name in ("Ring", "Tree") else name for name in names]
    return f", {', '.join(plain[:-1])} or {plain[-1]}" if 2 <= len(names) <= 3 else ""


def _subtitle(bench: dict[str, Any]) -> str:
    system = bench["system"]
    parts = [str(system["cluster"]), f"{system['gpus']} GPUs", str(system["library"])]
    if system.get("network") not in (None, "fluid"):
        parts.append(f"network {system['network']}")
    return " · ".join(parts)


def _axes(
    data: Bench, axes: tuple[str, str], top: float, plot: float, ribbon: float, op: str
) -> dict[str, Any]:
    """Return the axes of one row: size, busbw, and the rows of the ribbons below."""
    small = {"size": 12, "color": MUTED}
    name = "busbw (GB/s)" + (f" of {op_label(op)}" if op else "")
    y_axis = {
        "title": {"text": name, "font": small}, "rangemode": "tozero", "gridcolor": GRID,
        "type": "log", "dtick": 1, "exponentformat": "none",  # small sizes are seen as well
        "zeroline": False, "automargin": True, "tickfont": {"size": 11, "color": MUTED},
        "domain": [max(0.0, top - plot), top], "anchor": f"x{axes[0]}",
    }  # fmt: skip
    x_axis = _size_axis(data.sizes) | {"anchor": f"y{axes[1] if ribbon else axes[0]}"}
    found = {f"xaxis{axes[0]}": x_axis, f"yaxis{axes[0]}": y_axis}
    if ribbon:
        found[f"yaxis{axes[1]}"] = {
            "domain": [max(0.0, top - plot - ribbon), max(0.0, top - plot) - 0.004],
            "anchor": f"x{axes[0]}", "range": [-0.5 if data.chooses else 0.5, 1.5],
            "fixedrange": True,
            "tickvals": [1, 0], "ticktext": ["fastest", markup(f"{data.library} takes")],
            "tickfont": {"size": 11, "color": INK}, "showgrid": False, "zeroline": False,
            "automargin": True,
        }  # fmt: skip
    return found


def _size_axis(sizes: list[int]) -> dict[str, Any]:
    from math import log10

    ticks = [2**k for k in range(64) if sizes and sizes[0] <= 2**k <= sizes[-1]]
    shown = ticks[:: max(1, -(-len(ticks) // 9))]
    axis: dict[str, Any] = {
        "type": "log", "title": {"text": "size", "font": {"size": 12, "color": MUTED}},
        "tickvals": shown, "ticktext": [format_size(size).replace(" ", "") for size in shown],
        "gridcolor": GRID, "zeroline": False, "tickfont": {"size": 11, "color": MUTED},
        "automargin": True, "tickangle": 0,
    }  # fmt: skip
    if len(sizes) > 1:
        pad = (log10(sizes[-1]) - log10(sizes[0])) * 0.02
        axis["range"] = [log10(sizes[0]) - pad, log10(sizes[-1]) + pad]
    return axis
