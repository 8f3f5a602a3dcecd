"""
The cluster of a run and the library on it. Runs made one after another on equal ones may share
them: what a library found out about a cluster (its rings, trees and plans) is then kept.
"""

from __future__ import annotations

from collections.abc import Collection
from contextvars import ContextVar, Token
from typing import Any

from commsim.cluster import Cluster, build_cluster
from commsim.graph import Graph
from commsim.libraries import Library, make_library
from commsim.scenario import Scenario

__all__ = ["KeptHardware", "hardware_of", "idle_gpus"]

_MOST_RUNS = 64  # on one cluster, before what is known of it is forgotten: plans of every size

Hardware = tuple[Cluster | None, Library]


class KeptHardware:
    """Keeps the latest cluster and its library for the runs made in its `with` block.

    A run that ends in an error or is stopped leaves nothing.
    """

    def __init__(self) -> None:
        self._asked: Any = None
        self._made: Hardware | None = None
        self._runs = 0
        self._tokens: list[Token[KeptHardware | None]] = []

    def __enter__(self) -> None:
        self._tokens.append(_kept.set(self))

    def __exit__(self, problem: object, *_: object) -> None:
        _kept.reset(self._tokens.pop())
        if problem is not None:  # a library that was stopped within its work
            self._made = None

    def of(self, scenario: Scenario) -> Hardware:
        """Return the cluster and the library of a scenario, those of the run before if equal."""
        file = scenario.file
        asked = (file.cluster, file.library, scenario.where, scenario.folder)
        self._runs += 1
        if self._made is None or asked != self._asked or self._runs > _MOST_RUNS:
            self._made, self._asked, self._runs = _made(scenario), asked, 1
        return self._made


_kept: ContextVar[KeptHardware | None] = ContextVar("kept", default=None)


def hardware_of(scenario: Scenario, dead: Collection[tuple[int, int]] = ()) -> Hardware:
    """Return the cluster of a scenario without `dead` NICs, and its library.

    Raises:
        ScenarioError: an impossible cluster, or a library that does not work on it.
    """
    kept = _kept.get()
    if kept is None or dead:
        return _made(scenario, dead)
    return kept.of(scenario)


def _made(scenario: Scenario, dead: Collection[tuple[int, int]] = ()) -> Hardware:
    file = scenario.file
    cluster = (
        None if file.cluster is None else build_cluster(file.cluster, scenario.where, dead=dead)
    )
    return cluster, make_library(file.library, cluster, where=scenario.where)


def idle_gpus(graph: Graph, cluster: Cluster | None) -> list[str]:
    """Say how many GPUs of a cluster a graph has no ranks for; nothing where all have work."""
    ranks = int(graph.multiplicity.sum())
    if cluster is None or ranks >= cluster.world_size:
        return []
    return [
        f"ranks: {cluster.world_size - ranks:,} of the cluster's {cluster.world_size:,} GPUs have"
        f" no work: it is of {ranks:,} ranks. They are counted in what the cluster costs."
    ]
