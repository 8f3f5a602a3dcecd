"""
The fluid network: coupled flows that share links fairly, as SimPy events.

Rates are solved once per instant, after all of its starts and ends, for the flows that came or
went and those connected to them through shared links; no other rate can change.
What a flow still has to do is settled only when its rate changes, so that equal flows keep equal
bits and end together.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import numpy as np
from simpy.events import Event

from commsim.arrays import Floats
from commsim.engine.clock import Clock
from commsim.engine.fair_share import Flows, fair_rates
from commsim.libraries import PlanPhase

__all__ = ["Flow", "FluidNetwork"]

_NEVER = 2**62
_FEW = 64  # flows up to which checking one by one for shared links is faster
_SAME = 1e-12  # rates this close are the same rate
_KEPT = 4096  # sets of phases whose rates are kept: a step meets the same ones over and over
_UNSURE = (
    "links: some rates were not decided by fairness alone (coupled flows that load different"
    " links hardest); the order of links decided."
)


class Flow:
    """One coupled flow in the network; `left` is the share of its phase still to move."""

    __slots__ = (
        "_goal", "cap", "left", "links", "network", "op", "phase", "rate", "reached", "settled",
        "wake",
    )  # fmt: skip

    def __init__(self, network: FluidNetwork, phase: PlanPhase, op: int) -> None:
        self.network = network
        self.phase = phase
        self.links: list[int] = network.links_of(phase)
        self.op = op
        self.cap = _cap(phase)
        self.left = 1.0
        self.rate = 0.0
        self.settled = network.env.now
        self.wake = _NEVER
        self.reached: Event | None = None
        self._goal = 0.0  # the share left once the goal is reached

    def reach(self, fraction: float) -> Event:
        """Return an event that fires when `fraction` of the phase has moved, and then hold."""
        self._goal = 1.0 - fraction
        self.reached = Event(self.network.env)
        self.network.activate(self)
        return self.reached

    def settle(self, now: int) -> None:
        """Book what moved since the rate last changed."""
        self.network.log(self, now)
        self.left = max(self.left - (now - self.settled) * self.rate, 0.0)
        self.settled = now

    def run_at(self, rate: float, now: int) -> None:
        """Go on at a new rate; find out when the goal will be reached."""
        if abs(rate - self.rate) > _SAME * self.rate:
            self.settle(now)
            self.rate = rate
        to_go = self.left - self._goal
        # A thousandth of a ps of float noise must not cost a whole one.
        time = to_go / self.rate if self.rate > 0 else float(_NEVER)
        self.wake = min(self.settled + max(math.ceil(time - 1e-3), 0), _NEVER)

    def arrive(self, now: int) -> None:
        """Reach the goal: book it exactly, and stop."""
        self.network.log(self, now)
        self.left, self.settled, self.rate, self.wake = self._goal, now, 0.0, _NEVER
        assert self.reached is not None
        self.network.env.trigger(self.reached)


class FluidNetwork:
    """All flows that move at the moment, and the links that they share.

    `capacity` in bytes per second by link id; `log(flow, now)` is called for every stretch of
    time, from `flow.settled` to `now`, over which a flow kept one rate; `note` takes remarks on
    the run.
    """

    def __init__(
        self,
        env: Clock,
        capacity: Floats,
        *,
        log: Callable[[Flow, int], None],
        note: Callable[[str], None],
    ) -> None:
        self.env = env
        self.log = log
        self.capacity = capacity * 1e-12  # bytes per ps
        self._whole = self.capacity.copy()
        self.solved = 0
        self._note = note
        self._flows: dict[Flow, int] = {}  # in order of activation, by number
        self._count = 0
        self._on: list[dict[Flow, None]] = [{} for _ in range(len(capacity))]
        self._touched: dict[Flow, None] = {}  # flows whose rates may have changed at this instant
        self._solving = False
        self._links: dict[PlanPhase, list[int]] = {}
        self._free: dict[PlanPhase, float] = {}
        self._shares: dict[tuple[PlanPhase, ...], list[float]] = {}
        self._wakes: list[tuple[int, int, Flow]] = []
        self._alarm_at = _NEVER

    def start(self, phase: PlanPhase, *, op: int = -1) -> Flow:
        """Return a flow of `phase`; it moves once `reach` is called.

        `op` is an op whose data it moves, for the record; -1 for none.
        """
        return Flow(self, phase, op)

    def links_of(self, phase: PlanPhase) -> list[int]:
        """Return the links of a phase as a list; equal phases share one."""
        links = self._links.get(phase)
        if links is None:
            links = self._links[phase] = phase.link.tolist()
        return links

    def activate(self, flow: Flow) -> None:
        """Activate a flow."""
        flow.settled = self.env.now
        self._count += 1
        self._flows[flow] = self._count
        alone = True
        for link in flow.links:
            alone = alone and not self._on[link]
            self._on[link][flow] = None
        if alone and not self._touched:
            self._run(flow, min(flow.cap, self._unshared_rate(flow.phase)))
            self._set_alarm()
        else:
            self._touch(flow)
            self._solve_soon()

    def set_link(self, link: int, left: float) -> None:
        """Let a link carry the share `left` of what it is built for from now on."""
        self.capacity[link] = self._whole[link] * left
        self._free, self._shares = {}, {}
        self._touched.update(self._on[link])
        self._solve_soon()

    def _touch(self, flow: Flow) -> None:
        """Remember a flow that came or went, and those that share a link with it."""
        if flow in self._flows:
            self._touched[flow] = None
        for link in flow.links:
            if self._on[link]:
                self._touched.update(self._on[link])

    def _solve_soon(self) -> None:
        if not self._solving:
            self._solving = True
            self.env.last_word(self._solve)

    def _solve(self) -> None:
        """Share the links among the flows that something has changed for, and set the alarm."""
        self._solving = False
        flows = self._affected()
        if flows:
            self.solved += 1
            for flow, rate in zip(flows, self._rates(flows), strict=True):
                self._run(flow, rate)
        self._set_alarm()

    def _run(self, flow: Flow, rate: float) -> None:
        """Continue a flow at a rate, and note when it will be done."""
        flow.run_at(rate, self.env.now)
        heapq.heappush(self._wakes, (flow.wake, self._flows[flow], flow))

    def _set_alarm(self) -> None:
        """Set the alarm for the end of the next flow."""
        while self._wakes and self._stale(self._wakes[0]):
            heapq.heappop(self._wakes)
        if self._wakes and self._wakes[0][0] < _NEVER:
            self._wake_at(self._wakes[0][0])

    def _affected(self) -> list[Flow]:
        """Return the flows touched, and all connected to them through shared links."""
        found = {flow: None for flow in self._touched if flow in self._flows}
        self._touched = {}
        waiting = list(found)
        while waiting:
            for link in waiting.pop().links:
                others = self._on[link]
                if len(others) > 1:
                    more = [other for other in others if other not in found]
                    found.update(dict.fromkeys(more))
                    waiting += more
        return sorted(found, key=self._flows.__getitem__)

    def _stale(self, entry: tuple[int, int, Flow]) -> bool:
        wake, number, flow = entry
        return self._flows.get(flow) != number or flow.wake != wake

    def _wake_at(self, when: int) -> None:
        """Set an alarm at `when`, unless an earlier one is set: that one sets the next."""
        if self.env.now <= self._alarm_at <= when:
            return
        self._alarm_at = when

        def ring() -> None:
            if self._alarm_at == when:
                self._alarm_at = _NEVER
                self._end_due()

        self.env.call_after(when - self.env.now, ring)

    def _end_due(self) -> None:
        now = self.env.now
        while self._wakes and self._wakes[0][0] <= now:
            entry = heapq.heappop(self._wakes)
            if self._stale(entry):
                continue
            flow = entry[2]
            del self._flows[flow]
            for link in flow.links:
                del self._on[link][flow]
            self._touch(flow)
            flow.arrive(now)
        if self._touched:
            self._solve_soon()
        else:
            self._set_alarm()

    def _rates(self, flows: list[Flow]) -> list[float]:
        if len(flows) <= _FEW and self._share_no_link(flows):
            return [min(flow.cap, self._unshared_rate(flow.phase)) for flow in flows]
        phases = tuple([flow.phase for flow in flows])
        rates = self._shares.get(phases)
        if rates is None:
            if len(self._shares) >= _KEPT:
                self._shares.clear()
            rates = self._shares[phases] = self._shared_rates(phases)
        return rates

    def _shared_rates(self, phases: tuple[PlanPhase, ...]) -> list[float]:
        """Return the rates of flows of some phases that share links, in this order."""
        table = Flows(
            ptr=np.concatenate(([0], np.cumsum([len(p.link) for p in phases]))),
            link=np.concatenate([p.link for p in phases]),
            load=np.concatenate([p.load for p in phases]),
            conns=np.concatenate([p.conns for p in phases]),
            cap=np.array([_cap(phase) for phase in phases]),
        )
        rates = fair_rates(table, self.capacity)
        if rates.unfixed:
            self._note(_UNSURE)
        shares: list[float] = rates.rate.tolist()
        return shares

    def _share_no_link(self, flows: list[Flow]) -> bool:
        """Return whether no link of some flows carries another flow too."""
        return len(flows) == 1 or all(
            len(self._on[link]) == 1 for flow in flows for link in flow.links
        )

    def _unshared_rate(self, phase: PlanPhase) -> float:
        """Return the rate of a flow that has its links to itself; equal phases share one."""
        rate = self._free.get(phase)
        if rate is None:
            rate = float("inf")
            if len(phase.link):
                rate = float(np.min(self.capacity[phase.link] / np.maximum(phase.load, 1e-300)))
            self._free[phase] = rate
        return rate


def _cap(phase: PlanPhase) -> float:
    """Return the share of a phase that passes per ps on idle links."""
    return 1.0 / max(phase.idle, 1)
