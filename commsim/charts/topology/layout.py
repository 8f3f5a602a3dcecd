"""
Positions of vertices in a cluster's drawing: levels downwards, columns from left to right.

Within a node the devices stand by the tree that they hang on: a PCIe switch over its GPUs and
under its NICs, a socket over its switches.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from commsim.charts.topology.fold import DrawnNode, Folded
from commsim.cluster import Cluster, Template

__all__ = ["LEVELS", "NodeFrame", "VertexPlace", "places"]

LEVELS = ("core", "spine", "leaf", "nic", "cpu", "pcie", "pcie below", "gpu", "nvswitch")
_GAP = 1.0  # columns between nodes


class VertexPlace(NamedTuple):
    """A vertex's column and level, and what stands on it."""

    x: float
    level: str
    kind: str
    label: str


class NodeFrame(NamedTuple):
    """The columns of a node, the level at its top, and its name."""

    left: float
    right: float
    top: str
    label: str


def places(
    cluster: Cluster, folded: Folded
) -> tuple[set[str], dict[str, VertexPlace], list[NodeFrame]]:
    """Return the levels in use, the place of every drawn vertex, and the frames of the nodes."""
    where: dict[str, VertexPlace] = {}
    frames, left = [], 0.0
    for drawn in folded.nodes:
        right = _place_node(cluster, drawn, left, where)
        frames.append(NodeFrame(left, right, _top(cluster, drawn), _title(cluster, drawn, folded)))
        left = right + 1 + _GAP
    width = max(left - _GAP, 1.0)
    for level in ("leaf", "spine", "core"):
        _place_switches(cluster, folded, level, width, where)
    return {place.level for place in where.values()}, where, frames


def _place_node(
    cluster: Cluster, drawn: DrawnNode, left: float, where: dict[str, VertexPlace]
) -> float:
    """Place the vertices of one node from column `left` on; return its last column."""
    layout = cluster.template(cluster.spec_of[drawn.node])
    domain = int(cluster.domain_of_node[drawn.node])
    columns: dict[str, float] = {}
    at = left
    for socket in range(layout.spec.sockets):
        at += _columns(layout, f"cpu{socket}", at, columns)
    for vertex, kind in layout.kind_of.items():
        name = layout.full_name(vertex, drawn.node, domain)
        if kind == "nvswitch":
            where[name] = _nvswitch(name, where, left, at - 1)
        elif vertex in columns:
            where[name] = VertexPlace(
                columns[vertex], _level(layout, vertex), kind, _number(vertex)
            )
    return at - 1


def _columns(layout: Template, above: str, left: float, columns: dict[str, float]) -> float:
    """Give what hangs on `above` its columns from `left` on; return how many they are."""
    below = layout.children(above)
    at = left
    for switch in (v for v in below if layout.kind_of[v] == "pcie"):
        at += _columns(layout, switch, at, columns)
    devices = [[v for v in below if layout.kind_of[v] == kind] for kind in ("gpu", "nic")]
    wide = max(map(len, devices))
    for same in devices:
        for i, vertex in enumerate(same):
            columns[vertex] = at + (i + 0.5) * wide / len(same) - 0.5
    width = max(at + wide - left, 1.0)
    columns[above] = left + (width - 1) / 2
    return width


def _level(layout: Template, vertex: str) -> str:
    kind = layout.kind_of[vertex]
    if kind != "pcie":
        return kind
    under = layout.spec.pcie.switches[int(vertex.removeprefix("pcie"))].under
    return "pcie" if under < 0 else "pcie below"


def _nvswitch(name: str, where: dict[str, VertexPlace], left: float, right: float) -> VertexPlace:
    """Place an NVSwitch under its GPUs; one of several nodes stands in the middle of them."""
    first = where[name].x * 2 - right if name in where else left
    return VertexPlace((first + right) / 2, "nvswitch", "nvswitch", "NVSwitch")


def _top(cluster: Cluster, drawn: DrawnNode) -> str:
    return "nic" if cluster.specs[cluster.spec_of[drawn.node]].nic else "cpu"


def _title(cluster: Cluster, drawn: DrawnNode, folded: Folded) -> str:
    spec = cluster.specs[cluster.spec_of[drawn.node]]
    if drawn.count > 1:
        return f"{drawn.count:,} × {spec.name}"
    return f"node {drawn.node}" if len(folded.nodes) > 1 else spec.name


def _place_switches(
    cluster: Cluster, folded: Folded, level: str, width: float, where: dict[str, VertexPlace]
) -> None:
    """Spread the switches of a level over the width, in the order of what is below them."""
    shown = [v for v, kind in folded.kind.items() if kind == level]
    below: dict[str, list[float]] = {switch: [] for switch in shown}
    rows = cluster.fabric.rows
    for a, b in zip(rows.source, rows.target, strict=True):
        switch, under = folded.of[b], folded.of[a]
        if switch in below and under in where:
            below[switch].append(where[under].x)
    middle = {s: sum(xs) / len(xs) if xs else 0.0 for s, xs in below.items()}
    shown.sort(key=lambda s: (round(middle[s], 6), _natural(s)))
    for i, switch in enumerate(shown):
        count = folded.count[switch]
        label = f"×{count:,}" if count > 1 else _number(switch)
        where[switch] = VertexPlace((i + 0.5) * width / len(shown) - 0.5, level, level, label)


def _number(name: str) -> str:
    """Return the number at the end of a name, or the place in a torus; "" if there is none."""
    found = re.search(r"\d+(-\d+)*$", name)
    return found.group() if found else ""


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key by which leaf2 comes before leaf10."""
    parts = re.split(r"(\d{1,18})", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
