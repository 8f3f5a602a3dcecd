"""A user's script that calls the public API passes mypy --strict against the package."""

from __future__ import annotations

from pathlib import Path

import pytest

import commsim as cs

SCRIPT = """
from pathlib import Path

import commsim as cs

result: cs.Result = cs.run("quickstart", cluster={"nodes": 2}, progress=print)
again: cs.Result = cs.run(cs.Scenario.load({"workload": {}}), ["engine.seed=1"])
headline: str = result.headline
saved: list[float] = [limit.removed_s for limit in result.limits]
peers: list[int] = [wait.peer for wait in result.waits]
result.report("a.html")
result.viewer(Path("b.html"))
result.save_json("a.json")
table = result.timeline.to_pandas()
cluster = cs.Cluster.preset("dgx-h100", nodes=2)
bench = cs.bench(cluster, "all_reduce", "1GiB", algo="ring")
rate: float | None = bench.results[0].busbw_gbs
names: tuple[str, ...] = cs.presets("models")
parameters: int = cs.model_presets()["llama3-8b"].published.parameters
least: float = cs.bound(cluster, "all_reduce", 2**20, [0, 1]).seconds
verdict: list[str] = list(cs.compare("gpipe", "1f1b").verdict)
measured: cs.Timeline = cs.load_trace("traces").timeline()
waiting: float = cs.measure(measured).breakdown.waiting_s
replayed: str = cs.replay("example-fsdp").result.headline
grid: cs.WhatIfGrid = cs.what_if("quickstart", "nic.bandwidth,nodes")
slow: float | None = grid.at(nic="x0.5").step_time_s
grid.report("sliders.html")
swept: cs.Sweep = cs.sweep("quickstart", {"cluster.nodes": [1, 2]})
upgrades: cs.NextDollar = cs.next_dollar("quickstart")
advice: str = repr(cs.advise("dp-pp-tp"))
planned: cs.ClusterPlan = cs.plan("llama3-8b", tokens="1e12", on="aws-p5", days=30)
fitted: cs.Calibration = cs.calibrate(["all_reduce.log"], "dgx-h100")
paced: cs.StepCalibration = cs.calibrate_steps("traces", "dgx-h100", training="ddp")
checked: cs.CheckResult = cs.check(["all_reduce.log"], "dgx-h100")
cs.explain("ring", 4).save("ring.html")
graph: cs.Graph = cs.load_graph("graph.npz")
cs.save_graph(graph, "again.npz")
library: cs.Library = cs.make_library(cs.LibrarySection("ideal"), cluster)
timeline: cs.Timeline = cs.simulate(graph, cluster, library=library)
cs.convert("trace.json", "trace.npz")


@cs.register_algorithm("all_reduce", "mine")
def mine(ask: cs.Ask) -> cs.Program:
    return cs.ProgramBuilder("all_reduce", "mine", ask.n, [1.0]).build()


@cs.register_schedule("mine", "a schedule")
def order(device: int, ask: cs.ScheduleAsk) -> list[cs.Action]:
    return [cs.Action(cs.Work.F, device, microbatch) for microbatch in range(ask.microbatches)]


@cs.register_library("mine", cs.Section, "a library")
class Mine:
    name, concurrency = "mine", 1

    def __init__(self, settings: cs.Section) -> None:
        self.ideal = cs.Ideal("ring")

    def plan(self, request: cs.Request, cluster: cs.Cluster | None) -> cs.Plan:
        return self.ideal.plan(request, cluster)
"""


@pytest.mark.long
def test_a_users_script_is_strictly_typed(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    script = tmp_path / "user.py"
    script.write_text(SCRIPT)
    out, _, code = api.run(["--strict", str(script)])
    assert code == 0, out


def test_the_script_calls_every_public_function() -> None:
    public = {name for name in cs.__all__ if name[0].islower()}
    assert {name for name in public if f"cs.{name}(" not in SCRIPT} == set()
