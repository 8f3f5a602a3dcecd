"""
Several jobs on one cluster: each alone, then all together, and what they cost each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from commsim.arrays import Ints
from commsim.cluster import Cluster, build_cluster
from commsim.engine import simulate
from commsim.errors import ScenarioError
from commsim.follow import Follow, unfollowed
from commsim.graph import Graph, merged, moved_to, repeated
from commsim.libraries import Library, for_groups, make_library
from commsim.metrics import Metrics, measure, priced
from commsim.scenario import JobSection, Scenario
from commsim.study.run.placement import placed
from commsim.study.run.result import Result
from commsim.study.run.twice import twice
from commsim.timeline import Timeline
from commsim.units import format_time
from commsim.workload import Workload, build_workload, chosen_kind

__all__ = ["run_jobs"]

_SHOWN = 10  # shared links
_NOTICED = 0.01
_MARGIN = 1.2  # by which a job is taken to last longer beside others
_MOST_STEPS = 64  # of a training that goes on until the others have ended


class _Job(msgspec.Struct, frozen=True):
    """One job: its section, where it runs, and its graph on the cluster's ranks."""

    section: JobSection
    ranks: tuple[int, ...]
    work: Workload
    graph: Graph


def run_jobs(
    scenario: Scenario,
    *,
    command: str = "",
    progress: Callable[[str], None] = lambda _: None,
    follow: Follow = unfollowed,
) -> Result:
    """Run the jobs of a scenario, each alone and all together.

    The result's timeline and metrics are those of the whole; the JSON's key `jobs` has each job's
    step together and alone, `shared_links` what links of several jobs carry.

    Raises:
        ScenarioError: no cluster, jobs in each other's places, or work that does not fit.
    """
    file = scenario.file
    sections, where = file.jobs or (), f"{scenario.where}: jobs"
    if file.cluster is None or not sections:
        raise ScenarioError(f"{where}: need a cluster to run on, and at least one job.")
    progress("building the work")
    cluster = build_cluster(file.cluster, scenario.where)
    library: Library = make_library(file.library, cluster, where=scenario.where)
    ranks = placed(sections, cluster, where)
    jobs = [
        _job(scenario, section, mine, cluster, library, f"{where}.{at}.workload")
        for at, (section, mine) in enumerate(zip(sections, ranks, strict=True))
    ]

    def made(at: int, steps: int) -> _Job:
        place = f"{where}.{at}.workload"
        return _job(scenario, sections[at], ranks[at], cluster, library, place, steps)

    def run(graph: Graph) -> Timeline:
        return simulate(
            graph,
            cluster,
            library=for_groups(library, graph),
            network=file.engine.network,
            overlap_slowdown=file.engine.overlap_slowdown,
            follow=follow,
        )

    alone = []
    for job in jobs:
        progress(f"{job.section.name} alone")
        alone.append(run(job.graph))
    for at, steps in _lasting(jobs, alone).items():
        progress(f"{steps} steps of {jobs[at].section.name}")
        jobs[at] = made(at, steps)
    progress("all together")
    together = merged(
        [job.graph for job in jobs],
        [job.section.name for job in jobs],
        [int(job.section.start) for job in jobs],
    )
    timeline = run(together)
    shares = _parts(timeline, [job.graph for job in jobs])
    shared = _shared_time(jobs, shares)
    rows = [
        _row(job, cluster.node_of[list(job.ranks)].tolist(), whole, by_itself, shared)
        for job, whole, by_itself in zip(jobs, shares, alone, strict=True)
    ]
    links = _shared_links(timeline, shares, [job.section.name for job in jobs])
    return Result(
        scenario.name,
        timeline,
        priced(measure(timeline), cluster),
        tuple(dict.fromkeys([*_notes(jobs, shares), *cluster.notes, *timeline.notes])),
        extra={"jobs": rows, "shared_links": links},
        command=command,
        cluster=cluster,
        library=for_groups(library, together),
        twice=twice(cluster),
        preface=_preface(rows, links),
    )


def _job(
    scenario: Scenario,
    section: JobSection,
    ranks: tuple[int, ...],
    cluster: Cluster,
    library: Library,
    where: str,
    steps: int = 1,
) -> _Job:
    workload = section.workload
    kind = chosen_kind(workload, where=where)
    if kind in ("graph", "trace"):
        raise ScenarioError(f"{where}.{kind}: a recorded run has a cluster of its own. Use run.")
    if workload.training is not None:
        steps = max(workload.training.steps, section.repeat or steps)
        training = msgspec.structs.replace(workload.training, steps=steps)
        workload = msgspec.structs.replace(workload, training=training)
    work = build_workload(
        workload,
        cluster=cluster.part(ranks),
        library=library.name,
        where=where,
        folder=scenario.folder,
        fold=False,
    )
    graph = (
        work.graph if workload.training is not None else repeated(work.graph, section.repeat or 1)
    )
    return _Job(section, ranks, work, moved_to(graph, ranks))


def _lasting(jobs: Sequence[_Job], alone: Sequence[Timeline]) -> dict[int, int]:
    """Return the steps of each training that would end before the others and says no `repeat`."""
    ends = [int(j.section.start) + line.end_time for j, line in zip(jobs, alone, strict=True)]
    found: dict[int, int] = {}
    for at, (job, line) in enumerate(zip(jobs, alone, strict=True)):
        others = max((end for other, end in enumerate(ends) if other != at), default=0)
        if job.work.training is None or job.section.repeat is not None:
            continue
        if ends[at] >= (1 - _NOTICED) * others:
            continue
        left = others * _MARGIN - ends[at]
        steps = [end - begin for begin, end in _steps(job, line)]
        more = math.ceil(left / float(np.mean(steps)))
        found[at] = min(_MOST_STEPS, len(steps) + 1 + more)
    return found


def _shared_time(jobs: Sequence[_Job], shares: Sequence[Timeline]) -> tuple[int, int]:
    """Return from when on and until when (ps) all jobs run."""
    last = min(share.end_time for share in shares)
    return max(int(job.section.start) for job in jobs), last


def _parts(timeline: Timeline, graphs: Sequence[Graph]) -> list[Timeline]:
    """Return the timeline of each graph that was merged, on the clock and the links of all."""
    found, first = [], 0
    for graph in graphs:
        last = first + len(graph)
        mine = np.flatnonzero((timeline.op >= first) & (timeline.op < last))
        place = np.full(len(timeline) + 1, -1)
        place[mine] = np.arange(len(mine))
        found.append(
            replace(
                timeline,
                graph=graph,
                op=timeline.op[mine] - first,
                arrive=timeline.arrive[mine],
                start=timeline.start[mine],
                end=timeline.end[mine],
                cause=place[timeline.cause[mine]],
                cause_kind=timeline.cause_kind[mine],
                links=_traffic(timeline, first, last),
                choices={},
            )
        )
        first = last
    return found


def _traffic(timeline: Timeline, first: int, last: int) -> Any:
    """Return the traffic of the ops from `first` to before `last`."""
    links = timeline.links
    mine = np.flatnonzero((links.op >= first) & (links.op < last))
    return replace(
        links,
        flow=links.flow[mine],
        start=links.start[mine],
        end=links.end[mine],
        rate=links.rate[mine],
        op=links.op[mine] - first,
    )


def _row(
    job: _Job, nodes: list[int], whole: Timeline, alone: Timeline, shared: tuple[int, int]
) -> dict[str, Any]:
    steps = _steps(job, whole)
    begin, end = shared
    beside = [one for one in steps if begin <= one[0] and one[1] <= end]
    metrics = _measured(job, whole)
    mean, by_itself = _mean(beside or steps), _mean(_steps(job, alone))
    return {
        "name": job.section.name,
        "ranks": list(job.ranks),
        "nodes": sorted(set(nodes)),
        "start_s": int(job.section.start) * 1e-12,
        "end_s": whole.end_time * 1e-12,
        "step_time_s": mean,
        "alone_s": by_itself,
        "slowdown": mean / by_itself if by_itself else 1.0,
        "steps_s": [(last - first) * 1e-12 for first, last in steps],
        "steps_beside_all": len(beside),
        "metrics": metrics.to_dict(),
    }


def _mean(steps: Sequence[tuple[int, int]]) -> float:
    """Return the mean time (s) of steps."""
    return float(np.mean([last - first for first, last in steps])) * 1e-12


def _steps(job: _Job, timeline: Timeline) -> list[tuple[int, int]]:
    """Return when (ps) each step began and ended: of training from optimizer to optimizer, but for
    the first. Of other work each time that it was repeated.
    """
    graph = timeline.graph
    step = graph.step[timeline.op]
    ends = [int(timeline.end[step == one].max()) for one in np.unique(step[step >= 0]).tolist()]
    begin = int(timeline.arrive.min())
    cuts = [begin, *ends] if job.work.training is None else ends
    return list(itertools.pairwise(cuts)) or [(begin, timeline.end_time)]


def _measured(job: _Job, timeline: Timeline) -> Metrics:
    facts = job.work.training
    return measure(
        timeline,
        model_flops=facts.model_flops if facts else None,
        hardware_flops=facts.hardware_flops if facts else None,
        peak_flops=facts.peak_flops if facts else None,
        tokens=facts.tokens or None if facts else None,
    )


def _shared_links(
    timeline: Timeline, shares: Sequence[Timeline], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the links that carry bytes of several jobs, those that carry longest first."""
    moved = np.stack([share.links.link_bytes() for share in shares])
    links = timeline.links
    both = np.flatnonzero((moved > 0).sum(axis=0) > 1)
    time = moved.sum(axis=0)[both] / links.bandwidth[both]
    order: Ints = both[np.argsort(-time, kind="stable")][:_SHOWN]
    return [
        {
            "link": links.names[link],
            "bytes": {
                name: float(part) for name, part in zip(names, moved[:, link], strict=True) if part
            },
        }
        for link in order.tolist()
    ]


def _preface(rows: Sequence[dict[str, Any]], links: Sequence[dict[str, Any]]) -> str:
    told = "; ".join(
        f"{row['name']} {_time(row['step_time_s'])}, alone {_time(row['alone_s'])}"
        f" ({row['slowdown']:.2f} times)"
        for row in rows
    )
    line = f"{told}."
    if len(rows) > 1:
        most = f" Most shared: {links[0]['link']}." if links else " They share no link."
        line += most
        partly = [row["name"] for row in rows if not row["steps_beside_all"]]
        if links and partly:
            line += f" No step of {' and '.join(partly)} ran beside all others to its end."
    return line


def _notes(jobs: Sequence[_Job], shares: Sequence[Timeline]) -> list[str]:
    notes = [
        f"jobs: {job.section.name} on {len(job.ranks)} GPUs, ranks {_range(job.ranks)}."
        for job in jobs
    ]
    last = max(share.end_time for share in shares)
    for job, share in zip(jobs, shares, strict=True):
        if share.end_time < (1 - _NOTICED) * last:
            notes.append(
                f"jobs: {job.section.name} had ended after {format_time(share.end_time)} of"
                f" {format_time(last)}; give it a higher repeat to keep it beside the others."
            )
    for job in jobs:
        notes += [f"{job.section.name}: {note}" for note in job.work.notes]
    return notes


def _range(ranks: Sequence[int]) -> str:
    if list(ranks) == list(range(ranks[0], ranks[0] + len(ranks))):
        return f"{ranks[0]} to {ranks[-1]}"
    told = ", ".join(map(str, ranks[:8]))
    return told if len(ranks) <= 8 else f"{told} and {len(ranks) - 8} more"


def _time(seconds: float) -> str:
    return format_time(seconds * 1e12)
