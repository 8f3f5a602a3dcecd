"""
The cluster part of a scenario: a preset or an inline node, many of them, and a fabric.

    cluster: {preset: dgx-h100, nodes: 8, fabric: {kind: rail_optimized, oversubscription: 2}}
    cluster: {node: {gpu: {count: 4, spec: A10G}, nic: {count: 1, bandwidth: 25Gbps}}, nodes: 2}
    cluster: {nodes: [{preset: dgx-h100, count: 2}, {preset: dgx-a100, count: 2}]}
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from commsim.cluster.build import assemble, domain_notes, domains_of
from commsim.cluster.cluster import Cluster
from commsim.cluster.fabrics import FabricSection, inherited
from commsim.cluster.measured import MeasuredSection, check_measured
from commsim.cluster.nodes import (
    MAX_GPUS,
    NodePlace,
    NodeSection,
    NodeSpec,
    field_path,
    node_spec,
    overridden,
    without_nics,
)
from commsim.cluster.presets import preset_data
from commsim.cluster.prices import PricesSection, check_prices, inherited_prices, of_nodes_only
from commsim.cluster.scale import ScaleSection, check_scale, scaled
from commsim.errors import ScenarioError
from commsim.sections import Section, decode
from commsim.yaml_file import read_yaml

__all__ = [
    "ClusterSection",
    "NodesSection",
    "build_cluster",
    "cluster_from",
    "load_cluster",
    "preset_cluster",
]


class NodesSection(Section, frozen=True):
    """So many nodes of one kind: a preset's or an inline one, with overrides."""

    either: ClassVar[tuple[str, ...]] = ("preset", "node")

    count: int = 1
    preset: str | None = None
    node: NodeSection | None = None
    overrides: NodeSection | None = None
    prices: PricesSection | None = None


class ClusterSection(Section, frozen=True):
    """A cluster: `nodes` of one kind (a preset or an inline `node`), or a list of kinds.

    `scale` are factors on what it has, to ask what more or less of it would change. `measured` is
    what `calibrate` was given, for `check`; nothing is simulated by it.
    """

    either: ClassVar[tuple[str, ...]] = ("preset", "node")

    name: str | None = None
    preset: str | None = None
    node: NodeSection | None = None
    nodes: int | tuple[NodesSection, ...] = 1
    fabric: FabricSection | None = None
    overrides: NodeSection | None = None
    scale: ScaleSection = ScaleSection()
    prices: PricesSection | None = None
    measured: tuple[MeasuredSection, ...] = ()


def cluster_from(data: Mapping[str, Any], where: str) -> Cluster:
    """Return the cluster that plain data describes; `where` is the file or call in errors."""
    return build_cluster(decode(dict(data), ClusterSection, where), where, path="")


def load_cluster(file: str | Path) -> Cluster:
    """Return the cluster of a cluster file: YAML whose top level is a cluster section.

    As strict as a scenario: no setting twice, no unknown one.

    Raises:
        ScenarioError: unreadable, empty, or an impossible description.
    """
    file = Path(file)
    data = read_yaml(file, str(file))
    if not isinstance(data, dict):
        what = "empty" if data is None else f"a {type(data).__name__}"
        raise ScenarioError(f"{file}: {what}; a cluster file is a mapping such as 'preset: ...'.")
    return cluster_from(data, str(file))


def preset_cluster(
    name: str,
    *,
    nodes: int = 1,
    fabric: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Cluster:
    """Return `nodes` nodes of a preset ("dgx-h100"), with settings as in a scenario.

    Raises:
        ScenarioError: unknown preset or setting, impossible value.
    """
    data: dict[str, Any] = {"preset": name, "nodes": nodes}
    if fabric is not None:
        data["fabric"] = _plain(fabric)
    if overrides is not None:
        data["overrides"] = _plain(overrides)
    return cluster_from(data, f"Cluster.preset({name!r})")


def _plain(settings: Any) -> Any:
    """Return a mapping as plain data; what is none is left for the decoder to name."""
    return dict(settings) if isinstance(settings, Mapping) else settings


Cluster.preset = staticmethod(preset_cluster)


def build_cluster(
    section: ClusterSection,
    where: str,
    *,
    path: str = "cluster",
    dead: Collection[tuple[int, int]] = (),
) -> Cluster:
    """Return the cluster of a section that stands at `path` in the file `where`.

    `dead` are NICs that are gone, as (node, number): their GPUs go to the nearest that is left.

    Raises:
        ScenarioError: unknown preset, impossible counts or settings; names the field.
    """
    kinds = _kinds(section, where, path)
    counts = [_count(kind.count, where, at, section) for kind, at in kinds]
    check_scale(section.scale, where, path)
    check_measured(section.measured, where, path)
    specs = [scaled(_spec(kind, where, at), section.scale) for kind, at in kinds]
    if sum(counts) > 1:
        _need_nics(kinds, specs, where)
    if isinstance(section.nodes, tuple):
        for kind, at in kinds:
            of_nodes_only(kind.prices, where, field_path(at, "prices"))
    domains, spread = domains_of(specs, counts), domain_notes(specs, counts)
    if dead:
        specs, counts, origin = without_nics(specs, counts, dead, where)
        kinds = [kinds[at] for at in origin]
    prices = [_prices(kind, section) for kind, _ in kinds]
    cluster = assemble(
        section.name or _name(section, specs, counts),
        specs,
        counts,
        _fabric(section, kinds),
        where=f"{where}: {field_path(path, 'fabric')}",
        domains=domains,
        scale=section.scale,
        notes=(*spread, *_fabric_notes(section, kinds), *_scale_notes(section.scale)),
        prices=prices,
    )
    asked = [
        (spec, own, field_path(at, "prices"))
        for spec, own, (_, at) in zip(specs, prices, kinds, strict=True)
    ]
    at = field_path(path, "prices")
    check_prices(prices[0], asked, cluster.fabric.parts, where=where, path=at)
    return cluster


def _kinds(section: ClusterSection, where: str, path: str) -> list[tuple[NodesSection, str]]:
    """Return the kinds of nodes, each with the path of its settings."""
    nodes = section.nodes
    if not isinstance(nodes, tuple):
        kind = NodesSection(
            count=nodes, preset=section.preset, node=section.node, overrides=section.overrides
        )
        return [(kind, path)]
    for field in ("preset", "node", "overrides"):
        if getattr(section, field) is not None:
            raise ScenarioError(
                f"{where}: {field_path(path, field)}: means nothing beside a list of nodes."
                " Put it into the list."
            )
    if not nodes:
        raise ScenarioError(f"{where}: {field_path(path, 'nodes')}: is empty. List a node.")
    return [(kind, field_path(path, f"nodes.{i}")) for i, kind in enumerate(nodes)]


def _count(count: int, where: str, at: str, section: ClusterSection) -> int:
    field = field_path(at, "count" if isinstance(section.nodes, tuple) else "nodes")
    if count < 1:
        raise ScenarioError(f"{where}: {field}: {count} is not a count of nodes. Give 1 or more.")
    if count > MAX_GPUS:
        raise ScenarioError(
            f"{where}: {field}: {count} nodes are more than commsim can hold ({MAX_GPUS})."
        )
    return count


def _spec(kind: NodesSection, where: str, at: str) -> NodeSpec:
    """Return the facts of one kind of node, its overrides applied."""
    if (kind.preset is None) == (kind.node is None):
        found = "both stand here" if kind.node is not None else "neither stands here"
        raise ScenarioError(
            f"{where}: {field_path(at, 'preset')}: {found}. Give either a `preset`"
            " (`commsim presets clusters` lists them) or an inline `node`."
        )
    base, inline = kind.node, field_path(at, "node")
    if base is None:
        base, inline = _preset_node(kind.preset or "", where, at), field_path(at, "preset")
    place = NodePlace(where, inline, field_path(at, "overrides"), kind.overrides)
    node, notes = overridden(base, kind.overrides, place)
    spec = node_spec(node, place, name=(kind.preset or "").lower())
    return msgspec.structs.replace(spec, notes=spec.notes + notes)


@cache
def _preset(name: str) -> ClusterSection:
    return decode(preset_data(name), ClusterSection, f"{name}.yaml")


def _preset_node(name: str, where: str, at: str) -> NodeSection:
    try:
        node = _preset(name).node
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {field_path(at, 'preset')}: {error}") from None
    return node if node is not None else NodeSection()


def _prices(kind: NodesSection, section: ClusterSection) -> PricesSection | None:
    """Return the prices of a kind of node: its preset's, under the cluster's, under its own."""
    base = None if kind.preset is None else _preset(kind.preset).prices
    own = kind.prices if isinstance(section.nodes, tuple) else None
    return inherited_prices(inherited_prices(base, section.prices), own)


def _need_nics(
    kinds: Sequence[tuple[NodesSection, str]], specs: Sequence[NodeSpec], where: str
) -> None:
    for (_, at), spec in zip(kinds, specs, strict=True):
        if spec.nic is None:
            raise ScenarioError(
                f"{where}: {field_path(at, 'node.nic')}: is missing: node {spec.name!r} cannot be"
                " left without a NIC, and there are several nodes. Give `nic`, or one node."
            )


def _fabric(section: ClusterSection, kinds: Sequence[tuple[NodesSection, str]]) -> FabricSection:
    """Return the fabric: what is stated, over that of the first preset in the list."""
    presets = [_preset(kind.preset).fabric for kind, _ in kinds if kind.preset is not None]
    base = presets[0] if presets else None
    return inherited(base or FabricSection(), section.fabric)


def _fabric_notes(
    section: ClusterSection, kinds: Sequence[tuple[NodesSection, str]]
) -> tuple[str, ...]:
    """Say whose fabric it is if that is not plain to see."""
    presets = [kind.preset for kind, _ in kinds if kind.preset is not None]
    stated = section.fabric is not None and section.fabric.kind is not None
    if stated or len(kinds) == 1 or not presets:
        return ()
    return (f"fabric: as preset {presets[0]} has it.",)


def _scale_notes(scale: ScaleSection) -> tuple[str, ...]:
    changed = {f: v for f in scale.__struct_fields__ if (v := getattr(scale, f)) != 1}
    told = ", ".join(f"{name.replace('_', ' ')} x {value:g}" for name, value in changed.items())
    return (f"cluster: not as built: scale has {told}.",) if changed else ()


def _name(section: ClusterSection, specs: Sequence[NodeSpec], counts: Sequence[int]) -> str:
    """Return "8 x dgx-h100", or "2 x dgx-h100 + 2 x dgx-a100"."""
    return " + ".join(f"{count} x {spec.name}" for spec, count in zip(specs, counts, strict=True))
