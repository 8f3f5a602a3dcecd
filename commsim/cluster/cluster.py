"""
The cluster: what exists. GPUs, NICs, links, and the path segments between them.

Ranks are global GPU indices, node by node. The cluster offers segments (GPU to GPU, GPU to
NIC, NIC to NIC); which of them a connection uses is the library's choice. Routes are worked
out once per kind of node, shifted to each node's links, and kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from commsim.cluster.fabric import Fabric
from commsim.cluster.gpus import GpuSpec
from commsim.cluster.leaves import Nic
from commsim.cluster.routes import Links, Route
from commsim.cluster.spec import NodeSpec
from commsim.cluster.template import Template
from commsim.errors import TopologyError

if TYPE_CHECKING:
    import networkx

__all__ = ["Cluster"]

Ints = npt.NDArray[np.int64]


class Cluster:
    """A cluster of nodes, laid out; `preset` and `section.build_cluster` make one.

    `node_of`, `local_of` and `domain_of` give per GPU its node, its number there, and its
    NVLink domain (today the node). `specs` holds each kind of node once, `spec_of` its number
    per node.
    """

    def __init__(
        self,
        name: str,
        templates: Sequence[Template],
        template_of: Sequence[int],
        nics: Sequence[Nic],
        fabric: Fabric,
        links: Links,
        notes: Sequence[str],
    ) -> None:
        self.name = name
        self.links = links
        self.nics = tuple(nics)
        self.notes = tuple(notes)
        self.fabric = fabric
        self.specs: tuple[NodeSpec, ...] = tuple(t.spec for t in templates)
        self.spec_of = tuple(template_of)
        self.node_names = tuple(f"node{node}" for node in range(len(template_of)))
        self._templates = tuple(templates)
        gpus = np.array([t.spec.gpus for t in templates], dtype=np.int64)[list(template_of)]
        self.node_of: Ints = np.repeat(np.arange(len(gpus)), gpus)
        self.first_rank: Ints = np.concatenate(([0], np.cumsum(gpus)[:-1]))
        self.local_of: Ints = np.arange(len(self.node_of)) - self.first_rank[self.node_of]
        self.domain_of: Ints = self.node_of.copy()
        self.world_size = len(self.node_of)
        self._node: list[int] = self.node_of.tolist()
        self._local: list[int] = self.local_of.tolist()
        self._first_link = _starts([len(t.rows) for t in templates], template_of)
        self._first_nic = _starts(
            [t.spec.nic.count if t.spec.nic else 0 for t in templates], template_of
        )
        self._shared: dict[tuple[int, str, int, int], Route] = {}
        self._routes: dict[tuple[str, int, int], Route] = {}
        self._nearest: dict[int, tuple[int, ...]] = {}

    def __repr__(self) -> str:
        return (
            f"Cluster({self.name!r}, {len(self.node_names)} nodes, {self.world_size} GPUs,"
            f" {len(self.links)} links, fabric {self.fabric.kind})"
        )

    @staticmethod
    def preset(
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
        from commsim.cluster.section import cluster_from

        data: dict[str, Any] = {"preset": name, "nodes": nodes}
        if fabric is not None:
            data["fabric"] = dict(fabric)
        if overrides is not None:
            data["overrides"] = dict(overrides)
        return cluster_from(data, f"Cluster.preset({name!r})")

    def template(self, kind: int) -> Template:
        """Return the layout of the `kind`-th kind of node."""
        return self._templates[kind]

    def gpu(self, rank: int) -> GpuSpec:
        """Return what a rank's GPU is."""
        return self.node_spec(rank).gpu

    def node_spec(self, rank: int) -> NodeSpec:
        """Return the facts of the node that a rank is on."""
        return self.specs[self.spec_of[self._node[rank]]]

    def local_route(self, a: int, b: int) -> Route | None:
        """Return the way between two GPUs of one node (NVLink, else PCIe, else the host).

        None where the two are on different nodes: they need the fabric.
        """
        key = ("local", a, b)
        found = self._routes.get(key)
        if found is None:
            node = self._node[a]
            if node != self._node[b]:
                return None
            found = self._keep(key, node, "local", self._local[a], self._local[b])
        return found

    def nics_of(self, rank: int) -> tuple[int, ...]:
        """Return the NICs of a rank's node, nearest first; () where it has none."""
        if rank not in self._nearest:
            node = self._node[rank]
            first = self._first_nic[node]
            local = self._templates[self.spec_of[node]].nics_of(self._local[rank])
            self._nearest[rank] = tuple(first + nic for nic in local)
        return self._nearest[rank]

    def to_nic(self, rank: int, nic: int) -> Route:
        """Return the way from a GPU to a NIC of its node, by PCIe.

        Raises:
            TopologyError: the NIC is on another node.
        """
        key = ("to_nic", rank, nic)
        return self._routes.get(key) or self._by_nic(key, rank, nic)

    def from_nic(self, nic: int, rank: int) -> Route:
        """Return the way from a NIC to a GPU of its node. Raises as `to_nic` does."""
        key = ("from_nic", rank, nic)
        return self._routes.get(key) or self._by_nic(key, rank, nic)

    def to_host(self, rank: int) -> Route:
        """Return the way from a GPU to the memory of its CPU socket."""
        key = ("to_host", rank, 0)
        found = self._routes.get(key)
        return found or self._keep(key, self._node[rank], "to_host", self._local[rank], 0)

    def from_host(self, rank: int) -> Route:
        """Return the way from the memory of a GPU's CPU socket to the GPU."""
        key = ("from_host", rank, 0)
        found = self._routes.get(key)
        return found or self._keep(key, self._node[rank], "from_host", self._local[rank], 0)

    def fabric_route(self, nic_a: int, nic_b: int, *, key: int = 0) -> Route | None:
        """Return the way between two NICs, or None where the fabric joins them nowhere.

        `key` is the connection's number: with `ecmp: hash` it picks the path.
        """
        return self.fabric.route(nic_a, nic_b, key)

    def digraph(self) -> networkx.DiGraph:
        """Return the same links as a graph: nodes with `kind`, edges with `link` and its columns.

        For drawing and for questions about the topology; nothing hot uses it.
        """
        import networkx

        graph = networkx.DiGraph(name=self.name)
        for node, template in enumerate(self.spec_of):
            for vertex, kind in self._templates[template].kind_of.items():
                graph.add_node(f"node{node}/{vertex}", kind=kind, node=node)
        for vertex, kind in self.fabric.kind_of.items():
            graph.add_node(vertex, kind=kind, node=-1)
        links = self.links
        for link, (a, b) in enumerate(zip(links.source, links.target, strict=True)):
            graph.add_edge(
                a, b, link=link, kind=links.kinds[link], bandwidth=float(links.bandwidth[link]),
                efficiency=float(links.efficiency[link]), latency=int(links.latency[link]),
            )  # fmt: skip
        return graph

    def _by_nic(self, key: tuple[str, int, int], rank: int, nic: int) -> Route:
        node = self._node[rank]
        if self.nics[nic].node != node:
            raise TopologyError(
                f"rank {rank} is on node {node}, NIC {nic} on node {self.nics[nic].node}: a GPU"
                " reaches only the NICs of its own node."
            )
        return self._keep(key, node, key[0], self._local[rank], self.nics[nic].index)

    def _keep(self, key: tuple[str, int, int], node: int, what: str, a: int, b: int) -> Route:
        """Return a template's route on the links of `node`, and keep it under `key`."""
        template = self.spec_of[node]
        shared = (template, what, a, b)
        if shared not in self._shared:
            self._shared[shared] = self._work_out(self._templates[template], what, a, b)
        route, first = self._shared[shared], self._first_link[node]
        moved = Route(
            tuple([first + link for link in route.link]), route.share, route.hop, route.latency
        )
        self._routes[key] = moved
        return moved

    @staticmethod
    def _work_out(template: Template, what: str, a: int, b: int) -> Route:
        if what == "local":
            return template.local_route(a, b)
        if what == "to_nic":
            return template.tree_route(f"gpu{a}", f"nic{b}")
        if what == "from_nic":
            return template.tree_route(f"nic{b}", f"gpu{a}")
        return template.to_host(a) if what == "to_host" else template.from_host(a)


def _starts(sizes: Sequence[int], template_of: Sequence[int]) -> list[int]:
    """Return the first id of each node, nodes of kind t having `sizes[t]` ids each."""
    counts = np.array(sizes, dtype=np.int64)[list(template_of)]
    starts: list[int] = np.concatenate(([0], np.cumsum(counts)[:-1])).tolist()
    return starts
