"""
The NVLink domains of a group as NCCL's topology files, with the rank and the NICs of each device.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import PathType
from commsim.libraries.nccl.topology import (
    devices_per_nic,
    domain_xml,
    read_xml,
    rules_of,
    write_xml,
)

__all__ = ["Domain", "DomainWriter", "numbered_from_zero"]


class Domain(msgspec.Struct, frozen=True):
    """An NVLink domain of a group: its topology file, the rank of each rank in the file, NICs.

    `nics` is the id of each NET by (machine, number).
    """

    text: str
    source: str
    knobs: Knobs
    ranks: tuple[int, ...]
    nics: Mapping[tuple[int, int], int]


def numbered_from_zero(text: str, source: str, place: Mapping[int, int]) -> str:
    """Return a topology whose ranks count from 0, as those of a job's first node do."""
    root = read_xml(text, source)
    waiting = [root]
    while waiting:
        element = waiting.pop()
        waiting += element.inside
        if element.tag == "gpu" and "rank" in element.attributes:
            element.attributes["rank"] = str(place[int(element.attributes["rank"])])
    return write_xml(root)


class DomainWriter:
    """Writes the topology of a cluster's domains; equal domains are written once."""

    def __init__(self, cluster: Cluster, knobs: Knobs, *, version: str) -> None:
        self._cluster = cluster
        self._merged = (
            rules_of(version).merges_ports
            and knobs.ib_merge_nics
            and knobs.net_merge_level != PathType.LOC.name
        )
        self._knobs = knobs
        self._specs = cluster.specs
        if not len(cluster.fabric.nic_links):  # NCCL leaves out NICs whose ports are down
            self._specs = tuple(replace(spec, nic=None) for spec in cluster.specs)
        self._texts: dict[tuple[tuple[int, tuple[int, ...]], ...], str] = {}

    def domain(self, ranks: Mapping[int, int]) -> Domain:
        """Return the domain of these GPUs and their ranks."""
        cluster = self._cluster
        gpus = sorted(ranks)
        by_node: dict[int, list[int]] = {}
        for gpu in gpus:
            by_node.setdefault(int(cluster.node_of[gpu]), []).append(int(cluster.local_of[gpu]))
        shape = tuple((cluster.spec_of[node], tuple(own)) for node, own in by_node.items())
        if shape not in self._texts:
            self._texts[shape] = self._write(shape)
        nics = {
            (host, number): cluster.first_nic(node) + number // each
            for host, node in enumerate(by_node)
            for count, each in [self._nics_of(node)]
            for number in range(count * each)
        }
        return Domain(
            self._texts[shape],
            cluster.name,
            self._own_knobs(by_node),
            tuple(ranks[gpu] for gpu in gpus),
            nics,
        )

    def _nics_of(self, node: int) -> tuple[int, int]:
        """Return how many NICs NCCL sees on a node, and its devices of each."""
        nic = self._specs[self._cluster.spec_of[node]].nic
        return (nic.count, devices_per_nic(nic, merged=self._merged)) if nic else (0, 1)

    def _own_knobs(self, nodes: Mapping[int, object]) -> Knobs:
        """Return the knobs; if a node's GPUs have no peer access over PCIe, so does NCCL."""
        specs = [self._cluster.specs[self._cluster.spec_of[node]] for node in nodes]
        if all(spec.pcie.p2p for spec in specs):
            return self._knobs
        asked = self._knobs.p2p_level
        level = PathType.C2C if asked is None else min(asked, PathType.C2C)
        return replace(self._knobs, p2p_level=level)

    def _write(self, shape: tuple[tuple[int, tuple[int, ...]], ...]) -> str:
        used: list[dict[int, int]] = []
        count = 0
        for _, gpus in shape:
            used.append({gpu: count + i for i, gpu in enumerate(gpus)})
            count += len(gpus)
        specs = [self._specs[kind] for kind, _ in shape]
        collnet = bool(self._knobs.collnet_enable) and self._cluster.fabric.spec.sharp
        return write_xml(domain_xml(specs, used, collnet=collnet, merged=self._merged))
