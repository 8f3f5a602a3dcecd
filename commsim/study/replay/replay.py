"""
Replay a recorded run: on paper with the recorded transfers, or on a cluster by a library.

Every import is checked first: with the recorded transfers the replay must give the measured
step of each rank, its waits derived anew. Then it runs as asked: with modelled communication, on
other hardware, with faster compute, with more ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.errors import DeadlockError, ScenarioError
from commsim.follow import Follow, part_of, unfollowed
from commsim.graph import Graph
from commsim.libraries import Library, LibrarySection, Recorded, for_groups, make_library
from commsim.metrics import Metrics, measure
from commsim.scenario import example_path
from commsim.study.replay.analysis import (
    busbw,
    busbw_table,
    collective_table,
    late,
    late_table,
)
from commsim.study.replay.errors import errors, rank_table
from commsim.study.replay.host_work import bounded, is_unsure
from commsim.study.replay.messages import message_table, pairs, pipeline, pipeline_table
from commsim.study.replay.recorded_steps import recorded_steps, step_table
from commsim.study.replay.self_check import check_account
from commsim.study.replay.verdict import headline, is_trusted, self_check_note
from commsim.study.replay.what_if import WhatIf
from commsim.study.run import Result, idle_gpus, twice
from commsim.timeline import Timeline
from commsim.traces import Imported, Trace, import_graph

__all__ = ["Replay", "replay"]

Table = list[tuple[str, ...]]


class Replay(msgspec.Struct, frozen=True):
    """A replay next to what was measured.

    `tables` are for people, by heading. `trace` and `measured` are None if the files hold no
    times. `trusted` says whether the replay with recorded transfers met every measured step and
    its account; `headline` says so in one line, "" if nothing was measured.
    """

    trace: Trace | None
    result: Result
    measured: Metrics | None
    tables: dict[str, Table]
    trusted: bool
    headline: str = ""

    def __repr__(self) -> str:
        return f"Replay({self.trace!r}, {self.result!r})"


def replay(
    paths: str | Path | Sequence[str | Path],
    *,
    cluster: Cluster | None = None,
    comm: str = "recorded",
    library: Library | None = None,
    what_if: WhatIf | None = None,
    progress: Callable[[int, int], None] | None = None,
    follow: Follow = unfollowed,
) -> Replay:
    """Load traces (a folder, a file or several) and run them again.

    `comm="recorded"` takes each collective's measured transfer time; `comm="modelled"` asks
    `library` (by default the one that people run there) what it takes on `cluster`. `progress`
    hears how many of how many files are read, then `follow` is given a function that says which
    share of the simulations is done.

    Raises:
        TraceError: the traces cannot be read, or lack what replay needs.
        ScenarioError: modelled communication without a cluster or without sizes, or a what-if
            that is not sound.
    """
    change = what_if or WhatIf()
    _check(comm, cluster, change)
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    listed = [example_path(path) for path in given]
    found = _that_runs(import_graph(listed, progress=progress), follow)
    name = ", ".join(str(path) for path in given)
    if found.trace is None and comm == "recorded":
        raise ScenarioError(
            f"{name}: a {found.format} has no measured times of communication. Replay it with"
            " --comm modelled and --cluster."
        )
    graph, notes = change.applied(found.graph)
    rules = _rules(graph, cluster, comm, library, change)
    if found.trace is None:
        return _untimed(name, found, graph, cluster, rules, change, notes, follow)
    made = _timed(name, found, found.trace, graph, cluster, rules, comm, change, notes, follow)
    if not change.changes_work or not is_unsure(found.trace.unsure):
        return made
    other, _ = change.applied(import_graph(listed, gaps_are_work=True).graph)
    where = cluster if comm == "modelled" else None
    timeline = simulate(other, where, library=rules, overlap_slowdown=False, follow=follow)
    return replace(made, result=bounded(made.result, found.trace.unsure, timeline))


def _that_runs(found: Imported, follow: Follow) -> Imported:
    """Leave out the ranks of cut files if what is left of them cannot have happened so.

    Raises:
        TraceError: every file was cut.
    """
    trace = found.trace
    if trace is None or not trace.cut or _fits(trace, follow):
        return found
    whole = trace.without_cut()
    return Imported(whole.graph(), found.format, whole.notes, whole)


def _fits(trace: Trace, follow: Follow) -> bool:
    """Say whether a recording runs to its end as it was measured."""
    try:
        again = _as_recorded(trace.graph(), follow)
    except DeadlockError:
        return False
    return not check_account(trace, trace.timeline(), again).misses


def _as_recorded(graph: Graph, follow: Follow) -> Timeline:
    """Run a graph with the transfers that were measured.

    What was measured during communication has been slowed down by it already.
    """
    return simulate(graph, None, library=Recorded(), overlap_slowdown=False, follow=follow)


def _check(comm: str, cluster: Cluster | None, change: WhatIf) -> None:
    if comm not in ("recorded", "modelled"):
        raise ScenarioError(f"--comm {comm}: give recorded or modelled.")
    if comm == "modelled" and cluster is None:
        raise ScenarioError("--comm modelled needs a cluster to send over: add --cluster.")
    if comm == "recorded" and (change.library is not None or change.data_parallel.size is not None):
        what = "library" if change.library is not None else "data_parallel.size"
        raise ScenarioError(
            f"{what}: means nothing to recorded transfer times: add --comm modelled and --cluster."
        )


def _rules(
    graph: Graph, cluster: Cluster | None, comm: str, library: Library | None, change: WhatIf
) -> Library:
    """Return who plans the communication. Raises ScenarioError if it cannot."""
    if comm == "recorded" or cluster is None:
        return Recorded()
    last = max((rank for group in graph.groups for rank in group.ranks), default=0)
    if last >= cluster.world_size:
        raise ScenarioError(
            f"the run has {last + 1} ranks, the cluster {cluster.world_size} GPUs. Add --nodes."
        )
    unsized = sum(
        size < 0 and kind != "barrier" and graph.groups[group].library != Recorded.name
        for size, kind, group in zip(
            graph.collectives.size.tolist(),
            graph.collectives.kind,
            graph.collectives.group.tolist(),
            strict=True,
        )
    )
    if unsized:
        raise ScenarioError(
            f"--comm modelled: {unsized} of {len(graph.collectives)} collectives have no known"
            " size. Give the PyTorch Execution Traces of the same run as well, or record with"
            " torch 2.2 or later."
        )
    section = change.library or LibrarySection()
    return for_groups(library or make_library(section, cluster), graph)


def _untimed(
    name: str,
    found: Imported,
    graph: Graph,
    cluster: Cluster | None,
    rules: Library,
    change: WhatIf,
    notes: list[str],
    follow: Follow,
) -> Replay:
    """Run what was issued; there is nothing measured to hold it against."""
    timeline = simulate(graph, cluster, library=rules, follow=follow)
    remarks = [
        *found.notes,
        *notes,
        *timeline.notes,
        "communication: modelled; nothing was measured.",
    ]
    result = Result(
        name,
        timeline,
        measure(timeline),
        tuple(dict.fromkeys(remarks)),
        extra=dict.fromkeys(
            (
                "measured",
                "error",
                "self_check",
                "late",
                "busbw",
                "messages",
                "pipeline",
                "steps",
            )
        ),
        cluster=cluster,
        library=rules,
        twice=_twice(cluster, change),
    )
    return Replay(None, result, None, {}, trusted=False)


def _twice(cluster: Cluster | None, change: WhatIf) -> Mapping[str, str]:
    return twice(cluster, path="", compute=("compute.scale", change.compute.scale))


def _timed(
    name: str,
    found: Imported,
    trace: Trace,
    graph: Graph,
    cluster: Cluster | None,
    rules: Library,
    comm: str,
    change: WhatIf,
    notes: list[str],
    follow: Follow,
) -> Replay:
    measured = trace.timeline()
    runs = 2 if comm == "modelled" or change.changes_work else 1
    timeline = again = _as_recorded(found.graph, part_of(follow, 0, runs))
    check = errors(measured, again)
    if runs > 1:
        where, second = cluster if comm == "modelled" else None, part_of(follow, 1, runs)
        timeline = simulate(graph, where, library=rules, overlap_slowdown=False, follow=second)
    before = measure(measured)
    waited, speeds = late(trace, before), busbw(trace, cluster, _predictor(cluster, change))
    exchanged, held = pairs(trace), recorded_steps(trace)
    staged = pipeline(trace, measured)
    accounts = check_account(trace, measured, again)
    trusted = is_trusted(check, accounts)
    remarks = [
        *found.notes,
        *notes,
        *timeline.notes,
        f"communication: {comm}.",
        *(idle_gpus(graph, cluster) if comm == "modelled" else ()),
        self_check_note(check, accounts),
    ]
    extra = {
        "measured": before.to_dict(), "error": errors(measured, timeline),
        "self_check": {**check, "account": accounts.to_dict()},
        "messages": exchanged, "pipeline": staged, "steps": held,
        "late": waited, "busbw": speeds,
    }  # fmt: skip
    result = Result(
        name,
        timeline,
        measure(timeline),
        tuple(dict.fromkeys(remarks)),
        extra=extra,
        cluster=cluster if comm == "modelled" else None,
        library=rules,
        measured=(measured, before),
        twice=_twice(cluster if comm == "modelled" else None, change),
    )
    other = None if timeline is again else timeline
    what = "what-if" if change.changes_work else "modelled"
    tables = {
        "collectives": collective_table(trace),
        "messages": message_table(exchanged),
        "pipeline": pipeline_table(staged),
        "waiting": late_table(waited) if len(waited) > 1 else [],
        "bus bandwidth": busbw_table(speeds),
        "recorded steps": step_table(held),
        "steps": rank_table(measured, again, other, what=what),
    }
    line = headline(measured, before, again, accounts)
    return Replay(trace, result, before, _filled(tables), trusted, line)


def _predictor(cluster: Cluster | None, change: WhatIf) -> Library | None:
    return make_library(change.library or LibrarySection(), cluster) if cluster else None


def _filled(tables: dict[str, Table]) -> dict[str, Table]:
    return {heading: rows for heading, rows in tables.items() if len(rows) > 1}
