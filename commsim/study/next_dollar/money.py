"""
What twice as much of a resource costs by the cluster's own prices, as far as they say it.

NICs: as many again, with the switches, cables and optics of a second network like the first. Links
between switches: as many again, and the switches above the leaves. Nodes: the bill (or the rent)
of a cluster of twice the nodes, less that of this one. What is part of a node (GPUs, NVLink,
memory) has no price of its own; nor has anything but nodes if the cluster is rented.
"""

from __future__ import annotations

import msgspec

from commsim.cluster import Cluster, ClusterSection, build_cluster
from commsim.metrics import capital_per_hour, hourly_price, power_per_hour

__all__ = ["DoubledPrice", "doubled_price"]


class DoubledPrice(msgspec.Struct, frozen=True):
    """Money per hour for as much again, and what is bought for it."""

    per_hour: float
    buys: str


def doubled_price(
    resource: str, cluster: Cluster, section: ClusterSection, where: str
) -> DoubledPrice | None:
    """Return what as much again of a resource costs; None if the prices do not say."""
    now = hourly_price(cluster)
    if now is None:
        return None
    if resource == "nodes":
        return _nodes(now[1], section, where)
    site = cluster.prices[0]
    if site is None or not site.bought or resource not in ("nic", "uplinks"):
        return None
    parts = cluster.fabric.parts
    if resource == "uplinks":
        counts = {"switch": parts.spines + parts.cores, "cable": parts.trunk_cables}
    else:
        counts = {"nic": len(cluster.nics), "switch": parts.switches, "cable": parts.cables}
    counts["optic"] = 2 * counts["cable"]
    money = sum(
        price.price * count
        for field, count in counts.items()
        if (price := getattr(site, field)) is not None
    )
    told = ", ".join(f"{count:,} {_many(name, count)}" for name, count in counts.items() if count)
    watts = counts["switch"] * (site.switch_watts or 0.0)
    per_hour = capital_per_hour(money, site) + power_per_hour(watts * (site.pue or 1.0), site)
    return DoubledPrice(per_hour, told)


def _nodes(now: float, section: ClusterSection, where: str) -> DoubledPrice | None:
    if not isinstance(section.nodes, int):
        return None
    twice = msgspec.structs.replace(section, nodes=2 * section.nodes)
    after = hourly_price(build_cluster(twice, where))
    if after is None:
        return None
    return DoubledPrice(
        after[1] - now, f"{section.nodes:,} more nodes and their share of the fabric"
    )


def _many(name: str, count: int) -> str:
    plural = {"nic": "NICs", "switch": "switches"}.get(name, f"{name}s")
    return plural if count != 1 else {"nic": "NIC"}.get(name, name)
