"""Variables move the time of a choice, or are named as followed in the choice only."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest

from commsim.cluster import Cluster
from commsim.libraries import LibrarySection
from commsim.libraries.nccl.env import knobs_of, variables
from commsim.study.bench import bench, bench_seconds

CHOICE_ONLY = [name for name, variable in variables().items() if variable.choice_only]
SIZES = (1 << 10, 1 << 18, 1 << 26)
OPS = "all_reduce,all_gather,all_to_all,send_recv"
PLACES = (("dgx-h100", 2), ("dgx-h100", 1))
MOVES: dict[str, Any] = {
    "NCCL_ALGO": ("all_reduce", "dgx-h100", 2, "Ring"),
    "NCCL_PROTO": ("all_reduce", "dgx-h100", 2, "Simple"),
    "NCCL_MIN_NCHANNELS": ("all_gather", "dgx-h100", 2, 32),
    "NCCL_MAX_NCHANNELS": ("all_gather", "dgx-h100", 2, 2),
    "NCCL_MIN_CTAS": ("all_gather", "dgx-h100", 2, 32),
    "NCCL_MAX_CTAS": ("all_gather", "dgx-h100", 2, 2),
    "NCCL_NTHREADS": ("all_gather", "dgx-h100", 1, 64),
    "NCCL_LL_BUFFSIZE": ("send_recv", "dgx-h100", 1, 1 << 13),
    "NCCL_LL128_NTHREADS": ("all_reduce", "dgx-a100", 2, 160),
    "NCCL_THREAD_THRESHOLDS": ("all_gather", "dgx-h100", 1, "512 512 512 512 512 512"),
    "NCCL_BUFFSIZE": ("all_gather", "dgx-a100", 1, 1 << 18),
    "NCCL_NVLS_ENABLE": ("all_reduce", "dgx-h100", 1, 0),
    "NCCL_NVLS_NCHANNELS": ("all_reduce", "dgx-h100", 1, 4),
    "NCCL_NVLS_CHUNKSIZE": ("all_reduce", "dgx-h100", 1, 1 << 14),
    "NCCL_NVLSTREE_MAX_CHUNKSIZE": ("all_reduce", "dgx-h100", 2, 1 << 14),
    "NCCL_PAT_ENABLE": ("all_gather", "l40s-ethernet", 32, 0),
    "NCCL_COLLNET_ENABLE": ("all_reduce", "dgx-h100", 4, 1),
    "NCCL_COLLNET_NODE_THRESHOLD": ("all_reduce", "dgx-h100", 4, 8),
    "NCCL_LL128_C2C": ("all_reduce", "alps", 4, 0),
    "NCCL_CROSS_NIC": ("all_gather", "dgx-a100", 2, 1),
    "NCCL_P2P_LEVEL": ("all_gather", "pcie-a100", 1, "LOC"),
    "NCCL_P2P_DISABLE": ("all_gather", "dgx-h100", 1, 1),
    "NCCL_SHM_DISABLE": ("all_gather", "aws-g5", 2, 1),
    "NCCL_PXN_DISABLE": ("send_recv", "dgx-h100", 2, 1),
    "NCCL_PXN_C2C": ("all_gather", "alps", 2, 1),
    "NCCL_NET_GDR_LEVEL": ("all_gather", "aws-p4d", 2, "LOC"),
    "NCCL_NET_GDR_C2C": ("all_gather", "alps", 2, 0, "2.28"),
    "NCCL_NETDEVS_POLICY": ("all_to_all", "dgx-a100", 2, "MAX:1", "2.29"),
    "NCCL_MNNVL_ENABLE": ("all_gather", "gb200-nvl72", 2, 0),
    "NCCL_IB_MERGE_NICS": ("all_gather", "oci-h100", 2, 0),
    "NCCL_NET_MERGE_LEVEL": ("all_gather", "oci-h100", 2, "LOC"),
    "NCCL_MIN_P2P_NCHANNELS": ("all_to_all", "dgx-1v", 1, 32),
    "NCCL_MAX_P2P_NCHANNELS": ("all_to_all", "dgx-h100", 2, 1),
    "NCCL_NCHANNELS_PER_NET_PEER": ("send_recv", "dgx-h100", 2, 8),
    "NCCL_P2P_NET_CHUNKSIZE": ("send_recv", "dgx-h100", 2, 1 << 15),
    "NCCL_P2P_PCI_CHUNKSIZE": ("send_recv", "pcie-a100", 1, 1 << 15),
    "NCCL_P2P_NVL_CHUNKSIZE": ("send_recv", "dgx-h100", 1, 1 << 16),
    "NCCL_P2P_LL_THRESHOLD": ("send_recv", "dgx-h100", 1, 0),
    "NCCL_P2P_PER_CHANNEL_NET_BW": ("send_recv", "dgx-h100", 2, 50, "2.29"),
    "NCCL_ALLOC_P2P_NET_LL_BUFFERS": ("send_recv", "dgx-h100", 2, 1),
}
"""Op, preset, nodes, a value, and the release where not 2.27: where each variable moves a time."""
WITH = {"NCCL_COLLNET_NODE_THRESHOLD": {"NCCL_COLLNET_ENABLE": 1}}


@cache
def times(preset: str, nodes: int, name: str = "", value: int = 0) -> dict[object, float]:
    section = LibrarySection("nccl", env={name: value} if name else {})
    cluster = Cluster.preset(preset, nodes=nodes)
    # sizes at which the fastest changes are half the work, and not looked at
    with patch.object(sys.modules["commsim.study.bench.bench"], "fastest_changes", lambda *_: []):
        rows = bench(cluster, OPS, SIZES, algo="all", library=section).results
    return {(row.op, row.size, row.algo, row.proto): row.time_us for row in rows}


@pytest.mark.parametrize("name", CHOICE_ONLY)
def test_choice_only_is_what_moves_no_time_and_says_so(name: str) -> None:
    default = variables()[name].default
    value = 1 - int(default or 0) if variables()[name].type == "bool" else int(default or 1000) // 4
    assert all(times(*place) == times(*place, name, value) for place in PLACES)
    (note,) = knobs_of({name: value}).notes
    assert "in what NCCL chooses alone" in note


def test_every_variable_is_shown_to_move_a_time_or_named() -> None:
    followed = {name for name, v in variables().items() if v.does == "modelled" and not v.alias}
    assert followed == set(MOVES) | set(CHOICE_ONLY)


@pytest.mark.share(0.6)
@pytest.mark.parametrize("name", list(MOVES))
def test_a_variable_moves_a_time(name: str) -> None:
    op, preset, nodes, value, *release = MOVES[name]
    cluster, env = Cluster.preset(preset, nodes=nodes), WITH.get(name, {})
    usual, changed = (
        bench_seconds(
            cluster,
            op,
            SIZES,
            library=LibrarySection("nccl", env=given, version=(release or ["2.27"])[0]),
        )
        for given in (env, {**env, name: value})
    )
    assert usual != changed
