"""
Run a scenario: build its cluster, its work and its library, simulate, measure.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from commsim.cluster.section import build_cluster
from commsim.engine import simulate
from commsim.graph import load_graph
from commsim.libraries import Library, Recorded, for_groups, make_library
from commsim.metrics import measure
from commsim.scenario import Scenario, load_scenario
from commsim.study.result import Result
from commsim.workload import Workload, build_workload, chosen_kind

__all__ = ["run"]


def run(scenario: Scenario | str | Path, sets: Iterable[str] = ()) -> Result:
    """Simulate a scenario: one that has been loaded, a file, or a name of the catalogue.

    Raises:
        ScenarioError: it describes something impossible.
        TraceError: the graph or trace that it names cannot be read.
        DeadlockError: its ranks wait for each other.
    """
    if not isinstance(scenario, Scenario):
        scenario = load_scenario(scenario, sets)
    file = scenario.file
    cluster = None if file.cluster is None else build_cluster(file.cluster, scenario.where)
    library: Library = make_library(file.library)
    kind = chosen_kind(file.workload, where=f"{scenario.where}: workload")
    if kind == "trace":
        library = Recorded() if cluster is None else library
    work = _work(scenario, kind) or build_workload(
        file.workload,
        cluster=cluster,
        library=library.name,
        where=f"{scenario.where}: workload",
        folder=scenario.folder,
    )
    if kind == "program":
        library = for_groups(library, work.graph)
    timeline = simulate(work.graph, cluster, library=library, network=file.engine.network)
    facts = work.training
    metrics = measure(
        timeline,
        model_flops=facts.model_flops if facts else None,
        hardware_flops=facts.model_flops if facts else None,
        peak_flops=facts.peak_flops if facts else None,
        tokens=facts.tokens if facts else None,
    )
    said = [*work.notes, *(cluster.notes if cluster else ()), *timeline.notes, *_chosen(scenario)]
    return Result(scenario.name, timeline, metrics, tuple(dict.fromkeys(said)))


def _work(scenario: Scenario, kind: str) -> Workload | None:
    """Return the work that a file holds; None for work to be built."""
    section = scenario.file.workload
    if kind == "graph" and section.graph is not None:
        return Workload(kind, load_graph(Path(scenario.folder) / section.graph))
    if kind == "trace" and section.trace is not None:
        from commsim.traces import load_trace

        trace = load_trace(Path(scenario.folder) / section.trace)
        return Workload(kind, trace.graph(), tuple(trace.notes))
    return None


def _chosen(scenario: Scenario) -> list[str]:
    """Return the defaults that a scenario leaves to commsim, as notes."""
    library, engine = scenario.file.library, scenario.file.engine
    algo = library.algo or "the usual algorithm of each op"
    return [
        f"library: {library.name}, {algo}: latency and bandwidth only, no launch, no protocol.",
        f"engine: network {engine.network}, no folding.",
    ]
