"""A cluster small enough to reason about: every GPU on one switch by a link each way."""

from __future__ import annotations

from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from commsim.cluster import Cluster, FabricSection, GpuSpec, Links, Nic, Route
from commsim.cluster.fabrics.fabric import Fabric
from commsim.cluster.fabrics.fabric_section import fabric_spec

US = 10**6

GPU = GpuSpec(
    name="star",
    memory_bytes=0,
    memory_bandwidth=0.0,
    tflops=MappingProxyType({}),
    sm_count=0,
    compute_capability="",
    multicast=True,
)


class Star(Cluster):
    """n GPUs around one switch. GPU i sends on link 2i and receives on link 2i + 1.

    Speeds in bytes/s and latencies in ps, one for all or one per link. It is laid out without
    a node's template: what needs one (PCIe, host memory, NICs) fails with AttributeError.
    """

    def __init__(self, n: int, speed: npt.ArrayLike = 1e9, latency: npt.ArrayLike = US) -> None:
        self.name = "star"
        self.world_size = n
        count = 2 * n
        capacity = np.broadcast_to(np.asarray(speed, dtype=np.float64), count).copy()
        delay = np.broadcast_to(np.asarray(latency, dtype=np.int64), count).copy()
        self.links = Links(
            names=tuple(f"gpu{i // 2}{'>' if i % 2 == 0 else '<'}" for i in range(count)),
            kinds=("nvlink",) * count,
            media=("",) * count,
            bandwidth=capacity,
            efficiency=np.ones(count),
            capacity=capacity,
            latency=delay,
            source=tuple(f"gpu{i // 2}" if i % 2 == 0 else "switch" for i in range(count)),
            target=tuple("switch" if i % 2 == 0 else f"gpu{i // 2}" for i in range(count)),
        )
        self.domains = self.node_of = np.zeros(n, np.int64)
        self.local_of = np.arange(n)
        self.spec_of = (0,)
        self.nics: tuple[Nic, ...] = ()
        self.node_names = ("star",)
        self.domain_of_node = np.zeros(1, np.int64)
        none = fabric_spec(FabricSection(kind="none"), nodes=1, medium="", where="star")
        self.fabric = Fabric(none, (), medium="", first=count)
        self.fabric.kind_of["switch"] = "leaf"  # one that can add
        self.specs = cast("Any", (None,))

    def template(self, kind: int) -> Any:
        return cast("Any", SimpleNamespace(rows=range(len(self.links))))

    def first_link(self, node: int) -> int:
        return 0

    def first_nic(self, node: int) -> int:
        return 0

    def local_route(self, a: int, b: int) -> Route:
        latency = int(self.links.latency[2 * a] + self.links.latency[2 * b + 1])
        return Route((2 * a, 2 * b + 1), (1.0, 1.0), (0, 1), latency)

    def domain_of(self, gpu: int) -> int:
        return 0

    def nics_of(self, rank: int) -> tuple[int, ...]:
        return ()

    def gpu(self, rank: int) -> GpuSpec:
        return GPU
