"""Logs of flows for tests of the fluid network: one that forgets, one that adds up."""

from __future__ import annotations

from commsim.arrays import Floats, Ints
from commsim.engine.fluid_network import Flow
from commsim.libraries import PlanPhase


class NoLog:
    """Forgets what flows have moved."""

    def segment(self, flow: Flow, now: int) -> None:
        pass

    def template(self, phase: PlanPhase) -> int:
        return 0

    def segments(self, template: Ints, op: Ints, start: Ints, now: int, rate: Floats) -> None:
        pass


class Progress:
    """Adds up by phase which share of it has moved."""

    def __init__(self) -> None:
        self.moved: dict[int, float] = {}
        self._phases: dict[PlanPhase, int] = {}

    def template(self, phase: PlanPhase) -> int:
        return self._phases.setdefault(phase, len(self._phases))

    def segment(self, flow: Flow, now: int) -> None:
        self._add(self.template(flow.phase), (now - flow.settled) * flow.rate)

    def segments(self, template: Ints, op: Ints, start: Ints, now: int, rate: Floats) -> None:
        for row, moved in zip(template.tolist(), ((now - start) * rate).tolist(), strict=True):
            self._add(row, moved)

    def _add(self, row: int, moved: float) -> None:
        self.moved[row] = self.moved.get(row, 0.0) + moved
