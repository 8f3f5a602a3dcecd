"""
The cluster: what exists. GPUs, NICs, links, and the path segments between them.

Ranks are global GPU indices, node by node. The cluster offers segments (GPU to GPU, GPU to
NIC, NIC to NIC); which of them a connection uses is the library's choice. Routes are worked
out once per kind of node, shifted to each node's links, and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from msgspec.structs import replace

from commsim.arrays import Ints
from commsim.cluster.digraph import digraph
from commsim.cluster.fabrics import Fabric, Nic
from commsim.cluster.link_ends import LinkEnds, link_ends
from commsim.cluster.nodes import GpuSpec, NodeSpec
from commsim.cluster.prices import PricesSection
from commsim.cluster.routes import Links, Route
from commsim.cluster.scale import ScaleSection
from commsim.cluster.template import Template
from commsim.errors import TopologyError

if TYPE_CHECKING:
    import networkx

__all__ = ["Cluster"]


class PresetCluster(Protocol):
    """The signature of `Cluster.preset`."""

    def __call__(
        self,
        name: str,
        *,
        nodes: int = 1,
        fabric: Mapping[str, Any] | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> Cluster:
        """Return `nodes` nodes of a preset ("dgx-h100"), with settings as in a scenario."""


class Cluster:
    """A cluster of nodes, laid out; `preset` and `section.build_cluster` make one.

    `node_of`, `local_of` and `domains` give per GPU its node, its number there, and its NVLink
    domain: a node, or several that share an NVSwitch. `specs` holds each kind of node once,
    `prices` what is paid for it, `spec_of` its number per node. `scale` are the factors that are in
    it already.
    """

    preset: ClassVar[PresetCluster]
    """Make a cluster of a preset: `section.preset_cluster`, which needs this class."""

    def __init__(
        self,
        name: str,
        templates: Sequence[Template],
        template_of: Sequence[int],
        domains: Sequence[int],
        nics: Sequence[Nic],
        fabric: Fabric,
        links: Links,
        notes: Sequence[str],
        prices: Sequence[PricesSection | None] = (),
        scale: ScaleSection | None = None,
    ) -> None:
        self.name = name
        self.links = links
        self.nics = tuple(nics)
        self.notes = tuple(notes)
        self.fabric = fabric
        self.scale = scale or ScaleSection()
        self.specs: tuple[NodeSpec, ...] = tuple(t.spec for t in templates)
        self.prices = tuple(prices) or (None,) * len(templates)
        self.spec_of = tuple(template_of)
        self.node_names = tuple(f"node{node}" for node in range(len(template_of)))
        self._templates = tuple(templates)
        gpus = np.array([t.spec.gpus for t in templates], dtype=np.int64)[list(template_of)]
        self.node_of: Ints = np.repeat(np.arange(len(gpus)), gpus)
        self.first_rank: Ints = np.concatenate(([0], np.cumsum(gpus)[:-1]))
        self.local_of: Ints = np.arange(len(self.node_of)) - self.first_rank[self.node_of]
        self.domain_of_node: Ints = np.array(domains, dtype=np.int64)
        self.domains: Ints = self.domain_of_node[self.node_of]
        self.world_size = len(self.node_of)
        self._node: list[int] = self.node_of.tolist()
        self._local: list[int] = self.local_of.tolist()
        self._first_link = _starts([len(t.rows) for t in templates], template_of)
        self._first_nic = _starts(
            [t.spec.nic.count if t.spec.nic else 0 for t in templates], template_of
        )
        self._shared: dict[tuple[int | str, ...], Route] = {}
        self._routes: dict[tuple[str, int, int], Route] = {}
        self._nearest: dict[int, tuple[int, ...]] = {}
        self._nearest_host: dict[int, tuple[int, ...]] = {}
        self._peers: Callable[[Route], bool] = lambda way: True
        self._reads_gpus = True

    def __repr__(self) -> str:
        return (
            f"Cluster({self.name!r}, {len(self.node_names)} nodes, {self.world_size} GPUs,"
            f" {len(self.links)} links, fabric {self.fabric.kind})"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: kinds of nodes, and what joins them."""
        from html import escape

        counts = [self.spec_of.count(kind) for kind in range(len(self.specs))]
        rows = "".join(
            f"<tr><td>{count:,} × {escape(spec.name)}</td><td>{spec.gpus} ×"
            f" {escape(spec.gpu.name)}</td><td>{spec.nic.count if spec.nic else 0} NICs</td></tr>"
            for spec, count in zip(self.specs, counts, strict=True)
        )
        head = f"{self.name}: {self.world_size:,} GPUs, fabric {self.fabric.kind}"
        return f"<div><b>{escape(head)}</b><table>{rows}</table></div>"

    def part(self, ranks: Sequence[int]) -> Cluster:
        """Return the cluster as a job on `ranks` sees it: its rank r is GPU `ranks[r]` here.

        Links, nodes and NICs are those of the whole.
        """
        chosen = list(ranks)
        made = copy(self)
        made.node_of, made.local_of = self.node_of[chosen], self.local_of[chosen]
        made.domains = self.domains[chosen]
        made.world_size = len(chosen)
        made._node, made._local = made.node_of.tolist(), made.local_of.tolist()
        made._shared, made._routes = {}, {}
        made._nearest, made._nearest_host = {}, {}
        return made

    def through_host(self, peers: Callable[[Route], bool], *, reads_gpus: bool) -> Cluster:
        """Return this cluster as it is used if software forgoes direct ways; links are shared.

        GPUs of a node use a local way if `peers` allows it, else the memory of their host;
        with `reads_gpus` False NICs do not reach GPU memory.
        """
        used = copy(self)
        used._shared, used._routes = {}, {}
        used._peers, used._reads_gpus = peers, reads_gpus
        return used

    def with_nodes(self, templates: Sequence[Template]) -> Cluster:
        """Return this cluster with other figures for its nodes' links, laid out alike."""
        made = copy(self)
        made.specs, made._templates = tuple(one.spec for one in templates), tuple(templates)
        fabric = sum(len(templates[kind].rows) for kind in self.spec_of)
        bandwidth, efficiency, latency = (
            np.concatenate([*(own[kind] for kind in self.spec_of), column[fabric:]])
            for own, column in (
                ([np.array(one.rows.bandwidth) for one in templates], self.links.bandwidth),
                ([np.array(one.rows.efficiency) for one in templates], self.links.efficiency),
                ([np.array(one.rows.latency) for one in templates], self.links.latency),
            )
        )
        made.links = replace(
            self.links,
            bandwidth=bandwidth,
            efficiency=efficiency,
            capacity=bandwidth * efficiency,
            latency=latency,
        )
        made._shared, made._routes = {}, {}
        made._nearest, made._nearest_host = {}, {}
        return made

    @cached_property
    def kind_of_node(self) -> Ints:
        """`spec_of` as an array."""
        return np.asarray(self.spec_of, dtype=np.int64)

    @cached_property
    def first_of_node(self) -> tuple[Ints, Ints]:
        """The first link and the first NIC of every node."""
        return np.asarray(self._first_link, np.int64), np.asarray(self._first_nic, np.int64)

    @cached_property
    def nic_places(self) -> tuple[Ints, Ints]:
        """The node of every NIC, and its number there."""
        places = [(nic.node, nic.index) for nic in self.nics]
        node, index = np.array(places, dtype=np.int64).reshape(-1, 2).T.copy()
        return node, index

    @cached_property
    def ends(self) -> LinkEnds:
        """The ends of all links as numbers."""
        return link_ends(self.links, self.fabric.kind_of)

    def template(self, kind: int) -> Template:
        """Return the layout of the `kind`-th kind of node."""
        return self._templates[kind]

    def gpu(self, rank: int) -> GpuSpec:
        """Return what a rank's GPU is."""
        return self.node_spec(rank).gpu

    def node_spec(self, rank: int) -> NodeSpec:
        """Return the facts of the node that a rank is on."""
        return self.specs[self.spec_of[self._node[rank]]]

    def domain_of(self, gpu: int) -> int:
        """Return the NVLink domain of a GPU, numbered by first appearance."""
        return int(self.domains[gpu])

    def first_link(self, node: int) -> int:
        """Return the id of a node's first link; nodes of one kind number theirs equally."""
        return self._first_link[node]

    def first_nic(self, node: int) -> int:
        """Return the number of a node's first NIC."""
        return self._first_nic[node]

    def local_route(self, a: int, b: int) -> Route | None:
        """Return the route between two GPUs of one NVLink domain, and of one node in any case.

        Over NVLink, else PCIe, else through host memory. None if the two need the fabric.
        """
        key = ("local", a, b)
        found = self._routes.get(key)
        if found is None:
            node, other = self._node[a], self._node[b]
            if node == other:
                found = self._keep(key, node, self._local[a], self._local[b])
                if a != b and not self._peers(found):
                    found = self._routes[key] = self.staged_route(a, b)
                return found
            if self.domain_of_node[node] != self.domain_of_node[other]:
                return None
            found = self._keep(("to_switch", a, 0), node, self._local[a])
            found += self._keep(("from_switch", b, 0), other, self._local[b])
            self._routes[key] = found
        return found

    def staged_route(self, a: int, b: int) -> Route:
        """Return the route between two GPUs of a node through the memory of the second's socket.

        Raises:
            TopologyError: the two are on different nodes.
        """
        if self._node[a] != self._node[b]:
            raise TopologyError(f"ranks {a} and {b} share no host memory: they are on two nodes.")
        return self._keep(("staged", a, b), self._node[a], self._local[a], self._local[b])

    def nics_of(self, rank: int) -> tuple[int, ...]:
        """Return the NICs of a rank's node, nearest first; () if it has none."""
        return self._nics(rank, self._nearest, Template.nics_of)

    def host_nics_of(self, rank: int) -> tuple[int, ...]:
        """Return the NICs of a rank's node, those nearest to its socket's memory first."""
        return self._nics(rank, self._nearest_host, Template.host_nics_of)

    def to_nic(self, rank: int, nic: int, *, staged: bool | None = None) -> Route:
        """Return the route from a GPU to a NIC of its node: by PCIe, or through host memory.

        `staged` None takes host memory if the NIC does not reach GPU memory by itself.

        Raises:
            TopologyError: the NIC is on another node.
        """
        if self._is_staged(rank, nic, staged):
            return self.to_host(rank) + self.host_to_nic(rank, nic)
        return self._by_nic("to_nic", rank, nic)

    def from_nic(self, nic: int, rank: int, *, staged: bool | None = None) -> Route:
        """Return the route from a NIC to a GPU of its node. Takes and raises as `to_nic` does."""
        if self._is_staged(rank, nic, staged):
            return self.nic_to_host(nic, rank) + self.from_host(rank)
        return self._by_nic("from_nic", rank, nic)

    def to_host(self, rank: int) -> Route:
        """Return the route from a GPU to the memory of its CPU socket."""
        return self._keep(("to_host", rank, 0), self._node[rank], self._local[rank])

    def from_host(self, rank: int) -> Route:
        """Return the route from the memory of a GPU's CPU socket to the GPU."""
        return self._keep(("from_host", rank, 0), self._node[rank], self._local[rank])

    def host_to_nic(self, rank: int, nic: int) -> Route:
        """Return the route from the memory of a rank's socket to a NIC. Raises as `to_nic` does."""
        return self._by_nic("host_to_nic", rank, nic)

    def nic_to_host(self, nic: int, rank: int) -> Route:
        """Return the route from a NIC to the memory of a rank's socket. Raises as `to_nic` does."""
        return self._by_nic("nic_to_host", rank, nic)

    def host_route(self, a: int, b: int, *, key: int = 0) -> Route | None:
        """Return the route from the memory of rank a's socket to that of rank b's.

        A copy on one socket, the link between two, or the fabric between the NICs nearest to
        the two sockets (`key` as for `fabric_route`). None if there is none.
        """
        if self._node[a] == self._node[b]:
            return self._keep(("host", a, b), self._node[a], self._local[a], self._local[b])
        out, into = self.host_nics_of(a)[0], self.host_nics_of(b)[0]
        fabric = self.fabric_route(out, into, key=key)
        if fabric is None:
            return None
        return self.host_to_nic(a, out) + fabric + self.nic_to_host(into, b)

    def fabric_route(self, nic_a: int, nic_b: int, *, key: int = 0) -> Route | None:
        """Return the route between two NICs, or None if the fabric joins them nowhere.

        `key` is the connection's number: with `ecmp: hash` it picks the path.
        """
        return self.fabric.route(nic_a, nic_b, key)

    def digraph(self) -> networkx.DiGraph:
        """Return the same links as a graph: nodes with `kind`, edges with `link` and its columns.

        For drawing and for questions about the topology; nothing hot uses it.
        """
        nodes = [
            (self._templates[kind], int(domain))
            for kind, domain in zip(self.spec_of, self.domain_of_node, strict=True)
        ]
        return digraph(self.name, nodes, self.fabric, self.links)

    def _nics(
        self,
        rank: int,
        kept: dict[int, tuple[int, ...]],
        order: Callable[[Template, int], tuple[int, ...]],
    ) -> tuple[int, ...]:
        if rank not in kept:
            node = self._node[rank]
            first, template = self._first_nic[node], self._templates[self.spec_of[node]]
            kept[rank] = tuple(first + nic for nic in order(template, self._local[rank]))
        return kept[rank]

    def _is_staged(self, rank: int, nic: int, asked: bool | None) -> bool:
        if asked is None:
            reads = self.nics[nic].gdr and self._reads_gpus
            return not reads and self.gpu(rank).device != "cpu"
        return asked

    def _by_nic(self, what: str, rank: int, nic: int) -> Route:
        found = self._routes.get((what, rank, nic))
        if found is not None:
            return found
        node = self._node[rank]
        if self.nics[nic].node != node:
            raise TopologyError(
                f"rank {rank} is on node {node}, NIC {nic} on node {self.nics[nic].node}: a GPU"
                " reaches only the NICs of its own node."
            )
        return self._keep((what, rank, nic), node, self._local[rank], self.nics[nic].index)

    def _keep(self, key: tuple[str, int, int], node: int, *ends: int) -> Route:
        """Return a template's route between `ends` on the links of `node`, kept under `key`."""
        found = self._routes.get(key)
        if found is not None:
            return found
        template = self.spec_of[node]
        shared: tuple[int | str, ...] = (template, key[0], *ends)
        if shared not in self._shared:
            self._shared[shared] = _WAYS[key[0]](self._templates[template], *ends)
        route, first = self._shared[shared], self._first_link[node]
        moved = Route(
            tuple([first + link for link in route.link]), route.share, route.hop, route.latency
        )
        self._routes[key] = moved
        return moved


_WAYS: dict[str, Callable[..., Route]] = {
    "local": Template.local_route,
    "to_switch": Template.to_switch,
    "from_switch": Template.from_switch,
    "staged": Template.staged_route,
    "to_host": Template.to_host,
    "from_host": Template.from_host,
    "to_nic": Template.to_nic,
    "from_nic": Template.from_nic,
    "host_to_nic": Template.host_to_nic,
    "nic_to_host": Template.nic_to_host,
    "host": Template.host_to_host,
}


def _starts(sizes: Sequence[int], template_of: Sequence[int]) -> list[int]:
    """Return the first id of each node, nodes of kind t having `sizes[t]` ids each."""
    counts = np.array(sizes, dtype=np.int64)[list(template_of)]
    starts: list[int] = np.concatenate(([0], np.cumsum(counts)[:-1])).tolist()
    return starts
