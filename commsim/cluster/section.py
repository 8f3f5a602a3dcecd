"""
The `cluster` section of a scenario, and the cluster it describes.

    cluster: {preset: dgx-h100, nodes: 8, fabric: {kind: rail_optimized}, overrides: {...}}
    cluster: {node: {gpu: {...}, nic: {...}}, nodes: 4}
    cluster: {nodes: [{count: 2, preset: dgx-h100}, {count: 2, node: {...}}]}
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commsim.cluster.build import assemble
from commsim.cluster.cluster import Cluster
from commsim.cluster.fabric import FabricSection
from commsim.cluster.files import read_mapping
from commsim.cluster.node import NodeSection, merged
from commsim.cluster.place import Place, field_path
from commsim.cluster.spec import MAX_GPUS, NodeSpec, node_spec
from commsim.errors import ScenarioError
from commsim.sections import Section, decode

__all__ = ["ClusterSection", "NodesSection", "build_cluster", "cluster_from", "load_cluster"]


class NodesSection(Section, frozen=True):
    """So many nodes of one kind: a preset with overrides, or a node of one's own."""

    count: int = 1
    preset: str | None = None
    node: NodeSection | None = None
    overrides: NodeSection | None = None


class ClusterSection(Section, frozen=True):
    """What a user writes under `cluster`: one kind of node, or a list of kinds, and a fabric."""

    name: str | None = None
    preset: str | None = None
    node: NodeSection | None = None
    overrides: NodeSection | None = None
    nodes: int | tuple[NodesSection, ...] = 1
    fabric: FabricSection | None = None


def build_cluster(section: ClusterSection, where: str, *, path: str = "cluster") -> Cluster:
    """Return the cluster that a section describes.

    `where` is the file (or flag) and `path` the section's place in it, for errors.

    Raises:
        ScenarioError: an unknown preset, a count that is none, an impossible node or fabric.
    """
    groups = _groups(section, where, path)
    specs = [_spec(group, where, place) for group, place in groups]
    counts = [group.count for group, _ in groups]
    fabric = merged(_preset_fabric(section), section.fabric) or FabricSection()
    return assemble(
        section.name or section.preset or "+".join(dict.fromkeys(s.name for s in specs)),
        specs, counts, fabric, where=f"{where}: {field_path(path, 'fabric')}",
    )  # fmt: skip


def cluster_from(data: Any, where: str) -> Cluster:
    """Return the cluster that plain data (the content of a cluster section) describes."""
    return build_cluster(decode(data, ClusterSection, where), where, path="")


def load_cluster(path: str | Path, *, nodes: int | None = None) -> Cluster:
    """Return the cluster of a YAML file whose top level is a cluster section."""
    data = read_mapping(Path(path))
    return cluster_from(data if nodes is None else {**data, "nodes": nodes}, str(path))


def _groups(
    section: ClusterSection, where: str, path: str
) -> list[tuple[NodesSection, str]]:
    """Return the kinds of nodes, each with its path."""
    if isinstance(section.nodes, int):
        _check_count(section.nodes, where, field_path(path, "nodes"))
        one = NodesSection(
            count=section.nodes, preset=section.preset, node=section.node,
            overrides=section.overrides,
        )  # fmt: skip
        return [(one, path)]
    for field in ("preset", "node", "overrides"):
        if getattr(section, field) is not None:
            raise ScenarioError(
                f"{where}: {field_path(path, field)}: `nodes` is a list; say it of each entry."
            )
    if not section.nodes:
        raise ScenarioError(f"{where}: {field_path(path, 'nodes')}: the list is empty.")
    for at, group in enumerate(section.nodes):
        _check_count(group.count, where, field_path(path, f"nodes[{at}].count"))
    return [(g, field_path(path, f"nodes[{at}]")) for at, g in enumerate(section.nodes)]


def _check_count(count: int, where: str, path: str) -> None:
    if not 1 <= count <= MAX_GPUS:
        raise ScenarioError(f"{where}: {path}: {count} is not a count. Give 1 to {MAX_GPUS}.")


def _spec(group: NodesSection, where: str, path: str) -> NodeSpec:
    from commsim.cluster.presets import preset_section

    if (group.preset is None) == (group.node is None):
        raise ScenarioError(
            f"{where}: {path or 'cluster'}: give either `preset` (`commsim presets`) or `node`."
        )
    base, name = group.node, ""
    if group.preset is not None:
        try:
            base, name = preset_section(group.preset).node, group.preset
        except ScenarioError as error:
            raise ScenarioError(f"{where}: {field_path(path, 'preset')}: {error}") from None
    node = merged(base, group.overrides)
    assert node is not None
    place = Place(
        where, field_path(path, "node"), field_path(path, "overrides"), group.overrides
    )
    return node_spec(node, place, name=name)


def _preset_fabric(section: ClusterSection) -> FabricSection | None:
    """Return the fabric that the first preset states; a scenario's own is laid over it."""
    from commsim.cluster.presets import preset_section

    names = [section.preset]
    if not isinstance(section.nodes, int):
        names = [group.preset for group in section.nodes]
    return preset_section(names[0]).fabric if names and names[0] else None
