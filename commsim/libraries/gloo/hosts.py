"""
Which way Gloo's bytes go: out of a process by TCP, over the node's interface, into another.

Each process has a thread that copies into sockets and one that copies out of them; both are
links of the library, after the cluster's own. Between two processes of a node the bytes stay in
host memory (loopback); between nodes all processes of a node use one interface, as the node's
host name resolves to one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from commsim.arrays import Floats, Ints
from commsim.cluster import Cluster, Links, Route
from commsim.errors import ScenarioError, TopologyError
from commsim.libraries.gloo.constants import GlooConstants, Medium

__all__ = ["LINK_KIND", "Hosts", "Wakes"]


PREAMBLE = 48  # bytes that go ahead of each message: six words, gloo/transport/tcp/pair.h
LINK_KIND = "tcp"
_LOOPBACK = "loopback"


class Wakes(msgspec.Struct, frozen=True, eq=False):
    """What software adds to the messages of each of some connections, in ps."""

    latency: Floats
    again: Floats
    room: Floats

    @staticmethod
    def of(media: Sequence[Medium]) -> Wakes:
        """Return the costs of connections by their media."""
        room = [medium.packet - PREAMBLE for medium in media]
        return Wakes(
            *(
                np.array(column, dtype=np.float64)
                for column in (
                    [medium.latency for medium in media],
                    [medium.again for medium in media],
                    room,
                )
            )
        )

    def __getitem__(self, which: Ints) -> Wakes:
        """Return the costs of some of the connections."""
        return Wakes(self.latency[which], self.again[which], self.room[which])

    def for_bytes(self, size: Floats) -> Floats:
        """Return what is added to one message of `size[i]` bytes on connection i."""
        return self.latency + np.where(size > self.room, self.again, 0.0)


class Hosts:
    """The routes between the processes of one cluster; `links` are the cluster's and their own.

    `interface` is the number of the NIC in its node that TCP uses.
    """

    def __init__(self, cluster: Cluster, constants: GlooConstants, *, interface: int = 0) -> None:
        self._cluster = cluster
        self._constants = constants
        self._interface = interface
        self._first = len(cluster.links)
        self._nic = {nic.node: at for at, nic in enumerate(cluster.nics) if nic.index == interface}
        self._routes: dict[tuple[int, int], Route] = {}
        self.links = _extended(cluster.links, [self._rate(r) for r in range(cluster.world_size)])

    def route(self, source: int, target: int) -> Route:
        """Return the route of bytes from one rank's process to another's.

        Raises:
            TopologyError: no NIC, or no way between the two.
            ScenarioError: the node has no NIC of the number that was asked for.
        """
        key = (source, target)
        if key not in self._routes:
            self._routes[key] = self.build(source, target)
        return self._routes[key]

    def build(self, source: int, target: int) -> Route:
        """Return a route as `route` does, and do not keep it."""
        out, into = self._first + 2 * source, self._first + 2 * target + 1
        return _thread(out) + self._memory(source, target) + _thread(into)

    def medium(self, source: int, target: int) -> Medium:
        """Return what TCP costs from one process to another."""
        return self._constants.of(self._medium(source, target))

    def control(self, source: int, target: int) -> int:
        """Return the ps that a message without payload takes."""
        return self.route(source, target).latency + int(self.medium(source, target).latency)

    def _memory(self, source: int, target: int) -> Route:
        """Return the route from the memory of one process to that of another."""
        cluster = self._cluster
        a, b = (int(cluster.node_of[rank]) for rank in (source, target))
        if a == b:
            local = cluster.host_route(source, target)
            assert local is not None  # two processes of one node share its memory
            return local
        leaving, entering = self._nic_of(a), self._nic_of(b)
        fabric = cluster.fabric_route(leaving, entering, key=source * cluster.world_size + target)
        if fabric is None:
            raise TopologyError(
                f"gloo: node {a} cannot reach node {b} by NIC {self._interface} of each: the fabric"
                " joins them nowhere. Choose another library.interface, or another fabric."
            )
        to_nic = cluster.host_to_nic(source, leaving)
        return to_nic + fabric + cluster.nic_to_host(entering, target)

    def _nic_of(self, node: int) -> int:
        if node in self._nic:
            return self._nic[node]
        count = sum(nic.node == node for nic in self._cluster.nics)
        if not count:
            raise TopologyError(
                f"gloo: node {node} has no NIC to leave it by. Give the node NICs (cluster: nics),"
                " or keep the group within one node."
            )
        raise ScenarioError(
            f"library.interface: {self._interface}: node {node} has NICs 0 to {count - 1}."
        )

    def _medium(self, source: int, target: int) -> str:
        a, b = (int(self._cluster.node_of[rank]) for rank in (source, target))
        return _LOOPBACK if a == b else self._cluster.nics[self._nic_of(a)].medium

    def _rate(self, rank: int) -> float:
        """Return the bytes/s that a process copies: by its node's interface, if it has one."""
        node = int(self._cluster.node_of[rank])
        nic = self._nic.get(node)
        medium = _LOOPBACK if nic is None else self._cluster.nics[nic].medium
        return float(self._constants.of(medium).rate)


def _thread(link: int) -> Route:
    return Route((link,), (1.0,), (0,), 0)


def _extended(links: Links, rates: list[float]) -> Links:
    """Return links with two more for each rank: its thread out, and its thread in."""
    more = 2 * len(rates)
    rate = np.repeat(np.array(rates, dtype=np.float64), 2)
    names = tuple(f"rank{i // 2}/tcp-{'in' if i % 2 else 'out'}" for i in range(more))
    ends = tuple(f"rank{i // 2}" for i in range(more))
    return Links(
        names=links.names + names,
        kinds=links.kinds + (LINK_KIND,) * more,
        media=links.media + ("",) * more,
        bandwidth=np.concatenate((links.bandwidth, rate)),
        efficiency=np.concatenate((links.efficiency, np.ones(more))),
        capacity=np.concatenate((links.capacity, rate)),
        latency=np.concatenate((links.latency, np.zeros(more, np.int64))),
        source=links.source + ends,
        target=links.target + ends,
    )
