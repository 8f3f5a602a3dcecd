"""The guard: a time below the proven bound is never passed on in silence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.counting import python_calls
from helpers.share import share_of_each
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.cluster.presets import preset_names
from commsim.cluster.section import cluster_from
from commsim.errors import ScenarioError
from commsim.graph import Graph, GraphBuilder
from commsim.libraries import Ideal, Plan, PlanPart, Request, Start
from commsim.libraries.plan import empty_phase
from commsim.metrics import bound_cuts
from commsim.scenario import load_scenario
from commsim.study.bench import bench
from commsim.study.bench.nccl_tests import BENCH_OPS
from commsim.study.run import Result, guard, run

ONE_SLOW_NODE = cluster_from(
    {
        "nodes": [
            {"preset": "dgx-h100"},
            {"preset": "dgx-h100", "overrides": {"nic": {"bandwidth": "10Gbps"}}},
        ],
        "fabric": {"kind": "fat_tree"},
    },
    "one slow node",
)


class Hasty:
    """A library that takes a microsecond for everything."""

    name = "ideal"
    concurrency = 1

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        n = len(request.ranks)
        ends = np.zeros(n, np.int64), np.full(n, 10**6)
        return Plan((PlanPart((empty_phase(10**6),), *ends),), Start.ALL, n, algorithm="ring")


def one_op(op: str, size: int, ranks: int, *, root: int = -1) -> Graph:
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in range(ranks)]
    world = build.group("world", range(ranks))
    for lane in lanes:
        build.collective(lane, world, op, size, stream="comm", root=root)
    return build.build()


def test_a_plan_faster_than_its_links_is_named_with_the_link() -> None:
    (note,) = guard.too_fast_plans(one_op("all_reduce", 2**30, 16), ONE_SLOW_NODE, Hasty())
    assert note.startswith("TOO FAST, do not trust: all_reduce of 1 GiB among 16 ranks")
    assert "node1/nic" in note or "nic8" in note, note


def test_a_latency_that_is_left_out_is_named_with_its_link() -> None:
    slow = Cluster.preset("dgx-h100", nodes=2, overrides={"nic": {"latency": "1ms"}})
    (note,) = guard.too_fast_plans(one_op("all_reduce", 8, 16), slow, Hasty())
    assert "1 ms" in note or "1000 us" in note, note
    assert "nic" in note


def test_an_honest_library_is_left_alone() -> None:
    for op, root in (("all_reduce", -1), ("broadcast", 3), ("all_to_all", -1), ("scatter", 0)):
        for size in (8, 2**30):
            graph = one_op(op, size, 16, root=root)
            assert guard.too_fast_plans(graph, ONE_SLOW_NODE, Ideal()) == ()


def test_a_run_says_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Ideal.plan

    def halved(self: Ideal, request: Request, cluster: Cluster | None) -> Plan:
        made = Hasty().plan(request, cluster)
        return made if request.size > 2**20 else plan(self, request, cluster)

    monkeypatch.setattr(Ideal, "plan", halved)
    result = run("quickstart", ["library.name=ideal"])
    assert result.notes[0].startswith("TOO FAST")


def test_it_costs_under_a_twentieth_of_a_run() -> None:
    scenario = load_scenario("quickstart")
    run(scenario)
    result: list[Result] = []
    whole = python_calls(lambda: result.append(run(scenario)))
    graph, cluster = result[0].timeline.graph, result[0].cluster
    library = result[0].library
    assert cluster is not None
    assert library is not None
    own = python_calls(lambda: guard.too_fast_plans(graph, cluster, library))
    assert 20 * own < whole


def test_it_does_not_look_at_every_set_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """That would take a tenth of a second for each group of a run."""
    looked = []
    monkeypatch.setattr(bound_cuts._Wires, "every_set", lambda *_: looked.append(1))
    guard.too_fast_plans(one_op("all_reduce", 2**30, 8), Cluster.preset("dgx-h100"), Ideal())
    assert looked == []


@pytest.mark.parametrize("recorded", [-1, 0, 1])
def test_what_was_measured_is_not_held_to_a_bound(recorded: int) -> None:
    """Nor is what a rank does by itself."""
    graph = one_op("all_reduce", 2**30, 16)
    kept = replace(graph.collectives, recorded=np.full(1, recorded))
    notes = guard.too_fast_plans(replace(graph, collectives=kept), ONE_SLOW_NODE, Hasty())
    assert bool(notes) is (recorded < 0)
    assert guard.too_fast_plans(one_op("all_reduce", 2**30, 1), ONE_SLOW_NODE, Hasty()) == ()
    assert guard.too_fast_plans(one_op("all_reduce", 2**30, 2), ONE_SLOW_NODE, Hasty())


OVERRIDES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "slow NICs": {"overrides": {"nic": {"bandwidth": "10Gbps"}}},
    "NICs of a fifth": {"overrides": {"nic": {"efficiency": 0.2}}},
    "late NICs": {"overrides": {"nic": {"latency": "1ms"}}},
    "PCIe 1": {"overrides": {"pcie": {"generation": 1}}},
    "late PCIe": {"overrides": {"pcie": {"link_latency": "100us"}}},
    "long cables": {"fabric": {"cable_latency": "10ms"}},
    "slow switches": {"fabric": {"switch_latency": "1ms"}},
}
FEW = ("dgx-h100", "pcie-a100")


def check(preset: str, nodes: int, override: str, sizes: list[str]) -> None:
    try:
        section = {"preset": preset, "nodes": nodes, **OVERRIDES[override]}
        cluster = cluster_from(section, "test")
        result = bench(cluster, BENCH_OPS, sizes, algo="all")
    except ScenarioError as error:
        pytest.skip(str(error))
    for row in result.results:
        assert row.bound_us is not None
        assert row.time_us >= row.bound_us * (1 - 1e-9), row
    assert not any(note.startswith("TOO FAST") for note in result.notes)


@pytest.mark.parametrize(("preset", "override"), share_of_each(
    [(preset,) for preset in FEW], [(override,) for override in OVERRIDES], 0.5
))  # fmt: skip
def test_no_time_of_nccl_is_below_its_bound(preset: str, override: str) -> None:
    check(preset, 2, override, ["1K", "64M"])


@pytest.mark.long
@pytest.mark.parametrize("override", OVERRIDES)
@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("preset", preset_names())
def test_no_time_of_nccl_is_below_its_bound_on_any_preset(
    preset: str, nodes: int, override: str
) -> None:
    check(preset, nodes, override, ["8", "1K", "64K", "1M", "64M", "1G"])


def test_one_slow_node_sets_the_step_of_ddp() -> None:
    """GPT-2 1.5B over two DGX H100, the NICs of one at 10 Gbps: what one sends the other gets."""
    nodes = "[{preset: dgx-h100}, {preset: dgx-h100, overrides: {nic: {bandwidth: 10Gbps}}}]"
    data = run("quickstart", [f"cluster={{nodes: {nodes}, fabric: {{kind: fat_tree}}}}"]).to_dict()
    sent = {link["name"]: link["bytes"] for link in data["links"] if "->leaf0" in link["name"]}
    got = {link["name"]: link["bytes"] for link in data["links"] if "leaf0->" in link["name"]}
    assert len(sent) == len(got) == 16
    # 1,557,611,200 parameters, their gradients in fp32: each of 8 NICs sends an eighth of the
    # buffer around the ring of two nodes and back.
    each = 1_557_611_200 * 4 / 8
    assert set(sent.values()) == set(got.values()) == {each}
    assert data["step_time_s"] > each / (10e9 / 8)
