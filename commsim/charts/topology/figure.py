"""
A cluster as a figure: its tree of devices, each line coloured by use or by kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commsim.charts.theme import (
    GRID,
    IDLE,
    INK,
    MUTED,
    PAPER,
    base_layout,
    markup,
)
from commsim.charts.topology.scene import TopologyLink, TopologyScene, describe_link, topology_scene
from commsim.cluster import Cluster
from commsim.timeline import Timeline
from commsim.units import format_bandwidth

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["KIND_COLOURS", "USE_STEPS", "topology", "use_step"]

USE_STEPS = (
    (0.0, "unused", "#B9C0CB"),
    (0.1, "up to 10%", "#C98F2B"),
    (0.25, "to 25%", "#C9701F"),
    (0.5, "to 50%", "#BF4E2A"),
    (0.75, "to 75%", "#A12B2F"),
    (1.0, "above 75%", "#6E1527"),
)
"""Upper limit of utilization, its name, and its colour: the fuller the darker and the wider."""

KIND_COLOURS = {
    "nvlink": "#547326",
    "c2c": "#3F8F8B",
    "pcie": "#4C78A8",
    "cpu": "#9C755F",
    "network": "#C85C5C",
}

_ROW_NAMES = {
    "core": "core", "spine": "spine", "leaf": "leaf", "nic": "NIC", "cpu": "CPU",
    "pcie": "PCIe", "pcie below": "PCIe", "gpu": "GPU", "nvswitch": "NVSwitch",
}  # fmt: skip
_ROW, _TOP, _BOTTOM = 72, 112, 32  # pixels


def topology(cluster: Cluster, timeline: Timeline | None = None) -> Figure:
    """Draw `cluster`, its links coloured by kind; with a run on it, by their utilization."""
    from plotly.graph_objects import Figure

    picture = topology_scene(cluster, timeline)
    used = timeline is not None
    title, subtitle = _words(cluster, picture, used=used)
    layout = base_layout(title, subtitle, _TOP + _BOTTOM + round(_ROW * (_bottom(picture) + 0.75)))
    layout["margin"] = {"l": 24, "r": 24, "t": _TOP, "b": _BOTTOM}
    layout |= {
        "xaxis": {"visible": False, "range": [-0.9, picture.width - 0.1], "fixedrange": True},
        "yaxis": _rows_axis(picture),
        "shapes": [_frame(f.x0, f.y0, f.x1, f.y1) for f in picture.frames],
        "annotations": [_frame_label(f.x0, f.y1, f.label) for f in picture.frames],
        "hovermode": "closest",
    }
    groups = _by_use(picture) if used else _by_kind(picture)
    lines = [_lines(links, name, colour, width) for name, colour, width, links in groups]
    layout["legend"] |= {"traceorder": "normal"}
    return Figure(data=[*lines, _hovers(picture), _vertices(picture)], layout=layout)


def use_step(share: float) -> int:
    """Return the position in USE_STEPS of a utilization."""
    limits = [limit for limit, _, _ in USE_STEPS[:-1]]
    return sum(share > limit for limit in limits)


def _words(cluster: Cluster, picture: TopologyScene, *, used: bool) -> tuple[str, str]:
    counts = f"{_count(cluster.world_size, 'GPU')} on {_count(len(cluster.node_names), 'node')}"
    fabric = f"fabric {cluster.fabric.kind.replace('_', ' ')}"
    notes = " · ".join(picture.notes)
    if not used:
        return f"{cluster.name}: {counts}", " · ".join(part for part in (fabric, notes) if part)
    busy = max(picture.links, key=lambda link: link.share or 0.0, default=None)
    if busy is None or not busy.share:
        return f"{cluster.name}: no link carries anything", notes
    title = f"Busiest link: {busy.name}, {busy.share:.1%} of the step"
    return title, " · ".join(part for part in (f"{cluster.name}: {counts}", notes) if part)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _by_use(picture: TopologyScene) -> list[tuple[str, str, float, list[TopologyLink]]]:
    groups = []
    for step, (_, name, colour) in enumerate(USE_STEPS):
        links = [link for link in picture.links if use_step(link.peak or 0.0) == step]
        if links:
            groups.append((name, colour, 1.25 + step, links))
    return groups


def _by_kind(picture: TopologyScene) -> list[tuple[str, str, float, list[TopologyLink]]]:
    """Return the lines by kind and speed: within a kind the faster is the wider."""
    found: dict[tuple[str, float], list[TopologyLink]] = {}
    for link in picture.links:
        found.setdefault((link.kind, link.bandwidth), []).append(link)
    slowest = min((speed for _, speed in found), default=1.0)
    groups = []
    for (kind, speed), links in sorted(found.items(), key=lambda item: (item[0][0], -item[0][1])):
        width = min(1.25 + 1.1 * (speed / slowest) ** 0.35, 6.0)
        name = f"{kind} {format_bandwidth(speed)}"
        groups.append((name, KIND_COLOURS.get(kind, MUTED), round(width, 2), links))
    return groups


def _lines(links: list[TopologyLink], name: str, colour: str, width: float) -> dict[str, Any]:
    x: list[float | None] = []
    y: list[float | None] = []
    for link in links:
        x += [*(point[0] for point in link.points), None]
        y += [*(point[1] for point in link.points), None]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "line": {"color": colour, "width": width},
        "hoverinfo": "skip",
    }


def _hovers(picture: TopologyScene) -> dict[str, Any]:
    """Return unseen points in the middle of every line, which say what it is."""
    middles = [_middle(link) for link in picture.links]
    return {
        "type": "scatter",
        "mode": "markers",
        "showlegend": False,
        "x": [x for x, _ in middles],
        "y": [y for _, y in middles],
        "marker": {"size": 14, "opacity": 0},
        "customdata": [[markup(link.name), markup(_hover_text(link))] for link in picture.links],
        "hovertemplate": "<b>%{customdata[0]}</b><br>%{customdata[1]}<extra></extra>",
    }


def _middle(link: TopologyLink) -> tuple[float, float]:
    points = link.points
    if len(points) > 2:
        return points[len(points) // 2]
    return (points[0][0] + points[1][0]) / 2, (points[0][1] + points[1][1]) / 2


def _hover_text(link: TopologyLink) -> str:
    text = describe_link(link)
    if link.share is None:
        return text
    back = "" if link.back is None else f", {link.back:.1%} back"
    return f"{link.share:.1%}{back} · {text}"


def _vertices(picture: TopologyScene) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers+text",
        "showlegend": False,
        "meta": "on paper",
        "x": [node.x for node in picture.nodes],
        "y": [node.y for node in picture.nodes],
        "text": [markup(node.label) if node.kind != "nvswitch" else "" for node in picture.nodes],
        "textfont": {"size": 10, "color": INK},
        "marker": {
            "symbol": "square",
            "opacity": 1,
            "size": 20,
            "color": "#DCE3EC",
            "line": {"width": 1, "color": "#8FA9C4"},
        },
        "customdata": [[markup(node.name), _stands_for(node.count)] for node in picture.nodes],
        "hovertemplate": "<b>%{customdata[0]}</b>%{customdata[1]}<extra></extra>",
    }


def _stands_for(count: int) -> str:
    return f" and {count - 1:,} equal" if count > 1 else ""


def _bottom(picture: TopologyScene) -> float:
    """Return where the frames end, or the lowest row."""
    return max([len(picture.rows) - 0.55, *(frame.y1 for frame in picture.frames)])


def _rows_axis(picture: TopologyScene) -> dict[str, Any]:
    rows = range(len(picture.rows))
    return {
        "range": [_bottom(picture) + 0.15, -0.6],
        "tickmode": "array",
        "tickvals": list(rows),
        "ticktext": [_ROW_NAMES[row] for row in picture.rows],
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
        "automargin": True,
        "tickfont": {"size": 11, "color": MUTED},
    }


def _frame(x0: float, y0: float, x1: float, y1: float) -> dict[str, Any]:
    return {
        "type": "rect",
        "x0": x0,
        "y0": y0,
        "x1": x1,
        "y1": y1,
        "layer": "below",
        "fillcolor": IDLE,
        "line": {"color": GRID, "width": 1},
    }


def _frame_label(x: float, y: float, label: str) -> dict[str, Any]:
    return {
        "x": x,
        "y": y,
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "text": markup(label),
        "font": {"size": 11, "color": MUTED},
        "xshift": 4,
        "bgcolor": PAPER,
        "opacity": 0.9,
    }
