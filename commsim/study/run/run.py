"""
Run a scenario: build its cluster, its work and its library, simulate, measure.
"""

from __future__ import annotations

import gc
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.engine import (
    Extension,
    apart_links,
    degraded,
    folded,
    gc_paused,
    roles_of,
    simulate,
    slowed,
)
from commsim.errors import ScenarioError, did_you_mean
from commsim.follow import Follow, unfollowed
from commsim.graph import Graph, load_graph, refold
from commsim.libraries import Library, Recorded, for_groups, make_library
from commsim.limits import limited_to, run_by_simpy
from commsim.metrics import Metrics, measure, priced
from commsim.models import fits
from commsim.scenario import Scenario, ScenarioFile, load_scenario, scenario_from
from commsim.study.run.captured import graph_workload
from commsim.study.run.goodput import goodput_of
from commsim.study.run.guard import too_fast_plans
from commsim.study.run.hardware import hardware_of, idle_gpus
from commsim.study.run.result import Result
from commsim.study.run.twice import twice
from commsim.timeline import Timeline
from commsim.units import parse_size
from commsim.workload import (
    TrainingFacts,
    Workload,
    build_workload,
    chosen_kind,
    peak_memory,
)

if TYPE_CHECKING:
    from commsim.study.run.faulty import Strike

__all__ = ["run"]

_MANY_GPUS = 50_000


@gc_paused()
def run(
    scenario: Scenario | Mapping[str, Any] | str | Path,
    sets: Iterable[str] = (),
    *,
    progress: Callable[[str], None] = lambda _: None,
    follow: Follow = unfollowed,
    limit: int | str | None = None,
    **settings: Any,
) -> Result:
    """Simulate a scenario: a file, a name of the catalogue, a dict, or one that has been loaded.

    `settings` change sections of it, whole or in part: `run("quickstart", cluster={"nodes": 4})`;
    `sets` do so as "key.path=value". `progress` hears what is being done, `follow` is given a
    function that says which share of that is done, where it is known. `limit` is the memory that
    the run may take ("8GiB"; by default nine tenths of the machine's).

    Raises:
        ScenarioError: it describes something impossible.
        TraceError: the graph or trace that it names cannot be read.
        DeadlockError: its ranks wait for each other.
    """
    bytes_allowed = parse_size(limit) if isinstance(limit, str) else limit
    with limited_to(bytes_allowed):
        result = _run(scenario, tuple(sets), settings, progress, follow)
    if result.cluster is not None and result.cluster.world_size > _MANY_GPUS:
        gc.collect()  # the collector may be paused, and what is left in cycles is 100 MB
    return result


def _run(
    scenario: Scenario | Mapping[str, Any] | str | Path,
    sets: tuple[str, ...],
    settings: dict[str, Any],
    progress: Callable[[str], None],
    follow: Follow,
) -> Result:
    command = _command(scenario, sets) if not settings else ""
    scenario = _loaded(scenario, sets, settings)
    if scenario.file.jobs is not None:
        from commsim.study.run.jobs import run_jobs

        return run_jobs(scenario, command=command, progress=progress, follow=follow)
    if scenario.file.faults is None:
        return _with_goodput(
            scenario, run_once(scenario, command=command, progress=progress, follow=follow)
        )
    from commsim.study.run.faulty import with_faults

    once = partial(run_once, command=command)
    if scenario.file.faults.samples == 1:
        once = partial(once, progress=progress, follow=follow)
    found = with_faults(scenario, once, progress=progress, follow=follow)
    return _with_goodput(scenario, found)


def _with_goodput(scenario: Scenario, result: Result) -> Result:
    """Return a result with the goodput of months of such steps, if that is asked for."""
    section, training = scenario.file.goodput, scenario.file.workload.training
    if section is None:
        return result
    facts, cluster, where = result.training, result.cluster, f"{scenario.where}: goodput"
    if training is None or facts is None or cluster is None:
        raise ScenarioError(f"{where}: is of a training, workload.training.")
    found = goodput_of(
        section,
        cluster,
        parameters=facts.parameters,
        precision=training.precision,
        replicas=training.parallel.dp,
        step_time_s=result.metrics.step_time_s,
        where=where,
    )
    preface = f"{result.preface} {found.sentence()}".strip()
    extra = {**result.extra, "goodput": found.as_dict()}
    return replace(result, preface=preface, extra=extra)


def run_once(
    scenario: Scenario,
    *,
    command: str = "",
    progress: Callable[[str], None] = lambda _: None,
    follow: Follow = unfollowed,
    dead: Collection[tuple[int, int]] = (),
    draw: Callable[[Cluster], Strike | None] | None = None,
) -> Result:
    """Run a scenario as it is, or with what `dead` NICs and `draw` of its cluster do to it.

    `draw` sees the cluster before anything else is made, and may refuse it.
    """
    file = scenario.file
    progress("building the work")
    cluster, library = hardware_of(scenario, dead)
    strike = None if draw is None or cluster is None else draw(cluster)
    if strike is not None and cluster is not None:
        cluster = degraded(cluster, strike.faults)
        library = make_library(file.library, cluster, where=scenario.where)
    kind = chosen_kind(file.workload, where=f"{scenario.where}: workload")
    if kind == "trace":
        library = Recorded() if cluster is None else library
    with run_by_simpy(file.engine.network == "steps" or file.engine.executor == "simpy"):
        work = _work(scenario, kind, cluster) or build_workload(
            file.workload,
            cluster=cluster,
            library=library.name,
            where=f"{scenario.where}: workload",
            folder=scenario.folder,
            fold=_may_fold(file, cluster),
            shorten=file.faults is None and _may_fold(file, cluster),
            follow=follow,
        )
    if kind == "program":
        library = for_groups(library, work.graph)
    graph, planner = work.graph, None
    if graph.folding is not None and cluster is not None:
        progress(f"planning for {cluster.world_size:,} GPUs at once")
        if strike is not None:
            graph = refold(graph, roles_of(strike.faults, cluster.world_size))
        apart = None if strike is None else apart_links(strike.faults)
        graph, planner = folded(graph, cluster, library, apart=apart, follow=follow)
    extensions: Sequence[Extension] = ()
    if strike is not None:
        graph = slowed(graph, strike.faults)
        extensions = strike.in_windows(graph, planner)
    progress(f"simulating {len(graph):,} operations")
    timeline = simulate(
        graph,
        cluster,
        library=library,
        network=file.engine.network,
        planner=planner,
        overlap_slowdown=file.engine.overlap_slowdown,
        executor=file.engine.executor,
        extensions=extensions,
        follow=follow,
    )
    progress("measuring")
    facts = work.training
    metrics = measure(
        timeline,
        model_flops=facts.model_flops if facts else None,
        hardware_flops=facts.hardware_flops if facts else None,
        peak_flops=facts.peak_flops if facts else None,
        tokens=facts.tokens or None if facts else None,
    )
    after, memory = work.afterwards(timeline) if work.afterwards else (), ""
    if facts is not None:
        metrics, memory = _with_memory(metrics, facts, timeline)
        after = (*after, f"memory: {memory}")
    if cluster is not None:
        metrics = priced(metrics, cluster)
    unused = idle_gpus(graph, cluster) if kind in ("graph", "trace") else []
    guard = too_fast_plans(graph, cluster, library) if cluster is not None else ()
    remarks = [
        *guard,
        *unused,
        *work.notes,
        *(cluster.notes if cluster else ()),
        *timeline.notes,
        *after,
    ]
    remarks += _chosen(scenario, library, graph)
    if file.sweep is not None:
        remarks.append(
            "sweep: this is one run, at the settings as they stand; `commsim sweep` varies."
        )
    return Result(
        scenario.name,
        timeline,
        metrics,
        tuple(dict.fromkeys(remarks)),
        command=command,
        cluster=cluster,
        library=library,
        training=facts,
        memory=memory,
        twice=_twice(scenario, cluster),
    )


def _twice(scenario: Scenario, cluster: Cluster | None) -> Mapping[str, str]:
    training = scenario.file.workload.training
    scale = (
        None if training is None else ("workload.training.compute.scale", training.compute.scale)
    )
    return twice(cluster, compute=scale)


def _loaded(
    scenario: Scenario | Mapping[str, Any] | str | Path,
    sets: Iterable[str],
    settings: dict[str, Any],
) -> Scenario:
    if isinstance(scenario, Scenario):
        if sets or settings:
            raise ScenarioError(
                f"{scenario.name}: is loaded already and cannot be changed. Give its file, its name"
                " or a dict together with the settings."
            )
        return scenario
    if isinstance(scenario, Mapping):
        return scenario_from(scenario, "the scenario", sets=sets, settings=settings)
    return load_scenario(scenario, sets, settings)


def _command(scenario: object, sets: Iterable[str]) -> str:
    """Return the command line that runs a scenario again, "" for one that has no file."""
    if not isinstance(scenario, Scenario | str | Path):
        return ""
    where = scenario.where if isinstance(scenario, Scenario) else str(scenario)
    return shlex.join(["commsim", "run", where, *(word for one in sets for word in ("--set", one))])


def _may_fold(file: ScenarioFile, cluster: Cluster | None) -> bool:
    """Say whether equivalent ranks may be simulated once: paths by hash make none equivalent.

    A small cluster is simulated whole: people want to see each rank, and it costs nothing.
    """
    fold = file.engine.fold
    if fold not in _FOLDS:
        raise ScenarioError(
            f"engine.fold: {fold!r}.{did_you_mean(fold, _FOLDS)} Known: {', '.join(_FOLDS)}."
        )
    hashed = cluster is not None and cluster.fabric.spec.ecmp == "hash"
    many = cluster is not None and cluster.world_size > _SHOWN_WHOLE
    return fold == "auto" and file.engine.network == "fluid" and not hashed and many


def _work(scenario: Scenario, kind: str, cluster: Cluster | None) -> Workload | None:
    """Return the work that a file holds; None for work to be built."""
    section = scenario.file.workload
    if kind == "graph" and section.graph is not None:
        graph = load_graph(Path(scenario.folder) / section.graph)
        fold, overhead = _may_fold(scenario.file, cluster), section.host_overhead
        return graph_workload(graph, cluster, fold=fold, host_overhead=overhead)
    if kind == "trace" and section.trace is not None:
        from commsim.traces import import_graph

        found = import_graph(Path(scenario.folder) / section.trace)
        return Workload(kind, found.graph, found.notes)
    return None


def _with_memory(metrics: Metrics, facts: TrainingFacts, timeline: Timeline) -> tuple[Metrics, str]:
    """Return the metrics with the memory of the fullest GPU in GiB, and a sentence about it."""
    use, capacity, sentence = peak_memory(facts, timeline)
    parts = ("parameters", "gradients", "optimizer", "activations", "buffers", "runtime", "slack")
    memory: dict[str, object] = {part: getattr(use, part) / 2**30 for part in parts}
    memory |= {
        "reserved": use.reserved / 2**30,
        "peak": use.total / 2**30,
        "fits": fits(use, capacity),
    }
    return replace(metrics, memory_gib=memory), sentence


def _lanes(lanes: int, ranks: int) -> str:
    return f"{lanes} lane{'s' * (lanes > 1)} stand{'s' * (lanes == 1)} for {ranks} ranks"


def _chosen(scenario: Scenario, library: Library, graph: Graph) -> list[str]:
    """Return what a scenario leaves to commsim, as notes."""
    section, engine = scenario.file.library, scenario.file.engine
    taken = " (taken for this cluster)" if section.name == "auto" else ""
    if graph.folding is None:
        folding = "no folding"
    else:
        folding = _lanes(len(graph.lane_rank), int(graph.multiplicity.sum()))
    earlier = graph.meta.get("earlier_microbatches")
    if earlier is not None:
        folding += f", {earlier} microbatches in steps before the measured one"
    slowdown = "" if engine.overlap_slowdown else ", communication takes nothing from compute"
    return [
        f"library: {library.name}{taken}, {_RULES.get(library.name, '')}".rstrip(", ") + ".",
        f"engine: network {engine.network}, {folding}{slowdown}.",
    ]


_SHOWN_WHOLE = 16  # GPUs
_FOLDS = ("auto", "off")
_RULES = MappingProxyType(
    {
        "ideal": "latency and bandwidth only, no launch, no protocol",
        "nccl": "its own choice of algorithm and protocol, times calibrated on measured tables",
        "gloo": "its own algorithms over TCP and host memory",
    }
)
