"""
Graphs that were captured from a script: their times on a cluster, their memory, a summary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from commsim.cluster import Cluster, GpuSpec
from commsim.errors import ScenarioError
from commsim.graph import HOST_STREAM, Graph, OpKind, refold
from commsim.models import (
    MemoryUse,
    default_host_overhead,
    issued,
    precision_of,
    resolve_durations,
    shapes_of,
)
from commsim.units import format_size, format_time
from commsim.workload import TrainingFacts, Workload

__all__ = ["captured_summary", "graph_workload"]


def graph_workload(
    graph: Graph, cluster: Cluster | None, *, fold: bool, host_overhead: int | None = None
) -> Workload:
    """Return a graph from a file as work for `cluster`: compute timed, folding as asked for.

    `host_overhead`: picoseconds for Python to issue an op of a captured graph; None for the
    default.

    Raises:
        ScenarioError: the cluster is too small, the speed of its GPUs is not known, a captured
            graph has none, or the overhead is given and the graph was not captured.
    """
    if host_overhead is not None and "capture" not in graph.meta:
        raise ScenarioError(
            "workload.host_overhead: the graph was not captured from a script, so that its times"
            " hold what the host took. Leave it out."
        )
    if cluster is None:
        if "capture" in graph.meta:
            raise ScenarioError(
                "workload.graph: was captured from a script: its work takes a GPU to be timed on."
                " Add a cluster, like cluster: {preset: dgx-h100}."
            )
        return Workload("graph", graph)
    if graph.folding is not None:
        ranks = len(graph.folding.lane_of)
        known = min(ranks, cluster.world_size)
        gpus = [cluster.gpu(rank) for rank in range(known)] + [None] * (ranks - known)
        number: dict[GpuSpec | None, int] = {}
        kinds = np.array([number.setdefault(gpu, len(number)) for gpu in gpus])
        if not fold:
            graph = refold(graph, np.arange(ranks))
        elif kinds.any():
            graph = refold(graph, kinds)
    graph = resolve_durations(graph, cluster)
    if host_overhead is not None or ("capture" in graph.meta and HOST_STREAM in graph.streams):
        host_overhead = default_host_overhead() if host_overhead is None else host_overhead
        graph = issued(graph, host_overhead)
    if "capture" not in graph.meta:
        return Workload("graph", graph)
    return Workload("graph", graph, _notes(graph, host_overhead), _facts(graph, cluster))


def captured_summary(graph: Graph) -> list[str]:
    """Return what a capture found, in lines for people."""
    capture = graph.meta["capture"]
    ranks = int(graph.multiplicity.sum())
    lines = [f"{capture['script']}: {ranks} ranks, {len(graph.lane_rank)} lanes, {len(graph)} ops"]
    lines.append(
        f"compute: {capture['hardware_flops'] / ranks / 1e12:.6g} TFLOP per rank (attention over"
        " all positions)"
    )
    totals: dict[tuple[str, str, int], tuple[int, int]] = {}
    members_of = np.flatnonzero(graph.kind == OpKind.COLLECTIVE)
    # Several captured ranks may be members of one collective.
    rows, first = np.unique(graph.item[members_of], return_index=True)
    for row, op in zip(rows.tolist(), members_of[first].tolist(), strict=True):
        group = graph.groups[graph.collectives.group[row]]
        key = (graph.collectives.kind[row], group.axis or group.name, len(group.ranks))
        count, total = totals.get(key, (0, 0))
        totals[key] = (count + 1, total + int(graph.size[op]))
    for (kind, axis, members), (count, total) in totals.items():
        lines.append(f"{count} x {kind} over {axis} ({members} ranks), {format_size(total)}")
    if len(graph.messages):
        moved = format_size(int(graph.messages.size.sum()))
        lines.append(f"{len(graph.messages)} messages, {moved}")
    peak = max(one["peak"] for one in capture["memory"].values())
    lines.append(f"memory: {peak / 2**30:.3g} GiB at the peak of the fullest rank")
    return lines


def _notes(graph: Graph, overhead: int | None) -> tuple[str, ...]:
    capture = graph.meta["capture"]
    pace = "at once" if not overhead else f"one each {format_time(overhead)}"
    return (
        f"work: captured from {capture['script']} with torch {capture['torch']}; each op has the"
        f" time of its roofline, Python issues {pace}.",
        *capture["notes"],
    )


def _facts(graph: Graph, cluster: Cluster) -> TrainingFacts:
    capture = graph.meta["capture"]
    roles: list[int] = capture["role_of_rank"]
    recorded = sorted(set(roles))
    device = {rank: at for at, rank in enumerate(recorded)}
    return TrainingFacts(
        model_flops=capture["model_flops"],
        hardware_flops=capture["hardware_flops"],
        flop_convention="full attention (not causal)",
        tokens=0,
        parameters=0,
        rank_parameters=(),
        peak_flops=_peak(graph, cluster),
        resident=tuple(_resident(capture["memory"][str(rank)]) for rank in recorded),
        device_of_rank=tuple(device[role] for role in roles),
        capacity_of_rank=tuple(
            cluster.gpu(min(rank, cluster.world_size - 1)).memory_bytes
            for rank in range(len(roles))
        ),
        staged=bool((graph.stage >= 0).any()),
    )


def _resident(memory: Mapping[str, Any]) -> MemoryUse:
    return MemoryUse(
        memory["parameters"], memory["gradients"], memory["optimizer"], 0, memory["other"]
    )


def _peak(graph: Graph, cluster: Cluster) -> float:
    """Return the mean peak FLOP/s of a GPU at the precision of most products."""
    weight: dict[str, float] = {}
    shapes = shapes_of(graph)
    for name, flops in zip(graph.name.tolist(), graph.flops.tolist(), strict=True):
        shape = shapes.get(graph.names[name])
        if shape is not None and flops > 0:
            weight[shape.dtype] = weight.get(shape.dtype, 0.0) + flops
    most = max(weight, key=lambda dtype: weight[dtype], default="bfloat16")
    peaks = [
        cluster.gpu(rank).tflops.get(precision_of(most), 0.0) for rank in range(cluster.world_size)
    ]
    return float(np.mean(peaks)) * 1e12
