"""
The way to a switch that works along: the first half of the way through it, or the second.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commsim.cluster import Cluster, Links, Route
from commsim.collectives import IN_NODE, Program
from commsim.errors import ScenarioError
from commsim.libraries.routing.routes import Router

__all__ = ["switch_routes"]


def switch_routes(
    program: Program, ranks: Sequence[int], router: Router
) -> dict[tuple[int, int], Route]:
    """Return the route of each pair of a rank and a switch; position p is taken by `ranks[p]`.

    An NVSwitch is where the NVLink between two of its GPUs meets. A network switch is the leaf
    at the rank's NIC: all ranks that add up the same chunk must hang on the same one.

    Raises:
        ScenarioError: no switch there that could add or multicast.
    """
    found: dict[tuple[int, int], Route] = {}
    hanging: dict[int, list[int]] = {}
    for a, b in sorted(set(zip(program.source.tolist(), program.target.tolist(), strict=True))):
        if max(a, b) >= program.n:
            hanging.setdefault(max(a, b), []).append(min(a, b))
    links = router.cluster.links
    leaf: dict[int, str] = {}
    for switch, positions in hanging.items():
        members = list(dict.fromkeys(positions))
        node = program.switches[switch - program.n] == IN_NODE
        if not node and not router.cluster.fabric.spec.sharp:
            raise ScenarioError(
                f"{program.algorithm}: needs switches that add up, and the fabric has `sharp:"
                " false`. Use ring or tree, or take that out."
            )
        if node:
            _check_nvlink([ranks[at] for at in members], router.cluster, program.algorithm)
        for at in members:
            peer = _peer(at, members, ranks, router, node, program.algorithm)
            up = _until_switch(
                router.route(ranks[at], peer), router.cluster, node, program.algorithm
            )
            down = _from_switch(router.route(peer, ranks[at]), links)
            leaf[at] = links.target[up.link[-1]]
            found[at, switch], found[switch, at] = up, down
    _check_leaves(program, leaf, ranks)
    return found


def _peer(
    at: int, members: Sequence[int], ranks: Sequence[int], router: Router, node: bool, name: str
) -> int:
    """Return a rank to which the way leads through the switch."""
    cluster = router.cluster
    home = cluster.domain_of(ranks[at])
    others = [ranks[m] for m in members if m != at]
    there = [rank for rank in others if (cluster.domain_of(rank) == home) == node]
    local = cluster.local_of[ranks[at]]  # on the same rail, so that the way is by the own NIC
    if there:
        return min(there, key=lambda rank: int(cluster.local_of[rank] != local))
    if node:
        raise ScenarioError(
            f"{name}: rank {ranks[at]} shares no NVSwitch with another of its group."
        )
    raise ScenarioError(
        f"{name}: all ranks are on one node, where the network has nothing to add. Use nvls or"
        " ring."
    )


def _check_nvlink(ranks: Sequence[int], cluster: Cluster, name: str) -> None:
    """Refuse an NVSwitch that cannot multicast, or that not all of the ranks hang on."""
    for rank in ranks:
        if cluster.domain_of(rank) != cluster.domain_of(ranks[0]):
            raise ScenarioError(
                f"{name}: ranks {ranks[0]} and {rank} are in different NVLink domains. Use"
                " nvls_tree, ring or tree."
            )
        if not cluster.gpu(rank).multicast:
            raise ScenarioError(
                f"{name}: the NVLink of {cluster.gpu(rank).name} neither adds nor multicasts (NVLS"
                " came with H100). Use ring or tree."
            )


def _until_switch(route: Route, cluster: Cluster, node: bool, name: str) -> Route:
    """Return a route's part up to the first switch that can add."""
    kind, links, leaves = "nvlink" if node else "network", cluster.links, cluster.fabric.kind_of
    for at, link in enumerate(route.link):
        end = links.target[link]
        if links.kinds[link] == kind and ("nvswitch" in end or leaves.get(end) == "leaf"):
            return _part(route, 0, route.hop[at] + 1, links)
    where = "an NVSwitch between the GPUs" if node else "a network switch"
    raise ScenarioError(f"{name}: needs {where}, and this cluster has none. Use ring or tree.")


def _from_switch(route: Route, links: Links) -> Route:
    """Return a route's part from the last switch on."""
    last = max(
        hop
        for link, hop in zip(route.link, route.hop, strict=True)
        if links.kinds[link] in ("nvlink", "network")
    )
    return _part(route, last, route.hop[-1] + 1, links)


def _part(route: Route, first: int, end: int, links: Links) -> Route:
    """Return the hops `first` to `end` - 1 of a route."""
    chosen = [i for i, hop in enumerate(route.hop) if first <= hop < end]
    slowest: dict[int, int] = {}
    for i in chosen:
        hop = route.hop[i] - first
        slowest[hop] = max(slowest.get(hop, 0), int(links.latency[route.link[i]]))
    return Route(
        tuple(route.link[i] for i in chosen),
        tuple(route.share[i] for i in chosen),
        tuple(route.hop[i] - first for i in chosen),
        sum(slowest.values()),
    )


def _check_leaves(program: Program, leaf: dict[int, str], ranks: Sequence[int]) -> None:
    """Refuse a chunk that would have to pass several leaf switches to be added or handed out."""
    first: dict[int, int] = {}
    source, target = program.source[program.message], program.target[program.message]
    places = np.maximum(source, target) * len(program.share) + program.chunk
    by_switch = np.maximum(source, target) >= program.n
    ends = np.minimum(source, target)
    for rank, place in np.unique(np.stack((ends[by_switch], places[by_switch])), axis=1).T.tolist():
        other = first.setdefault(place, rank)
        if leaf[other] != leaf[rank]:
            raise ScenarioError(
                f"{program.algorithm}: ranks {ranks[other]} and {ranks[rank]} hang on the switches"
                f" {leaf[other]} and {leaf[rank]}. The ideal library adds and multicasts within"
                " one leaf only: use fabric kind single_switch, one rank per node, or another"
                " algorithm."
            )
