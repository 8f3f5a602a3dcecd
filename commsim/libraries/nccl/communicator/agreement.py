"""
The graphs that all nodes of a group agree on: the minimum of channels and bandwidth.

Follows initTransportsRank after its second all-gather (src/init.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from commsim.libraries.nccl.communicator.node import NodeView
from commsim.libraries.nccl.shapes import CpuArch, CpuVendor, PathType, Pattern, SearchGraph

__all__ = ["agreed", "common_cpu"]


def agreed(views: Sequence[NodeView]) -> Mapping[str, SearchGraph]:
    """Return the graphs by name after all ranks took the least of channels and bandwidths.

    `views` holds each structure of node once, node 0's first: its channels are kept.
    """
    graphs = {
        name: _least([v.graphs[name] for v in views])
        for name in views[0].graphs
        if all(name in v.graphs for v in views)
    }
    count = min(graphs["ring"].n_channels, graphs["tree"].n_channels)
    for name in ("ring", "tree"):
        graphs[name] = replace(graphs[name], channels=graphs[name].channels[:count])
    return graphs


def _least(graphs: Sequence[SearchGraph]) -> SearchGraph:
    first = graphs[0]
    count = min(graph.n_channels for graph in graphs)
    return SearchGraph(
        # Patterns are numbered from the best tree to the plainest.
        pattern=Pattern(max(graph.pattern for graph in graphs)),
        channels=first.channels[:count],
        bw_intra=min(graph.bw_intra for graph in graphs),
        bw_inter=min(graph.bw_inter for graph in graphs),
        type_intra=PathType(max(graph.type_intra for graph in graphs)),
        type_inter=PathType(max(graph.type_inter for graph in graphs)),
        cross_nic=max(graph.cross_nic for graph in graphs),
        same_channels=all(graph.same_channels for graph in graphs),
        latency_inter=first.latency_inter,
    )


def common_cpu(views: Sequence[NodeView]) -> tuple[CpuArch, CpuVendor]:
    """Return the CPUs' architecture and vendor; mixed if nodes differ."""
    archs = dict.fromkeys(view.cpu_arch for view in views)
    vendors = dict.fromkeys(view.cpu_vendor for view in views)
    arch = next(iter(archs)) if len(archs) == 1 else CpuArch.MIXED
    vendor = next(iter(vendors)) if len(vendors) == 1 else CpuVendor.MIXED
    return arch, vendor
