"""
The Gantt chart as a plotly figure: real boxes, one row per lane, hover for the details.

Boxes are batched in one bar trace per family, so that a browser draws thousands of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from commsim.arrays import Floats, Ints
from commsim.charts.gantt.headline import headline
from commsim.charts.gantt.hover import hover
from commsim.charts.gantt.scene import Boxes, Scene, SceneRow, scene, strengths
from commsim.charts.theme import (
    FAMILIES,
    GRID,
    HATCH,
    IDLE,
    INK,
    LANE,
    MUTED,
    PAPER,
    Family,
    base_layout,
    markup,
    time_unit,
    tint,
)
from commsim.graph import OpKind
from commsim.metrics import Metrics, op_label
from commsim.timeline import Timeline

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["gantt", "legend_label", "numbers", "pixels_per_row"]

_TEMPLATE = (
    "<b>%{customdata[0]}</b> · %{customdata[1]}<br>"
    "%{customdata[2]}<br>%{customdata[3]}<extra></extra>"
)
_TOP, _BOTTOM = 112, 56
_LEGIBLE = 12.0  # pixels of a row: a lower one has no room for its name
_PLOT = 1300  # pixels that a page usually leaves for the time axis
_WITH_GAP = 25  # pixels of a box from which a white line of one next to it takes less than 4 %


def gantt(
    timeline: Timeline,
    *,
    title: str | None = None,
    subtitle: str | None = None,
    metrics: Metrics | None = None,
) -> Figure:
    """Draw `timeline` as a Gantt chart; `metrics` adds the bubble to the title and the legend.

    Above 5,000 boxes short neighbours are drawn together, above 64 lanes evenly spread ones
    are shown; the subtitle says so.
    """
    from plotly.graph_objects import Figure

    picture = scene(timeline)
    text = headline(timeline, picture, metrics)
    below = " · ".join((text.subtitle if subtitle is None else subtitle, *picture.notes))
    layout = base_layout(title or text.title, below.strip(" ·"), _height(picture))
    unit, size = time_unit(picture.end - picture.begin)
    span = (picture.end - picture.begin) / size
    layout |= {
        "barmode": "overlay",
        "bargap": 0,
        "uniformtext": {"minsize": 9, "mode": "hide"},
        "margin": {"l": 24, "r": 24, "t": _TOP, "b": _BOTTOM},
        "xaxis": _time_axis(unit, span),
        "yaxis": _rows_axis(picture),
    }
    layout["legend"] |= {"traceorder": "normal"}
    traces = [_ground(picture, span, text.idle), *_traces(timeline, picture, size)]
    return Figure(data=[trace for trace in traces if trace], layout=layout)


def pixels_per_row(picture: Scene) -> float:
    """Return the pixels of one compute row: 32, less if there are many."""
    return float(np.clip(960 / picture.depth, 11, 32))


def legend_label(timeline: Timeline, picture: Scene, family: int) -> str:
    """Name a family by the ops of it that are drawn: "all-reduce, reduce-scatter"."""
    label = FAMILIES[family].label
    if label not in ("reduce", "gather"):
        return label
    boxes = picture.boxes
    graph, spans = timeline.graph, boxes.span[(boxes.family == family) & (boxes.span >= 0)]
    rows = np.unique(graph.item[timeline.op[spans]]).tolist()
    kinds = dict.fromkeys(op_label(graph.collectives.kind[row]) for row in rows)
    return ", ".join(kinds) or label


def numbers(timeline: Timeline, boxes: Boxes) -> list[str]:
    """Return the microbatch of each box as text; empty for boxes that have none."""
    graph, spans = timeline.graph, boxes.span
    known = (spans >= 0) & ~boxes.waits
    if not len(timeline):
        return []
    ops = timeline.op[np.where(known, spans, 0)]
    microbatch = np.where(known & (graph.kind[ops] == OpKind.COMPUTE), graph.microbatch[ops], -1)
    return [str(number) if number >= 0 else "" for number in microbatch.tolist()]


def _height(picture: Scene) -> int:
    return _TOP + _BOTTOM + round(picture.depth * pixels_per_row(picture))


def _time_axis(unit: str, span: float) -> dict[str, Any]:
    return {
        "title": {"text": f"time ({unit})", "font": {"size": 12, "color": MUTED}, "standoff": 8},
        "range": [0, span],
        "showgrid": True,
        "gridcolor": GRID,
        "zeroline": False,
        "nticks": 8,
        "tickfont": {"size": 11, "color": MUTED},
        "automargin": True,
    }


def _rows_axis(picture: Scene) -> dict[str, Any]:
    named = [row for row in picture.rows if row.compute]
    every = max(1, round(14 / (pixels_per_row(picture) * picture.depth / max(1, len(named)))))
    shown = named[::every]
    if pixels_per_row(picture) * min(row.height for row in picture.rows) >= _LEGIBLE:
        shown = list(picture.rows)
    return {
        "tickmode": "array",
        "tickvals": [row.top + row.height / 2 for row in shown],
        "ticktext": [_row_name(row, picture) for row in shown],
        "ticklabelstandoff": 4,
        "tickfont": {"size": 11, "color": INK},
        "range": [picture.depth, 0],
        "fixedrange": True,
        "showgrid": False,
        "zeroline": False,
        "automargin": True,
    }


def _row_name(row: SceneRow, picture: Scene) -> str:
    if not row.compute:
        return f'<span style="font-size:9px;color:{MUTED}">{markup(row.label)}</span>'
    return f"stage {row.label}" if picture.by_stage else row.label


def _ground(picture: Scene, span: float, idle: str) -> dict[str, Any]:
    """Return the rows themselves: hatched if a lane could compute, plain below."""
    rows = picture.rows
    return {
        "type": "bar",
        "orientation": "h",
        "name": idle,
        "x": [span] * len(rows),
        "base": [0] * len(rows),
        "y": [row.top + row.height / 2 for row in rows],
        "width": [row.height for row in rows],
        "marker": {
            "color": [IDLE if row.compute else LANE for row in rows],
            "line": {"width": 0},
            "pattern": {
                "shape": ["/" if row.compute else "" for row in rows],
                "fgcolor": HATCH,
                "bgcolor": IDLE,
                "size": 6,
                "solidity": 0.25,
            },
        },
        "hoverinfo": "skip",
    }


def _traces(timeline: Timeline, picture: Scene, size: int) -> list[dict[str, Any]]:
    boxes = picture.boxes
    traces = []
    for waits in (True, False):
        for family, look in enumerate(FAMILIES):
            chosen = np.flatnonzero((boxes.family == family) & (boxes.waits == waits))
            if chosen.size:
                trace = _boxes(timeline, picture, chosen, size, look)
                trace["name"] = "waiting" if waits else legend_label(timeline, picture, family)
                traces.append(trace)
    waiting = [trace for trace in traces if trace["name"] == "waiting"]
    for trace in waiting:
        trace |= {"legendgroup": "waiting", "showlegend": trace is waiting[-1]}
    return [t for t in traces if t["name"] != "waiting"] + waiting


def _colours(fill: str, strength: Floats, *, waits: bool) -> str | list[str]:
    """Return the colour of boxes, one for all where they are equally strong."""
    if waits or (strength == 1).all():
        return tint(fill, 0.3) if waits else fill
    return [tint(fill, one) for one in strength.tolist()]


def _boxes(
    timeline: Timeline, picture: Scene, chosen: Ints, size: int, look: Family
) -> dict[str, Any]:
    """Return the bar trace of the chosen boxes, all of one family, and all waiting or none."""
    boxes = picture.boxes.take(chosen)
    waits = bool(boxes.waits[0])
    length = boxes.end - boxes.start
    part = length / (picture.end - picture.begin)
    marker: dict[str, Any] = {
        "color": _colours(look.fill, strengths(timeline, boxes), waits=waits),
        # the white gap is drawn inside the box: a box of two pixels would vanish behind it
        "line": {"color": PAPER, "width": np.where(part * _PLOT > _WITH_GAP, 1.0, 0.0).tolist()},
    }
    if waits:
        marker["pattern"] = {"shape": "/", "fgcolor": tint(look.fill, 0.55), "size": 5}
        marker["pattern"] |= {"solidity": 0.3, "bgcolor": tint(look.fill, 0.2)}
    tops = np.array([row.top for row in picture.rows])
    heights = np.array([row.height for row in picture.rows])
    return {
        "type": "bar",
        "orientation": "h",
        "base": ((boxes.start - picture.begin) / size).tolist(),
        "x": (length / size).tolist(),
        "y": (tops + heights / 2)[boxes.row].tolist(),
        "width": heights[boxes.row].tolist(),
        "marker": marker,
        "text": numbers(timeline, boxes),
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": look.ink, "size": 11},
        "customdata": [
            [markup(part) for part in parts] for parts in hover(timeline, picture, chosen)
        ],
        "hovertemplate": _TEMPLATE,
    }
