"""
The fluid network: coupled flows that share links fairly, as SimPy events.

Rates are solved once per instant, after all of its starts and ends, for the flows that came or
went and those connected to them through shared links; no other rate can change. Of many flows only
those are solved whose fair share can have changed: as columns (`many_flows`), or one by one
(`fair_share.incremental`) where some have other bytes per connection on some of their links.
What a flow still has to do is settled only when its rate changes, so that equal flows keep equal
bits and end together.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from simpy.events import Event

from commsim.arrays import Floats
from commsim.engine.clock import Clock
from commsim.engine.fair_share import UNKNOWN, Flows, fair_again, fair_rates, limits_of
from commsim.engine.many_flows import NEVER, SAME, FlowLog, ManyFlows
from commsim.engine.phase_facts import PhaseFacts, duration_of
from commsim.libraries import PlanPhase

__all__ = ["UNSURE", "Flow", "FluidNetwork"]

_FEW = 64  # flows up to which checking one by one for shared links is faster
_MANY = 64  # flows above which only those are solved again whose rates can have changed
_AS_COLUMNS = 512  # flows above which all of them are columns: fewer are faster one by one
_KEPT = 4096  # sets of phases whose rates are kept: a step meets the same ones over and over
UNSURE = (
    "links: some rates were not decided by fairness alone (coupled flows that load different"
    " links hardest); the order of links decided."
)


class Flow:
    """One coupled flow in the network; `left` is the share of its phase still to move."""

    __slots__ = (
        "cap", "facts", "goal", "left", "limit", "links", "network", "op", "phase", "rate",
        "settled", "then", "unit", "wake",
    )  # fmt: skip

    def __init__(self, network: FluidNetwork, facts: PhaseFacts, op: int) -> None:
        self.network = network
        self.facts = facts
        self.phase = facts.phase
        self.cap = facts.cap
        self.links = facts.links
        self.unit = facts.unit
        self.op = op
        self.left = 1.0
        self.rate = 0.0
        self.limit = UNKNOWN  # the link that its rate follows from, or AT_CAP
        self.settled = network.env.now
        self.wake = NEVER
        self.then: Callable[[Any], None] | None = None  # called once the goal is reached
        self.goal = 0.0  # the share left once the goal is reached

    @property
    def loads(self) -> dict[int, tuple[float, float]]:
        """Bytes and connections by link."""
        return self.facts.loads

    def reach(self, fraction: float) -> Event:
        """Return an event that fires when `fraction` of the phase has moved, and then hold."""
        reached = Event(self.network.env)
        self.go(fraction, partial(_trigger, reached))
        return reached

    def go(self, fraction: float, then: Callable[[Any], None]) -> None:
        """Call `then` when `fraction` of the phase has moved, and then hold."""
        self.goal, self.then = 1.0 - fraction, then
        self.network.activate(self)

    def settle(self, now: int) -> None:
        """Book what moved since the rate last changed."""
        self.network.log.segment(self, now)
        self.left = max(self.left - (now - self.settled) * self.rate, 0.0)
        self.settled = now

    def run_at(self, rate: float, now: int) -> None:
        """Go on at a new rate; find out when the goal will be reached."""
        if abs(rate - self.rate) > SAME * self.rate:
            self.settle(now)
            self.rate = rate
        self._find_end()

    def begin_alone(self, capacity: Floats) -> None:
        """Begin on idle links, with nothing to book yet; find out when the goal will be reached."""
        self.rate, self.limit, whole = self.facts.alone(capacity)
        if self.left == 1.0 and not self.goal:
            self.wake = min(self.settled + whole, NEVER)
        else:
            self._find_end()

    def _find_end(self) -> None:
        self.wake = min(self.settled + duration_of(self.left - self.goal, self.rate), NEVER)

    def arrive(self, now: int) -> None:
        """Reach the goal: book it exactly, and stop."""
        self.network.log.segment(self, now)
        self.left, self.settled, self.rate, self.wake = self.goal, now, 0.0, NEVER
        assert self.then is not None
        self.then(None)


class FluidNetwork:
    """All flows that move at the moment, and the links that they share.

    `capacity` in bytes per second by link id; `log` is told of every stretch of time over which a
    flow kept one rate; `note` takes remarks on the run.
    """

    def __init__(
        self,
        env: Clock,
        capacity: Floats,
        *,
        log: FlowLog[Flow],
        note: Callable[[str], None],
    ) -> None:
        self.env = env
        self.log = log
        self.capacity = capacity * 1e-12  # bytes per ps
        self._whole = self.capacity.copy()
        self._listed: list[float] = []  # capacities of links, once there are many flows
        self.solved = 0
        self._note = note
        self._flows: dict[Flow, int] = {}  # in order of activation, by number
        self._count = 0
        self._on: list[dict[Flow, None]] = [{} for _ in range(len(capacity))]
        self._touched: dict[Flow, None] = {}  # flows whose rates may have changed at this instant
        self._moved: dict[Flow, None] = {}  # flows that have come or gone at this instant
        self._changed: dict[int, None] = {}  # links that carry another share since this instant
        self._solving = False
        self._facts: dict[PlanPhase, PhaseFacts] = {}
        self._shares: dict[tuple[PlanPhase, ...], list[tuple[float, int]]] = {}
        self._wakes: list[tuple[int, int, Flow]] = []
        self._many: ManyFlows[Flow] | None = None  # all flows, while they are many
        self._uneven = 0  # flows with other bytes per connection on some of their links
        self._alarm_at = NEVER

    @property
    def moving(self) -> bool:
        """Whether any flow has begun and not ended."""
        return bool(self._flows)

    def start(self, phase: PlanPhase, *, op: int = -1) -> Flow:
        """Return a flow of `phase`; it moves once `reach` is called.

        `op` is an op whose data it moves, for the record; -1 for none.
        """
        facts = self._facts.get(phase)
        if facts is None:
            facts = self._facts[phase] = PhaseFacts(phase)
        return Flow(self, facts, op)

    def activate(self, flow: Flow) -> None:
        """Activate a flow."""
        flow.settled = self.env.now
        self._count += 1
        self._flows[flow] = self._count
        self._uneven += not flow.unit
        if self._many is not None:
            if flow.unit:
                self._many.add(flow, flow.unit, self._count)
            else:
                self._one_by_one(self._many)
            self._solve_soon()
            return
        alone, on = True, self._on
        for link in flow.links:
            others = on[link]
            alone = alone and not others
            others[flow] = None
        if alone and not self._touched:
            flow.begin_alone(self.capacity)
            heapq.heappush(self._wakes, (flow.wake, self._count, flow))
            if not flow.settled <= self._alarm_at <= flow.wake:  # one set before then sees to it
                self._set_alarm()
        else:
            self._touch(flow)
            self._solve_soon()

    def set_link(self, link: int, left: float) -> None:
        """Let a link carry the share `left` of what it is built for from now on."""
        self.capacity[link] = self._whole[link] * left
        self._listed = []
        self._shares = {}
        for facts in self._facts.values():
            facts.forget()
        if self._many is not None:
            self._many.set_capacity(link, float(self.capacity[link]))
        self._touched.update(self._on[link])
        self._changed[link] = None
        for flow in self._on[link]:
            flow.limit = UNKNOWN
        self._solve_soon()

    def _touch(self, flow: Flow) -> None:
        """Remember a flow that came or went, and those that share a link with it."""
        if flow in self._flows:
            self._touched[flow] = None
        self._moved[flow] = None
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
        if self._many is None and len(self._flows) > _AS_COLUMNS and not self._uneven:
            self._together()
        if self._many is not None:
            self.solved += 1
            self._many.share(self.env.now)
            self._wake_next(self._many.next_end())
            return
        found = self._solved_again() if len(self._flows) > _MANY else None
        if found is None:
            flows = self._affected()
            found = dict(zip(flows, self._rates(flows), strict=True)) if flows else {}
        self._touched, self._moved, self._changed = {}, {}, {}
        if found:
            self.solved += 1
            for flow in sorted(found, key=self._flows.__getitem__):
                self._run(flow, *found[flow])
        self._set_alarm()

    def _solved_again(self) -> dict[Flow, tuple[float, int]] | None:
        """Return what has changed among many flows; None if most of them have to be solved."""
        fresh = [flow for flow in self._moved if flow in self._flows]
        changed = self._changed | {link: None for flow in self._moved for link in flow.links}
        most = len(self._flows) // 2
        self._listed = self._listed or self.capacity.tolist()
        return fair_again(fresh, changed, self._on, self._listed, most=most)

    def _run(self, flow: Flow, rate: float, limit: int) -> None:
        """Continue a flow at a rate that follows from `limit`, and note when it will be done."""
        flow.limit = limit
        flow.run_at(rate, self.env.now)
        heapq.heappush(self._wakes, (flow.wake, self._flows[flow], flow))

    def _set_alarm(self) -> None:
        """Set the alarm for the end of the next flow."""
        wakes, known = self._wakes, self._flows
        while wakes:
            when, number, flow = wakes[0]
            if known.get(flow) == number and flow.wake == when:
                self._wake_next(when)
                return
            heapq.heappop(wakes)

    def _affected(self) -> list[Flow]:
        """Return the flows touched, and all connected to them through shared links."""
        found = {flow: None for flow in self._touched if flow in self._flows}
        waiting = list(found)
        while waiting:
            for link in waiting.pop().links:
                others = self._on[link]
                if len(others) > 1:
                    more = [other for other in others if other not in found]
                    found.update(dict.fromkeys(more))
                    waiting += more
        return sorted(found, key=self._flows.__getitem__)

    def _wake_next(self, when: int) -> None:
        """Set an alarm at `when`, unless an earlier one is set: that one sets the next."""
        if when >= NEVER or self.env.now <= self._alarm_at <= when:
            return
        self._alarm_at = when
        self.env.call(self._ring, max(when - self.env.now, 0))

    def _ring(self, _: object) -> None:
        if self._alarm_at == self.env.now:  # else an earlier one has been set since
            self._alarm_at = NEVER
            self._end_due()

    def _end_due(self) -> None:
        now = self.env.now
        if self._many is not None:
            self._end_many(self._many, now)
            return
        on, known = self._on, self._flows
        while self._wakes and self._wakes[0][0] <= now:  # what ends may make way for columns
            wake, number, flow = heapq.heappop(self._wakes)
            if known.get(flow) != number or flow.wake != wake:
                continue
            alone = True
            del known[flow]
            self._uneven -= not flow.unit
            for link in flow.links:
                del on[link][flow]
                alone = alone and not on[link]
            if not alone or self._touched:
                self._touch(flow)
            flow.arrive(now)
        if self._touched:
            self._solve_soon()
        else:  # those that have ended shared no link
            self._moved = {}
            self._set_alarm()

    def _together(self) -> None:
        """Go on with all flows as columns."""
        self._many = ManyFlows(self.capacity, self.log)
        for flow, turn in self._flows.items():
            self._many.add(flow, flow.unit, turn)
            for link in flow.links:
                self._on[link].pop(flow, None)
        self._wakes, self._touched, self._moved, self._changed = [], {}, {}, {}

    def _one_by_one(self, many: ManyFlows[Flow]) -> None:
        """Go on with flows one by one."""
        self._many = None
        for flow in many.release():
            heapq.heappush(self._wakes, (flow.wake, self._flows[flow], flow))
        for flow in self._flows:
            for link in flow.links:
                self._on[link][flow] = None
            self._touched[flow] = self._moved[flow] = None  # so that all are shared anew
            flow.limit = UNKNOWN

    def _end_many(self, many: ManyFlows[Flow], now: int) -> None:
        """End the flows that are due, all before anybody hears of it."""
        ended = many.end_due(now)
        for flow in ended:
            del self._flows[flow]
        if len(self._flows) < _AS_COLUMNS // 4:
            self._one_by_one(many)
        for flow in ended:
            assert flow.then is not None
            flow.then(None)
        if ended:
            self._solve_soon()
        else:
            self._wake_next(many.next_end())

    def _rates(self, flows: list[Flow]) -> list[tuple[float, int]]:
        """Return the rates of flows that share links with no others, and what limits each."""
        if len(flows) <= _FEW and self._share_no_link(flows):
            return [flow.facts.alone(self.capacity)[:2] for flow in flows]
        phases = tuple([flow.phase for flow in flows])
        rates = self._shares.get(phases)
        if rates is None:
            if len(self._shares) >= _KEPT:
                self._shares.clear()
            rates = self._shares[phases] = self._shared_rates(phases)
        return rates

    def _shared_rates(self, phases: tuple[PlanPhase, ...]) -> list[tuple[float, int]]:
        """Return the rates of flows of some phases that share links, in this order."""
        table = Flows(
            ptr=np.concatenate(([0], np.cumsum([len(p.link) for p in phases]))),
            link=np.concatenate([p.link for p in phases]),
            load=np.concatenate([p.load for p in phases]),
            conns=np.concatenate([p.conns for p in phases]),
            cap=np.array([self._facts[phase].cap for phase in phases]),
        )
        rates = fair_rates(table, self.capacity)
        if rates.unfixed:
            self._note(UNSURE)
        limits = [UNKNOWN] * len(phases)
        if len(phases) > _MANY // 2:  # else they are soon solved together again
            limits = limits_of(table, self.capacity, rates.rate).tolist()
        return list(zip(rates.rate.tolist(), limits, strict=True))

    def _share_no_link(self, flows: list[Flow]) -> bool:
        """Return whether no link of some flows carries another flow too."""
        return len(flows) == 1 or all(
            len(self._on[link]) == 1 for flow in flows for link in flow.links
        )


def _trigger(event: Event, _: object) -> None:
    Clock.trigger(event)
