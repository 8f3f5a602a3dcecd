"""
What NCCL knows of a group after init: its graphs, channels, rings, trees and NICs.

Nodes of one structure are searched once, and the answers kept: what a node finds depends on its
topology, on the environment and on whether the group goes beyond it, not on which node it is.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from commsim.arrays import Ints32
from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.libraries.nccl.communicator.agreement import agreed, common_cpu
from commsim.libraries.nccl.communicator.connect import Chains, connect_rings, connect_trees
from commsim.libraries.nccl.communicator.domains import Domain, DomainWriter, numbered_from_zero
from commsim.libraries.nccl.communicator.execution_channels import (
    execution_order,
    in_local_ranks,
    with_nvls_channels,
)
from commsim.libraries.nccl.communicator.net_ends import PlacedNode, net_ends
from commsim.libraries.nccl.communicator.node import NodeView, parts, view
from commsim.libraries.nccl.env import Knobs, knobs_of
from commsim.libraries.nccl.shapes import (
    Communicator,
    NetEnds,
    SearchGraph,
    Trees,
)
from commsim.libraries.nccl.topology import (
    UNKNOWN_CAPABILITY,
    read_xml,
    rules_of,
    system_of,
)

__all__ = ["communicator_from_xml", "communicator_of"]

Environment = Knobs | Mapping[str, str | int | bool]


def communicator_of(
    cluster: Cluster,
    gpus: Sequence[int],
    *,
    version: str = "2.27",
    env: Environment | None = None,
) -> Communicator:
    """Return what NCCL knows of a group of GPUs (global numbers; rank r on `gpus[r]`).

    Raises:
        ScenarioError: an unknown version or variable, a GPU that is none or stands twice, ranks
            on CPUs, or a node without a NIC in a group that needs one.
    """
    knobs = _knobs(env)
    _check(cluster, gpus)
    warnings = _warnings(cluster, gpus)
    domains: dict[int, dict[int, int]] = {}
    # NCCL_MNNVL_ENABLE=0: machines of one NVLink domain count one by one.
    homes = cluster.domains if knobs.mnnvl_enable else cluster.node_of
    for rank, gpu in enumerate(gpus):
        domains.setdefault(int(homes[gpu]), {})[gpu] = rank
    describe = DomainWriter(cluster, knobs, version=version)
    comm = _communicator([describe.domain(ranks) for ranks in domains.values()], version, knobs)
    return replace(comm, notes=(*comm.notes, *warnings))


def communicator_from_xml(
    text: str,
    *,
    nodes: int = 1,
    version: str = "2.27",
    env: Environment | None = None,
    source: str = "topology",
) -> Communicator:
    """Return what NCCL knows of all GPUs of `nodes` machines (or domains) that look like this.

    Raises:
        ScenarioError: the text is no topology (`source` says which file), or as for
            `communicator_of`.
    """
    knobs = _knobs(env)
    if nodes < 1:
        raise ScenarioError(f"{nodes} is not a count of nodes. Give 1 or more.")
    system = system_of(read_xml(text, source), source, rules_of(version))
    ranks = sorted(gpu.rank for gpu in system.gpus)
    if len(dict.fromkeys(ranks)) < len(ranks):
        raise ScenarioError(f"{source}: two GPUs have one rank. Give each its own.")
    text = numbered_from_zero(text, source, {rank: place for place, rank in enumerate(ranks)})
    nets = sorted((net.host, net.number) for net in system.nets)
    domains = [
        Domain(
            text,
            source,
            knobs,
            tuple(range(node * len(ranks), (node + 1) * len(ranks))),
            {net: node * len(nets) + index for index, net in enumerate(nets)},
        )
        for node in range(nodes)
    ]
    return _communicator(domains, version, knobs)


def _knobs(env: Environment | None) -> Knobs:
    return env if isinstance(env, Knobs) else knobs_of(env or {})


def _check(cluster: Cluster, gpus: Sequence[int]) -> None:
    wrong = [gpu for gpu in gpus if not 0 <= gpu < cluster.world_size]
    if wrong or not gpus:
        what = f"there is no GPU {wrong[0]}" if wrong else "a group needs a GPU"
        raise ScenarioError(
            f"{what}: the cluster's are counted from 0 to {cluster.world_size - 1}."
        )
    if len(dict.fromkeys(gpus)) < len(gpus):
        raise ScenarioError("a GPU stands twice in a group; NCCL takes one rank per GPU.")


def _warnings(cluster: Cluster, gpus: Sequence[int]) -> list[str]:
    """Return warnings on kinds of GPU that NCCL's rules do not fit.

    Raises:
        ScenarioError: one of the ranks is on a CPU.
    """
    kinds = dict.fromkeys(cluster.spec_of[node] for node in cluster.node_of[list(gpus)].tolist())
    warnings = []
    for gpu in (cluster.specs[kind].gpu for kind in kinds):
        if gpu.device == "cpu":
            raise ScenarioError(
                "NCCL runs on GPUs, and a rank of this group is on a CPU. Take library: gloo."
            )
        if not gpu.sm:
            warnings.append(
                f"{gpu.name}: no NVIDIA compute capability; NCCL's rules for {UNKNOWN_CAPABILITY}"
                " are taken."
            )
    return warnings


@functools.lru_cache(maxsize=256)
def _views(text: str, source: str, version: str, knobs: Knobs, alone: bool) -> tuple[NodeView, ...]:
    """Return the nodes of a domain as NCCL sees them; `alone`: the group is in this domain."""
    root, rules = read_xml(text, source), rules_of(version)
    groups = parts(root, source, rules, knobs)
    inter = not alone or len(groups) > 1
    found = [view(root, source, rules, knobs, ranks=own, inter=inter) for own in groups]
    if len(groups) > 1:
        note = f"NCCL treats the {len(groups)} parts of a node as nodes: NICs are faster between."
        found[0] = replace(found[0], notes=(*found[0].notes, note))
    return tuple(found)


def _communicator(domains: Sequence[Domain], version: str, knobs: Knobs) -> Communicator:
    """Return the communicator of these domains."""
    nodes = _place(domains, version)
    count = sum(len(node.ranks) for node in nodes)
    views = list(dict.fromkeys(node.view for node in nodes))
    for one in views:
        if len(nodes) > 1 and not one.nets:
            raise ScenarioError(
                f"{domains[0].source}: a node without a NIC cannot be in a group of {len(nodes)}"
                " nodes. Give it one and a fabric, or keep the group within the node."
            )
    graphs = agreed(views)
    collnet = _has_collnet(graphs, knobs, len(nodes))
    if not collnet:
        graphs = {name: g for name, g in graphs.items() if not name.startswith("collnet")}
    rings, trees = _connect(nodes, graphs, count)
    order = execution_order(
        graphs,
        views,
        knobs,
        nodes=len(nodes),
        ranks=count,
        collnet=collnet,
        most=rules_of(version).max_channels,
    )
    arch, vendor = common_cpu(views)
    nvls = graphs.get("nvls")
    comm = Communicator(
        version=version,
        node_of=_node_of(nodes, count),
        local_ranks=tuple(len(node.ranks) for node in nodes),
        min_compute_capability=min(one.capability[0] for one in views),
        max_compute_capability=max(one.capability[1] for one in views),
        cpu_arch=arch,
        cpu_vendor=vendor,
        nvswitch=all(one.nvswitch for one in views),
        max_bw=nodes[0].view.max_bw,
        total_bw=nodes[0].view.total_bw,
        graphs={name: in_local_ranks(graph, nodes[0]) for name, graph in graphs.items()},
        channels=len(order),
        rings=rings[[channel % len(rings) for channel in order]],
        trees=Trees(trees.up[order], trees.down[order]),
        nets=_nets(nodes, graphs),
        gdr=all(one.gdr for one in views),
        peer_access=all(one.peer_access for one in views),
        nvls_support=nvls is not None and nvls.n_channels > 0,
        collnet_support=collnet,
        net_bandwidth=min(one.net_bandwidth for one in views),
        local_nets=min(one.local_nets for one in views),
        peer_nvlinks=min(one.peer_nvlinks for one in views),
        notes=tuple(dict.fromkeys([*knobs.notes, *(n for one in views for n in one.notes)])),
    )
    return with_nvls_channels(comm, knobs)


def _place(domains: Sequence[Domain], version: str) -> list[PlacedNode]:
    """Return the nodes in the order in which their first ranks appear."""
    nodes = []
    for domain in domains:
        ranks = np.array(domain.ranks, dtype=np.int32)
        for one in _views(domain.text, domain.source, version, domain.knobs, len(domains) == 1):
            nics = np.array([domain.nics[net] for net in one.nets], dtype=np.int32)
            nodes.append(PlacedNode(one, ranks[list(one.ranks)], nics))
    return sorted(nodes, key=lambda node: int(node.ranks.min()))


def _node_of(nodes: Sequence[PlacedNode], count: int) -> tuple[int, ...]:
    found = np.empty(count, dtype=np.int64)
    for index, node in enumerate(nodes):
        found[node.ranks] = index
    return tuple(found.tolist())


def _has_collnet(graphs: Mapping[str, SearchGraph], knobs: Knobs, nodes: int) -> bool:
    chain = graphs.get("collnet_chain")
    enough = nodes >= knobs.collnet_node_threshold
    return chain is not None and chain.n_channels > 0 and enough


def _connect(
    nodes: Sequence[PlacedNode], graphs: Mapping[str, SearchGraph], count: int
) -> tuple[Ints32, Trees]:
    channels = graphs["ring"].n_channels
    rings = connect_rings([_chains(node, "ring") for node in nodes], channels)
    return rings, connect_trees([_chains(node, "tree") for node in nodes], channels, count)


def _chains(node: PlacedNode, name: str) -> Chains:
    graph = node.view.graphs[name]
    order = np.array([channel.intra for channel in graph.channels], dtype=np.int32)
    return Chains(graph, node.ranks[order])


def _nets(nodes: Sequence[PlacedNode], graphs: Mapping[str, SearchGraph]) -> Mapping[str, NetEnds]:
    return net_ends(nodes, graphs) if len(nodes) > 1 else {}
