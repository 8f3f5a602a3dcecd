"""
Speed of NCCL's search and of a full bench, in CPU seconds:

    pytest benchmarks/test_speed_nccl.py -m benchmark --benchmark-enable

Bars (CPU seconds on a quiet machine): 8 B to 8 GiB, all algorithms: 16 nodes 2 s, 128 nodes 10 s,
2,048 nodes 60 s and 2 GiB; the graph search of a node 1 s.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from commsim.cluster import Cluster
from commsim.libraries.nccl.communicator.communicator import communicator_of
from commsim.study.bench.bench import bench

pytestmark = [pytest.mark.benchmark(timer=time.process_time)]

SIZES = [8 << k for k in range(31)]
OPS = "all_reduce,all_gather,reduce_scatter,broadcast,reduce,all_to_all,gather,scatter,send_recv"


@pytest.mark.parametrize(("nodes", "bar"), [(16, 2.0), (128, 10.0), (2048, 60.0)])
@pytest.mark.parametrize("ops", ["all_reduce", OPS], ids=["all_reduce", "nine ops"])
def test_full_sweep(benchmark: Any, nodes: int, bar: float, ops: str) -> None:
    cluster = Cluster.preset("dgx-h100", nodes=nodes)
    benchmark.extra_info["bar_s"] = bar
    result = benchmark.pedantic(
        lambda: bench(cluster, ops, SIZES, algo="all"), rounds=2 if nodes < 2048 else 1
    )
    assert len(result.results) > 200


@pytest.mark.parametrize("preset", ["dgx-1v", "dgx-a100", "dgx-h100", "gb200-nvl72", "pcie-a100"])
def test_search_of_one_node(benchmark: Any, preset: str) -> None:
    cluster = Cluster.preset(preset, nodes=18 if preset == "gb200-nvl72" else 1)
    ranks = range(cluster.world_size)

    def fresh() -> float:
        """Search under an environment that no run before has asked for: nothing is kept."""
        begin = time.process_time()
        communicator_of(cluster, ranks, env={"NCCL_BUFFSIZE": str(4194304 + time.monotonic_ns() % 4096 * 16)})  # fmt: skip  # noqa: E501
        return time.process_time() - begin

    benchmark.extra_info["bar_s"] = 1.0
    assert benchmark.pedantic(fresh, rounds=3) > 0
