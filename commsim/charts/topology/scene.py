"""
The scene of a cluster's drawing: vertices, lines and frames, before it is drawn.

    core      ▢                   the fabric on top,
    leaf    ▢ ▢ ▢ ▢               then each node from its NICs down to its GPUs and NVSwitch
    NIC     ▢ ▢ ▢ ▢
    GPU     ▢ ▢ ▢ ▢

Up to 16 columns of GPUs are drawn one to one. Above that equal nodes are drawn once, and the
switches that then have the same neighbours once too; such a line stands for `count` links, and
its shares are those of the busiest of them. `topology` (plotly) and the report draw the same
scene. x and y are columns and rows, downwards from 0.
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Floats
from commsim.charts.topology.fold import Folded, fold_cluster
from commsim.charts.topology.layout import LEVELS, VertexPlace, places
from commsim.cluster import Cluster
from commsim.metrics import peak_use, utilization
from commsim.timeline import Timeline
from commsim.units import format_bandwidth

__all__ = [
    "TopologyFrame",
    "TopologyLink",
    "TopologyNode",
    "TopologyScene",
    "describe_link",
    "topology_scene",
]


_BEND = 0.16  # how far an arc of one column hangs below its row
_ARCH = 0.1  # how far one of a column stands above a row of switches
_ARC = 8  # straight pieces of an arc
_SWITCHES = ("leaf", "spine", "core")


class TopologyNode(msgspec.Struct, frozen=True):
    """A vertex; `kind` is gpu, nic, pcie, cpu, memory, nvswitch, leaf, spine or core."""

    x: float
    y: float
    label: str
    kind: str
    name: str
    count: int


class TopologyLink(msgspec.Struct, frozen=True):
    """A line through `points`: both directions of `count` wires of one kind.

    `bandwidth` is bytes/s of one wire one way; `share` the utilization of the busiest direction
    of the busiest wire, which is `name`; `back` that of its other direction. `peak` is the most
    that any of the wires is used at any moment. None without a run.
    """

    points: tuple[tuple[float, float], ...]
    name: str
    kind: str
    bandwidth: float
    count: int
    share: float | None
    back: float | None
    peak: float | None = None


class TopologyFrame(msgspec.Struct, frozen=True):
    """The outline of a node, or of one that stands for many."""

    x0: float
    y0: float
    x1: float
    y1: float
    label: str


class TopologyScene(msgspec.Struct, frozen=True):
    """Everything a drawing needs; `rows` names the levels in use from top to bottom."""

    nodes: tuple[TopologyNode, ...]
    links: tuple[TopologyLink, ...]
    frames: tuple[TopologyFrame, ...]
    rows: tuple[str, ...]
    width: float
    notes: tuple[str, ...]


def topology_scene(cluster: Cluster, timeline: Timeline | None = None) -> TopologyScene:
    """Lay out a cluster; with a timeline that ran on it, say what each line carries."""
    folded = fold_cluster(cluster)
    levels, where, frames = places(cluster, folded)
    rows = tuple(level for level in LEVELS if level in levels)
    height = {level: row for row, level in enumerate(rows)}
    nodes = tuple(
        TopologyNode(
            place.x, height[place.level], place.label, place.kind, name, folded.count[name]
        )
        for name, place in where.items()
    )
    share = peak = None
    if timeline is not None:
        share = _of_links(cluster, timeline, utilization(timeline).share)
        peak = np.minimum(_of_links(cluster, timeline, peak_use(timeline)), 1.0)
    links = _links(cluster, folded, where, height, share, peak)
    bottom = max((y for link in links for _, y in link.points), default=0.0) + 0.45
    return TopologyScene(
        nodes,
        links,
        tuple(
            TopologyFrame(f.left - 0.5, height[f.top] - 0.45, f.right + 0.5, bottom, f.label)
            for f in frames
        ),
        rows,
        1 + max((place.x for place in where.values()), default=0.0),
        folded.notes,
    )


def _of_links(cluster: Cluster, timeline: Timeline, share: Floats) -> Floats:
    """Return `share` per link of the run for each link of the cluster; 0 for those not in it."""
    links = timeline.links
    if len(links.like):
        share = share[links.like]
    known = dict(zip(links.names, share.tolist(), strict=True))
    return np.array([known.get(name, 0.0) for name in cluster.links.names])


def _links(
    cluster: Cluster,
    folded: Folded,
    where: dict[str, VertexPlace],
    height: dict[str, int],
    share: Floats | None,
    peak: Floats | None,
) -> tuple[TopologyLink, ...]:
    """Return a line per pair of vertices that are drawn, its wires counted once for both ways."""
    links = cluster.links
    wires: dict[tuple[str, str], dict[tuple[str, str], list[int]]] = {}
    for link, (a, b) in enumerate(zip(links.source, links.target, strict=True)):
        one, other = folded.of.get(a), folded.of.get(b)
        if one is None or other is None or one == other:
            continue
        line = (min(one, other), max(one, other))
        wire = (a, b) if a < b else (b, a)
        wires.setdefault(line, {}).setdefault(wire, []).append(link)
    found = []
    for (a, b), same in wires.items():
        points = _points(where[a], where[b], height)
        found.append(_line(cluster, points, list(same.values()), share, peak))
    return tuple(found)


def _line(
    cluster: Cluster,
    points: tuple[tuple[float, float], ...],
    wires: list[list[int]],
    share: Floats | None,
    peak: Floats | None,
) -> TopologyLink:
    """Return the line of parallel wires, each the ids of its one or two directions."""
    links = cluster.links
    best = wires[0]
    there = back = None
    if share is not None:
        busiest = max(wires, key=lambda wire: max(float(share[link]) for link in wire))
        best = sorted(busiest, key=lambda link: -float(share[link]))
        there = float(share[best[0]])
        back = float(share[best[1]]) if len(best) > 1 else None
    first = best[0]
    return TopologyLink(
        points,
        links.names[first],
        links.kinds[first],
        float(links.bandwidth[first]),
        len(wires),
        there,
        back,
        None if peak is None else max(float(peak[link]) for wire in wires for link in wire),
    )


def _points(
    a: VertexPlace, b: VertexPlace, height: dict[str, int]
) -> tuple[tuple[float, float], ...]:
    """Return the route of a line: straight, or an arc if both ends share a row.

    Arcs hang below devices and stand above switches, which have their lines to devices below.
    """
    (x0, y0), (x1, y1) = (a.x, height[a.level]), (b.x, height[b.level])
    if y0 != y1:
        return (float(x0), float(y0)), (float(x1), float(y1))
    far = abs(x1 - x0)
    depth = -_ARCH * (1 + far**0.5) if a.kind in _SWITCHES else _BEND * (1 + far**0.75)
    steps = [i / _ARC for i in range(_ARC + 1)]
    return tuple((x0 + (x1 - x0) * t, y0 + 4 * depth * t * (1 - t)) for t in steps)


def describe_link(link: TopologyLink) -> str:
    """Say what a line is: "nvlink, 450 GB/s each way, 8 wires"."""
    text = f"{link.kind}, {format_bandwidth(link.bandwidth)} each way"
    return text if link.count == 1 else f"{text}, {link.count:,} equal"
