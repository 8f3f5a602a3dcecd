"""
The routes of messages between ranks of a communicator, by the NICs that NCCL gives them.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Ints
from commsim.cluster import Route
from commsim.libraries.expansion import Connections
from commsim.libraries.nccl.plans.group import NcclGroup

__all__ = ["route_of", "routes_between"]


def route_of(group: NcclGroup, connections: Connections, at: int) -> Route:
    """Return the route of one connection."""
    c = connections
    source, target, out = int(c.source[at]), int(c.target[at]), int(c.out[at])
    if out < 0:
        return group.router.route(source, target)
    into, relay = int(c.into[at]), int(c.relay[at])
    return group.router.by_nics(source, target, out=out, into=into, relay=relay)


def routes_between(group: NcclGroup, source: Ints, target: Ints) -> tuple[Route, ...]:
    """Return the route of a send from each member to each other; no pair twice.

    Where a GPU has several NICs, each carries its part of every message.
    """
    pairs = group.edges.pairs(source, target, 1.0)
    ways: dict[tuple[int, int], list[Route]] = {}
    for at, ends in enumerate(zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)):
        ways.setdefault(ends, []).append(route_of(group, pairs, at))
    asked = zip(group.gpus[source].tolist(), group.gpus[target].tolist(), strict=True)
    return tuple(_side_by_side(ways[pair]) for pair in asked)


def _side_by_side(ways: list[Route]) -> Route:
    """Return several ways as one, hop by hop, each with an even share."""
    if len(ways) == 1:
        return ways[0]
    carried: dict[tuple[int, int], float] = {}  # a link once in a hop, with all that it carries
    for way in ways:
        for link, share, hop in zip(way.link, way.share, way.hop, strict=True):
            carried[hop, link] = carried.get((hop, link), 0.0) + share / len(ways)
    hops, links = zip(*sorted(carried), strict=True)
    shares = tuple(carried[place] for place in sorted(carried))
    return Route(links, shares, hops, int(np.max([way.latency for way in ways])))
