"""
What phases of plans put on links, in the forms that the network needs; equal phases share one.
"""

from __future__ import annotations

import numpy as np

from commsim.libraries import PlanPhase

__all__ = ["PhaseLoads"]


class PhaseLoads:
    """Keeps what it has been asked for, by phase."""

    def __init__(self) -> None:
        self._links: dict[PlanPhase, list[int]] = {}
        self._loads: dict[PlanPhase, dict[int, tuple[float, float]]] = {}
        self._units: dict[PlanPhase, float] = {}

    def links(self, phase: PlanPhase) -> list[int]:
        """Return the links of a phase."""
        links = self._links.get(phase)
        if links is None:
            links = self._links[phase] = phase.link.tolist()
        return links

    def by_link(self, phase: PlanPhase) -> dict[int, tuple[float, float]]:
        """Return bytes and connections of a phase by link."""
        loads = self._loads.get(phase)
        if loads is None:
            entries = zip(phase.load.tolist(), phase.conns.tolist(), strict=True)
            loads = self._loads[phase] = dict(zip(self.links(phase), entries, strict=True))
        return loads

    def unit(self, phase: PlanPhase) -> float:
        """Return the bytes per connection of a phase, 0 if they differ by link."""
        unit = self._units.get(phase)
        if unit is None:
            each = phase.load / phase.conns if len(phase.link) else np.ones(1)
            unit = float(each[0]) if np.ptp(each) <= 1e-12 * each[0] else 0.0
            self._units[phase] = unit
        return unit
