"""
A cluster that is benched on the fly, at the sizes and on the ranks of a table that was measured.
"""

from __future__ import annotations

from typing import Any

import msgspec

from commsim.cluster import Cluster, cluster_from
from commsim.errors import ScenarioError
from commsim.libraries import LibrarySection
from commsim.libraries.nccl import release_of, tables_of
from commsim.ops import NCCL_TESTS_TYPES
from commsim.study.bench import bench, shape_of
from commsim.study.compare.tables import Sheet, from_bench
from commsim.traces.formats import NcclTests

__all__ = ["BenchedCluster", "bench_like"]

_TYPES = {"fp8_e4m3": "f8e4m3", "fp8_e5m2": "f8e5m2"}


class BenchedCluster(msgspec.Struct, frozen=True):
    """A cluster section as it was written, and by whose rules it communicates."""

    name: str
    cluster: dict[str, Any]
    where: str
    library: LibrarySection = LibrarySection()


def bench_like(place: BenchedCluster, table: NcclTests) -> Sheet:
    """Return what commsim predicts for a measured table on a cluster.

    The op, sizes, type, ranks and nodes are the table's, and NCCL's version and the launch if
    it says them and the place does not.

    Raises:
        ScenarioError: the cluster has fewer GPUs than the table has ranks, or no such op.
    """
    if table.ranks < 2:
        raise ScenarioError(
            f"{table.source}: does not list its devices, so that {place.name} cannot be laid out"
            " like it. Keep the lines '#  Rank  0 ... device  0 ...' in the log."
        )
    cluster, per_node = _laid_out(place, table)
    library, notes = _library(place, table)
    dtype = _TYPES.get(table.dtype, table.dtype)
    wanted = [row.size for row in table.rows]
    sizes = [
        size for size in wanted if shape_of(table.op, size, dtype=dtype, ranks=table.ranks).size
    ]
    if not sizes:
        raise ScenarioError(f"{table.source}: none of its sizes is one that a rank can send.")
    assert dtype in NCCL_TESTS_TYPES
    result = bench(cluster, table.op, sizes, library=library, dtype=dtype, gpus_per_node=per_node)
    (sheet,) = from_bench(result.to_dict(), place.name)
    return Sheet(
        sheet.name,
        sheet.op,
        sheet.dtype,
        sheet.ranks,
        sheet.nodes,
        False,
        sheet.points,
        (*notes, *sheet.notes, *result.notes),
    )


def _laid_out(place: BenchedCluster, table: NcclTests) -> tuple[Cluster, int]:
    """Return the cluster with the table's nodes, and how many GPUs of each take part."""
    data = dict(place.cluster)
    one = cluster_from(data, place.where)
    most = 1 + max(int(local) for local in one.local_of)
    nodes = table.nodes or -(-table.ranks // most)
    per_node = -(-table.ranks // nodes)
    if per_node * nodes != table.ranks:
        raise ScenarioError(
            f"{table.source}: {table.ranks} ranks on {nodes} nodes are not as many on each."
        )
    if per_node > most:
        raise ScenarioError(
            f"{table.source} has {per_node} GPUs on a node, and {place.name} has {most}."
            " Compare it with a cluster like the one that was measured."
        )
    if isinstance(data.get("nodes", 1), int):
        data["nodes"] = nodes
        one = cluster_from(data, place.where)
    if one.world_size < table.ranks or len(set(one.node_of.tolist())) != nodes:
        raise ScenarioError(
            f"{place.name} has {len(set(one.node_of.tolist()))} nodes, and {table.source} was"
            f" measured on {nodes}."
        )
    return one, per_node


def _library(place: BenchedCluster, table: NcclTests) -> tuple[LibrarySection, tuple[str, ...]]:
    """Return the place's library with what the log tells of the measured one."""
    section = place.library
    if section.name not in ("auto", "nccl"):
        return section, ()
    if section.get("launch") is None and table.launch is not None:
        section = section.having(launch=table.launch)
    if section.get("version") is not None or table.nccl is None:
        return section, ()
    try:
        tables_of(release_of(table.nccl)[0])
    except ScenarioError:
        note = f"{table.source} ran NCCL {table.nccl}; the default version stands for it."
        return section, (note,)
    return section.having(version=table.nccl), ()
