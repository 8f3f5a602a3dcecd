"""
Copies between GPUs and host memory: flows on the links that NIC traffic uses too.

One copy takes latency + bytes / bandwidth on idle links, and a fair share of them otherwise
(`fluid`). As messages (`steps`) it goes in parts, so that copies over one link take turns, as the
requests of DMA engines do.
"""

from __future__ import annotations

import math

import numpy as np
from simpy.events import Event

from commsim.cluster import Links, Route
from commsim.engine.fluid_network import FluidNetwork
from commsim.engine.step_network import MessageProgress, StepNetwork
from commsim.libraries import PlanPhase, RoutedProgram
from commsim.libraries.expansion import coupled, per_byte, whole
from commsim.limits import too_long
from commsim.units import format_size

__all__ = ["Copies", "copy_phase"]

_NONE = np.zeros(0, np.int64)
_PART = 1 << 18  # bytes of a copy that go at once
_MOST_PARTS = 16


class Copies:
    """Runs copies for the engine, as flows or as messages."""

    def __init__(self, links: Links, network: FluidNetwork | StepNetwork) -> None:
        self._links = links
        self._network = network
        self._phases: dict[tuple[tuple[Route, ...], int], PlanPhase] = {}

    def start(self, routes: tuple[Route, ...], size: int, *, op: int) -> Event:
        """Copy `size` bytes along each of some routes at once; the event fires when all are done.

        Several routes are those of ranks that do the same at the same time.
        """
        if isinstance(self._network, FluidNetwork):
            return self._network.start(self._phase(routes, size), op=op).reach(1.0)
        parts = min(max(math.ceil(size / _PART), 1), _MOST_PARTS)
        way = np.tile(np.arange(len(routes)), parts)
        count = len(way)
        messages = RoutedProgram(
            way * 2,
            way * 2 + 1,
            np.full(count, size / parts),
            way,
            routes,
            np.zeros(count + 1, np.int64),
            _NONE,
        )
        return self._network.send(MessageProgress(messages, lambda _: None), [], op=op)[1]

    def _phase(self, routes: tuple[Route, ...], size: int) -> PlanPhase:
        """Return the flow of a copy; equal copies share one, as the record keeps each."""
        key = (routes, size)
        if key not in self._phases:
            self._phases[key] = copy_phase(routes, size, self._links)
        return self._phases[key]


def copy_phase(routes: tuple[Route, ...], size: int, links: Links) -> PlanPhase:
    """Return the flow that copies `size` bytes along each of `routes`.

    Raises:
        ScenarioError: it takes longer than the clock can hold.
    """
    try:
        idle = max(whole(r.latency + size * per_byte(r, links)) for r in routes)
    except OverflowError:
        raise too_long(
            f"a copy of {format_size(size)} to or from host memory",
            "Give a smaller size, or more bandwidth.",
        ) from None
    return coupled(routes, [size] * len(routes), idle, links)
