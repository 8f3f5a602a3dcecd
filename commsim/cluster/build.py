"""
From kinds of nodes and a fabric to a cluster: number the GPUs, the NICs and the links.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from commsim.arrays import Floats
from commsim.cluster.cluster import Cluster
from commsim.cluster.fabrics import WIRINGS, Fabric, FabricSection, GraphFabric, Nic, fabric_spec
from commsim.cluster.nodes import MAX_GPUS, NodeSpec
from commsim.cluster.prices import PricesSection
from commsim.cluster.routes import LinkRows, Links
from commsim.cluster.scale import ScaleSection, scaled
from commsim.cluster.template import Template
from commsim.errors import ScenarioError
from commsim.limits import BYTES_PER_NODE_LINK, check_size

__all__ = ["assemble", "domain_notes", "domains_of", "nodes_scaled"]


def assemble(
    name: str,
    specs: Sequence[NodeSpec],
    counts: Sequence[int],
    section: FabricSection,
    *,
    where: str,
    domains: Sequence[int],
    scale: ScaleSection | None = None,
    notes: Sequence[str] = (),
    prices: Sequence[PricesSection | None] = (),
) -> Cluster:
    """Return the cluster of `counts[i]` nodes of kind `specs[i]`, in order.

    `where` is the path of the fabric's settings, for errors. `scale` has the factors; those on the
    nodes are in their specs already, those on the fabric are applied here. `prices` are those of
    each kind of node, `domains` gives each node its NVLink domain.

    Raises:
        ScenarioError: too many GPUs, or an impossible fabric.
    """
    world = sum(spec.gpus * count for spec, count in zip(specs, counts, strict=True))
    if world > MAX_GPUS:
        raise ScenarioError(f"{where}: {world} GPUs are more than commsim can hold ({MAX_GPUS}).")
    within = sum(_links_of(spec) * count for spec, count in zip(specs, counts, strict=True))
    check_size(
        within, BYTES_PER_NODE_LINK, f"{where}: {within:,} links of {sum(counts):,} nodes",
        "Take fewer nodes, or fewer NICs and GPUs in each.",
    )  # fmt: skip
    templates = [Template(spec) for spec in specs]
    template_of = [i for i, count in enumerate(counts) for _ in range(count)]
    nics = [nic for node, kind in enumerate(template_of) for nic in _nics_of(specs[kind], node)]
    first = sum(len(templates[kind].rows) for kind in template_of)
    medium = _one_medium(nics, where)
    settings = fabric_spec(section, nodes=len(template_of), medium=medium, where=where)
    if scale is not None:
        settings = settings.scaled(uplinks=scale.uplinks, latency=scale.network_latency)
    fabric = _fabric_class(settings.kind)(settings, nics, medium=medium, first=first)
    links = _links(templates, template_of, domains, fabric.rows)
    remarks = dict.fromkeys([note for spec in specs for note in spec.notes])
    return Cluster(
        name,
        templates,
        template_of,
        domains,
        nics,
        fabric,
        links,
        [*notes, *remarks, *fabric.notes],
        prices,
        scale,
    )


def nodes_scaled(cluster: Cluster, scale: ScaleSection) -> Cluster:
    """Return a cluster with the factors applied to what is inside its nodes: not to NICs, which
    the fabric is built for.
    """
    return cluster.with_nodes([Template(scaled(spec, scale)) for spec in cluster.specs])


def _fabric_class(kind: str) -> type[Fabric]:
    return GraphFabric if kind in WIRINGS else Fabric


def domains_of(specs: Sequence[NodeSpec], counts: Sequence[int]) -> list[int]:
    """Return the NVLink domain of each node: nodes of a kind in a row share one."""
    domains: list[int] = []
    for spec, count in zip(specs, counts, strict=True):
        first, each = domains[-1] + 1 if domains else 0, _nodes_per_domain(count, spec.domain_nodes)
        domains += [first + node // each for node in range(count)]
    return domains


def domain_notes(specs: Sequence[NodeSpec], counts: Sequence[int]) -> list[str]:
    """Say where NVLink domains are not full, as nodes are spread over them equally."""
    found = []
    for spec, count in zip(specs, counts, strict=True):
        each = _nodes_per_domain(count, spec.domain_nodes)
        if each < min(spec.domain_nodes, count):
            found.append(
                f"NVLink domains: {count} nodes of {spec.name} are {each} in each of"
                f" {count // each} domains, which have room for {spec.domain_nodes}."
            )
    return found


def _nodes_per_domain(count: int, most: int) -> int:
    """Return how many of `count` nodes share a domain of `most`: equally many in each.

    64 nodes in racks of 18 are 16 in each of four, as schedulers place them (SLURM's topology/block
    with --segment), so that groups of a power of two stay in a rack. More racks than are needed are
    taken if that leaves at most a quarter of each empty; where nothing divides, racks are filled.
    """
    least = max(-(-count // most), 1)
    for domains in range(least, count + 1):
        if domains > least and 4 * count < 3 * most * domains:
            break
        if count % domains == 0:
            return count // domains
    return most


def _links_of(spec: NodeSpec) -> int:
    """Return how many links a node has: both ways, of each GPU and NIC, and of NICs to leaves."""
    nics = 0 if spec.nic is None else spec.nic.count
    return 2 * ((2 if spec.switch is not None else 1) * spec.gpus + 2 * nics)


def _one_medium(nics: Sequence[Nic], where: str) -> str:
    media = list(dict.fromkeys(nic.medium for nic in nics))
    if len(media) > 1:
        raise ScenarioError(
            f"{where}: {' and '.join(media)} NICs cannot share one fabric. Give all nodes NICs of"
            " one medium."
        )
    return media[0] if media else ""


def _nics_of(spec: NodeSpec, node: int) -> list[Nic]:
    if spec.nic is None:
        return []
    have, wire = spec.nic, spec.nic.wire
    return [
        Nic(
            node,
            index,
            rail,
            wire.bandwidth,
            wire.efficiency,
            wire.latency,
            have.medium,
            have.transport,
            have.gdr,
            have.number(index),
        )
        for index, rail in enumerate(have.rails)
    ]


def _links(
    templates: Sequence[Template],
    template_of: Sequence[int],
    domains: Sequence[int],
    fabric: LinkRows,
) -> Links:
    """Return the columns of all links: node by node, then the fabric's."""
    rows = [template.rows for template in templates]
    bandwidth = _column(
        [np.array(r.bandwidth, np.float64) for r in rows], template_of, fabric.bandwidth
    )
    efficiency = _column(
        [np.array(r.efficiency, np.float64) for r in rows], template_of, fabric.efficiency
    )
    latency = _column([np.array(r.latency, np.float64) for r in rows], template_of, fabric.latency)
    sources, targets, names = _names(templates, template_of, domains)
    kinds = [kind for t in template_of for kind in rows[t].kind]
    media = [medium for t in template_of for medium in rows[t].medium]
    return Links(
        names=(*names, *(f"{a}->{b}" for a, b in zip(fabric.source, fabric.target, strict=True))),
        kinds=(*kinds, *fabric.kind),
        media=(*media, *fabric.medium),
        bandwidth=bandwidth,
        efficiency=efficiency,
        capacity=bandwidth * efficiency,
        latency=latency.astype(np.int64),
        source=(*sources, *fabric.source),
        target=(*targets, *fabric.target),
    )


def _column(parts: Sequence[Floats], template_of: Sequence[int], last: Sequence[float]) -> Floats:
    return np.concatenate([*(parts[t] for t in template_of), np.array(last, dtype=np.float64)])


def _names(
    templates: Sequence[Template], template_of: Sequence[int], domains: Sequence[int]
) -> tuple[list[str], list[str], list[str]]:
    """Return each link's ends and name; a vertex's name is one object.

    A name is "node0/gpu0->nvswitch" within a node, "node0/gpu0->domain0/nvswitch" out of it.
    """
    sources: list[str] = []
    targets: list[str] = []
    names: list[str] = []
    within = [
        [template.is_shared(a) == template.is_shared(b) for a, b in _ends(template)]
        for template in templates
    ]
    for node, (kind, domain) in enumerate(zip(template_of, domains, strict=True)):
        template = templates[kind]
        vertex = {name: template.full_name(name, node, domain) for name in template.kind_of}
        names += [
            f"{vertex[a]}->{b if inside else vertex[b]}"
            for (a, b), inside in zip(_ends(template), within[kind], strict=True)
        ]
        sources += [vertex[a] for a in template.rows.source]
        targets += [vertex[b] for b in template.rows.target]
    return sources, targets, names


def _ends(template: Template) -> Iterator[tuple[str, str]]:
    return zip(template.rows.source, template.rows.target, strict=True)
