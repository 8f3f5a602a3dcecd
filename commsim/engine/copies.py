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

_PART = 1 << 18  # bytes of a copy that go at once
_MOST_PARTS = 16


class Copies:
    """Runs copies for the engine, as flows or as messages."""

    def __init__(self, links: Links, network: FluidNetwork | StepNetwork) -> None:
        self._links = links
        self._network = network
        self._phases: dict[tuple[Route, int], PlanPhase] = {}

    def start(self, route: Route, size: int, *, op: int) -> Event:
        """Copy `size` bytes along a route; the event fires when it is done."""
        if isinstance(self._network, FluidNetwork):
            return self._network.start(self._phase(route, size), op=op).reach(1.0)
        parts = min(max(math.ceil(size / _PART), 1), _MOST_PARTS)
        first = np.zeros(parts, np.int64)
        messages = RoutedProgram(
            first,
            first + 1,
            np.full(parts, size / parts),
            first,
            (route,),
            np.zeros(parts + 1, np.int64),
            first[:0],
        )
        return self._network.send(MessageProgress(messages, lambda _: None), [], op=op)[1]

    def _phase(self, route: Route, size: int) -> PlanPhase:
        """Return the flow of a copy; equal copies share one, as the record keeps each."""
        key = (route, size)
        if key not in self._phases:
            self._phases[key] = copy_phase(route, size, self._links)
        return self._phases[key]


def copy_phase(route: Route, size: int, links: Links) -> PlanPhase:
    """Return the flow that copies `size` bytes along a route.

    Raises:
        ScenarioError: it takes longer than the clock can hold.
    """
    try:
        idle = whole(route.latency + size * per_byte(route, links))
    except OverflowError:
        raise too_long(
            f"a copy of {format_size(size)} to or from host memory",
            "Give a smaller size, or more bandwidth.",
        ) from None
    return coupled((route,), [size], idle, links)
