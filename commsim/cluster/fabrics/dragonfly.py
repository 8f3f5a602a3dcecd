"""
A dragonfly+: groups of leaves and spines, each leaf joined with each spine of its group, and
direct links between the spines of every two groups.

    nic - leaf - spine - leaf - nic                 within a group
    nic - leaf - spine - spine - leaf - nic         between two groups

After Shpiner et al. 2017, "Dragonfly+: Low cost topology for scaling datacenters" (HiPINEB). The
links of a group to the others are dealt to its spines in turn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from commsim.cluster.fabrics.fabric_section import FabricSpec
from commsim.cluster.fabrics.leaves import Nic
from commsim.cluster.fabrics.wiring import SwitchLink, Wiring, nodes_on_leaves
from commsim.errors import ScenarioError
from commsim.limits import BYTES_PER_LINK, check_size

__all__ = ["dragonfly_wiring"]


def dragonfly_wiring(spec: FabricSpec, nics: Sequence[Nic]) -> Wiring:
    """Return the wiring of a dragonfly+ that holds all nodes.

    `spec.global_links` between two groups: by default so many that, over all other groups, a
    group's are as many as its leaves' uplinks, or just fewer if only those have ports.
    `spec.spines` of a group: by default as few as have the ports.

    Raises:
        ScenarioError: the nodes do not fill whole groups, or fill one only; no number of spines has
            the ports; or there are more links than fit in memory.
    """
    nodes = 1 + max(nic.node for nic in nics)
    per_node = math.ceil(len(nics) / nodes)
    ratio = spec.oversubscription
    per_leaf = spec.nodes_per_leaf or max(1, int(spec.radix * ratio / (1 + ratio)) // per_node)
    in_group = spec.leaves_per_group or spec.radix // 2
    groups = max(1, nodes // (per_leaf * in_group))
    if groups < 2:
        raise ScenarioError(
            f"{spec.where}: {nodes:,} nodes fill one group of {in_group} leaves with {per_leaf}"
            " nodes each, which is a fat_tree. Give leaves_per_group and nodes_per_leaf so that"
            " there are two groups or more."
        )
    at = nodes_on_leaves(spec, nics, per_leaf, groups * in_group)
    uplinks = max(1, math.ceil(per_leaf * per_node / ratio - 1e-9))
    room = max(spec.radix - per_leaf * per_node, uplinks)  # for the uplinks of a leaf
    between, spines = _between_and_spines(spec, groups, in_group, uplinks, room)
    pairs = groups * (groups - 1) // 2
    check_size(
        pairs * min(between, spines * spines),
        BYTES_PER_LINK,
        f"{spec.where}: the links between each two of {groups:,} groups",
        "Give leaves_per_group and nodes_per_leaf, so that groups are larger and fewer.",
    )
    leaves = [f"group{g}/leaf{leaf}" for g in range(groups) for leaf in range(in_group)]
    tops = [f"group{g}/spine{spine}" for g in range(groups) for spine in range(spines)]
    trunk = per_leaf * per_node * nics[0].bandwidth / ratio
    each = math.ceil(uplinks / spines)
    inside = (
        SwitchLink(leaves[g * in_group + leaf], tops[g * spines + s], trunk / spines / each, each)
        for g, leaf, s in itertools.product(range(groups), range(in_group), range(spines))
    )
    rate = spec.link_bandwidth or nics[0].bandwidth
    across = (
        SwitchLink(tops[a], tops[b], rate, count)
        for a, b, count in _across(groups, spines, between)
    )
    kinds = dict.fromkeys(leaves, "leaf") | dict.fromkeys(tops, "spine")
    return Wiring(kinds, (*inside, *across), tuple(leaves[leaf] for leaf in at))


def _between_and_spines(
    spec: FabricSpec, groups: int, leaves: int, uplinks: int, room: int
) -> tuple[int, int]:
    """Return the links between each two groups, and the spines of a group."""
    balanced = leaves * uplinks / (groups - 1)
    wanted = (spec.global_links,) if spec.global_links else (math.ceil(balanced), int(balanced))
    for between in wanted:
        to_others = max(between, 1) * (groups - 1)
        spines = spec.spines or _fewest_spines(spec.radix, leaves, uplinks, room, to_others)
        if spines:
            return max(between, 1), spines
    raise ScenarioError(
        f"{spec.where}: a group's {leaves * uplinks:,} links to its leaves and {to_others:,} to"
        f" {groups - 1:,} other groups fit on no spines of radix {spec.radix}. Give another radix,"
        " fewer global_links, or larger and fewer groups (leaves_per_group, nodes_per_leaf); or"
        " spines, whose ports are not counted then."
    )


def _fewest_spines(radix: int, leaves: int, uplinks: int, room: int, to_others: int) -> int:
    """Return how many spines of `radix` ports hold a group's links to its leaves and to others.

    Each leaf is joined alike with each spine, by `room` cables at most. 0: no number does.
    """
    for spines in range(1, uplinks + 1):
        each = math.ceil(uplinks / spines)
        if leaves * each + math.ceil(to_others / spines) <= radix and each * spines <= room:
            return spines
    return 0


def _across(groups: int, spines: int, between: int) -> Iterator[tuple[int, int, int]]:
    """Yield the pairs of spines of different groups that are joined, and by how many cables."""
    for g, h in itertools.combinations(range(groups), 2):
        cables: dict[tuple[int, int], int] = {}
        for link in range(between):  # the peers of g without itself: h is the (h - 1)-th
            a, b = ((h - 1) * between + link) % spines, (g * between + link) % spines
            cables[a, b] = cables.get((a, b), 0) + 1
        for (a, b), count in cables.items():
            yield g * spines + a, h * spines + b, count
