"""The engine over tables against the one on SimPy: the same timelines, to the picosecond."""

from __future__ import annotations

import sys
import zlib
from typing import Any

import numpy as np
import pytest
from helpers.invariants import broken
from helpers.random_graphs import MS, random_graph, same_timeline
from helpers.random_scenarios import scenario

import commsim as cs
from commsim.cluster import Cluster
from commsim.compiled import can_compile
from commsim.engine import Planner, simulate
from commsim.engine.columns import ColumnsEngine, NotInColumnsError
from commsim.engine.columns import executor as columns
from commsim.engine.columns.loop import run_events
from commsim.engine.faults import Target, TimedChange, TimedChanges
from commsim.graph import Graph, GraphBuilder, OpKind
from commsim.libraries import Ideal, Library, Plan, PlanPart, PlanPhase, Request, Start
from commsim.libraries.gloo import Gloo
from commsim.libraries.nccl import Nccl
from commsim.timeline import Timeline

CLUSTERS = {
    "dgx-1v": Cluster.preset("dgx-1v"),
    "two pcie-a100": Cluster.preset("pcie-a100", nodes=2),
}
LIBRARIES: dict[str, Library] = {"ideal": Ideal(), "nccl": Nccl()}


def in_columns(graph: Graph, where: Cluster | None, library: Library, **how: Any) -> Timeline:
    """Run a graph over tables: compiled if `compile`, else by the same functions interpreted."""
    how = {"compile": False, **how}
    engine = ColumnsEngine(graph, where, library, planner=Planner(graph, where, library), **how)
    engine.run()
    assert engine.done
    assert engine.share_done() == 1.0
    return engine.timeline()


def changes(seed: int, where: Cluster) -> TimedChanges:
    """Slow GPUs and links down, and let them recover, at random times."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(12):
        lanes = tuple(rng.integers(where.world_size, size=int(rng.integers(1, 4))).tolist())
        links = tuple(rng.integers(len(where.links), size=2).tolist())
        left = float(rng.choice([0.1, 0.5, 1.0]))
        found.append(TimedChange(int(rng.integers(0, MS // 4)), Target.GPU, lanes, left))
        found.append(TimedChange(int(rng.integers(0, MS // 4)), Target.LINK, links, left))
    return TimedChanges(tuple(found))


@pytest.mark.parametrize("library", sorted(LIBRARIES))
@pytest.mark.parametrize("where", sorted(CLUSTERS))
@pytest.mark.parametrize("seed", range(5))
def test_tables_do_what_simpy_does(seed: int, where: str, library: str) -> None:
    cluster, by = CLUSTERS[where], LIBRARIES[library]
    graph = random_graph(seed, cluster.world_size)
    expected = simulate(graph, cluster, library=by, executor="simpy")
    found = in_columns(graph, cluster, by)
    same_timeline(found, expected)
    assert found.notes == expected.notes
    assert dict(found.choices) == dict(expected.choices)
    assert np.array_equal(found.memory.held, expected.memory.held)


@pytest.mark.parametrize("op", ["all_reduce", "broadcast", "all_gather"])
def test_what_gloo_copies_through_host_memory(op: str) -> None:
    """Each member copies out of its GPU before, and back after; they come at times of their own."""
    cluster, build = CLUSTERS["two pcie-a100"], GraphBuilder()
    world = cluster.world_size
    group = build.group("world", range(world))
    lanes = [build.lane(rank) for rank in range(world)]
    for step in range(3):
        for rank, lane in enumerate(lanes):
            build.compute(lane, (rank * 7 + step * 3) % 5 * MS // 3, name="c", stream="s")
            root = 1 if op == "broadcast" else -1
            build.collective(lane, group, op, 1 << 22, stream="s", root=root)
    graph = build.build()
    expected = simulate(graph, cluster, library=Gloo(), executor="simpy")
    same_timeline(in_columns(graph, cluster, Gloo()), expected)
    assert len(expected.links.start) > 6 * world


@pytest.mark.parametrize("seed", range(6))
def test_while_gpus_and_links_come_and_go(seed: int) -> None:
    """NCCL's kernels take SMs from compute beside it."""
    cluster, by = CLUSTERS["dgx-1v"], LIBRARIES["nccl"]
    graph, faults = random_graph(seed, cluster.world_size), changes(seed, cluster)
    expected = simulate(graph, cluster, library=by, extensions=[faults], executor="simpy")
    same_timeline(in_columns(graph, cluster, by, extensions=[faults]), expected)
    assert not np.array_equal(expected.end, simulate(graph, cluster, library=by).end)


@pytest.mark.skipif(not can_compile(), reason="numba (extra fast) is not installed")
@pytest.mark.parametrize("seeds", [range(100, 200), range(200, 300)], ids=str)
def test_compiled_code_does_what_simpy_does(seeds: range) -> None:
    for seed in seeds:
        cluster = CLUSTERS[sorted(CLUSTERS)[seed % 2]]
        by = LIBRARIES[("ideal", "nccl")[seed // 2 % 2]]
        graph = random_graph(seed, cluster.world_size)
        faults = [changes(seed, cluster)] if seed % 3 else []
        expected = simulate(graph, cluster, library=by, extensions=faults, executor="simpy")
        same_timeline(in_columns(graph, cluster, by, extensions=faults, compile=True), expected)


def both_ways(data: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[cs.Result, cs.Result] | None:
    """Run a scenario by either engine; None if it is not valid, or not for tables."""
    try:
        expected = cs.run({**data, "engine": {**data.get("engine", {}), "executor": "simpy"}})
        module = sys.modules["commsim.engine.executor"]
        monkeypatch.setattr(module, "can_compile", lambda: True)
        monkeypatch.setattr(columns, "_compiled", lambda: run_events)
        found = cs.run({**data, "engine": {**data.get("engine", {}), "executor": "compiled"}})
    except cs.ScenarioError:
        return None
    return expected, found


@pytest.mark.parametrize("seed", range(4000, 4012))
def test_random_scenarios_are_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    both = both_ways(scenario(seed, most=8), monkeypatch)
    if both is None:
        return
    expected, found = both
    same_timeline(found.timeline, expected.timeline)
    assert broken(found) == []
    assert found.metrics.to_dict() == expected.metrics.to_dict()


def test_most_of_random_scenarios_are_for_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = [both_ways(scenario(seed, most=8), monkeypatch) for seed in range(4000, 4006)]
    assert sum(both is not None for both in ran) >= 2


def test_a_table_that_is_full_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run begins again, and ends as if there had been room."""
    cluster, rooms = CLUSTERS["two pcie-a100"], []
    graph = random_graph(3, cluster.world_size)
    expected = in_columns(graph, cluster, Ideal())
    tables = ColumnsEngine._tables

    def seen(engine: ColumnsEngine, room: float) -> Any:
        rooms.append(room)
        return tables(engine, room)

    monkeypatch.setattr(ColumnsEngine, "_tables", seen)
    monkeypatch.setattr(columns, "ROOM", 0.002)
    same_timeline(in_columns(graph, cluster, Ideal()), expected)
    assert len(rooms) > 1
    assert rooms == [0.002 * 4**at for at in range(len(rooms))]


def crossed(first: str, second: str) -> Graph:
    """Two ranks that both do the one before the other."""
    build = GraphBuilder()
    group = build.group("world", range(2))
    lanes = [build.lane(rank) for rank in range(2)]
    for act in (first, second):
        for rank, lane in enumerate(lanes):
            getattr(build, act)(lane, 1 - rank, 1 << 20, group=group, stream="s")
    build.compute(lanes[0], 5, name="after", stream="s")
    return build.build()


@pytest.mark.parametrize("eager", [False, True], ids=["never", "by luck"])
def test_a_deadlock_is_named_alike(eager: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both send first: with small messages that runs, both receive first never."""
    cluster = CLUSTERS["dgx-1v"]
    graph = crossed("send", "recv") if eager else crossed("recv", "send")
    told = []
    monkeypatch.setattr(sys.modules["commsim.engine.executor"], "can_compile", lambda: True)
    monkeypatch.setattr(columns, "_compiled", lambda: run_events)
    for executor in ("simpy", "compiled"):
        with pytest.raises(cs.DeadlockError) as error:
            simulate(graph, cluster, library=Ideal(), executor=executor)
        told.append(str(error.value))
    assert told[0] == told[1]
    assert ("runs by luck" in told[0]) == eager
    assert "rank 0 -> rank 1 -> rank 0" in told[0]


def test_a_process_of_simpy_is_left_to_simpy() -> None:
    graph = random_graph(0, 8)

    def extension(engine: Any) -> Any:
        yield engine.env.timeout(1)

    with pytest.raises(NotInColumnsError, match="extension"):
        in_columns(graph, CLUSTERS["dgx-1v"], Ideal(), extensions=[extension])


def test_a_plan_that_cannot_be_made_is_told_when_the_run_comes_to_it() -> None:
    cluster = CLUSTERS["dgx-1v"]
    build = GraphBuilder()
    group = build.group("world", range(8))
    for rank in range(8):
        build.collective(build.lane(rank), group, "all_reduce", 1 << 60, stream="s")
    graph = build.build()
    with pytest.raises(cs.ScenarioError) as expected:
        simulate(graph, cluster, library=Ideal(), executor="simpy")
    with pytest.raises(cs.ScenarioError) as found:
        in_columns(graph, cluster, Ideal())
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize(("engine", "words"), [
    ({"executor": "compield"}, "Did you mean 'compiled'"),
    ({"executor": "compiled", "network": "steps"}, "cannot run network: steps"),
])  # fmt: skip
def test_an_executor_that_cannot_be_is_refused(
    engine: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["commsim.engine.executor"], "can_compile", lambda: True)
    graph = random_graph(0, 8)
    with pytest.raises(cs.ScenarioError, match=words):
        simulate(graph, CLUSTERS["dgx-1v"], library=Ideal(), **engine)


def test_compiled_without_numba_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["commsim.engine.executor"], "can_compile", lambda: False)
    graph = random_graph(0, 8)
    with pytest.raises(cs.ScenarioError, match=r"commsim\[fast\]"):
        simulate(graph, CLUSTERS["dgx-1v"], library=Ideal(), executor="compiled")
    same_timeline(
        simulate(graph, CLUSTERS["dgx-1v"], library=Ideal()),
        simulate(graph, CLUSTERS["dgx-1v"], library=Ideal(), executor="simpy"),
    )


def test_random_graphs_have_every_kind_of_op() -> None:
    kinds = {int(kind) for seed in range(5) for kind in random_graph(seed, 8).kind}
    assert kinds == {int(kind) for kind in OpKind}


class RandomPlans(Ideal):
    """A library whose plans are drawn: parts, phases, leads, tails, members that join and leave.

    Loads differ by link as no algorithm's do, so that filling alone does not decide some rates.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        assert cluster is not None
        text = repr((request.kind, request.size, request.ranks))
        rng = np.random.default_rng((self._seed, zlib.crc32(text.encode())))
        members, message = len(request.ranks), request.kind == "send_recv"
        start = rng.choice([Start.PAIR, Start.EAGER] if message else [Start.ALL, Start.PATH])
        parts = tuple(
            self._part(rng, members, len(cluster.links)) for _ in range(int(rng.choice([1, 1, 3])))
        )
        sms = int(rng.choice([0, 20]))
        return Plan(parts, Start(start), members, algorithm="drawn", sms=sms, touched=1e6 * sms)

    def _part(self, rng: np.random.Generator, members: int, links: int) -> PlanPart:
        phases = []
        for _ in range(int(rng.integers(1, 4))):
            on = np.sort(rng.choice(min(links, 5), int(rng.integers(0, 4)), replace=False))
            idle = int(rng.choice([0, 1, MS // 3, MS // 2]))
            load = np.exp(rng.normal(0, 1, len(on))) * max(idle, 1) * 0.05
            conns = rng.integers(1, 4, len(on)).astype(float)
            lead, tail = (int(rng.choice([0, 0, 5000])) for _ in range(2))
            phases.append(PlanPhase(idle, on, load, conns, lead, tail))
        whole = sum(one.lead + one.idle + one.tail for one in phases)
        first = phases[0]  # data reaches members while it moves, not in a lead or tail
        within = first.lead + rng.integers(0, max(first.idle, 1), members)
        joins = np.sort(within) * (rng.random(members) < 0.5) * (first.idle > 1)
        leaves = rng.integers(0, whole + 2, members)
        return PlanPart(tuple(phases), joins.astype(np.int64), leaves)


@pytest.mark.parametrize("seed", range(25))
def test_any_plan_is_run_alike(seed: int) -> None:
    cluster, by = CLUSTERS["dgx-1v"], RandomPlans(seed)
    graph, faults = random_graph(seed, cluster.world_size), [changes(seed, cluster)]
    how: dict[str, Any] = {"extensions": faults if seed % 2 else []}
    expected = simulate(graph, cluster, library=by, executor="simpy", **how)
    found = in_columns(graph, cluster, by, **how)
    same_timeline(found, expected)
    assert found.notes == expected.notes
    if seed < 2:  # rates that are not decided by fairness alone are said
        assert any("not decided by fairness alone" in note for note in found.notes)


@pytest.mark.skipif(not can_compile(), reason="numba (extra fast) is not installed")
def test_compiled_code_runs_any_plan_alike() -> None:
    for seed in range(25, 200):
        cluster, by = CLUSTERS["dgx-1v"], RandomPlans(seed)
        graph = random_graph(seed, cluster.world_size)
        expected = simulate(graph, cluster, library=by, executor="simpy")
        same_timeline(in_columns(graph, cluster, by, compile=True), expected)


@pytest.mark.skipif(not can_compile(), reason="numba (extra fast) is not installed")
def test_compiling_is_no_share_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call compiles, for up to a minute: it runs nothing, before anyone is told."""
    heard: list[str] = []

    def run(state: Any, most: int, component: int) -> tuple[int, int]:
        heard.append(f"run up to {most} events")
        return run_events(state, most, component)

    monkeypatch.setattr(columns, "_compiled", lambda: run)
    where = CLUSTERS["dgx-1v"]
    simulate(
        random_graph(1, where.world_size), where, library=Ideal(), executor="compiled",
        follow=lambda share: heard.append(f"followed at {share():.0%}"),
    )  # fmt: skip
    assert heard[:3] == ["run up to 0 events", "followed at 0%", "run up to 100000 events"]
