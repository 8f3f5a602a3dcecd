"""What five runs may cost, in events of the clock, calls of Python and bytes at their peak.

Counts are the same on every machine, so that a slip shows. Each budget leaves a tenth.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import pytest
from helpers.counting import python_calls

from commsim.cluster import Cluster
from commsim.engine import Engine, simulate
from commsim.graph import Graph, GraphBuilder
from commsim.libraries import Ideal

MS = 10**9


class Work(NamedTuple):
    """A graph, where it runs, and how."""

    graph: Graph
    cluster: Cluster
    library: Ideal
    network: str = "fluid"


class Cost(NamedTuple):
    """What a run took, per op but for `peak`, which is bytes per op."""

    events: float
    calls: float
    peak: float


def ring() -> Work:
    """One all-reduce of 1,024 ranks."""
    build = GraphBuilder()
    world = build.group("world", range(1024))
    for rank in range(1024):
        build.collective(build.lane(rank), world, "all_reduce", 2**30, stream="dp")
    return Work(build.build(), Cluster.preset("dgx-h100", nodes=128), Ideal())


def replicas_of_cut_layers() -> Work:
    """Eight layers cut over nodes of 8 ranks, gradients reduced over 4 nodes; no rank folded."""
    build, world = GraphBuilder(), 32
    lanes = [build.lane(rank) for rank in range(world)]
    tp = [build.group(f"tp{n}", range(8 * n, 8 * n + 8)) for n in range(4)]
    dp = [build.group(f"dp{n}", range(n, world, 8)) for n in range(8)]
    for layer in range(8):
        for rank, lane in enumerate(lanes):
            done = build.compute(lane, MS + rank * 1000, name=f"layer {layer}", traffic=1e9)
            build.collective(lane, tp[rank // 8], "all_reduce", 1 << 24, stream="tp", after=[done])
            build.collective(lane, dp[rank % 8], "all_reduce", 1 << 25, stream="dp", after=[done])
    return Work(build.build(), Cluster.preset("dgx-h100", nodes=4), Ideal())


def pipeline() -> Work:
    """Messages forward and back between 8 ranks, 32 times."""
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in range(8)]
    world = build.group("world", range(8))
    for _ in range(32):
        for rank, lane in enumerate(lanes):
            came = []
            if rank:
                came = [build.recv(lane, rank - 1, 1 << 20, group=world, stream="in")]
            done = build.compute(lane, MS, name="F", after=came)
            if rank < 7:
                build.send(lane, rank + 1, 1 << 20, group=world, stream="out", after=[done])
    return Work(build.build(), Cluster.preset("dgx-h100"), Ideal())


def crossing() -> Work:
    """Sixty-four messages at once that share links, and end one after the other."""
    build, world = GraphBuilder(), 32
    lanes = [build.lane(rank) for rank in range(world)]
    group = build.group("world", range(world))
    for step in (1, 9):
        for rank, lane in enumerate(lanes):
            size, peer = (1 << 20) + 4096 * rank, (rank + step) % world
            build.send(lane, peer, size, group=group, stream=f"out {step}")
            size = (1 << 20) + 4096 * ((rank - step) % world)
            build.recv(lane, (rank - step) % world, size, group=group, stream=f"in {step}")
    return Work(build.build(), Cluster.preset("dgx-1v", nodes=4), Ideal())


def messages() -> Work:
    """An all-reduce of 16 ranks, message by message."""
    build = GraphBuilder()
    world = build.group("world", range(16))
    for rank in range(16):
        build.collective(build.lane(rank), world, "all_reduce", 1 << 24, stream="dp")
    return Work(build.build(), Cluster.preset("dgx-h100", nodes=2), Ideal("ring"), "steps")


def cost(work: Work) -> Cost:
    """Run once to plan, and once more for what a run costs."""
    engines: list[Engine] = []

    def seen(engine: Engine) -> Generator[Any, Any, None]:
        engines.append(engine)
        yield engine.env.timeout(0)

    def run() -> None:
        simulate(
            work.graph, work.cluster, library=work.library, network=work.network, extensions=[seen]
        )

    run()
    calls = python_calls(run)
    peak = peak_memory(run)
    ops = len(work.graph)
    return Cost(next(engines[-1].env._eid) / ops, calls / ops, peak / ops)


def peak_memory(run: Callable[[], None]) -> int:
    """Return the most bytes that a call holds at a time, what waits for the collector included.

    When the collector runs depends on the tests before: it does not here.
    """
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.parametrize(("make", "budget"), [
    pytest.param(ring, Cost(1.03, 38, 5500), id="ring"),
    pytest.param(replicas_of_cut_layers, Cost(0.98, 18.3, 650), id="replicas of cut layers"),
    pytest.param(pipeline, Cost(1.36, 24.6, 680), id="pipeline"),
    pytest.param(crossing, Cost(1.86, 124, 2620), id="crossing messages"),
    pytest.param(messages, Cost(128, 9510, 226_000), id="messages"),
])  # fmt: skip
def test_a_run_stays_in_its_budget(make: Callable[[], Work], budget: Cost) -> None:
    found = cost(make())
    for name in Cost._fields:
        assert getattr(found, name) <= getattr(budget, name) * 1.1, f"{name}: {found}"
