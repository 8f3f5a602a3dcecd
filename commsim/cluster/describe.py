"""
A cluster in plain data, for `commsim presets` and `commsim topo`; printing is the CLI's job.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from commsim.cluster.cluster import Cluster
from commsim.cluster.drawing import draw_node
from commsim.cluster.nodes import NodeSpec, gpu_names, gpu_spec, gpu_text
from commsim.cluster.presets import preset_names, preset_text
from commsim.cluster.prices import PricesSection
from commsim.cluster.routes import Route
from commsim.cluster.template import Template

_MOST_CUT = 20_000  # links of a fabric whose least cut is worked out

__all__ = [
    "bisection_bandwidth",
    "describe",
    "gpu_names",
    "gpu_spec",
    "gpu_text",
    "preset_names",
    "preset_text",
]


def describe(cluster: Cluster) -> dict[str, Any]:
    """Return what `commsim topo` shows, ready for JSON.

    Bandwidths in bytes/s per direction, latencies in ps. Keys: name, nodes, world_size, domains
    (of NVLink), kinds (of nodes), links (a table by kind), fabric, bisection_bandwidth (payload;
    None if the model has no closed form), routes (examples), notes.
    """
    return {
        "name": cluster.name,
        "nodes": len(cluster.node_names),
        "world_size": cluster.world_size,
        "domains": 1 + int(cluster.domains[-1]),
        "kinds": [
            _kind(cluster.template(i), cluster.spec_of.count(i), cluster.prices[i])
            for i in range(len(cluster.specs))
        ],
        "links": _link_table(cluster),
        "fabric": _fabric(cluster),
        "bisection_bandwidth": bisection_bandwidth(cluster),
        "routes": _examples(cluster),
        "notes": list(cluster.notes),
    }


def _kind(template: Template, count: int, prices: PricesSection | None) -> dict[str, Any]:
    spec = template.spec
    nic, power = spec.nic, spec.power
    price = prices.gpu_hour if prices else None
    return {
        "name": spec.name,
        "count": count,
        "gpus": spec.gpus,
        "gpu": spec.gpu.name,
        "device": spec.gpu.device,
        "gpu_memory_bytes": spec.gpu.memory_bytes,
        "sm": spec.gpu.sm,
        "nvlink": "switch" if spec.switch else "mesh" if spec.mesh else "none",
        "domain_nodes": spec.domain_nodes,
        "pcie_p2p": spec.pcie.p2p,
        "cpu": spec.cpu.model,
        "cpu_arch": spec.cpu.arch,
        "cpu_vendor": spec.cpu.vendor,
        "cpu_sockets": spec.sockets,
        "nics": nic.count if nic else 0,
        "nics_per_gpu": nic.count / spec.gpus if nic else 0.0,
        "nic": nic.model if nic else "",
        "nic_bandwidth": nic.wire.bandwidth if nic else 0.0,
        "medium": nic.medium if nic else "",
        "transport": nic.transport if nic else "",
        "gdr": nic.gdr if nic else False,
        "host_launch_ps": spec.launch,
        "rails": len(dict.fromkeys(nic.rails)) if nic else 0,
        "power_w": power.watts if power else None,
        "power_source": power.source if power else None,
        "price_per_gpu_hour": price.price if price else None,
        "price_currency": (prices.currency or "USD") if prices and price else None,
        "price_date": price.date if price else None,
        "price_source": price.source if price else None,
        "drawing": draw_node(template),
    }


def _link_table(cluster: Cluster) -> list[dict[str, Any]]:
    """Return one row per kind of link that is the same everywhere, in order of appearance."""
    links, what = cluster.links, _vertex_kinds(cluster)
    counts: dict[tuple[Any, ...], int] = {}
    columns = zip(
        links.kinds,
        links.media,
        links.source,
        links.target,
        links.bandwidth.tolist(),
        links.efficiency.tolist(),
        links.latency.tolist(),
        strict=True,
    )
    for kind, medium, a, b, bandwidth, efficiency, latency in columns:
        row = (kind, medium, what[a], what[b], bandwidth, round(efficiency, 6), latency)
        counts[row] = counts.get(row, 0) + 1
    names = ("kind", "medium", "from", "to", "bandwidth", "efficiency", "latency_ps")
    return [{**dict(zip(names, row, strict=True)), "count": n} for row, n in counts.items()]


def _vertex_kinds(cluster: Cluster) -> dict[str, str]:
    kinds = dict(cluster.fabric.kind_of)
    domains = cluster.domain_of_node.tolist()
    for node, (spec, domain) in enumerate(zip(cluster.spec_of, domains, strict=True)):
        template = cluster.template(spec)
        for vertex, kind in template.kind_of.items():
            kinds[template.full_name(vertex, node, domain)] = kind
    return kinds


def _fabric(cluster: Cluster) -> dict[str, Any]:
    fabric = cluster.fabric
    levels = {
        f"{kind}_switches": sum(1 for k in fabric.kind_of.values() if k == kind)
        for kind in ("leaf", "spine", "core")
    }
    return {
        "kind": fabric.kind,
        "oversubscription": fabric.spec.oversubscription if fabric.is_tree else None,
        "dims": list(fabric.dims),
        "planes": fabric.spec.planes,
        "ecmp": fabric.spec.ecmp,
        "rails": len(dict.fromkeys(nic.rail for nic in cluster.nics)),
        "merged_spines": fabric.columns == 1 and bool(fabric.trunk),
        "parts": fabric.parts.told if fabric.parts.switches and not fabric.parts.wrong else "",
        **levels,
    }


def bisection_bandwidth(cluster: Cluster) -> float | None:
    """Return the payload bytes/s that the first half of the nodes can send to the second.

    Traffic that shares a leaf stays there; the rest is bounded by the leaves' trunks, in a torus,
    dragonfly+ or graph by the least cut of its links (None above 20,000 links). In one
    NVLink domain: what the first half of its GPUs can send over NVLink. None if neither
    applies, or if the halves share a domain.
    """
    nodes, domains = len(cluster.node_names), cluster.domain_of_node
    if domains[-1] == 0:
        return _nvlink_bisection(cluster.specs[0], cluster.world_size)
    if domains[nodes // 2 - 1] == domains[nodes // 2]:
        return None
    if not cluster.fabric.is_tree:
        return _least_cut(cluster, nodes // 2)
    fabric, leaves = cluster.fabric, len(cluster.fabric.leaves.names)
    halves = ([0.0] * leaves, [0.0] * leaves)
    for nic, leaf in zip(cluster.nics, fabric.leaves.of, strict=True):
        halves[nic.node >= nodes // 2][leaf] += nic.bandwidth * nic.efficiency
    within = [min(a, b) for a, b in zip(*halves, strict=True)]
    if not fabric.trunk:
        return sum(within)
    above = []
    for half in halves:
        spare = zip(half, within, _trunk_payload(cluster), strict=True)
        above.append(sum(min(have - kept, trunk) for have, kept, trunk in spare))
    return sum(within) + min(above)


def _least_cut(cluster: Cluster, half: int) -> float | None:
    """Return the bytes/s that the NICs of nodes below `half` can send to the others at most."""
    import networkx

    links, first = cluster.links, len(cluster.links) - len(cluster.fabric.rows)
    if len(cluster.fabric.rows) > _MOST_CUT:
        return None
    graph = networkx.DiGraph()
    for link in range(first, len(links)):
        graph.add_edge(links.source[link], links.target[link], capacity=float(links.capacity[link]))
    for nic in cluster.nics:
        ends = ("all below", nic.name) if nic.node < half else (nic.name, "all above")
        graph.add_edge(*ends)  # without a capacity: never the narrow part
    return float(networkx.maximum_flow_value(graph, "all below", "all above"))


def _trunk_payload(cluster: Cluster) -> list[float]:
    """Return the payload bytes/s of each leaf's uplinks together."""
    total = dict.fromkeys(cluster.fabric.leaves.names, 0.0)
    links, kind_of = cluster.links, cluster.fabric.kind_of
    for link in range(len(links) - len(cluster.fabric.rows), len(links)):
        a, b = links.source[link], links.target[link]
        if a in total and kind_of.get(b) == "spine":
            total[a] += float(links.capacity[link])
    return list(total.values())


def _nvlink_bisection(spec: NodeSpec, gpus: int) -> float | None:
    half = gpus // 2
    if spec.switch is not None:
        return half * spec.switch.bandwidth * spec.switch.efficiency
    if spec.nvlink is None:
        return None
    links = sum(sum(row[half:]) for row in spec.mesh[:half])
    return links * spec.nvlink.bandwidth * spec.nvlink.efficiency


def _examples(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the route from rank 0 to its neighbour, and to the first GPU that is farther away."""
    found = []
    if cluster.specs[cluster.spec_of[0]].gpus > 1:
        found.append(_example(cluster, 0, 1, cluster.local_route(0, 1)))
    if len(cluster.node_names) > 1:
        other = _first_elsewhere(cluster)
        if cluster.domain_of(other) == 0:
            return [*found, _example(cluster, 0, other, cluster.local_route(0, other))]
        a, b = cluster.nics_of(0)[0], cluster.nics_of(other)[0]
        fabric = cluster.fabric_route(a, b)
        if fabric is not None:
            whole = cluster.to_nic(0, a) + fabric + cluster.from_nic(b, other)
            found.append(_example(cluster, 0, other, whole))
    return found


def _first_elsewhere(cluster: Cluster) -> int:
    """Return the first rank of another NVLink domain, else of another node."""
    outside = np.flatnonzero(cluster.domains != 0)
    return int(outside[0]) if len(outside) else int(cluster.first_rank[1])


def _example(cluster: Cluster, a: int, b: int, route: Route | None) -> dict[str, Any]:
    if route is None:
        return {
            "from": a,
            "to": b,
            "links": [],
            "via": [],
            "latency_ps": None,
            "bandwidth": None,
        }
    capacity = cluster.links.capacity
    pairs = zip(route.link, route.share, strict=True)
    return {
        "from": a,
        "to": b,
        "links": [cluster.links.names[link] for link in route.link],
        "via": _via(cluster, route),
        "latency_ps": route.latency,
        "bandwidth": min(float(capacity[link]) / share for link, share in pairs),
    }


def _via(cluster: Cluster, route: Route) -> list[str]:
    """Return the vertices of a route, by the first of parallel links; memory is passed back out."""
    links, at = cluster.links, cluster.links.source[route.link[0]]
    found = [at]
    for hop in dict.fromkeys(route.hop):
        link = route.link[route.hop.index(hop)]
        ends = (links.source[link], links.target[link])
        at = ends[0] if at == ends[1] else ends[1]
        found.append(at)
    return found
