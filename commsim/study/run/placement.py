"""
Which GPUs a job gets: the nodes or ranks that it lists, or so many nodes of those that are free.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.scenario import JobSection

__all__ = ["placed"]


def placed(jobs: Sequence[JobSection], cluster: Cluster, where: str) -> list[tuple[int, ...]]:
    """Return the ranks of each job, in the order of its own ranks.

    What is listed is taken first; then jobs that want a count get nodes in the jobs' order.

    Raises:
        ScenarioError: nodes or ranks that are not there, that are taken, or too few that are free.
    """
    names = [job.name for job in jobs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ScenarioError(f"{where}: two jobs are called {twice!r}. Give each a name.")
    found: dict[int, tuple[int, ...]] = {}
    taken: dict[int, str] = {}
    order = sorted(range(len(jobs)), key=lambda at: isinstance(jobs[at].nodes, int))
    for at in order:
        job, path = jobs[at], f"{where}.{at}"
        ranks = _ranks(job, cluster, taken, path)
        for rank in ranks:
            if rank in taken:
                raise ScenarioError(f"{path}: rank {rank} is taken by {taken[rank]}.")
            taken[rank] = job.name
        found[at] = ranks
    return [found[at] for at in range(len(jobs))]


def _ranks(job: JobSection, cluster: Cluster, taken: dict[int, str], path: str) -> tuple[int, ...]:
    if (job.nodes is None) == (job.ranks is None):
        raise ScenarioError(f"{path}: give exactly one of nodes and ranks.")
    if job.ranks is not None:
        for rank in job.ranks:
            if rank >= cluster.world_size:
                raise ScenarioError(
                    f"{path}.ranks: there is no rank {rank}: the cluster has {cluster.world_size}."
                )
        if len(set(job.ranks)) < len(job.ranks) or not job.ranks:
            raise ScenarioError(f"{path}.ranks: list each rank once, and at least one.")
        return job.ranks
    nodes = job.nodes if isinstance(job.nodes, tuple) else _free(job, cluster, taken, path)
    count = len(cluster.node_names)
    for node in nodes:
        if node >= count:
            raise ScenarioError(f"{path}.nodes: there is no node {node}: {count} count from 0.")
    by_node = [np.flatnonzero(cluster.node_of == node).tolist() for node in nodes]
    return tuple(rank for ranks in by_node for rank in ranks)


def _free(job: JobSection, cluster: Cluster, taken: dict[int, str], path: str) -> tuple[int, ...]:
    busy = {int(cluster.node_of[rank]) for rank in taken}
    free = [node for node in range(len(cluster.node_names)) if node not in busy]
    wanted = job.nodes if isinstance(job.nodes, int) else 0
    if wanted > len(free):
        raise ScenarioError(
            f"{path}.nodes: {wanted} are wanted, and {len(free)} are free of"
            f" {len(cluster.node_names)}."
        )
    if job.placement == "spread":
        return tuple(free[at * len(free) // wanted] for at in range(wanted))
    if job.placement == "random":
        chosen = np.random.default_rng(job.seed).choice(len(free), wanted, replace=False)
        return tuple(free[at] for at in sorted(chosen.tolist()))
    return tuple(free[:wanted])
