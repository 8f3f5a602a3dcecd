"""
One communicator for all groups of equal placement; they differ in NICs alone.

A training run makes thousands of communicators of few kinds; each kind is searched once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from commsim.arrays import Ints
from commsim.cluster import Cluster
from commsim.libraries.nccl.communicator.communicator import communicator_of
from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Communicator, NetEnds

__all__ = ["Communicators", "NicTable"]


class Communicators:
    """The communicators of one cluster under one version and environment."""

    def __init__(self, cluster: Cluster, *, version: str, knobs: Knobs) -> None:
        self._cluster = cluster
        self._version, self._knobs = version, knobs
        self._known: dict[tuple[bytes, ...], tuple[Communicator, Ints]] = {}
        self._first_nic = cluster.first_of_node[1]
        self._spec = cluster.kind_of_node
        homes = np.asarray(cluster.domain_of_node, dtype=np.int64)
        self._place = np.arange(len(homes)) - np.searchsorted(homes, homes)

    def of(self, gpus: Sequence[int]) -> Communicator:
        """Return what NCCL knows of a group. Raises as `communicator_of` does."""
        cluster, ranks = self._cluster, np.asarray(gpus, dtype=np.int64)
        if not ranks.size or ranks.min() < 0 or ranks.max() >= cluster.world_size:
            return self._make(gpus)  # which says what is wrong
        node = cluster.node_of[ranks]
        domain = cluster.domains[ranks] if self._knobs.mnnvl_enable else node
        places = np.stack((self._spec[node], cluster.local_of[ranks], self._place[node]))
        home = _by_appearance(domain)
        key = (places.tobytes(), home.tobytes())
        nics = self._first_nic[node[np.sort(np.unique(domain, return_index=True)[1])]]
        if key not in self._known:
            self._known[key] = (self._make(gpus), nics)
        comm, base = self._known[key]
        moved = nics - base
        if not moved.any():
            return comm
        first_rank = np.unique(comm.node_of, return_index=True)[1]
        by_node = moved[home[first_rank]]  # NCCL may see several nodes in one domain
        nets = {
            name: NetEnds(ends.nics + by_node[None, :, None], ends.relays)
            for name, ends in comm.nets.items()
        }
        return replace(comm, nets=nets)

    def _make(self, gpus: Sequence[int]) -> Communicator:
        return communicator_of(self._cluster, gpus, version=self._version, env=self._knobs)


class NicTable:
    """The NICs that each rank's GPU uses: those dealt to it, else its nearest one.

    `own` has a row per rank, filled up with -1; `count` says how many of a row are NICs; `node`
    is the node of each NIC.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.node: Ints = cluster.nic_places[0]
        kind = cluster.kind_of_node[cluster.node_of]
        place = kind * (int(cluster.local_of.max(initial=0)) + 1) + cluster.local_of
        _, first, where = np.unique(place, return_index=True, return_inverse=True)
        own = [_own_nics(cluster, rank) for rank in first.tolist()]  # one of each place in a node
        count = np.array([len(nics) for nics in own], dtype=np.int64)
        nics = np.full((len(own), int(count.max(initial=1))), -1)
        for row, (rank, found) in enumerate(zip(first.tolist(), own, strict=True)):
            nics[row, : len(found)] = np.array(found, np.int64) - self._first_nic(cluster, rank)
        self.count: Ints = count[where.reshape(-1)]
        begin = cluster.first_of_node[1][cluster.node_of]
        nics = nics[where.reshape(-1)]
        self.own: Ints = np.where(nics < 0, -1, nics + begin[:, None])

    @staticmethod
    def _first_nic(cluster: Cluster, rank: int) -> int:
        return cluster.first_nic(int(cluster.node_of[rank]))


def _own_nics(cluster: Cluster, rank: int) -> list[int]:
    nic, nearest = cluster.node_spec(rank).nic, cluster.nics_of(rank)
    if nic is None or not nearest:
        return []
    own = nic.own[int(cluster.local_of[rank])]
    return [n for n in nearest if cluster.nics[n].index in own] or [nearest[0]]


def _by_appearance(values: Ints) -> Ints:
    """Number values by first appearance; equal values get equal numbers."""
    _, first, where = np.unique(values, return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(len(first))
    numbered: Ints = number[where.reshape(-1)]
    return numbered
