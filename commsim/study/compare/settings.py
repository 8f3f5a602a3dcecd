"""
What is set, and what hardware that means, as flat tables that can be put side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from commsim.cluster import Cluster
from commsim.units import format_bandwidth, format_size

__all__ = ["flat", "hardware", "side_by_side"]


def flat(data: Any, path: str = "") -> dict[str, str]:
    """Return nested data as {"cluster.preset": "dgx-h100"}; lists of plain values stay whole."""
    if isinstance(data, Mapping):
        parts = ((f"{path}.{key}" if path else str(key), value) for key, value in data.items())
        return {key: text for name, value in parts for key, text in flat(value, name).items()}
    if isinstance(data, list) and any(isinstance(one, Mapping | list) for one in data):
        numbered = ((f"{path}.{at}", value) for at, value in enumerate(data))
        return {key: text for name, value in numbered for key, text in flat(value, name).items()}
    return {path: _plain(data)}


def _plain(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, list):
        return f"[{', '.join(_plain(one) for one in value)}]"
    return str(value)


def hardware(cluster: Cluster | None) -> dict[str, str]:
    """Return what a cluster's first node and its fabric are, for people; empty without one."""
    if cluster is None:
        return {}
    spec, gpu = cluster.specs[0], cluster.specs[0].gpu
    facts = {
        "GPU": gpu.name,
        "GPUs": f"{cluster.world_size:,}",
        "nodes": f"{len(set(cluster.node_of.tolist())):,}",
        "memory of a GPU": format_size(gpu.memory_bytes),
        "its bandwidth": format_bandwidth(gpu.memory_bandwidth),
    }
    if "bf16" in gpu.tflops:
        facts["dense BF16 peak"] = f"{gpu.tflops['bf16']:,.0f} TFLOP/s"
    if gpu.nvlink_bandwidth and (spec.switch or spec.mesh):
        facts["NVLink of a GPU"] = format_bandwidth(gpu.nvlink_bandwidth)
    if spec.nic is not None:
        share = spec.nic.wire.bandwidth * spec.nic.count / spec.gpus
        facts["network of a GPU"] = f"{format_bandwidth(share)}, {spec.nic.transport}"
    if len(facts) and facts["nodes"] != "1":
        facts["fabric"] = _fabric(cluster)
    prices = cluster.prices[0]
    if prices is not None and prices.gpu_hour is not None:
        rent = prices.gpu_hour
        currency = prices.currency or "USD"
        facts["price of a GPU and hour"] = f"{rent.price:g} {currency} ({rent.date})"
    if spec.power is not None:
        facts["power of a node"] = f"{spec.power.watts:,.0f} W at most"
    if len(cluster.specs) > 1:
        facts["kinds of nodes"] = f"{len(cluster.specs)}; the first is described"
    return facts


def _fabric(cluster: Cluster) -> str:
    spec = cluster.fabric.spec
    over = getattr(spec, "oversubscription", 1) or 1
    told = str(spec.kind).replace("_", "-")
    if spec.dims:
        told += " " + "x".join(map(str, spec.dims))
    if spec.planes > 1:
        told += f", {spec.planes} planes"
    if over != 1:
        told += f", {over:g}:1 oversubscribed"
    return told if spec.ecmp == "even" else f"{told}, ecmp {spec.ecmp}"


def side_by_side(tables: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return every key with its value on each side (None if it has none), and if they differ.

    Keys keep the order in which they first appear. A side without any setting is unknown, and
    does not differ.
    """
    keys = dict.fromkeys(key for table in tables for key in table)
    rows = []
    for key in keys:
        known = dict.fromkeys(table.get(key) for table in tables if table)
        values = [table.get(key) for table in tables]
        rows.append({"key": key, "values": values, "differs": len(known) > 1})
    return rows
