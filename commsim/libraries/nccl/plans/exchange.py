"""
All-to-all among many ranks: the loads of all pairs without going through the pairs.

Where every node has the same GPUs of the group, traffic is uniform and counts are enough: what
one node sends to one other tells what any sends to any, and leaves see only how many nodes hang
on them.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Floats, Ints
from commsim.cluster import Cluster, Route
from commsim.libraries.expansion import Connections, LinkLoads, loads_of
from commsim.libraries.nccl.plans.edges import CommunicatorEdges
from commsim.libraries.routing import Router

__all__ = ["exchange_loads", "identical_nodes"]


def identical_nodes(edges: CommunicatorEdges) -> list[int]:
    """Return the nodes of a group if it has the same GPUs in each, at least two; else []."""
    cluster, gpus = edges.cluster, edges.gpus
    nodes = list(dict.fromkeys(cluster.node_of[gpus].tolist()))
    places = {
        (cluster.spec_of[node], tuple(cluster.local_of[gpus[cluster.node_of[gpus] == node]]))
        for node in nodes
    }
    alone = cluster.node_spec(int(gpus[0])).domain_nodes == 1
    return nodes if len(places) == 1 and len(nodes) > 1 and alone else []


def exchange_loads(edges: CommunicatorEdges, nodes: list[int], router: Router) -> LinkLoads:
    """Return what an all-to-all between `identical_nodes` does to the links, as shares of S."""
    cluster = edges.cluster
    first, other = (np.flatnonzero(cluster.node_of[edges.gpus] == node) for node in nodes[:2])
    share = 1 / len(edges.gpus)
    ways = edges.pairs(np.repeat(first, len(other)), np.tile(other, len(first)), share)
    a, b = np.repeat(first, len(first)), np.tile(first, len(first))
    near = edges.pairs(a[a != b], b[a != b], share)
    rows = [
        *_everywhere(loads_of(near, router), nodes, nodes[0], cluster, 1),
        *_ends(ways, nodes, router),
        *_trunks(ways, nodes, cluster),
    ]
    link, load, conns = (np.concatenate(column) for column in zip(*rows, strict=True))
    used, where = np.unique(link, return_inverse=True)
    return LinkLoads(
        used,
        np.bincount(where, weights=load).astype(np.float64),
        np.bincount(where, weights=conns).astype(np.float64),
    )


Row = tuple[Ints, Floats, Floats]


def _ends(ways: Connections, nodes: list[int], router: Router) -> list[Row]:
    """Return the loads within nodes, and of their NICs, of what goes to the other nodes."""
    cluster, times = router.cluster, len(nodes) - 1
    loads = loads_of(ways, router)
    rows: list[Row] = []
    for node in nodes[:2]:  # the first sends, the second receives: disjoint links
        rows += _everywhere(loads, nodes, node, cluster, times)
    for nics, direction in ((ways.out, 0), (ways.into, 1)):
        used, where = np.unique(nics, return_inverse=True)
        share = np.bincount(where, weights=ways.share).astype(np.float64) * times
        count = np.bincount(where).astype(np.float64) * times
        home = int(cluster.nics[int(used[0])].node)
        for node in nodes:
            shift = cluster.first_nic(node) - cluster.first_nic(home)
            ports = [cluster.fabric.nic_link(nic + shift) + direction for nic in used.tolist()]
            rows.append((np.array(ports), share, count))
    return rows


def _everywhere(
    loads: LinkLoads, nodes: list[int], node: int, cluster: Cluster, times: int
) -> list[Row]:
    """Return the part of `loads` within `node`, on the links of all nodes."""
    low = cluster.first_link(node)
    high = low + len(cluster.template(cluster.spec_of[node]).rows)
    mine = (loads.link >= low) & (loads.link < high)
    starts = np.array([cluster.first_link(other) for other in nodes])
    link = (starts[:, None] + (loads.link[mine] - low)).reshape(-1)
    return [
        (
            link,
            np.tile(loads.share[mine] * times, len(nodes)),
            np.tile(loads.conns[mine] * times, len(nodes)),
        )
    ]


def _trunks(ways: Connections, nodes: list[int], cluster: Cluster) -> list[Row]:
    """Return the loads between leaves: nodes on the same leaves are counted together."""
    fabric = cluster.fabric
    pairs, where = np.unique(np.stack((ways.out, ways.into)), axis=1, return_inverse=True)
    share = np.bincount(where.reshape(-1), weights=ways.share).astype(np.float64)
    count = np.bincount(where.reshape(-1)).astype(np.float64)
    out, into = pairs[0] - cluster.first_nic(nodes[0]), pairs[1] - cluster.first_nic(nodes[1])
    used = np.unique(np.concatenate((out, into))).tolist()
    pods: dict[tuple[int, ...], list[int]] = {}
    for node in nodes:
        first = cluster.first_nic(node)
        pods.setdefault(tuple(fabric.leaves.of[first + nic] for nic in used), []).append(node)
    total: dict[tuple[int, int], tuple[float, float]] = {}
    ends = list(zip(out.tolist(), into.tolist(), share.tolist(), count.tolist(), strict=True))
    for here in pods.values():
        for there in pods.values():
            times = len(here) * (len(there) - (1 if here is there else 0))
            if not times:
                continue
            first_a = cluster.first_nic(here[0])
            first_b = cluster.first_nic(there[1] if here is there else there[0])
            for leave, enter, carried, conns in ends:
                pair = fabric.leaves.of[first_a + leave], fabric.leaves.of[first_b + enter]
                load, many = total.get(pair, (0.0, 0.0))
                total[pair] = load + carried * times, many + conns * times
    return _between(total, cluster)


def _between(total: dict[tuple[int, int], tuple[float, float]], cluster: Cluster) -> list[Row]:
    """Return the loads on the links between switches of what pairs of leaves carry.

    Evenly over equal paths even where each connection takes one by its hash: of so many, every
    path gets about as many.
    """
    rows = []
    loads = np.array(list(total.values()))
    for route, (load, conns) in zip(
        cluster.fabric.leaf_routes(list(total), loads[:, 0]), loads.tolist(), strict=True
    ):
        assert isinstance(route, Route)
        link, part = np.array(route.link, dtype=np.int64), np.array(route.share[1:-1])
        rows.append((link, part * load, part * conns))
    return rows
