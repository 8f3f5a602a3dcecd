"""
Scaling: throughput of several runs against GPUs, next to perfect scaling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from commsim.charts.theme import LINES, base_layout, markup, plain_axis

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["scaling"]


def scaling(results: Sequence[dict[str, Any]], *, names: Sequence[str] | None = None) -> Figure:
    """Draw the throughput of runs against their GPUs, and what perfect scaling would give.

    `results` are the JSON of `commsim run` (`Result.to_dict`). `names` sorts them into curves
    (one name per result); without it all are one. Throughput is tokens/s if every run knows
    them, else steps/s: then give every run the same work per GPU. Efficiency is throughput per
    GPU against that of the curve's smallest run.
    """
    from plotly.graph_objects import Figure

    tokens = all(one.get("tokens_per_s") is not None for one in results)
    curves: dict[str, list[tuple[int, float, str]]] = {}
    for at, one in enumerate(results):
        gpus = sum(rank["multiplicity"] for rank in one["ranks"])
        rate = one["tokens_per_s"] if tokens else gpus / one["step_time_s"]
        name = "" if names is None else names[at]
        curves.setdefault(name, []).append((gpus, rate, one["scenario"]))
    for points in curves.values():
        points.sort()
    layout = base_layout(*_words(curves), 480)
    layout["margin"] |= {"l": 60, "t": 128}
    ticks = sorted({gpus for points in curves.values() for gpus, _, _ in points})
    what = "tokens/s" if tokens else "GPU steps/s"
    layout |= {
        "xaxis": plain_axis("GPUs")
        | {
            "type": "log",
            "tickmode": "array",
            "tickvals": ticks,
            "ticktext": [f"{gpus:,}" for gpus in ticks],
        },
        "yaxis": plain_axis(what) | {"type": "log", "dtick": 1, "exponentformat": "SI"},
    }
    traces = []
    for at, (name, points) in enumerate(curves.items()):
        colour = LINES[at % len(LINES)]
        traces += [_ideal(points, name, colour), _curve(points, name, colour, what)]
    return Figure(data=traces, layout=layout)


def _words(curves: dict[str, list[tuple[int, float, str]]]) -> tuple[str, str]:
    """Return the efficiency of the largest step up as the finding."""
    found = [
        (points[-1][0] / points[0][0], _efficiency(points, points[-1]), name, points)
        for name, points in curves.items()
        if points[-1][0] > points[0][0]
    ]
    if not found:
        return "One size of cluster: nothing to compare", ""
    _, kept, name, points = max(found, key=lambda one: one[0])
    what = f"{name}: " if name else ""
    return (
        f"{what}{kept:.1%} of perfect scaling at {points[-1][0]:,} GPUs",
        f"against {points[0][0]:,} GPUs",
    )


def _efficiency(points: list[tuple[int, float, str]], point: tuple[int, float, str]) -> float:
    return (point[1] / point[0]) / (points[0][1] / points[0][0])


def _curve(
    points: list[tuple[int, float, str]], name: str, colour: str, what: str
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": markup(name) or "simulated",
        "x": [gpus for gpus, _, _ in points],
        "y": [rate for _, rate, _ in points],
        "line": {"color": colour, "width": 2},
        "marker": {"size": 7},
        "customdata": [[markup(p[2]), f"{_efficiency(points, p):.1%}"] for p in points],
        "hovertemplate": f"<b>%{{customdata[0]}}</b><br>%{{x:,}} GPUs: %{{y:.4s}} {what}<br>"
        "%{customdata[1]} of perfect scaling<extra></extra>",
    }


def _ideal(points: list[tuple[int, float, str]], name: str, colour: str) -> dict[str, Any]:
    gpus = [points[0][0], points[-1][0]]
    return {
        "type": "scatter",
        "mode": "lines",
        "hoverinfo": "skip",
        "name": markup(f"{name} perfect".strip()),
        "x": gpus,
        "y": [points[0][1] * count / points[0][0] for count in gpus],
        "line": {"color": colour, "width": 1, "dash": "dot"},
    }
