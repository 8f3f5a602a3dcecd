"""
Nodes with NICs that are gone: a kind of their own, else as they were.

A library that starts on such a node does not see the NIC, and takes for its GPUs the nearest of
those that are left, as NCCL's search does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from commsim.cluster.nodes.spec import NodeSpec
from commsim.errors import ScenarioError

__all__ = ["without_nics"]


def without_nics(
    specs: Sequence[NodeSpec],
    counts: Sequence[int],
    dead: Collection[tuple[int, int]],
    where: str,
) -> tuple[list[NodeSpec], list[int], list[int]]:
    """Return kinds and counts of nodes in their order, and which of `specs` each kind was.

    Nodes with dead NICs are kinds by themselves.

    Raises:
        ScenarioError: a node loses its last NIC.
    """
    kinds: list[NodeSpec] = []
    sizes: list[int] = []
    origin: list[int] = []
    gone: dict[int, list[int]] = {}
    for node, nic in dead:
        gone.setdefault(node, []).append(nic)
    known: dict[tuple[int, tuple[int, ...]], NodeSpec] = {}
    node = 0
    for kind, (spec, count) in enumerate(zip(specs, counts, strict=True)):
        for _ in range(count):
            lost = tuple(sorted(gone.get(node, ())))
            key = (kind, lost)
            if key not in known:
                known[key] = _without(spec, lost, f"{where}: node {node}") if lost else spec
            if kinds and kinds[-1] is known[key]:
                sizes[-1] += 1
            else:
                kinds.append(known[key])
                sizes.append(1)
                origin.append(kind)
            node += 1
    return kinds, sizes, origin


def _without(spec: NodeSpec, lost: tuple[int, ...], where: str) -> NodeSpec:
    nic = spec.nic
    if nic is None or len(lost) >= nic.count:
        raise ScenarioError(f"{where}: loses its last NIC, and no other node reaches it.")
    kept = [number for number in range(nic.count) if number not in lost]
    now = {number: place for place, number in enumerate(kept)}
    own = tuple(tuple(now[n] for n in mine if n in now) for mine in nic.own)
    return replace(
        spec,
        nic=replace(
            nic,
            count=len(kept),
            rails=tuple(nic.rails[n] for n in kept),
            own=own,
            numbers=tuple(nic.number(n) for n in kept),
        ),
        nic_socket=tuple(spec.nic_socket[n] for n in kept),
        pcie=replace(
            spec.pcie,
            switches=tuple(
                replace(switch, nics=tuple(now[n] for n in switch.nics if n in now))
                for switch in spec.pcie.switches
            ),
        ),
    )
