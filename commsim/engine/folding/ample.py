"""
Ample links: links between switches that can never be full. They do not distinguish ranks.

What goes up a link between switches has come into its lower end from below, over links that are
slower or fewer. If all of these together, at full speed, put no more on it than it carries, it
never limits a flow: with or without it the fair shares are the same. Likewise for what goes down
and leaves its lower end downwards. In a fabric without oversubscription that is every link above
the leaves; without these links, nodes that cross different leaves fold together.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Bools, Floats, Ints, distinct
from commsim.cluster import Cluster, LinkEnds
from commsim.engine.folding.refinement import Entries

__all__ = ["ample_links"]

_EXACT = 1 + 1e-9  # rounding of capacities that are sums


def ample_links(entries: Entries, cluster: Cluster) -> Bools:
    """Return the links that cannot be full under any mixture of the plans of `entries`.

    Each phase of a plan moves its loads together: what it puts on a link is at most `share` of
    what it puts on the links below, and those carry at most their capacities. In a fabric that is
    no tree, traffic also comes from beside and from above: none of its links is ample.
    """
    links = cluster.links
    ample = np.zeros(len(links), np.bool_)
    if not cluster.fabric.is_tree:
        return ample
    source, target = cluster.ends.source, cluster.ends.target
    level = _levels(cluster.ends)
    up = (level[source] > 0) & (level[target] == level[source] + 1)
    down = (level[target] > 0) & (level[source] == level[target] + 1)
    if not (up | down).any():
        return ample
    used = entries.on(len(links))[: len(links)]  # a library's own links have no ends
    for rows, end, feeds in (
        (up, source, (level[target] == level[source] + 1, target)),
        (down, target, (level[source] == level[target] + 1, source)),
    ):
        feeding, at = feeds
        below = np.bincount(
            at[feeding & used], weights=links.capacity[feeding & used], minlength=len(level)
        )
        share = _largest_share(entries, rows, end, feeding, at)
        bound = share * below[end]
        ample |= rows & used & (bound <= links.capacity * _EXACT)
    return ample


def _largest_share(entries: Entries, rows: Bools, end: Ints, feeding: Bools, at: Ints) -> Floats:
    """Return per link the most that a phase puts on it, as a share of what it puts on those below.

    `end` is the lower end of each of `rows`, `at` the end at which each of `feeding` meets it.
    """
    nodes = int(max(end.max(), at.max())) + 1
    phases = int(entries.flows.phase.max(initial=0)) + 1
    largest = np.zeros(len(end))
    for own in entries.in_parts():
        part = own.of_links(rows | feeding)
        phase = part.plan.astype(np.int64) * phases + part.phase  # times nodes: beyond 32 bits
        link, load = part.link, part.load
        fed = feeding[link]
        keys, where = np.unique(phase[fed] * nodes + at[link[fed]], return_inverse=True)
        below = np.bincount(where, weights=load[fed], minlength=len(keys))
        mine = rows[link]
        key = phase[mine] * nodes + end[link[mine]]
        place = np.minimum(np.searchsorted(keys, key), max(len(keys) - 1, 0))
        known = keys[place] == key if len(keys) else np.zeros(len(key), np.bool_)
        share = np.full(len(key), np.inf)
        share[known] = load[mine][known] / below[place[known]]
        np.maximum.at(largest, link[mine], share)
    return largest


def _levels(ends: LinkEnds) -> Ints:
    """Return how far each device is from a NIC over the network.

    -1 off the network. NICs are the ends that it shares with other links.
    """
    source, target, network = ends.source, ends.target, ends.kind == "network"
    level = np.full(len(ends.number), -1)
    inside = np.zeros(len(level), np.bool_)
    inside[source[~network]] = inside[target[~network]] = True
    joined = distinct(np.concatenate((source[network], target[network])))
    level[joined[inside[joined]]] = 0
    reached = 0
    while True:
        fresh = target[network & (level[source] == reached) & (level[target] < 0)]
        if not fresh.size:
            return level
        reached += 1
        level[fresh] = reached
