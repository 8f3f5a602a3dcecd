"""Hosts around one switch, one process each: a cluster on which Gloo's times can be computed."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from commsim.cluster import NOWHERE, GpuSpec, Nic, Route
from commsim.libraries.gloo.constants import GlooConstants, Medium
from commsim.units import Bandwidth, Duration, Size
from helpers import star
from helpers.star import Star

US = 10**6
LATENCY = 2 * US  # of a route: two links of the star
WAKE = 10 * US
OVERHEAD = 20 * US

PACKET, AGAIN = 1 << 50, 0


def costs(*, packet: int = PACKET, again: int = AGAIN) -> GlooConstants:
    """Return threads so fast that the star's links of 1 GB/s are what limits."""
    rate, size, delay = Bandwidth(1e12), Size(packet), Duration(again)
    media = {
        "ethernet": Medium(rate=rate, latency=Duration(WAKE), packet=size, again=delay),
        "loopback": Medium(rate=rate, latency=Duration(US), packet=size, again=delay),
    }
    return GlooConstants(
        media=media,
        reduce_rate=Bandwidth(5e9),
        op_overhead=Duration(OVERHEAD),
        copy_overhead=Duration(3 * US),
    )


COSTS = costs()


def host_nic(node: int) -> Nic:
    """Return the only NIC of a host; its link is the star's."""
    return Nic(
        node=node, index=0, rail=0, bandwidth=0.0, efficiency=1.0, latency=0, medium="ethernet",
        transport="tcp", gdr=False, number=0,
    )  # fmt: skip


class HostStar(Star):
    """Each GPU of the star is a host of its own; its NIC is its link, its device a CPU."""

    device = "cpu"

    def __init__(self, n: int, speed: float = 1e9, latency: int = US) -> None:
        super().__init__(n, speed, latency)
        self.name = "hosts"
        self.node_of = np.arange(n)
        self.nics = tuple(host_nic(node) for node in range(n))

    def gpu(self, rank: int) -> GpuSpec:
        return replace(star.GPU, device=self.device)

    def fabric_route(self, a: int, b: int, *, key: int = 0) -> Route | None:
        return self.local_route(a, b)

    def host_to_nic(self, rank: int, nic: int) -> Route:
        return NOWHERE

    def nic_to_host(self, nic: int, rank: int) -> Route:
        return NOWHERE
