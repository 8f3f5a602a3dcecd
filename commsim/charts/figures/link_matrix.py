"""
GPU-to-GPU matrices: bytes from each to each, or the speed of each pair alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from commsim.arrays import Floats
from commsim.charts.figures.pairs import GpuMatrix, pair_bytes, pair_speeds
from commsim.charts.theme import INK, MUTED, base_layout
from commsim.cluster import Cluster
from commsim.libraries import Library
from commsim.timeline import Timeline
from commsim.units import format_bandwidth, format_size

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["bandwidth_matrix", "traffic_matrix"]


_MOST = 64  # rows that are legible
_SCALE = ((0.0, "#EAF0F6"), (0.35, "#A9C0DA"), (0.7, "#4C78A8"), (1.0, "#1F3A5F"))
_PIXELS, _TOP, _BOTTOM = 600, 140, 48


def traffic_matrix(
    timeline: Timeline, *, cluster: Cluster | None = None, library: Library | None = None
) -> Figure:
    """Draw the bytes that each GPU hands to each other in the measured step.

    Messages count as they are; collectives by the chunk programs of `library` on `cluster`
    (without a library they are left out, which the subtitle says). Above 64 GPUs, neighbours
    are taken together.
    """
    pairs = pair_bytes(timeline, cluster, library)
    total = float(pairs.values.sum())
    shown, labels, block = _together(pairs)
    if not total:
        left_out = any(note.startswith("without") for note in pairs.notes)
        title = "No messages between two GPUs" if left_out else "No GPU sends to another"
    else:
        a, b = np.unravel_index(int(np.argmax(pairs.values)), pairs.values.shape)
        ends = f"{pairs.labels[int(a)]} to GPU {pairs.labels[int(b)]}, the most of all pairs"
        title = f"{format_size(round(float(pairs.values[a, b])))} from GPU {ends}"
    remarks = [f"{format_size(round(total))} in the step", *pairs.notes]
    if block > 1:
        remarks.append(f"{block} GPUs to a row")
    texts = [[format_size(round(value)) if value else "nothing" for value in row] for row in shown]
    unit, size = _byte_unit(float(shown.max(initial=0.0)))
    return _figure(title, " · ".join(remarks), shown, labels, texts, unit, size)


def bandwidth_matrix(cluster: Cluster) -> Figure:
    """Draw how fast each GPU could send to each other on an idle cluster.

    Over NVLink or within the node, else by the nearest NIC of each. Of large clusters the first
    whole nodes are drawn, up to 64 GPUs.
    """
    pairs = pair_speeds(cluster, _MOST)
    apart = pairs.values[~np.eye(len(pairs.values), dtype=np.bool_)]
    reached = apart[apart > 0]
    if reached.size:
        title = f"{format_bandwidth(float(reached.max()))} between the best placed two GPUs"
        if reached.min() < reached.max():
            title += f", {format_bandwidth(float(reached.min()))} between the worst"
    else:
        title = "No GPU reaches another"
    texts = [[format_bandwidth(v) if v else "no way" for v in row] for row in pairs.values.tolist()]
    remarks = " · ".join((cluster.name, "payload, one pair at a time", *pairs.notes))
    return _figure(title, remarks, pairs.values, pairs.labels, texts, "GB/s", 1e9)


def _byte_unit(most: float) -> tuple[str, float]:
    units = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))
    return next(((name, size) for name, size in units if most >= 2 * size), ("bytes", 1.0))


def _together(pairs: GpuMatrix) -> tuple[Floats, tuple[str, ...], int]:
    """Return the matrix with at most 64 rows, their labels, and how many GPUs make a row."""
    count = len(pairs.labels)
    block = -(-count // _MOST)
    if block <= 1:
        return pairs.values, pairs.labels, 1
    starts = np.arange(0, count, block)
    merged = np.add.reduceat(np.add.reduceat(pairs.values, starts, axis=0), starts, axis=1)
    labels = tuple(f"{pairs.labels[at]} …" for at in starts.tolist())
    return merged, labels, block


def _figure(
    title: str,
    subtitle: str,
    values: Floats,
    labels: tuple[str, ...],
    texts: list[list[str]],
    unit: str,
    size: float,
) -> Figure:
    from plotly.graph_objects import Figure

    layout = base_layout(title, subtitle, _TOP + _BOTTOM + _PIXELS)
    layout["margin"] = {"l": 48, "r": 24, "t": _TOP, "b": _BOTTOM}
    every = max(1, -(-len(labels) // 16))
    axis = {
        "tickmode": "array", "tickvals": list(range(0, len(labels), every)),
        "ticktext": list(labels[::every]), "tickfont": {"size": 11, "color": INK},
        "showgrid": False, "zeroline": False, "automargin": True, "constrain": "domain",
        "ticks": "",
    }  # fmt: skip
    small = {"size": 12, "color": MUTED}
    layout["xaxis"] = axis | {"title": {"text": "to GPU", "font": small}, "tickangle": 0}
    layout["xaxis"]["constraintoward"] = "left"
    layout["yaxis"] = axis | {
        "title": {"text": "from GPU", "font": small},
        "autorange": "reversed",
        "scaleanchor": "x",
        "constraintoward": "top",
    }
    cells = [[value or None for value in row] for row in (values / size).tolist()]
    heat: dict[str, Any] = {
        "type": "heatmap",
        "z": cells,
        "x": list(range(len(labels))),
        "y": list(range(len(labels))),
        "text": texts,
        "customdata": [[f"{a} to {b}" for b in labels] for a in labels],
        "hovertemplate": "<b>%{customdata}</b><br>%{text}<extra></extra>",
        "colorscale": [list(step) for step in _SCALE],
        "zmin": 0,
        "zmax": float(values.max(initial=0.0)) / size or 1.0,
        "xgap": 1,
        "ygap": 1,
        "colorbar": {
            "title": {"text": unit, "side": "top", "font": small}, "thickness": 8,
            "orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom",
            "len": 260, "lenmode": "pixels", "xpad": 0, "ypad": 8, "nticks": 5,
            "outlinewidth": 0, "tickfont": {"size": 11, "color": MUTED},
        },
    }  # fmt: skip
    return Figure(data=[heat], layout=layout)
