"""
Many flows at once, as columns: how far each is, how fast it goes and when it will be done.

What `Flow` does one by one is done here for all whose rates change at an instant together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

from commsim.arrays import Floats, Ints
from commsim.engine.fair_share import Sharers
from commsim.libraries import PlanPhase
from commsim.units import MOST_PICOSECONDS

__all__ = ["NEVER", "SAME", "FlowLog", "ManyFlows", "Moving"]

NEVER = MOST_PICOSECONDS
SAME = 1e-12  # rates this close are the same rate


class Moving(Protocol):
    """A flow with its progress: what is `left` of its share, until its `goal` is reached."""

    phase: PlanPhase
    links: list[int]
    op: int
    cap: float
    goal: float
    left: float
    rate: float
    limit: int
    settled: int
    wake: int


F = TypeVar("F", bound=Moving)
G = TypeVar("G", bound=Moving, contravariant=True)


class FlowLog(Protocol[G]):
    """What is told of every stretch of time over which a flow kept one rate."""

    def segment(self, flow: G, now: int) -> None:
        """Note that a flow has kept its rate from `flow.settled` to `now`."""

    def template(self, phase: PlanPhase) -> int:
        """Return the number by which `segments` names the flows of a phase."""

    def segments(self, template: Ints, op: Ints, start: Ints, now: int, rate: Floats) -> None:
        """Note that several flows have kept their rates from `start` to `now`."""


class ManyFlows(Generic[F]):
    """Flows that move data over links of some capacity, by number (`flows[number]`)."""

    def __init__(self, capacity: Floats, log: FlowLog[F]) -> None:
        self.flows: list[F | None] = []
        self._log = log
        self._sharers = Sharers(capacity)
        none = np.zeros(0)
        whole = none.astype(np.int64)
        self._left, self._goal, self._rate, self._unit = none, none, none, none
        self._settled, self._wake, self._turn = whole, whole, whole
        self._template, self._op = whole, whole

    def add(self, flow: F, unit: float, turn: int) -> None:
        """Take a flow with its progress so far; it gets its rate with the next `share`.

        `unit` is its bytes per connection on each of its links, `turn` its place among flows that
        end together.
        """
        conns = flow.phase.conns.tolist()
        at = self._sharers.add(flow.links, conns, flow.cap * unit)
        if at == len(self.flows):
            self.flows.append(None)
            if at == len(self._left):
                self._grow(max(2 * at, 64))
        self.flows[at] = flow
        self._left[at], self._goal[at] = flow.left, flow.goal
        self._rate[at], self._settled[at] = flow.rate, flow.settled
        self._unit[at], self._wake[at], self._turn[at] = unit, NEVER, turn
        self._template[at], self._op[at] = self._log.template(flow.phase), flow.op

    def set_capacity(self, link: int, capacity: float) -> None:
        """Let a link carry `capacity` bytes per ps from now on."""
        self._sharers.set_capacity(link, capacity)

    def share(self, now: int) -> None:
        """Share the links after what has changed at this instant."""
        at, shares = self._sharers.share_again()
        rate = shares / self._unit[at]
        other = np.abs(rate - self._rate[at]) > SAME * self._rate[at]
        self._settle(at[other], now)
        self._rate[at[other]] = rate[other]
        with np.errstate(divide="ignore"):
            time = (self._left[at] - self._goal[at]) / self._rate[at]
        # A thousandth of a ps of float noise must not cost a whole one.
        ahead = np.minimum(np.maximum(np.ceil(time - 1e-3), 0), NEVER).astype(np.int64)
        self._wake[at] = np.minimum(self._settled[at] + ahead, NEVER)

    def next_end(self) -> int:
        """Return when the next flow will reach its goal."""
        return int(self._wake[: len(self.flows)].min(initial=NEVER))

    def end_due(self, now: int) -> list[F]:
        """Take away the flows that have reached their goals, and return them in their order."""
        at = np.flatnonzero(self._wake[: len(self.flows)] <= now)
        at = at[np.lexsort((self._turn[at], self._wake[at]))]
        self._record(at, now)
        ended = [self._take(one) for one in at.tolist()]
        for flow in ended:
            flow.left, flow.settled, flow.rate, flow.wake = flow.goal, now, 0.0, NEVER
        return ended

    def release(self) -> list[F]:
        """Give all flows back, with their progress, in the order in which they came."""
        there = [at for at, flow in enumerate(self.flows) if flow is not None]
        given = []
        for at in sorted(there, key=lambda at: int(self._turn[at])):
            flow = self.flows[at]
            assert flow is not None
            flow.left, flow.rate = float(self._left[at]), float(self._rate[at])
            flow.settled, flow.wake = int(self._settled[at]), int(self._wake[at])
            flow.limit = self._sharers.limit_of(at)
            given.append(self._take(at))
        return given

    def _take(self, at: int) -> F:
        flow = self.flows[at]
        assert flow is not None
        self.flows[at], self._wake[at] = None, NEVER
        self._sharers.remove(at)
        return flow

    def _settle(self, at: Ints, now: int) -> None:
        """Book what moved since the rates of some flows last changed."""
        self._record(at, now)
        moved = (now - self._settled[at]) * self._rate[at]
        self._left[at] = np.maximum(self._left[at] - moved, 0.0)
        self._settled[at] = now

    def _record(self, at: Ints, now: int) -> None:
        moving = at[(self._settled[at] < now) & (self._rate[at] > 0)]
        if len(moving):
            settled = self._settled[moving]
            self._log.segments(
                self._template[moving], self._op[moving], settled, now, self._rate[moving]
            )

    def _grow(self, size: int) -> None:
        for name in _COLUMNS:
            column = getattr(self, name)
            larger = np.zeros(size, column.dtype)
            larger[: len(column)] = column
            setattr(self, name, larger)


_COLUMNS: Sequence[str] = (
    "_left", "_goal", "_rate", "_unit", "_settled", "_wake", "_turn", "_template", "_op",
)  # fmt: skip
