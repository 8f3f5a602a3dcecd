"""
How fast a million spans are written: CPU seconds, and the memory that writing adds.

    pytest benchmarks/test_export_speed.py -m benchmark --benchmark-enable -s

Figures of the issue: Chrome JSON of 1e6 spans under 3 s, Perfetto protobuf under 15 s.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commsim.export import write_chrome, write_perfetto
from commsim.graph import GraphBuilder, OpKind
from commsim.timeline import LinkUse, Memory, Timeline

pytestmark = [pytest.mark.benchmark(timer=time.process_time, min_rounds=3)]

LANES = 64
WRITERS = {"json": write_chrome, "pftrace": write_perfetto}


@cache
def a_million_spans() -> Timeline:
    """64 ranks, each with kernels of 200 names and an all-reduce after every fourth."""
    build = GraphBuilder()
    world = build.group("world", range(LANES))
    for lane in range(LANES):
        build.lane(lane)
        for at in range(1_000_000 // LANES):
            if at % 5 == 4:
                build.collective(lane, world, "all_reduce", 2**20 + at % 7, stream="comm")
            else:
                build.compute(lane, 10**6 + (at * 37 + lane) % 5000, name=f"kernel_{at % 200}")
    graph = build.build()
    long = np.where(graph.duration >= 0, graph.duration, 700_000)
    end = np.zeros(len(graph), np.int64)
    for lane in range(LANES):
        end[graph.lane == lane] = np.cumsum(long[graph.lane == lane])
    start = end - long
    arrive = start - 300 * (graph.kind == OpKind.COLLECTIVE)  # each waits a little
    none = np.zeros(0, np.int64)
    return Timeline(
        graph, np.arange(len(graph)), arrive, start, end, np.full(len(graph), -1),
        np.zeros(len(graph), np.uint8), LinkUse.nothing(), Memory(none, none, none),
    )  # fmt: skip


@pytest.mark.parametrize("suffix", list(WRITERS))
def test_a_million_spans(benchmark: Any, tmp_path: Path, suffix: str) -> None:
    write, path = WRITERS[suffix], tmp_path / f"trace.{suffix}"
    benchmark(write, a_million_spans(), path)
    print(
        f"\n{suffix}: {path.stat().st_size / 1e6:.0f} MB, {_added(write, path):.0f} MB to write it"
    )


def _added(write: Callable[[Timeline, Path], None], path: Path) -> float:
    """Return the MB at the peak of writing, beyond the timeline."""
    timeline = a_million_spans()
    tracemalloc.start()
    write(timeline, path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6
