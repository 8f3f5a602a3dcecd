"""
How fast: CPU seconds, best of several.

    pytest benchmarks -m benchmark --benchmark-enable

Figures of the issue: a 1 GiB ring all-reduce over 1,024 GPUs as a plan under 50 ms of simulation,
`commsim --help` under 0.25 s, the quickstart under 5 s, load and replay of the DLRM trace under
10 s. Nothing here fails for being slow.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.graph import Graph, GraphBuilder
from commsim.libraries import Ideal
from commsim.study.replay import replay
from commsim.study.run import run

pytestmark = [pytest.mark.benchmark(timer=time.process_time, min_rounds=5)]

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def one_all_reduce(ranks: int) -> Graph:
    build = GraphBuilder()
    world = build.group("world", range(ranks))
    for rank in range(ranks):
        build.collective(build.lane(rank), world, "all_reduce", 2**30, stream="dp")
    return build.build()


def test_ring_of_1024_simulated(benchmark: Any) -> None:
    """The plan is there already, as for the second bucket of a step."""
    cluster, graph, library = Cluster.preset("dgx-h100", nodes=128), one_all_reduce(1024), Ideal()
    simulate(graph, cluster, library=library)
    benchmark(simulate, graph, cluster, library=library)


def test_ring_of_1024_planned_and_simulated(benchmark: Any) -> None:
    cluster, graph = Cluster.preset("dgx-h100", nodes=128), one_all_reduce(1024)
    benchmark(lambda: simulate(graph, cluster, library=Ideal()))


def test_quickstart(benchmark: Any) -> None:
    benchmark(run, "quickstart")


def test_help(benchmark: Any) -> None:
    """Wall time of a process of its own: CPU time of children is not the timer's."""
    begin = time.perf_counter
    seconds = []

    def ask() -> None:
        start = begin()
        subprocess.run([sys.executable, "-m", "commsim", "--help"], check=True, capture_output=True)
        seconds.append(begin() - start)

    benchmark(ask)
    benchmark.extra_info["best_wall_s"] = min(seconds)
    print(f"\ncommsim --help: {min(seconds):.3f} s wall, best of {len(seconds)}")


def test_dlrm_load_and_replay(benchmark: Any) -> None:
    folder = SHARED / "traces" / "dev_param_dlrm_8xV100"
    if not folder.is_dir():
        pytest.skip("needs the recorded DLRM run that only the developers have")
    benchmark(replay, folder)
