"""
Which leaf switch each NIC hangs on: all that tells one kind of fabric from another.

    single_switch    one leaf for all
    rail_only        leaf r holds rail r of every node; nothing above
    rail_optimized   the same within a pod of nodes; spines above
    fat_tree         a leaf holds all NICs of a few nodes; spines above
"""

from __future__ import annotations

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
    width = spec.nodes_per_leaf or _nodes_per_leaf(nics, spec)
    keys = [_key(nic, spec.kind, width) for nic in nics]
    order = sorted(dict.fromkeys(keys))
    number = {key: index for index, key in enumerate(order)}
    pods = 1 + max((pod for pod, _ in order), default=0)
    names = tuple(_name(spec.kind, pod, rail, pods) for pod, rail in order)
    return Leaves(names, tuple(number[key] for key in keys), _groups(order, spec.ports))


def _key(nic: Nic, kind: str, width: int) -> tuple[int, int]:
    """Return the (pod, rail) whose leaf a NIC hangs on."""
    if kind == "rail_only":
        return 0, nic.rail
    if kind == "rail_optimized":
        return nic.node // width, nic.rail
    return (nic.node // width if kind == "fat_tree" else 0), 0


def _name(kind: str, pod: int, rail: int, pods: int) -> str:
    if kind == "single_switch":
        return "switch"
    if kind == "fat_tree":
        return f"leaf{pod}"
    return f"leaf{rail}" if pods == 1 else f"pod{pod}/leaf{rail}"


def _nodes_per_leaf(nics: Sequence[Nic], spec: FabricSpec) -> int:
    """Return how many nodes fill a leaf, `radix` ports being split by the oversubscription."""
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
