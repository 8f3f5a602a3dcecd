"""What NCCL forgoes it does not load: no NVLink without P2P, host memory without GPUDirect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from commsim.cluster import Cluster, Links, Route
from commsim.libraries.nccl.env import knobs_of
from commsim.libraries.nccl.plans import detours
from commsim.libraries.nccl.plans.group import NcclGroup, Site
from commsim.libraries.nccl.shapes import PathType


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


@pytest.mark.parametrize(
    ("ends", "kinds", "level"),
    [
        (["gpu0", "nvswitch", "gpu1"], ["nvlink", "nvlink"], PathType.NVL),
        (["gpu0", "gpu1"], ["nvlink"], PathType.NVL),
        (["gpu0", "pcie0", "gpu1"], ["pcie", "pcie"], PathType.PIX),
        (["gpu0", "pcie0", "pcie1", "gpu1"], ["pcie"] * 3, PathType.PXB),
        (["gpu0", "pcie0", "pcie1", "pcie2", "gpu1"], ["pcie"] * 4, PathType.PXB),
        (["gpu0", "cpu0", "gpu1"], ["pcie", "pcie"], PathType.PHB),
        (["gpu0", "pcie0", "cpu0", "pcie1", "gpu1"], ["pcie"] * 4, PathType.PHB),
        (["gpu0", "cpu0", "cpu1", "gpu1"], ["pcie", "cpu", "pcie"], PathType.SYS),
    ],
)
def test_ways_have_the_names_that_nccl_gives_them(
    ends: list[str], kinds: list[str], level: PathType
) -> None:
    """A PCIe switch is PIX, several are PXB, a CPU is PHB, and from one to another SYS."""
    count, ends = len(kinds), [f"node0/{end}" for end in ends]
    ones = np.ones(count)
    links = Links(
        (*"abcd",)[:count], tuple(kinds), ("",) * count, ones, ones, ones,
        np.zeros(count, np.int64), tuple(ends[:-1]), tuple(ends[1:]),
    )  # fmt: skip
    way = Route(tuple(range(count)), (1.0,) * count, tuple(range(count)), 0)
    kept = [most for most in PathType if detours._within(most, links)(way)]
    assert kept == [most for most in PathType if most >= level]
