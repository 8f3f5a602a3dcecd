"""
The pace of a captured program: Python issues ops one by one, and none runs before it is issued.

The k-th op behind an op of the host (the begin of the step, or a wait for the GPU) is issued k
times the host's time per op behind that. Python runs ahead of the GPU as far as it gets.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from commsim.arrays import Ints
from commsim.errors import ScenarioError
from commsim.graph import HOST_STREAM, Device, Graph
from commsim.limits import too_long
from commsim.models.constants import read_constants
from commsim.units import MOST_PICOSECONDS, to_picoseconds

__all__ = ["default_host_overhead", "issued"]


def default_host_overhead() -> int:
    """Return the time that Python takes to issue an op, in picoseconds, as it was measured."""
    return to_picoseconds(read_constants().captured.host_us * 1e-6, "captured.host_us")


def issued(graph: Graph, overhead: int) -> Graph:
    """Return `graph` with each op issued `overhead` picoseconds after the one before it.

    Raises:
        ScenarioError: the graph does not say where its host waits, or it would take too long.
    """
    host = (graph.device == Device.CPU) & np.isin(
        graph.stream, [at for at, name in enumerate(graph.streams) if name == HOST_STREAM]
    )
    if not host.any():
        raise ScenarioError(
            "workload.host_overhead: the graph does not say where its program waits for the GPU,"
            " as those of `commsim capture` do. Capture the script again, or leave this out."
        )
    edges = np.flatnonzero(host[graph.dep_op])
    places = _places(graph.dep_op[edges])
    if int(places.max(initial=0)) * overhead > MOST_PICOSECONDS:
        raise too_long("workload.host_overhead: issuing all ops", "Give a shorter time.")
    delay = graph.dep_delay.copy()
    delay[edges] = places * overhead
    return replace(graph, dep_delay=delay)


def _places(causes: Ints) -> Ints:
    """Return for each entry how many of its value there are up to there: 1, 2, ..."""
    order = np.argsort(causes, kind="stable")
    first = np.searchsorted(causes[order], causes[order])
    places = np.empty_like(causes)
    places[order] = np.arange(len(causes)) - first + 1
    return places
