"""
Folding of a cluster's drawing: the vertices shown, and how many each represents.
"""

from __future__ import annotations

import msgspec

from commsim.cluster import Cluster

__all__ = ["DrawnNode", "Folded", "fold_cluster", "vertex_kinds"]

MAX_COLUMNS = 16  # GPUs side by side that are legible
MAX_SWITCHES = 16  # switches of one level side by side


class DrawnNode(msgspec.Struct, frozen=True):
    """A node that is drawn: its number, and how many equal it stands for."""

    node: int
    count: int


class Folded(msgspec.Struct, frozen=True):
    """`of[vertex]` is the vertex that is drawn for it; `count[drawn]` how many share that one."""

    of: dict[str, str]
    count: dict[str, int]
    kind: dict[str, str]
    nodes: tuple[DrawnNode, ...]
    notes: tuple[str, ...]


def fold_cluster(cluster: Cluster) -> Folded:
    """Choose what to draw: every node while they fit next to each other, else one of each kind."""
    widths = [max(spec.gpus, spec.nic.count if spec.nic else 0) for spec in cluster.specs]
    every = sum(widths[kind] for kind in cluster.spec_of) <= MAX_COLUMNS
    first = {kind: cluster.spec_of.index(kind) for kind in range(len(cluster.specs))}
    shown = [node if every else first[kind] for node, kind in enumerate(cluster.spec_of)]
    kinds = vertex_kinds(cluster)
    of = _node_vertices(cluster, shown)
    notes: tuple[str, ...] = ()
    for level in ("leaf", "spine", "core"):
        of |= _switches(cluster, [v for v, kind in kinds.items() if kind == level], of, every)
    counts = dict.fromkeys(of.values(), 0)
    for drawn in of.values():
        counts[drawn] += 1
    if not every:
        notes = ("equal nodes and switches are drawn once",)
    elif max(counts.values(), default=1) > 1:
        notes = ("switches with the same neighbours are drawn once",)
    nodes = tuple(DrawnNode(node, shown.count(node)) for node in dict.fromkeys(shown))
    return Folded(of, counts, {v: kinds[v] for v in counts}, nodes, notes)


def vertex_kinds(cluster: Cluster) -> dict[str, str]:
    """Return the kind of every vertex of a cluster by its full name."""
    kinds: dict[str, str] = {}
    domains = cluster.domain_of_node.tolist()
    for node, (spec, domain) in enumerate(zip(cluster.spec_of, domains, strict=True)):
        layout = cluster.template(spec)
        for vertex, kind in layout.kind_of.items():
            kinds[layout.full_name(vertex, node, domain)] = kind
    return kinds | cluster.fabric.kind_of


def _node_vertices(cluster: Cluster, shown: list[int]) -> dict[str, str]:
    """Return the drawn vertex of each vertex of a node; host memory is not drawn."""
    of: dict[str, str] = {}
    domains = cluster.domain_of_node.tolist()
    for node, drawn in enumerate(shown):
        layout = cluster.template(cluster.spec_of[node])
        for vertex, kind in layout.kind_of.items():
            if kind != "memory":
                name = layout.full_name(vertex, node, domains[node])
                of[name] = layout.full_name(vertex, drawn, domains[drawn])
    return of


def _switches(
    cluster: Cluster, switches: list[str], of: dict[str, str], every: bool
) -> dict[str, str]:
    """Return the drawn switch of each of a level: one for those with the same neighbours below.

    Where every node is drawn, switches are too, unless there are too many.
    """
    if every and len(switches) <= MAX_SWITCHES:
        return {switch: switch for switch in switches}
    level = dict.fromkeys(switches)
    below: dict[str, dict[str, None]] = {switch: {} for switch in switches}
    rows = cluster.fabric.rows
    for a, b in zip(rows.source, rows.target, strict=True):
        if a in of and b in level:
            below[b][of[a]] = None
    first: dict[tuple[str, ...], str] = {}
    return {s: first.setdefault(tuple(sorted(below[s])), s) for s in switches}
