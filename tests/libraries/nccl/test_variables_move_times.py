"""Variables move the time of a choice, or are named as followed in the choice only."""

from __future__ import annotations

from functools import cache

import pytest

from commsim.cluster import Cluster
from commsim.libraries import LibrarySection
from commsim.libraries.nccl.env import knobs_of, variables
from commsim.study.bench import bench

CHOICE_ONLY = [name for name, variable in variables().items() if variable.choice_only]
SIZES = (1 << 10, 1 << 18, 1 << 26)
OPS = "all_reduce,all_gather,all_to_all,send_recv"
PLACES = (("dgx-h100", 2), ("dgx-h100", 1))


@cache
def times(preset: str, nodes: int, name: str = "", value: int = 0) -> dict[object, float]:
    section = LibrarySection("nccl", env={name: value} if name else {})
    cluster = Cluster.preset(preset, nodes=nodes)
    rows = bench(cluster, OPS, SIZES, algo="all", library=section).results
    return {(row.op, row.size, row.algo, row.proto): row.time_us for row in rows}


def moves(name: str, value: int) -> bool:
    return any(times(*place) != times(*place, name, value) for place in PLACES)


@pytest.mark.parametrize("name", CHOICE_ONLY)
def test_choice_only_is_what_moves_no_time_and_says_so(name: str) -> None:
    default = variables()[name].default or 1000
    assert not moves(name, int(default) // 4)
    (note,) = knobs_of({name: int(default) // 4}).notes
    assert "in what NCCL chooses alone" in note


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_BUFFSIZE", 1 << 20), ("NCCL_NTHREADS", 64), ("NCCL_NVLS_CHUNKSIZE", 1 << 15),
        ("NCCL_NVLSTREE_MAX_CHUNKSIZE", 1 << 14), ("NCCL_NCHANNELS_PER_NET_PEER", 8),
        ("NCCL_MAX_P2P_NCHANNELS", 1), ("NCCL_MAX_NCHANNELS", 2),
    ],
)  # fmt: skip
def test_chunks_threads_and_channels_move_times(name: str, value: int) -> None:
    assert moves(name, value)
