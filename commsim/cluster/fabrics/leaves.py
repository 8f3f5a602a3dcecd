"""
Which leaf switch each NIC hangs on: all that tells one kind of fabric from another.

    single_switch    one leaf for all
    rail_only        leaf r holds rail r of every node; nothing above
    rail_optimized   the same within a pod of nodes; spines above
    fat_tree         a leaf holds all NICs of a few nodes; spines above

Nodes are spread over the leaves (pods) that are needed as equally as can be: one node alone on the
last leaf would have a fraction of the others' uplinks, and hold all of them up. Where
`nodes_per_leaf` is given, leaves are filled one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from commsim.cluster.fabrics.fabric_section import FabricSpec

__all__ = ["Leaves", "Nic", "hang"]


class Nic(msgspec.Struct, frozen=True):
    """One NIC: its node, its number there, its rail, and its link.

    `bandwidth` is raw bytes/s per direction, `efficiency` its payload share, `latency` in ps;
    `gdr`: it reaches GPU memory by itself. `index` counts the NICs that the node has, `number` is
    what the node calls it: another one only where NICs are gone.
    """

    node: int
    index: int
    rail: int
    bandwidth: float
    efficiency: float
    latency: int
    medium: str
    transport: str
    gdr: bool
    number: int

    @property
    def name(self) -> str:
        """ "node1/nic6"."""
        return f"node{self.node}/nic{self.number}"


class Leaves(msgspec.Struct, frozen=True):
    """The leaves' names, the leaf of each NIC, and the group of spines above each leaf."""

    names: tuple[str, ...]
    of: tuple[int, ...]
    group: tuple[int, ...]


def hang(nics: Sequence[Nic], spec: FabricSpec) -> Leaves:
    """Return the leaves that a fabric needs for these NICs."""
    pod_of = _pods(nics, spec)
    keys = [_key(nic, spec.kind, pod_of) for nic in nics]
    order = sorted(dict.fromkeys(keys))
    number = {key: index for index, key in enumerate(order)}
    pods = 1 + max((pod for pod, _ in order), default=0)
    names = tuple(_name(spec.kind, pod, rail, pods) for pod, rail in order)
    return Leaves(names, tuple(number[key] for key in keys), _groups(order, spec.ports))


def _pods(nics: Sequence[Nic], spec: FabricSpec) -> Sequence[int]:
    """Return the leaf (of rails: the pod) of each node."""
    nodes = 1 + max((nic.node for nic in nics), default=0)
    if spec.nodes_per_leaf:
        return [node // spec.nodes_per_leaf for node in range(nodes)]
    pods = math.ceil(nodes / _nodes_per_leaf(nics, spec))
    return [node * pods // nodes for node in range(nodes)]


def _key(nic: Nic, kind: str, pod_of: Sequence[int]) -> tuple[int, int]:
    """Return the (pod, rail) whose leaf a NIC hangs on."""
    if kind == "rail_only":
        return 0, nic.rail
    if kind == "rail_optimized":
        return pod_of[nic.node], nic.rail
    return (pod_of[nic.node] if kind == "fat_tree" else 0), 0


def _name(kind: str, pod: int, rail: int, pods: int) -> str:
    if kind == "single_switch":
        return "switch"
    if kind == "fat_tree":
        return f"leaf{pod}"
    return f"leaf{rail}" if pods == 1 else f"pod{pod}/leaf{rail}"


def _nodes_per_leaf(nics: Sequence[Nic], spec: FabricSpec) -> int:
    """Return the nodes that a leaf has room for, `radix` ports split by the oversubscription."""
    ratio = spec.oversubscription
    down = int(spec.ports * ratio / (1 + ratio))
    per_node = 1
    if spec.kind == "fat_tree":
        per_node = 1 + max((nic.index for nic in nics), default=0)
    return max(1, down // per_node)


def _groups(order: Sequence[tuple[int, int]], radix: int) -> tuple[int, ...]:
    """Return each leaf's group: one group while a spine has a port for every leaf.

    Past that, spines keep half their ports for cores, and a group holds whole pods.
    """
    if len(order) <= radix:
        return (0,) * len(order)
    per_pod = max(1, len(order) // (1 + order[-1][0]))
    pods = max(1, radix // 2 // per_pod)
    return tuple(pod // pods for pod, _ in order)
