"""
Charts of a sweep: a line over one setting, a map over two, lines over more; cost against time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commsim.charts.theme import GRID, LINES, base_layout, markup, time_unit
from commsim.units import PS_PER_SECOND, format_time

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["sweep_figures"]

_STEP, _COST, _TOKENS = "step_time_s", "cost.per_1e9_tokens", "tokens_per_s"
_TABLE = {
    "step_time_s": "step", "tokens_per_s": "tokens/s", "mfu": "MFU",
    "bubble_fraction": "bubble", "memory_gib.peak": "peak (GiB)", "error": "error",
}  # fmt: skip
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)(\D*)")
_MOST_LINES = 12
_MOST_ROWS = 2_000  # of the table in a page


def sweep_figures(
    data: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], reports: Sequence[str]
) -> list[Figure]:
    """Return the charts of a sweep (`Sweep.to_dict`, `Sweep.rows`), and its points as a table.

    `reports` are the files of the points' own pages, "" if there is none.
    """
    varied = [axis for axis in data["axes"] if len(axis["values"]) > 1]
    paths = [axis["path"] for axis in varied if not axis["beside"]]
    beside = [axis["path"] for axis in varied if axis["beside"]]
    good = [row for row in rows if row["error"] is None]
    figures = []
    if good and len(paths) == 1:
        figures.append(_lines(paths[0], good, beside=beside))
    elif len(paths) == 2 and good:
        figures.append(_map(paths, good))
    elif paths and good:
        along = max(paths, key=lambda path: len({str(row[path]) for row in good}))
        figures.append(_lines(along, good, apart=[path for path in paths if path != along]))
    if any(row[_COST] is not None for row in good):
        figures.append(_pareto(good))
    figures.append(_table(data, rows, reports))
    return figures


def _lines(
    path: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    beside: Sequence[str] = (),
    apart: Sequence[str] = (),
) -> Figure:
    """Draw the step over a setting: `beside` move with it, each value of `apart` has a line."""
    from plotly.graph_objects import Figure, Scatter

    told = [path, *beside, *apart]
    best = min(rows, key=lambda row: row[_STEP])
    unit, times = _scaled(rows)
    of_line: dict[tuple[str, ...], list[int]] = {}
    for at, row in enumerate(rows):
        of_line.setdefault(tuple(str(row[one]) for one in apart), []).append(at)
    drawn = sorted(of_line.items(), key=lambda line: min(times[at] for at in line[1]))[:_MOST_LINES]
    left_out = len(of_line) - len(drawn)
    lead = f"shortest at {_settings(told, best)}: {_time(best[_STEP])}{_most_tokens(told, rows)}"
    if left_out:
        lead += f"; the {len(drawn)} lines with the shortest of {len(of_line)}"
    numbers, suffix = _numbers([str(row[path]) for row in rows])
    layout = base_layout(f"Step time by {_name(path)}", markup(lead), 460)
    layout |= {
        "xaxis": _axis(_name(path) + (f" ({suffix})" if suffix else "")),
        "yaxis": _axis(f"step ({unit})") | {"rangemode": "tozero"},
        "showlegend": bool(apart),
    }
    if numbers is None:
        layout["xaxis"] |= {"type": "category"}
    lines = [
        Scatter(
            x=[str(rows[at][path]) if numbers is None else numbers[at] for at in places],
            y=[times[at] for at in places],
            name=markup(_settings(apart, rows[places[0]])),
            mode="lines+markers",
            line={"color": LINES[number % len(LINES)]},
            text=[
                f"{markup(_settings(told, rows[at]))}: {_time(rows[at][_STEP])}" for at in places
            ],
            hovertemplate="%{text}<extra></extra>",
        )
        for number, (_, places) in enumerate(drawn)
    ]
    return Figure(data=lines, layout=layout)


def _most_tokens(told: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Say where most tokens are trained in a second, if that is not where steps are shortest."""
    counted = [row for row in rows if row.get(_TOKENS)]
    if not counted:
        return ""
    most = max(counted, key=lambda row: row[_TOKENS])
    if most is min(rows, key=lambda row: row[_STEP]):
        return ""
    return f"; most tokens at {_settings(told, most)}: {most[_TOKENS]:,.0f}/s"


def _map(paths: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Figure:
    from plotly.graph_objects import Figure, Heatmap

    across, down = paths
    columns = list(dict.fromkeys(str(row[across]) for row in rows))
    lines = list(dict.fromkeys(str(row[down]) for row in rows))
    unit, times = _scaled(rows)
    known = {
        (str(row[down]), str(row[across])): time for row, time in zip(rows, times, strict=True)
    }
    best = min(rows, key=lambda row: row[_STEP])
    told = f"shortest at {_name(across)} {best[across]}, {_name(down)} {best[down]}"
    lead = f"{told}: {_time(best[_STEP])}{_most_tokens(paths, rows)}"
    layout = base_layout(f"Step time ({unit})", markup(lead), 520)
    layout |= {
        "xaxis": _axis(_name(across)) | {"type": "category"},
        "yaxis": _axis(_name(down)) | {"type": "category"},
    }
    values = [[known.get((line, column)) for column in columns] for line in lines]
    heat = Heatmap(
        x=columns,
        y=lines,
        z=values,
        colorscale="Viridis_r",
        texttemplate="%{z:.3g}",
        hovertemplate=f"%{{x}}, %{{y}}: %{{z:.4g}} {unit}<extra></extra>",
    )
    return Figure(data=[heat], layout=layout)


def _pareto(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw money against time; the points that nothing beats in both are joined."""
    from plotly.graph_objects import Figure, Scatter

    priced = sorted((row for row in rows if row[_COST] is not None), key=lambda row: row[_STEP])
    front: list[Mapping[str, Any]] = []
    for row in priced:
        if not front or row[_COST] < front[-1][_COST]:
            front.append(row)
    layout = base_layout(
        "Cost against step time", "joined: nothing else is faster and cheaper", 460
    )
    unit, times = _scaled(priced)
    fastest = dict(zip(map(id, priced), times, strict=True))
    layout |= {"xaxis": _axis(f"step ({unit})"), "yaxis": _axis("for 1e9 tokens")}
    skip = set(_TABLE) | {"memory_gib.fits"}
    told = [
        ", ".join(f"{_name(k)} {v}" for k, v in row.items() if isinstance(v, str) and k not in skip)
        for row in priced
    ]
    every = Scatter(
        x=times,
        y=[row[_COST] for row in priced],
        mode="markers",
        text=told,
        marker={"color": LINES[7]},
        hovertemplate="%{text}<extra></extra>",
    )
    best = Scatter(
        x=[fastest[id(row)] for row in front],
        y=[row[_COST] for row in front],
        mode="lines+markers",
        line={"color": LINES[1]},
        hoverinfo="skip",
    )
    return Figure(data=[every, best], layout=layout | {"showlegend": False})


def _table(
    data: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], reports: Sequence[str]
) -> Figure:
    from plotly.graph_objects import Figure, Table

    shown = rows[:_MOST_ROWS]
    paths = [axis["path"] for axis in data["axes"]]
    keys = [*paths, *(key for key in _TABLE if any(row[key] is not None for row in shown))]
    columns = [[_cell(key, row[key]) for row in shown] for key in keys]
    heads = [_TABLE.get(key, _name(key)) for key in keys]
    if any(reports):
        columns.append([_link(report) for report in reports[: len(shown)]])
        heads.append("report")
    told = f"{len(rows):,} points" + (
        "" if len(shown) == len(rows) else f", the first {len(shown)}"
    )
    height = 160 + 24 * min(len(shown), 30)
    layout = base_layout(markup(f"{data['scenario']}"), told, height)
    table = Table(header={"values": [markup(head) for head in heads]}, cells={"values": columns})
    return Figure(data=[table], layout=layout)


def _link(report: str) -> str:
    path = Path(report)
    return f'<a href="{path.parent.name}/{path.name}">open</a>' if path.exists() else ""


def _time(seconds: float) -> str:
    return format_time(seconds * PS_PER_SECOND)


def _scaled(rows: Sequence[Mapping[str, Any]]) -> tuple[str, list[float]]:
    """Return the step times in the unit that suits the longest, and that unit."""
    unit, size = time_unit(max(row[_STEP] for row in rows) * PS_PER_SECOND)
    return unit, [row[_STEP] * PS_PER_SECOND / size for row in rows]


def _cell(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key == _STEP:
        return _time(value)
    if key in ("mfu", "bubble_fraction") and isinstance(value, float):
        return f"{value:.1%}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    return markup(str(value))


def _name(path: str) -> str:
    """Return the end of a path, which is what people call a setting."""
    return path.rsplit(".", 1)[-1].replace("_", " ")


def _settings(paths: Sequence[str], row: Mapping[str, Any]) -> str:
    return ", ".join(f"{_name(path)} {row[path]}" for path in paths)


def _numbers(values: Sequence[str]) -> tuple[list[float] | None, str]:
    """Return values as numbers with the unit that all have; None if there is no such."""
    found = [_NUMBER.fullmatch(value) for value in values]
    units = {one[2] for one in found if one}
    if None in found or len(units) > 1:
        return None, ""
    return [float(one[1]) for one in found if one], units.pop()


def _axis(title: str) -> dict[str, Any]:
    return {"title": {"text": title}, "gridcolor": GRID, "zeroline": False, "automargin": True}
