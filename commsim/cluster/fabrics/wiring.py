"""
Switches and the cables between them, before they are links: what a fabric that is no tree is.

`torus`, `dragonfly` and `fabric_graph` return a `Wiring`; `graph_fabric` finds ways through it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from commsim.cluster.fabrics.bill import FabricParts
from commsim.cluster.fabrics.fabric_section import FabricSpec
from commsim.cluster.fabrics.leaves import Nic
from commsim.errors import ScenarioError

__all__ = ["SwitchLink", "Wiring", "levels", "nodes_on_leaves", "wiring_parts"]


class SwitchLink(msgspec.Struct, frozen=True):
    """`count` cables between two switches: bytes/s of each per direction, latency in ps.

    `latency` None takes the fabric's cables'.
    """

    a: str
    b: str
    bandwidth: float
    count: int = 1
    latency: int | None = None


class Wiring(msgspec.Struct, frozen=True):
    """Each switch with its kind (leaf, spine, core), their links, and the switch of each NIC.

    `dims`: routers per dimension, of a torus.
    """

    kind_of: dict[str, str]
    links: tuple[SwitchLink, ...]
    leaf_of: tuple[str, ...]
    dims: tuple[int, ...] = ()


def nodes_on_leaves(spec: FabricSpec, nics: Sequence[Nic], per_leaf: int, leaves: int) -> list[int]:
    """Return the leaf of each NIC where so many nodes in a row share a leaf.

    Raises:
        ScenarioError: the nodes do not fill the leaves.
    """
    nodes = 1 + max(nic.node for nic in nics)
    if nodes != per_leaf * leaves:
        each = f" with {per_leaf:,} nodes on each" if per_leaf > 1 else ""
        raise ScenarioError(
            f"{spec.where}: the {spec.kind} has {leaves:,} leaves{each}, and there are {nodes:,}"
            " nodes. Make them equal."
        )
    return [nic.node // per_leaf for nic in nics]


def levels(links: Sequence[SwitchLink], leaves: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return each switch's kind: a leaf holds NICs, a spine is next to one, the rest are cores."""
    near = set(leaves)
    next_to = {b for link in links for a, b in _ways(link) if a in near}
    return ["leaf" if n in near else "spine" if n in next_to else "core" for n in names]


def _ways(link: SwitchLink) -> tuple[tuple[str, str], tuple[str, str]]:
    return (link.a, link.b), (link.b, link.a)


def wiring_parts(wiring: Wiring, spec: FabricSpec) -> FabricParts:
    """Return what the fabric is built of: its own switches and cables, as they stand."""
    ports = Counter(wiring.leaf_of)
    for link in wiring.links:
        ports[link.a] += link.count
        ports[link.b] += link.count
    fullest = max(ports, key=lambda name: ports[name])
    kinds = Counter(wiring.kind_of.values())
    wrong = ""
    if ports[fullest] > spec.radix:
        wrong = (
            f"{fullest} of this {spec.kind} needs {ports[fullest]:,} ports, and a switch has radix"
            f" {spec.radix}. Give another radix, or fewer links."
        )
    return FabricParts(
        leaves=kinds["leaf"],
        spines=kinds["spine"],
        cores=kinds["core"],
        nic_cables=len(wiring.leaf_of),
        trunk_cables=sum(link.count for link in wiring.links),
        wrong=wrong,
    )
