"""
Random clusters of parts that few have: tori, dragonflies, fabrics written link by link, planes,
nodes written by hand and of several kinds, overrides and scales of presets.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any, NamedTuple

from commsim.cluster import Cluster
from helpers.random_scenarios import NO_NIC, PRESETS, gpus_per_node

__all__ = ["RareCluster", "rare_cluster"]

Data = dict[str, Any]

NETWORKED = [name for name in PRESETS if name not in NO_NIC]
MIXED = ("dgx-h100", "dgx-a100", "snellius-a100", "marenostrum5", "dgx-1v", "azure-ndv2", "abci-v")
PRECISIONS = {
    "A100-SXM4-80GB": {"fp32", "fp16", "bf16"},
    "H100-SXM5-80GB": {"fp32", "fp16", "bf16", "fp8"},
    "V100-SXM2-16GB": {"fp32", "fp16"},
}  # of nodes written by hand
TREES = ("single_switch", "rail_only", "rail_optimized", "fat_tree")
OTHERS = ("torus", "dragonfly_plus", "graph")


class RareCluster(NamedTuple):
    """A cluster as a file writes it; `precisions`: what all of its GPUs compute in."""

    data: Data
    nodes: int
    world: int
    precisions: set[str]
    mixed: bool = False


def rare_cluster(rng: random.Random, most: int) -> RareCluster:
    """Return a cluster of up to about `most` GPUs, two nodes of a preset at least allowed."""
    draw = rng.random()
    if draw < 0.2:
        return _mixed(rng, most)
    if draw < 0.45:
        node, per_node, precisions = _written_node(rng)
        nodes = rng.randint(1, min(8, most // per_node))
        made = RareCluster({"node": node, "nodes": nodes}, nodes, nodes * per_node, precisions)
    else:
        made = _preset(rng, most)
    if made.nodes > 1 and ("node" in made.data or rng.random() < 0.7):
        made.data["fabric"] = _fabric(rng, made.nodes)
    return made


@cache
def _precisions(preset: str) -> frozenset[str]:
    return frozenset(Cluster.preset(preset).gpu(0).tflops)


def _preset(rng: random.Random, most: int) -> RareCluster:
    name = rng.choice(NETWORKED)
    per_node = gpus_per_node(name)
    nodes = rng.randint(1, max(2, min(6, most // per_node)))
    data: Data = {"preset": name, "nodes": nodes}
    if overrides := _overrides(rng):
        data["overrides"] = overrides
    if rng.random() < 0.15:
        what = ("nic", "uplinks", "host_memory", "hbm", "nvlink_latency", "gpu_memory")
        data["scale"] = {rng.choice(what): rng.choice((0.3, 4))}
    return RareCluster(data, nodes, nodes * per_node, set(_precisions(name)))


def _mixed(rng: random.Random, most: int) -> RareCluster:
    """Return a cluster of two kinds of nodes."""
    kinds: list[Data] = []
    world, precisions = 0, set(PRECISIONS["H100-SXM5-80GB"])
    for _ in range(2):
        if rng.random() < 0.5:
            name = rng.choice(MIXED)
            kind: Data = {"preset": name}
            per_node, has = gpus_per_node(name), set(_precisions(name))
        else:
            node, per_node, has = _written_node(rng)
            kind = {"node": node}
        kind["count"] = rng.randint(1, max(1, min(2, most // 2 // per_node)))
        kinds.append(kind)
        world += kind["count"] * per_node
        precisions &= has
    nodes = sum(kind["count"] for kind in kinds)
    fabric = _fabric(rng, nodes) if rng.random() < 0.7 else {"kind": "single_switch"}
    return RareCluster({"nodes": kinds, "fabric": fabric}, nodes, world, precisions, mixed=True)


def _written_node(rng: random.Random) -> tuple[Data, int, set[str]]:
    """Return a node, the GPUs of it and what they compute in."""
    gpus = rng.randint(1, 4)
    nics = rng.choice([n for n in (1, 2, 3, 4, 6) if n % gpus == 0 or gpus % n == 0])
    spec = rng.choice(sorted(PRECISIONS))
    node: Data = {
        "gpu": {"count": gpus, "spec": spec},
        "nic": {
            "count": nics,
            "bandwidth": rng.choice(("25Gbps", "200Gbps")),
            "latency": rng.choice(("0us", "2us")),
        },
        "cpu": {"sockets": rng.randint(1, 2)},
        "nvlink": {"kind": "none"},
    }
    kind = rng.choice(("none", "switch", "mesh")) if gpus > 1 else "none"
    if kind == "switch":
        node["nvlink"] = {"kind": kind, "bandwidth": "300GB/s", "links": 12}
    elif kind == "mesh":
        node["nvlink"] = {"kind": kind, "per_link": "25GB/s", "links": rng.randint(1, 4)}
    if rng.random() < 0.4:
        switch = {"gpus": list(range(gpus)), "nics": [0], "socket": 0}
        node["pcie"] = {"generation": 4, "switches": [switch]}
    return node, gpus, PRECISIONS[spec]


def _overrides(rng: random.Random) -> Data:
    """Return settings of a preset's node that are replaced; often none."""
    made: Data = {}
    for share, part, setting, values in (
        (0.2, "nic", "gdr", (False,)),
        (0.15, "nic", "transport", ("tcp",)),
        (0.2, "nic", "bandwidth", ("10Gbps", "100GB/s")),
        (0.15, "pcie", "p2p", (False,)),
        (0.15, "pcie", "generation", (3,)),
        (0.15, "nvlink", "kind", ("none",)),
        (0.2, "host", "launch", ("0us", "30us")),
        (0.1, "cpu", "dram_bandwidth", ("20GB/s",)),
        (0.1, "gpu", "sm_count", (20,)),
    ):
        if rng.random() < share:
            made.setdefault(part, {})[setting] = rng.choice(values)
    return made


def _fabric(rng: random.Random, nodes: int) -> Data:
    kind = rng.choice(OTHERS if rng.random() < 0.45 else TREES)
    make = {"torus": _torus, "dragonfly_plus": _dragonfly, "graph": _written_fabric}
    fabric: Data = {"kind": kind}
    if kind in make:
        fabric |= make[kind](rng, nodes)
        fabric["ecmp"] = rng.choice(("even", "hash", "adaptive"))
        if fabric["ecmp"] == "hash":
            fabric["seed"] = rng.randint(0, 9)
    elif kind in ("rail_optimized", "fat_tree"):
        fabric |= _tree(rng, nodes)
    if kind in TREES and rng.random() < 0.3:
        fabric["planes"] = rng.choice((2, 4))
    if rng.random() < 0.2:
        fabric["congestion"] = 0.09
    if rng.random() < 0.2:
        fabric["sharp"] = False
    if rng.random() < 0.2:
        fabric["cable_latency"] = rng.choice(("0ns", "2us"))
    return fabric


def _divisor(rng: random.Random, number: int) -> int:
    """Return a divisor of a number of two or more that leaves two or more."""
    return rng.choice([n for n in range(1, number) if number % n == 0])


def _torus(rng: random.Random, nodes: int) -> Data:
    per_leaf = _divisor(rng, nodes)
    left = nodes // per_leaf
    dims: list[int] = []
    while left > 1 and len(dims) < 2:
        dims.append(left // _divisor(rng, left))
        left //= dims[-1]
    made: Data = {"dims": [*dims, left] if left > 1 else dims, "nodes_per_leaf": per_leaf}
    if rng.random() < 0.5:
        made["link_bandwidth"] = rng.choice(("10GB/s", "100Gbps", "3GB/s"))
    return made


def _dragonfly(rng: random.Random, nodes: int) -> Data:
    per_leaf = _divisor(rng, nodes)
    made: Data = {
        "nodes_per_leaf": per_leaf,
        "leaves_per_group": _divisor(rng, nodes // per_leaf),
        "spines": rng.randint(1, 3),
        "global_links": rng.randint(1, 3),
    }
    if rng.random() < 0.5:
        made["link_bandwidth"] = rng.choice(("10GB/s", "100Gbps"))
    if rng.random() < 0.5:
        made["oversubscription"] = rng.choice((1, 2, 3))
    return made


def _written_fabric(rng: random.Random, nodes: int) -> Data:
    """Return two leaves with half of the nodes each, two spines, perhaps a link past these."""
    half = nodes // 2
    links: list[Data] = [
        {"between": [_nodes(0, half), "leaf0"]},
        {"between": [_nodes(half, nodes), "leaf1"]},
        {
            "between": ["leaf0..1", "spine0..1"],
            "bandwidth": rng.choice(("100Gbps", "40GB/s")),
            "count": rng.randint(1, 3),
        },
    ]
    if rng.random() < 0.4:
        links.append({"between": ["leaf0", "leaf1"], "bandwidth": "10GB/s", "latency": "3us"})
    return {"switches": ["leaf0..1", "spine0..1"], "links": links}


def _nodes(first: int, after: int) -> str:
    return f"node{first}" if after - first == 1 else f"node{first}..{after - 1}"


def _tree(rng: random.Random, nodes: int) -> Data:
    made: Data = {"oversubscription": rng.choice((1, 1.5, 3))}
    if rng.random() < 0.3:
        made["radix"] = rng.choice((4, 8, 16))
    else:
        made["nodes_per_leaf"] = rng.randint(1, nodes)
    if rng.random() < 0.5:
        made["spines"] = rng.randint(1, 5)
    if rng.random() < 0.3:
        made["ecmp"] = rng.choice(("hash", "adaptive"))
        if made["ecmp"] == "hash":
            made["seed"] = rng.randint(0, 9)
    return made
