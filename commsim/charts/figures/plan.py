"""
What a plan found: money (or GPUs) against days, and the clusters as a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from commsim.charts.theme import GRID, LINES, MUTED, base_layout, markup
from commsim.units import PS_PER_SECOND, format_time

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["plan_figures"]

_TITLES = ("smallest", "cheapest", "fastest")


def plan_figures(data: Mapping[str, Any]) -> list[Figure]:
    """Return the charts of a plan (`Plan.to_dict`)."""
    options = data["options"]
    lists = (
        ("What decides", "decides"), ("What would change it", "changes"), ("Notes", "notes"),
    )  # fmt: skip
    told = [_list(title, data[key]) for title, key in lists if data[key]]
    return [*([_front(data)] if options else []), _table(data), *told]


def _front(data: Mapping[str, Any]) -> Figure:
    """Draw what each cluster takes; those that nothing beats in both are joined."""
    from plotly.graph_objects import Figure, Scatter

    priced = [one for one in data["options"] if one["cost"] is not None]
    by_cost = len(priced) == len(data["options"])
    shown = priced if by_cost else data["options"]
    key = "cost" if by_cost else "gpus"
    question = data["question"]
    title = f"{question['model']} on {question['tokens'] / 1e12:g}e12 tokens"
    layout = base_layout(title, data["headline"], 480)
    unit = f"whole training ({shown[0]['currency']})" if by_cost else "GPUs"
    layout["xaxis"] = _axis("days") | {"rangemode": "tozero"}
    layout["yaxis"] = _axis(unit) | {"rangemode": "tozero"}
    if question["days"] is not None:
        line = {"color": MUTED, "dash": "dot"}
        layout["shapes"] = [
            {"type": "line", "x0": question["days"], "x1": question["days"], "y0": 0, "y1": 1,
             "yref": "paper", "line": line}
        ]  # fmt: skip
    kinds = list(dict.fromkeys(one["kind"] for one in shown))
    of_kind = [[one for one in shown if one["kind"] == kind] for kind in kinds]
    dots = [
        Scatter(
            x=[one["days"] for one in of_kind[at]],
            y=[one[key] for one in of_kind[at]],
            mode="markers",
            name=markup(kind),
            marker={"color": LINES[at % len(LINES)], "size": 10},
            text=[
                markup(f"{_named(one)}: {one['layout']}") for one in shown if one["kind"] == kind
            ],
            hovertemplate="%{text}<br>%{x:.3g} days, %{y:,.0f}<extra></extra>",
        )
        for at, kind in enumerate(kinds)
    ]
    front = _pareto(shown, key)
    line = Scatter(
        x=[one["days"] for one in front],
        y=[one[key] for one in front],
        mode="lines",
        name="nothing is better in both",
        line={"color": MUTED, "width": 1},
        hoverinfo="skip",
    )
    return Figure(data=[line, *dots], layout=layout)


def _pareto(options: Sequence[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    front: list[Mapping[str, Any]] = []
    for one in sorted(options, key=lambda option: (option["days"], option[key])):
        if not front or one[key] < front[-1][key]:
            front.append(one)
    return front


_WIDTHS = (60, 110, 240, 50, 45, 60, 50, 90, 90, 70)


def _table(data: Mapping[str, Any]) -> Figure:
    from plotly.graph_objects import Figure, Table

    options = data["options"]
    marks = [
        ", ".join(title for title in _TITLES if data[title] == at) for at in range(len(options))
    ]
    columns = {
        "": marks,
        "cluster": [markup(_named(one)) for one in options],
        "layout": [markup(one["layout"]) for one in options],
        "step": [format_time(one["step_s"] * PS_PER_SECOND) for one in options],
        "days": [f"{one['days']:.3g}" for one in options],
        "goodput": ["" if one["goodput"] is None else f"{one['goodput']:.1%}" for one in options],
        "MFU": ["" if one["mfu"] is None else f"{one['mfu']:.1%}" for one in options],
        "cost": [
            "" if one["cost"] is None else f"{one['cost']:,.0f} {one['currency']}"
            for one in options
        ],
        "to buy": [
            "" if one["bought"] is None else f"{one['bought']:,.0f} {one['currency']}"
            for one in options
        ],
        "energy (MWh, at most)": [
            "" if one["energy_kwh"] is None else f"{one['energy_kwh'] / 1e3:,.0f}"
            for one in options
        ],
    }
    widths = dict(zip(columns, _WIDTHS, strict=True))
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    layout = base_layout(
        "Clusters that were simulated", "all those that were run", 200 + 30 * len(options)
    )
    table = Table(
        header={"values": list(columns)},
        cells={"values": list(columns.values())},
        columnwidth=[widths[name] for name in columns],
    )
    return Figure(data=[table], layout=layout)


def _list(title: str, lines: Sequence[str]) -> Figure:
    """Return sentences one below the other."""
    from plotly.graph_objects import Figure, Table

    table = Table(header={"values": [""]}, cells={"values": [[markup(line) for line in lines]]})
    return Figure(data=[table], layout=base_layout(title, "", 100 + 30 * len(lines)))


def _named(option: Mapping[str, Any]) -> str:
    return str(option["name"])


def _axis(title: str) -> dict[str, Any]:
    return {"title": {"text": title}, "gridcolor": GRID, "zeroline": False, "automargin": True}
