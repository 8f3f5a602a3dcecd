"""
What the next dollar should buy: a tornado chart, twice and half of every resource, and its table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from commsim.charts.theme import GRID, INK, LINES, base_layout, markup
from commsim.units import PS_PER_SECOND, format_time

if TYPE_CHECKING:
    from plotly.graph_objects import Bar, Figure

__all__ = ["tornado_figures"]

_ROW, _HEAD = 34, 170  # pixels
_HEADS = ("resource", "now", "÷ 2", "− 10 %", "+ 10 %", "× 2", "ends at", "why")
_KINDS = {"hardware": "", "size": "more of everything", "setting": "a setting, costs nothing"}


def tornado_figures(data: Mapping[str, Any]) -> list[Figure]:
    """Return the charts of `NextDollar.to_dict`: bars by what they change, then all figures."""
    return [_tornado(data), _table(data)]


def _tornado(data: Mapping[str, Any]) -> Figure:
    from plotly.graph_objects import Figure

    step = float(data["step_time_s"])
    rows = sorted(data["upgrades"], key=lambda row: _reach(row))
    names = [f"{markup(row['title'])}  " for row in rows]
    layout = base_layout(data["scenario"], data["headline"], _HEAD + _ROW * len(rows))
    layout |= {
        "barmode": "overlay",
        "bargap": 0.35,
        "xaxis": {
            "title": {"text": f"change of the step, % of {_time(step)} (left is shorter)"},
            "gridcolor": GRID, "zerolinecolor": INK, "ticksuffix": " %", "automargin": True,
        },
        "yaxis": {"automargin": True, "ticks": ""},
        "legend": layout["legend"] | {"x": 0, "xanchor": "left"},
    }  # fmt: skip
    bars = [
        _bars(rows, names, step, -1, LINES[2], "twice as good"),
        _bars(rows, names, step, 0, LINES[1], "half as good"),
    ]
    return Figure(data=bars, layout=layout)


def _bars(
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    step: float,
    which: int,
    colour: str,
    label: str,
) -> Bar:
    from plotly.graph_objects import Bar

    changes = [row["changes"][which] for row in rows]
    told = [
        _time(c["step_time_s"]) if c["step_time_s"] is not None else markup(c["error"] or "")
        for c in changes
    ]
    return Bar(
        orientation="h",
        name=label,
        y=list(names),
        x=[None if c["saved_s"] is None else -100 * c["saved_s"] / step for c in changes],
        text=told,
        textposition="none",
        marker={"color": colour},
        hovertemplate=f"%{{y}}, {label}: %{{x:.2f}} %, %{{text}}<extra></extra>",
    )


def _table(data: Mapping[str, Any]) -> Figure:
    from plotly.graph_objects import Figure, Table

    step, rows = float(data["step_time_s"]), data["upgrades"]
    priced = any(row["worth_per_hour"] is not None for row in rows)
    heads = [*_HEADS]
    columns = [
        [row["title"] for row in rows],
        [row["now"] for row in rows],
        *([_percent(row["changes"][at], step) for row in rows] for at in range(4)),
        ["" if row["saturates"] is None else f"× {row['saturates']:g}" for row in rows],
        [row["why"] or _KINDS[row["kind"]] for row in rows],
    ]
    if priced:
        heads.insert(7, f"worth ({data['currency']}/h)")
        worth = (row["worth_per_hour"] for row in rows)
        columns.insert(7, [_money(value) for value in worth])
    bought = any(row["price_per_hour"] is not None for row in rows)
    if bought:
        heads[-1:-1] = [f"costs ({data['currency']}/h)", "per s saved"]
        for field in ("price_per_hour", "per_saved_second"):
            columns.insert(len(columns) - 1, [_money(row[field]) for row in rows])
    height = 160 + 42 * len(rows)
    layout = base_layout("All figures", "change of the step; minus is shorter", height)
    cells = [[markup(text) for text in column] for column in columns]
    widths = [
        3,
        3,
        1.3,
        1.3,
        1.3,
        1.3,
        1.2,
        *([1.8] if priced else []),
        *([1.8, 1.8] if bought else []),
        6,
    ]
    table = Table(
        columnwidth=widths,
        header={"values": [markup(head) for head in heads], "align": "left"},
        cells={"values": cells, "align": "left"},
    )
    return Figure(data=[table], layout=layout)


def _money(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}"


def _reach(row: Mapping[str, Any]) -> tuple[float, float]:
    """Return by how much more of a resource helps, and less of it hurts: the order of the bars."""
    saved = row["saved_s"] or 0.0
    return saved, max(abs(change["saved_s"] or 0.0) for change in row["changes"])


def _percent(change: Mapping[str, Any], step: float) -> str:
    saved = change["saved_s"]
    share = 0.0 if saved is None else round(-100 * saved / step, 2)
    return "" if saved is None else f"{share:+.2f} %" if share else "0"


def _time(seconds: float) -> str:
    return format_time(seconds * PS_PER_SECOND)
