"""
`network: steps`: messages over FIFO links, as SimPy events.

The discipline is that of `libraries.expansion.traffic`; one `Traffic` serves everything that
moves in the run, so all of it queues for the same links: the messages of chunk programs, copies,
and the flows of plans that have no program. A flow goes in slices, each evenly over its part of
the idle time and over all links of the flow at once.

A program that is alone is looked at wave by wave instead (`libraries.expansion.waves`): message by
message, and then from its start on, only if something else begins to move before it has ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import numpy as np
from simpy.events import Event

from commsim.cluster import Links, Route
from commsim.engine.clock import Clock
from commsim.engine.recorder import Recorder
from commsim.libraries import Delays, PlanPhase, RoutedProgram
from commsim.libraries.expansion import (
    Hop,
    RunningProgram,
    Traffic,
    Waves,
    hops_of,
    waves_of,
)
from commsim.limits import BYTES_PER_MESSAGE, BYTES_PER_SERVICE, check_size

__all__ = ["MessageProgress", "StepFlow", "StepNetwork"]

_SLICES = 64  # of a flow: others wait for no more than one of them
_NO_NUMBER = -1  # of a program that no member joins later
_LESS = "Take network: fluid, or fewer ranks, bytes or operations."
PS = 1e12


class MessageProgress:
    """One running program: counts, per member, the messages that it still sends or receives.

    Switches (negative numbers) take part in messages and are no members.
    """

    def __init__(self, messages: RoutedProgram, on_done: Callable[[int], None]) -> None:
        self.messages = messages
        ends = np.concatenate((messages.source, messages.target))
        count = np.bincount(ends[ends >= 0])
        self.left: dict[int, int] = {m: int(count[m]) for m in np.flatnonzero(count).tolist()}
        self.told: set[int] = set()
        self._on_done = on_done

    def arrived(self, message: int) -> None:
        """Count a message; return the members for which it was the last."""
        for member in (int(self.messages.source[message]), int(self.messages.target[message])):
            if member < 0:
                continue
            self.left[member] -= 1
            if self.left[member] == 0 and member not in self.told:
                self.done(member)

    def done(self, member: int) -> None:
        """Tell a member that its last message has arrived."""
        self.told.add(member)
        self._on_done(member)


class _Lone(msgspec.Struct, frozen=True, eq=False):
    """A program that runs alone since `started` (ps), and what becomes of it."""

    progress: MessageProgress
    hops: Sequence[tuple[Hop, ...]]
    started: int
    op: int
    waves: Waves
    ended: Event


class StepFlow:
    """One coupled flow, in slices; `sent` is the share of its phase that has moved."""

    def __init__(self, network: StepNetwork, phase: PlanPhase, op: int) -> None:
        self.network = network
        self.phase = phase
        self.op = op
        self.sent = 0.0

    def reach(self, fraction: float) -> Event:
        """Return an event that fires when `fraction` of the phase has moved."""
        share, self.sent = fraction - self.sent, fraction
        if not len(self.phase.link):
            return self.network.env.timeout(round(self.phase.idle * share))
        messages = _slices(self.phase, share)
        progress = MessageProgress(messages, lambda _: None)
        return self.network.run(progress, [self.network.hop_of(self.phase)], [], op=self.op)[1]


class StepNetwork:
    """Runs messages and flows for the engine; `recorder` logs what links serve, by op."""

    def __init__(self, env: Clock, links: Links, recorder: Recorder) -> None:
        self.env = env
        self._links = links
        self._recorder = recorder
        self._traffic = Traffic(recorder.services)
        self._hops: dict[Route, tuple[Hop, ...]] = {}
        self._of_phase: dict[PlanPhase, tuple[Hop, ...]] = {}
        self._running: dict[int, tuple[MessageProgress, Event]] = {}
        self._alarm = 0
        self._services = 0
        self._sent = self._arrived = 0  # messages since nothing moved
        self._lone: _Lone | None = None

    def start(self, phase: PlanPhase, *, op: int = -1) -> StepFlow:
        """Return a flow of `phase`; it moves once `reach` is called.

        `op` is an op whose data it moves, for the record; -1 for none.
        """
        return StepFlow(self, phase, op)

    def send(
        self, progress: MessageProgress, absent: list[int], *, op: int = -1, alone: bool = False
    ) -> tuple[int, Event]:
        """Start a program without the members that are `absent`; return its number and end.

        `alone`: no other starts together with it.
        """
        hops = [self._hops_of(route) for route in progress.messages.routes]
        if alone and not absent and not self._running and self._lone is None:
            ended = self._send_alone(progress, hops, op)
            if ended is not None:
                return _NO_NUMBER, ended
        return self.run(progress, hops, absent, op=op)

    def run(
        self,
        progress: MessageProgress,
        hops: Sequence[tuple[Hop, ...]],
        absent: list[int],
        *,
        op: int,
    ) -> tuple[int, Event]:
        """Start messages over the hops of each of their routes; return their number and end."""
        self._end_solitude()
        number = self._add(progress, hops, absent, op=op, since=self.env.now)
        ended = Event(self.env)
        if len(progress.messages.size):
            self._running[number] = (progress, ended)
        else:
            ended.succeed()
        self._set_alarm()
        return number, ended

    def _add(
        self,
        progress: MessageProgress,
        hops: Sequence[tuple[Hop, ...]],
        absent: list[int],
        *,
        op: int,
        since: int,
    ) -> int:
        messages = progress.messages
        self._services += int(np.array([len(way) for way in hops])[messages.route].sum())
        check_size(
            self._services, BYTES_PER_SERVICE,
            f"network steps: {self._services:,} services of links, message by message", _LESS,
        )  # fmt: skip
        if not self._running:
            self._sent = self._arrived = 0
        self._sent += len(messages.size)
        number = self._traffic.add(RunningProgram(messages, hops, absent), float(since))
        self._recorder.program_op[number] = op
        return number

    def _send_alone(
        self, progress: MessageProgress, hops: Sequence[tuple[Hop, ...]], op: int
    ) -> Event | None:
        """Start a program while nothing else moves; None if it has to go message by message."""
        messages, now = progress.messages, self.env.now
        check_size(
            len(messages.size), BYTES_PER_MESSAGE,
            f"network steps: {len(messages.size):,} messages", _LESS,
        )  # fmt: skip
        waves = waves_of(messages, hops, float(now))
        if waves is None:
            return None
        lone = self._lone = _Lone(progress, hops, now, op, waves, Event(self.env))
        last = np.zeros(max(progress.left) + 1)
        for ends in (messages.source, messages.target):
            np.maximum.at(last, ends[ends >= 0], waves.arrive[ends >= 0])
        for member in sorted(progress.left, key=lambda member: float(last[member])):
            self.env.call_after(last[member] - now, partial(self._leave_alone, lone, member))
        return lone.ended

    def _leave_alone(self, lone: _Lone, member: int) -> None:
        """Let a member of a lone program go; the last one ends it."""
        if self._lone is not lone:
            return
        lone.progress.done(member)
        if len(lone.progress.told) == len(lone.progress.left):
            self._lone = None
            self._recorder.served.append((lone.waves.services, lone.op))
            lone.ended.succeed()

    def _end_solitude(self) -> None:
        """Go on message by message with a program that is no longer alone."""
        if self._lone is None:
            return
        lone, self._lone = self._lone, None
        number = self._add(lone.progress, lone.hops, [], op=lone.op, since=lone.started)
        self._running[number] = (lone.progress, lone.ended)
        self._advance()

    def share_arrived(self) -> float:
        """Return which share of the messages since nothing moved has arrived; another thread may
        ask. Of a program that is alone none is known to have arrived before its end."""
        return self._arrived / max(self._sent, 1)

    def hop_of(self, phase: PlanPhase) -> tuple[Hop, ...]:
        """Return all links of a flow as one hop; the whole flow counts as one byte."""
        hops = self._of_phase.get(phase)
        if hops is None:
            cost = phase.load / self._links.capacity[phase.link] * PS
            hop: Hop = (tuple(phase.link.tolist()), tuple(cost.tolist()), 0.0)
            hops = self._of_phase[phase] = (hop,)
        return hops

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
        self.env.call_after(following - self.env.now, lambda: self._ring(number))

    def _ring(self, number: int) -> None:
        if number != self._alarm:
            return
        self._advance()
        self._set_alarm()

    def _advance(self) -> None:
        """Let happen what is due, and say who is done."""
        for _, program, message in self._traffic.advance(self.env.now + 1e-3):
            progress, ended = self._running[program]
            progress.arrived(message)
            self._arrived += 1
            if not any(progress.left.values()):
                del self._running[program]
                ended.succeed()


def _slices(phase: PlanPhase, share: float) -> RoutedProgram:
    """Return a share of a flow as messages one after the other, each at its idle pace."""
    count = max(math.ceil(share * _SLICES), 1)
    none, each = np.zeros(count), np.full(count, share / count)
    delays = Delays(none, none, np.zeros(0), each * phase.idle)
    first = np.zeros(count, np.int64)
    return RoutedProgram(
        first, first + 1, each, first, (), np.zeros(count + 1, np.int64), first[:0], delays
    )
