"""
What a phase of a plan puts on links, in the forms that the network needs; its flows share it.
"""

from __future__ import annotations

import math

import numpy as np

from commsim.arrays import Floats
from commsim.engine.fair_share import AT_CAP
from commsim.engine.many_flows import NEVER
from commsim.libraries import PlanPhase

__all__ = ["PhaseFacts", "duration_of"]


class PhaseFacts:
    """Of one phase: its `links`, `unit` (bytes per connection, 0 if they differ by link) and `cap`.

    `cap` is the share of the phase that passes per ps on idle links.
    """

    __slots__ = ("_alone", "_loads", "cap", "links", "phase", "unit")

    def __init__(self, phase: PlanPhase) -> None:
        self.phase = phase
        self.links: list[int] = phase.link.tolist()
        each = phase.load / phase.conns if len(phase.link) else np.ones(1)
        self.unit = float(each[0]) if np.ptp(each) <= 1e-12 * each[0] else 0.0
        self.cap = 1.0 / max(phase.idle, 1)
        self._alone: tuple[float, int, int] | None = None
        self._loads: dict[int, tuple[float, float]] | None = None

    @property
    def loads(self) -> dict[int, tuple[float, float]]:
        """Bytes and connections by link."""
        if self._loads is None:
            entries = zip(self.phase.load.tolist(), self.phase.conns.tolist(), strict=True)
            self._loads = dict(zip(self.links, entries, strict=True))
        return self._loads

    def alone(self, capacity: Floats) -> tuple[float, int, int]:
        """Return the rate of a flow that has its links to itself, what limits it, and its time.

        That is how long all of the phase takes, in ps. It is kept for links of this `capacity`
        (bytes per ps) until `forget`.
        """
        if self._alone is None:
            rate, limit, phase = self.cap, AT_CAP, self.phase
            if len(phase.link):
                rates = capacity[phase.link] / np.maximum(phase.load, 1e-300)
                slowest = int(np.argmin(rates))
                if rates[slowest] < self.cap:
                    rate, limit = float(rates[slowest]), int(phase.link[slowest])
            self._alone = (rate, limit, duration_of(1.0, rate))
        return self._alone

    def forget(self) -> None:
        """Forget what followed from the capacity of links: it has changed."""
        self._alone = None


def duration_of(share: float, rate: float) -> int:
    """Return the ps in which `share` is done at `rate` (shares per ps), rounded up; or NEVER."""
    if share >= rate * NEVER:
        return NEVER
    # A thousandth of a ps of float noise must not cost a whole one.
    return max(math.ceil(share / rate - 1e-3), 0)
