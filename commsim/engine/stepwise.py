"""
`network: steps`: chunk programs run message by message over FIFO links, as a SimPy process.

The discipline is that of `libraries.expansion.traffic`; one `Traffic` serves all programs of the
run, so they queue for the same links.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from simpy.events import Event

from commsim.cluster import Links, Route
from commsim.engine.clock import Clock
from commsim.libraries import Messages
from commsim.libraries.expansion import Hop, LinkService, Program, Traffic, hops_of

__all__ = ["Courier", "StepNetwork"]


class Courier:
    """One running program: counts, per member, the messages that it still sends or receives.

    Switches (negative numbers) take part in messages and are no members.
    """

    def __init__(self, messages: Messages, on_done: Callable[[int], None]) -> None:
        self.messages = messages
        self.left: dict[int, int] = {}
        for ends in (messages.source.tolist(), messages.target.tolist()):
            for member in ends:
                if member >= 0:
                    self.left[member] = self.left.get(member, 0) + 1
        self._on_done = on_done

    def arrived(self, message: int) -> None:
        """Count a message; tell of members for which it was the last."""
        for member in (int(self.messages.source[message]), int(self.messages.target[message])):
            if member < 0:
                continue
            self.left[member] -= 1
            if self.left[member] == 0:
                self._on_done(member)


class StepNetwork:
    """Runs programs for the engine; `log` collects what links serve."""

    def __init__(self, env: Clock, links: Links, log: list[LinkService]) -> None:
        self.env = env
        self._links = links
        self._traffic = Traffic(log)
        self._hops: dict[Route, tuple[Hop, ...]] = {}
        self._couriers: dict[int, tuple[Courier, Event]] = {}
        self._alarm = 0

    def start(self, courier: Courier, absent: list[int]) -> tuple[int, Event]:
        """Start a program without the members that are `absent`; return its number and end."""
        messages = courier.messages
        hops = [self._hops_of(route) for route in messages.routes]
        number = self._traffic.add(Program(messages, hops, absent), float(self.env.now))
        ended = Event(self.env)
        if len(messages.size):
            self._couriers[number] = (courier, ended)
        else:
            ended.succeed()
        self._set_alarm()
        return number, ended

    def join(self, number: int, member: int) -> None:
        """Let a member that was absent take part from now on."""
        self._traffic.join(number, member, float(self.env.now))
        self._set_alarm()

    def _hops_of(self, route: Route) -> tuple[Hop, ...]:
        if route not in self._hops:
            self._hops[route] = hops_of(route, self._links)
        return self._hops[route]

    def _set_alarm(self) -> None:
        """Wake at the next thing to happen; a newer alarm makes the older ones stale."""
        following = self._traffic.next_time()
        if math.isinf(following):
            return
        self._alarm += 1
        number = self._alarm
        # A thousandth of a ps of float noise must not cost a whole one.
        delay = max(math.ceil(following - 1e-3) - self.env.now, 0)
        alarm = self.env.timeout(delay)
        assert alarm.callbacks is not None
        alarm.callbacks.append(lambda _: self._ring(number))

    def _ring(self, number: int) -> None:
        if number != self._alarm:
            return
        for _, program, message in self._traffic.advance(self.env.now + 1e-3):
            courier, ended = self._couriers[program]
            courier.arrived(message)
            if not any(courier.left.values()):
                del self._couriers[program]
                ended.succeed()
        self._set_alarm()
