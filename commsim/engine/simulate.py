"""
`simulate`: a graph on a cluster becomes a timeline. Every command passes through here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

import numpy as np
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.engine.core import Engine
from commsim.engine.deadlock import deadlock, sends_wait
from commsim.engine.executor import LESS_WORK, EngineRun, check_executor, run_work
from commsim.engine.folding import FoldedPlanner
from commsim.engine.message_level import check_exchanges
from commsim.engine.out_of_time import first_late, out_of_time
from commsim.engine.planning import EagerPlanner, Planner
from commsim.engine.work_alone import is_work_alone, run_work_alone
from commsim.errors import ScenarioError, did_you_mean
from commsim.follow import Follow, all_done, unfollowed
from commsim.graph import CopyDirection, Graph, OpKind
from commsim.libraries import Library, links_of
from commsim.limits import check_size, op_bytes
from commsim.sections import Section
from commsim.timeline import Timeline

__all__ = ["EngineSection", "Extension", "simulate"]

Extension = Callable[[Engine], Generator[Any, Any, None]]

_NETWORKS = ("fluid", "steps")


class EngineSection(Section, frozen=True):
    """How to run: `network` is fluid (plans) or steps (message by message).

    `fold`: auto simulates equivalent ranks once if that changes nothing, off all of them.
    `overlap_slowdown`: communication takes SMs and memory bandwidth from compute.
    `executor`: simpy (open to extensions), compiled (numba; the same timeline), or auto: compiled
    for graphs of many operations, if numba is there.
    """

    network: str = "fluid"
    fold: str = "auto"
    overlap_slowdown: bool = True
    executor: str = "auto"


def simulate(
    graph: Graph,
    cluster: Cluster | None,
    *,
    library: Library,
    network: str = "fluid",
    planner: Planner | None = None,
    overlap_slowdown: bool = True,
    executor: str = "auto",
    extensions: Iterable[Extension] = (),
    follow: Follow = unfollowed,
) -> Timeline:
    """Run `graph` on `cluster` by the rules of `library`; rank r runs on GPU r.

    `cluster` may be None if nothing is sent over links. `planner` saves planning anew what
    `folded` has planned. `overlap_slowdown`: communication takes SMs and memory bandwidth from
    compute. `extensions` are generator functions of the engine that run alongside the
    ranks as SimPy processes. `executor` is as in `EngineSection`. `follow` is given a function
    that says which share of the operations has ended, for whoever asks while it runs; under
    `network: steps` the messages that have arrived count, too.

    Raises:
        ScenarioError: the graph does not fit the cluster, an op cannot be planned, ranks that
            are folded together are not equivalent on this cluster, or it takes longer than 53 days.
        DeadlockError: ranks wait for each other.
    """
    if network not in _NETWORKS:
        raise ScenarioError(
            f"engine.network: unknown network {network!r}.{did_you_mean(network, _NETWORKS)}"
            f" Known: {', '.join(_NETWORKS)}."
        )
    check_executor(executor)
    _check_fit(graph, cluster)
    check_size(
        len(graph), op_bytes(len(graph), copied=True), f"the graph: {len(graph):,} operations",
        LESS_WORK,
    )  # fmt: skip
    if network == "steps":
        check_exchanges(graph)
    extensions = tuple(extensions)
    if cluster is None and not extensions and is_work_alone(graph):
        return run_work_alone(graph, follow).timeline(None)
    planner = planner or _planner(graph, cluster, library, network=network)
    work = EngineRun(graph, cluster, library, network, overlap_slowdown, extensions)
    engine = run_work(executor, work, planner, follow)
    if not engine.done and engine.cut:
        late = first_late(engine.recorder)
        raise out_of_time(graph, late, engine.recorder.start[late])
    if not engine.done:
        eager = sends_wait(engine) and run_work(executor, work, EagerPlanner(planner), follow).done
        raise deadlock(engine, eager=eager)
    follow(all_done)  # who follows keeps no engine, and asks none that has given its tables away
    timeline = engine.timeline()
    return replace(timeline, links=replace(timeline.links, like=planner.equivalent_links()))


def _planner(graph: Graph, cluster: Cluster | None, library: Library, *, network: str) -> Planner:
    if graph.folding is None:
        return Planner(graph, cluster, library)
    if cluster is None or network != "fluid":
        raise ScenarioError(
            "graph: it is folded, and folding needs a cluster and network fluid."
            " Build it with engine.fold off."
        )
    if len(links_of(library, cluster)) > len(cluster.links):
        raise ScenarioError(
            f"graph: it is folded, and library {library.name} has links for each process."
            " Build it with engine.fold off."
        )
    planner = FoldedPlanner(graph, cluster, library)
    if planner.finer_roles() is not None:
        raise ScenarioError(
            f"graph: ranks that are folded together are not equivalent on {cluster.name}."
            " Build it for this cluster, or with engine.fold off."
        )
    return planner


def _check_fit(graph: Graph, cluster: Cluster | None) -> None:
    ranks = graph.lane_rank
    if cluster is not None and ranks.size and int(ranks.max()) >= cluster.world_size:
        raise ScenarioError(
            f"the workload has rank {int(ranks.max())}, the cluster has {cluster.world_size} GPUs"
            " (ranks 0 to {}). Use more nodes or fewer ranks.".format(cluster.world_size - 1)
        )
    timed = (graph.kind == OpKind.COMPUTE) | (graph.kind == OpKind.COPY)
    by_links = (graph.kind == OpKind.COPY) & (graph.item != CopyDirection.NONE)
    if cluster is None and by_links.any():
        raise ScenarioError(
            f"{graph.describe(int(np.flatnonzero(by_links)[0]))}: a copy over links needs a"
            " cluster. Add a cluster section (or --cluster)."
        )
    unresolved = np.flatnonzero(timed & (graph.duration < 0) & ~by_links)
    if unresolved.size:
        raise ScenarioError(
            f"{graph.describe(int(unresolved[0]))}: its duration is unknown. Give a duration, or"
            " resolve FLOPs and bytes to a time before simulating."
        )
