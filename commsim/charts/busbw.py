"""
Busbw against size: ring or tree, and from which size on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commsim.charts.theme import GRID, INK, LINES, MUTED, base_layout, markup, op_label
from commsim.units import format_size

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["busbw"]


def busbw(bench: dict[str, Any]) -> Figure:
    """Draw the JSON of `commsim bench`: a line per op and algorithm, crossovers marked.

    Rows without a busbw (barriers) are left out; the bound is drawn where a row has one.
    """
    from plotly.graph_objects import Figure

    rows = [row for row in bench["results"] if row["busbw_gbs"] is not None]
    ops = list(dict.fromkeys(row["op"] for row in rows))
    lines = dict.fromkeys((row["op"], row["algo"], row["proto"]) for row in rows)
    layout = base_layout(_title(bench, ops), _subtitle(bench), 520)
    sizes = sorted({row["size"] for row in rows})
    layout |= {
        "xaxis": _size_axis(sizes),
        "yaxis": {
            "title": {"text": "busbw (GB/s)", "font": {"size": 12, "color": MUTED}},
            "rangemode": "tozero", "gridcolor": GRID, "zeroline": False, "automargin": True,
            "tickfont": {"size": 11, "color": MUTED},
        },
        "hovermode": "x unified",
        "shapes": [_mark(c["size"]) for c in bench["crossovers"]],
        "annotations": [_label(c, at) for at, c in enumerate(bench["crossovers"])],
    }  # fmt: skip
    layout["margin"] |= {"t": 128}
    traces = [_line(rows, key, at, len(ops) > 1) for at, key in enumerate(lines)]
    return Figure(data=[*traces, *_bounds(rows, ops)], layout=layout)


def _title(bench: dict[str, Any], ops: list[str]) -> str:
    changes = bench["crossovers"]
    what = ", ".join(op_label(op) for op in ops)
    if not changes:
        return f"{what}: busbw against size"
    first = changes[0]
    return f"{what}: {first['to']} wins from {format_size(first['size'])} on"


def _subtitle(bench: dict[str, Any]) -> str:
    system = bench["system"]
    return " · ".join(f"{key} {value}" for key, value in system.items() if value is not None)


def _line(
    rows: list[dict[str, Any]], key: tuple[str, str, str | None], at: int, several: bool
) -> dict[str, Any]:
    op, algo, proto = key
    mine = [r for r in rows if (r["op"], r["algo"], r["proto"]) == key]
    name = " ".join(part for part in (op_label(op) if several else "", algo, proto or "") if part)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": markup(name),
        "x": [r["size"] for r in mine],
        "y": [r["busbw_gbs"] for r in mine],
        "customdata": [[format_size(r["size"]), f"{r['time_us']:.4g} us"] for r in mine],
        "hovertemplate": "%{y:.4g} GB/s · %{customdata[1]}",
        "line": {"color": LINES[at % len(LINES)], "width": 2},
        "marker": {"size": 5},
    }


def _bounds(rows: list[dict[str, Any]], ops: list[str]) -> list[dict[str, Any]]:
    """Return a dashed line per op for the best that the topology allows, where it is known."""
    traces = []
    for op in ops:
        mine = {r["size"]: r for r in rows if r["op"] == op and r.get("bound_us")}
        if mine:
            best = [r["busbw_gbs"] * r["time_us"] / r["bound_us"] for r in mine.values()]
            traces.append({
                "type": "scatter", "mode": "lines", "name": "bound", "x": list(mine), "y": best,
                "line": {"color": INK, "width": 1, "dash": "dash"},
            })  # fmt: skip
    return traces


def _size_axis(sizes: list[int]) -> dict[str, Any]:
    ticks = [2**k for k in range(64) if sizes and sizes[0] <= 2**k <= sizes[-1]]
    every = max(1, -(-len(ticks) // 12))
    shown = ticks[::every]
    return {
        "type": "log",
        "title": {"text": "size", "font": {"size": 12, "color": MUTED}},
        "tickvals": shown,
        "ticktext": [format_size(size) for size in shown],
        "gridcolor": GRID,
        "tickfont": {"size": 11, "color": MUTED},
        "automargin": True,
    }


def _mark(size: int) -> dict[str, Any]:
    return {
        "type": "line", "x0": size, "x1": size, "y0": 0, "y1": 1, "yref": "paper",
        "line": {"color": MUTED, "width": 1, "dash": "dot"},
    }  # fmt: skip


def _label(crossover: dict[str, Any], at: int) -> dict[str, Any]:
    from math import log10

    return {
        "x": log10(crossover["size"]), "y": 1, "yref": "paper", "yanchor": "top",
        "xanchor": "left", "xshift": 4, "yshift": -14 * (at % 3), "showarrow": False,
        "text": markup(f"{crossover['to']} from {format_size(crossover['size'])}"),
        "font": {"size": 11, "color": MUTED},
    }  # fmt: skip
