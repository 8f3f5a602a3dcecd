"""A cluster as a networkx graph: for drawing, and for questions about the topology."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from commsim.cluster.fabrics import Fabric
from commsim.cluster.routes import Links
from commsim.cluster.template import Template

if TYPE_CHECKING:
    import networkx

__all__ = ["digraph"]


def digraph(
    name: str, nodes: Iterable[tuple[Template, int]], fabric: Fabric, links: Links
) -> networkx.DiGraph:
    """Return nodes with `kind`, and edges with `link` and its columns.

    `nodes` are each node's template and NVLink domain, in the order of nodes.
    """
    import networkx

    graph = networkx.DiGraph(name=name)
    for node, (template, domain) in enumerate(nodes):
        for vertex, kind in template.kind_of.items():
            owner = -1 if template.is_shared(vertex) else node
            graph.add_node(template.full_name(vertex, node, domain), kind=kind, node=owner)
    for vertex, kind in fabric.kind_of.items():
        graph.add_node(vertex, kind=kind, node=-1)
    for link, (a, b) in enumerate(zip(links.source, links.target, strict=True)):
        graph.add_edge(
            a,
            b,
            link=link,
            kind=links.kinds[link],
            bandwidth=float(links.bandwidth[link]),
            efficiency=float(links.efficiency[link]),
            latency=int(links.latency[link]),
        )
    return graph
