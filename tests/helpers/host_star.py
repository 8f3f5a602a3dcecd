"""Hosts around one switch, one process each: a cluster on which Gloo's times can be worked out."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from commsim.cluster import Route
from commsim.cluster.routes import NOWHERE
from commsim.libraries.gloo.constants import Constants, Medium
from helpers.star import Star

US = 10**6
LATENCY = 2 * US  # of a route: two links of the star
WAKE = 10 * US
OVERHEAD = 20 * US

PACKET, AGAIN = 1 << 50, 0


def costs(*, packet: int = PACKET, again: int = AGAIN) -> Constants:
    """Return threads so fast that the star's links of 1 GB/s are what limits."""
    media = {
        "ethernet": Medium(rate=1e12, latency=WAKE, packet=packet, again=again),  # type: ignore[arg-type]
        "loopback": Medium(rate=1e12, latency=US, packet=packet, again=again),  # type: ignore[arg-type]
    }
    return Constants(media=media, reduce_rate=5e9, op_overhead=OVERHEAD, copy_overhead=3 * US)  # type: ignore[arg-type]


COSTS = costs()


class HostStar(Star):
    """Each GPU of the star is a host of its own; its NIC is its link, its device a CPU."""

    device = "cpu"

    def __init__(self, n: int, speed: float = 1e9, latency: int = US) -> None:
        super().__init__(n, speed, latency)
        self.name = "hosts"
        self.node_of = np.arange(n)
        self.nics = tuple(SimpleNamespace(node=i, index=0, medium="ethernet") for i in range(n))

    def gpu(self, rank: int) -> SimpleNamespace:
        return SimpleNamespace(device=self.device, sm_count=0, memory_bandwidth=0.0)

    def fabric_route(self, a: int, b: int, *, key: int = 0) -> Route:
        return self.local_route(a, b)

    def host_to_nic(self, rank: int, nic: int) -> Route:
        return NOWHERE

    def nic_to_host(self, nic: int, rank: int) -> Route:
        return NOWHERE
