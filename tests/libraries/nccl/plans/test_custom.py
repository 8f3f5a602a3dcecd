"""Algorithms from MSCCL files with NCCL's launch, latencies and rates."""

from __future__ import annotations

import pytest
from helpers.paths import TESTS

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.libraries import LibrarySection, Request, make_library
from commsim.study.bench.bench import bench

FILES = TESTS / "data" / "msccl"
H100 = Cluster.preset("dgx-h100")
RANKS = (0, 1, 2, 3)


def times(name: str, size: int, *, network: str = "fluid") -> float:
    result = bench(
        H100, "all_reduce", [size], algo=str(FILES / name), gpus_per_node=4, network=network
    )
    return result.results[0].time_us


@pytest.mark.parametrize("size", [2**10, 2**20, 2**26])
@pytest.mark.parametrize("name", ["ring_all_reduce.xml", "all_pairs_all_reduce.xml"])
def test_flows_and_messages_agree(name: str, size: int) -> None:
    assert times(name, size, network="steps") == pytest.approx(times(name, size), rel=1e-6)


def test_all_pairs_beats_the_ring_when_small() -> None:
    ring = bench(H100, "all_reduce", [1024], gpus_per_node=4).results[0]
    assert (ring.algo, ring.proto) == ("Ring", "LL")
    assert times("all_pairs_all_reduce.xml", 1024) < 0.75 * ring.time_us


def test_two_channels_copy_less_than_nccl_s_own() -> None:
    own = bench(H100, "all_reduce", [2**28], gpus_per_node=4, algo="ring").results[0]
    assert times("ring_all_reduce.xml", 2**28) > 2 * own.time_us


def test_other_ops_are_nccl_s_own() -> None:
    section = LibrarySection("nccl", algo=str(FILES / "ring_all_reduce.xml"))
    library = make_library(section, H100)
    own = make_library(LibrarySection("nccl"), H100)
    request = Request("all_gather", 2**20, RANKS)
    assert library.plan(request, H100).algorithm == own.plan(request, H100).algorithm


def test_another_number_of_gpus_is_refused() -> None:
    section = LibrarySection("nccl", algo=str(FILES / "ring_all_reduce.xml"))
    with pytest.raises(ScenarioError, match="is an all_reduce of 4 GPUs, and all_reduce of 2"):
        make_library(section, H100).plan(Request("all_reduce", 64, (0, 1)), H100)


def test_files_run_by_themselves() -> None:
    with pytest.raises(ScenarioError, match="by itself"):
        bench(H100, "all_reduce", [64], algo=["ring", str(FILES / "ring_all_reduce.xml")])
