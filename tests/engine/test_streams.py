"""Streams by callbacks against SimPy processes: the same timeline, to the picosecond."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from helpers.random_graphs import MS, random_graph, same_timeline

from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.engine.core import Engine
from commsim.engine.streams import Process
from commsim.graph import GraphBuilder, OpKind
from commsim.libraries import Ideal
from commsim.libraries.nccl import Nccl
from commsim.timeline import Timeline

CLUSTERS = {
    "dgx-1v": Cluster.preset("dgx-1v"),
    "two pcie-a100": Cluster.preset("pcie-a100", nodes=2),
}


class Reference:
    """A stream as one SimPy process that takes one op after the other."""

    def __init__(self, engine: Engine, lane: int, ops: list[int]) -> None:
        self.engine, self.lane, self.ops = engine, lane, ops

    def begin(self, _: Any) -> None:
        self.engine.env.process(self.work())

    def work(self) -> Process:
        engine, at, before = self.engine, 0, -1
        offset = int(engine.graph.lane_offset[self.lane])
        if offset:
            yield engine.env.timeout(offset)
        while at < len(self.ops):
            together = [self.ops[at]]
            batch = engine.batch[together[0]]
            while batch >= 0 and at + len(together) < len(self.ops):
                if engine.batch[self.ops[at + len(together)]] != batch:
                    break
                together.append(self.ops[at + len(together)])
            for op in together:
                yield from engine.ready(op)
            arrived = engine.env.now
            if len(together) == 1:
                yield from engine.execute(together[0], arrived, before)
            else:
                yield engine.env.all_of(
                    [engine.env.process(engine.execute(op, arrived, before)) for op in together]
                )
            before, at = together[-1], at + len(together)


def run(seed: int, where: str, network: str, **how: Any) -> Timeline:
    cluster, library = CLUSTERS[where], how.pop("library", Ideal())
    graph = random_graph(seed, cluster.world_size)
    return simulate(graph, cluster, library=library, network=network, **how)


def faults(seed: int, engine: Engine) -> Process:
    """Slow GPUs and links down, and let them recover, at random times."""
    rng = np.random.default_rng(seed)
    lanes, links = len(engine.graph.lane_rank), len(CLUSTERS["dgx-1v"].links)
    for _ in range(12):
        yield engine.env.timeout(int(rng.integers(0, MS // 4)))
        engine.set_pace(int(rng.integers(lanes)), float(rng.choice([0.25, 0.5, 1.0])))
        engine.set_link(int(rng.integers(links)), float(rng.choice([0.1, 0.5, 1.0])))


@pytest.mark.parametrize("network", ["fluid", "steps"])
@pytest.mark.parametrize("where", sorted(CLUSTERS))
@pytest.mark.parametrize("seed", range(6))
def test_callbacks_do_what_processes_do(
    seed: int, where: str, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(seed, where, network)
    monkeypatch.setattr(sys.modules["commsim.engine.core"], "EngineStream", Reference)
    expected = run(seed, where, network)
    same_timeline(found, expected)


@pytest.mark.long
@pytest.mark.parametrize("seeds", [range(100, 200), range(200, 300)], ids=str)
def test_callbacks_do_what_processes_do_while_gpus_and_links_come_and_go(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL's kernels take SMs from compute beside it."""
    library, slowed = Nccl(), 0
    for seed in seeds:
        how = {"library": library, "extensions": [partial(faults, seed)]}
        found = run(seed, "dgx-1v", "fluid", **how)
        with monkeypatch.context() as processes:
            processes.setattr(sys.modules["commsim.engine.core"], "EngineStream", Reference)
            same_timeline(found, run(seed, "dgx-1v", "fluid", **how))
        graph = found.graph
        computes = (graph.kind == OpKind.COMPUTE) & (graph.duration > 0)
        slowed += bool((found.end - found.start > graph.duration)[computes].any())
    assert slowed > len(seeds) / 2


@pytest.mark.parametrize("delay", [0, 1, 2, 1000])
@pytest.mark.parametrize("wait", [0, 5, 1000])
def test_a_delay_counts_to_the_picosecond(delay: int, wait: int) -> None:
    """Whether the stream comes to the op before its cause has ended (at 10 ps), or later."""
    build = GraphBuilder()
    lane = build.lane(0)
    cause = build.compute(lane, 10, name="cause", stream="a")
    build.compute(lane, wait, name="before", stream="b")
    op = build.compute(lane, 3, name="op", stream="b", after=[(cause, delay)])
    last = build.compute(lane, 4, name="last", stream="c", after=[(op, delay)])
    line = simulate(build.build(), None, library=Ideal())
    end = dict(zip(line.op.tolist(), line.end.tolist(), strict=True))
    assert end[op] == max(wait, 10 + delay) + 3
    assert end[last] == end[op] + delay + 4
