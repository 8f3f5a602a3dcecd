"""What NCCL forgoes it does not load: no NVLink without P2P, host memory without GPUDirect."""

from __future__ import annotations

from typing import Any

import pytest

from commsim.cluster import Cluster
from commsim.libraries.nccl.env import knobs_of
from commsim.libraries.nccl.plans.group import NcclGroup, Site


def loaded(preset: str, nodes: int, op: str, env: dict[str, Any]) -> tuple[dict[str, float], float]:
    """Return what each kind of link carries for a byte of S, and the seconds of 256 MiB."""
    cluster = Cluster.preset(preset, nodes=nodes)
    group = NcclGroup(Site(cluster, knobs=knobs_of(env)), range(cluster.world_size))
    choice = group.choose(op, 1 << 28) if op.startswith("all_g") else None
    loads = group.loads(op, choice, -1)
    carried: dict[str, float] = {}
    for link, share in zip(loads.link.tolist(), loads.share.tolist(), strict=True):
        kind = cluster.links.kinds[link]
        carried[kind] = carried.get(kind, 0.0) + share
    seconds = group.timing(op, [1 << 28], [choice] if choice else None).seconds
    return carried, float(seconds[0])


@pytest.mark.parametrize("op", ["all_gather", "all_to_all"])
@pytest.mark.parametrize("preset", ["dgx-a100", "pcie-a100"])
def test_without_peer_access_bytes_pass_host_memory(preset: str, op: str) -> None:
    direct, quick = loaded(preset, 1, op, {})
    staged, slow = loaded(preset, 1, op, {"NCCL_P2P_DISABLE": 1})
    assert staged.get("nvlink", 0.0) == 0.0
    assert "memory" not in direct
    # into memory and out of it: what links between GPUs carried, on two ways each
    links = direct.get("nvlink", 0.0) / 2 or direct["pcie"] / 2
    assert staged["memory"] == pytest.approx(2 * links, rel=0.35)
    assert slow > 2 * quick


def test_a_level_keeps_the_ways_below_it() -> None:
    none, pairs, all_ways = (
        loaded("pcie-l40s", 1, "all_to_all", {"NCCL_P2P_LEVEL": level})[0].get("memory", 0.0)
        for level in ("LOC", "PIX", "SYS")
    )
    assert all_ways == 0
    assert pairs == pytest.approx(none * 6 / 7, rel=1e-9)  # each reads the one under its switch


@pytest.mark.parametrize("op", ["all_gather", "all_to_all", "send_recv"])
def test_without_gpudirect_what_leaves_a_node_passes_its_memory(op: str) -> None:
    direct, quick = loaded("aws-p4d", 2, op, {})
    staged, slow = loaded("aws-p4d", 2, op, {"NCCL_NET_GDR_LEVEL": "LOC"})
    assert "memory" not in direct
    assert staged["memory"] == pytest.approx(2 * staged["network"] * _MEMORY_PER_WIRE, rel=1e-9)
    assert slow > quick


_MEMORY_PER_WIRE = 1.0  # of a link out of a NIC and one into another: in and out of two memories
