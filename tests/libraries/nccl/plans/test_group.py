"""NCCL on groups of any ranks in any order: plans exist, keep to the bound and never fall."""

from __future__ import annotations

import random

import pytest
from helpers.share import examples
from hypothesis import example, given
from hypothesis import strategies as st

from commsim.cluster import Cluster
from commsim.cluster.section import cluster_from
from commsim.errors import ScenarioError
from commsim.libraries import Plan, Request
from commsim.libraries.nccl.plans.group import NcclGroup, Site
from commsim.libraries.nccl.plans.library import Nccl
from commsim.metrics.bound import bound

PLACES = [
    Cluster.preset(name, nodes=nodes)
    for name, nodes in [
        ("dgx-h100", 2), ("dgx-b200", 3), ("dgx-1v", 2), ("perlmutter", 3), ("aws-g5", 2),
        ("gb200-nvl72", 20), ("pcie-a40-bridges", 2),
    ]
] + [
    cluster_from(
        {"nodes": [{"preset": "dgx-h100"}, {"preset": "dgx-a100"}], "fabric": {"kind": "fat_tree"}},
        "unlike nodes",
    )
]  # fmt: skip
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all",
       "gather", "scatter")  # fmt: skip
SETTINGS: tuple[dict[str, str], ...] = (
    {}, {"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Tree"}, {"NCCL_ALGO": "NVLSTree"},
    {"NCCL_ALGO": "NVLS"}, {"NCCL_PROTO": "LL"}, {"NCCL_PROTO": "Simple"},
)  # fmt: skip
IN_SWITCHES = ("NVLS", "NVLSTree")
LIBRARIES = [[Nccl(env=env) for env in SETTINGS] for _ in PLACES]


def made(place: int, setting: int, op: str, size: int, ranks: tuple[int, ...]) -> Plan | None:
    """Return a plan; None if NCCL stops too."""
    root = len(ranks) // 2 if op in ("broadcast", "reduce", "gather", "scatter") else -1
    request = Request(op, size, ranks, root=root)
    try:
        return LIBRARIES[place][setting].plan(request, PLACES[place])
    except ScenarioError as error:
        if "NCCL stops here too" not in str(error):
            raise
        return None


def threads(place: int, setting: int, op: str, size: int, ranks: tuple[int, ...]) -> int:
    """Return the threads of a channel; 0 for what does not choose by size.

    With twice the threads a chunk is twice as long, and one loop may take less than two did.
    """
    if op in ("all_to_all", "gather", "scatter"):
        return 0
    return LIBRARIES[place][setting].group(ranks, PLACES[place]).choose(op, size).threads


@examples(60)
@example(5, 0, "all_gather", 16, 18, 4, 196608)  # a rack that a machine's only GPU leaves by NVLink
@example(0, 0, "all_reduce", 3, 0, 2452, 3072)  # twice the threads: one loop where it took two
@given(
    st.integers(0, len(PLACES) - 1), st.integers(0, len(SETTINGS) - 1), st.sampled_from(OPS),
    st.integers(2, 24), st.integers(0, 2**32), st.integers(4, 2**31), st.integers(4, 2**31),
)  # fmt: skip
def test_any_group(
    place: int, setting: int, op: str, count: int, seed: int, one: int, other: int
) -> None:
    cluster = PLACES[place]
    drawn = random.Random(seed)
    ranks = tuple(drawn.sample(range(cluster.world_size), min(count, cluster.world_size)))
    small, large = (made(place, setting, op, size, ranks) for size in sorted((one, other)))
    for plan, size in zip((small, large), sorted((one, other)), strict=True):
        if plan is None:
            continue
        least = bound(
            cluster, op, size, ranks, in_network=plan.algorithm.split()[0] in IN_SWITCHES,
            root=len(ranks) // 2,
        )  # fmt: skip
        assert plan.idle >= least.seconds * 1e12 * (1 - 1e-9)
    if small and large and (small.algorithm, small.channels) == (large.algorithm, large.channels):
        sizes = sorted((one, other))
        narrow, wide = (threads(place, setting, op, size, ranks) for size in sizes)
        assert small.idle <= large.idle or narrow < wide


@pytest.mark.parametrize("algo", ["Ring", "Tree", "NVLSTree"])
@pytest.mark.parametrize("op", ["all_reduce"])
def test_ranks_dealt_over_nodes_in_turn_take_as_long_as_node_by_node(algo: str, op: str) -> None:
    cluster = PLACES[0]
    in_turn = tuple(rank for pair in zip(range(8), range(8, 16), strict=True) for rank in pair)
    times = [
        Nccl(env={"NCCL_ALGO": algo, "NCCL_PROTO": "Simple"})
        .plan(Request(op, 2**30, ranks), cluster)
        .idle
        for ranks in (tuple(range(16)), in_turn)
    ]
    assert times[1] == pytest.approx(times[0], rel=0.01)


@pytest.mark.parametrize(("op", "away"), [("send_recv", 1), ("all_to_all", 8), ("gather", 8)])
def test_routes_of_sends_go_to_the_next_rank_or_half_way_round(op: str, away: int) -> None:
    cluster = Cluster.preset("dgx-h100", nodes=2)
    group = NcclGroup(Site(cluster), range(16))
    routed = group._routed(op, None)
    ends = sorted(zip(routed.source.tolist(), routed.target.tolist(), strict=True))
    assert ends == [(rank, (rank + away) % 16) for rank in range(16)]
    alone = NcclGroup(Site(cluster), [3])._routed("all_to_all", None)
    assert (alone.source.tolist(), alone.target.tolist()) == ([3], [3])
