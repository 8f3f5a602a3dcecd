"""
The settings that make what limits a run twice as fast, as `--set` takes them: a promise that
anybody can try.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from commsim.cluster import Cluster

__all__ = ["twice"]

_FACTORS = MappingProxyType(
    {
        "nvlink": "nvlink",
        "network": "nic",
        "fabric": "uplinks",
        "pcie": "pcie",
        "c2c": "pcie",
        "memory": "host_memory",
        "cpu": "host_memory",
    }
)
"""The factor of `cluster.scale` for each kind of link."""


def twice(
    cluster: Cluster | None, *, path: str = "cluster.", compute: tuple[str, float] | None = None
) -> Mapping[str, str]:
    """Return the setting that doubles each kind of link of a cluster, and the rate of compute.

    `path` is where the cluster's settings stand; `compute` has the path of the factor on the
    times of compute, and what it is now. What cannot be set is left out.
    """
    found = {}
    if cluster is not None:
        for kind, factor in _FACTORS.items():
            found[kind] = f"{path}scale.{factor}={2 * getattr(cluster.scale, factor):g}"
    if compute is not None:
        found["compute"] = f"{compute[0]}={compute[1] / 2:g}"
    return found
