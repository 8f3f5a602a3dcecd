"""
Rendezvous of ranks: a collective or a message waits for its members, moves data, releases them.

A `Rendezvous` is one instance. Once enough members for the plan's start rule have arrived and the
group has a slot free (a library runs only so many collectives of a group at once, in issue
order), the plan runs, and each member leaves when the plan lets it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

import msgspec
import simpy
from simpy.events import Event

from commsim.engine.clock import Clock
from commsim.engine.execution_plan import ExecutionPlan
from commsim.engine.fluid_network import FluidNetwork
from commsim.engine.recorder import Recorder
from commsim.engine.step_network import StepNetwork
from commsim.libraries import Start
from commsim.timeline import Cause

__all__ = ["GroupQueue", "Process", "Rendezvous", "RunContext"]

Process = Generator[Event, Any, None]
_QUEUE, _RENDEZVOUS = int(Cause.QUEUE), int(Cause.RENDEZVOUS)


class RunContext(msgspec.Struct, frozen=True, eq=False):
    """What a rendezvous needs of a run: its clock, its record and its network.

    `send_messages` runs the programs of a plan message by message; None if plans are flows.
    """

    env: Clock
    recorder: Recorder
    network: FluidNetwork | StepNetwork
    send_messages: Callable[[Rendezvous], Process] | None


class TakesTurns(Protocol):
    """What begins when its turn in a group has come."""

    def begin(self, freed_by: int) -> None:
        """Start moving data; `freed_by` is the op whose end freed the slot, -1 if one was free."""


class GroupQueue:
    """The collectives of one group, in issue order, at most `concurrency` at once."""

    def __init__(self, concurrency: int) -> None:
        self._free = concurrency
        self._turn = 0
        self._waiting: dict[int, TakesTurns] = {}
        self._ended = -1  # an op of the collective that last gave its slot back

    def enter(self, position: int, rendezvous: TakesTurns) -> None:
        """Queue a rendezvous that is ready to start; it starts when its turn comes."""
        self._waiting[position] = rendezvous
        self._start_next(waited=False)

    def leave(self, op: int) -> None:
        """Give a slot back; `op` is one that ended with it."""
        self._free += 1
        self._ended = op
        self._start_next(waited=True)

    def _start_next(self, *, waited: bool) -> None:
        while self._free and self._turn in self._waiting:
            rendezvous = self._waiting.pop(self._turn)
            self._turn += 1
            self._free -= 1
            rendezvous.begin(self._ended if waited else -1)


class Rendezvous:
    """One collective or message: its arrived members, and the plan that runs once enough have."""

    __slots__ = (
        "_arrivals", "_begun", "_context", "_departures", "_ended", "_execution_plan", "_first",
        "_last", "_missing", "_position", "_queue", "_queued", "_record",
        "copy_time", "expected", "ops", "plan",
    )  # fmt: skip

    def __init__(
        self,
        context: RunContext,
        execution_plan: ExecutionPlan,
        expected: Sequence[int],
        queue: GroupQueue | None,
        position: int,
        record: int,
    ) -> None:
        self.plan = execution_plan.plan
        self.expected = expected
        self.ops: dict[int, int] = {}
        self.copy_time: dict[int, int] = {}  # ps of copies before the member arrived
        self._context = context
        self._execution_plan = execution_plan
        self._queue = queue
        self._position = position
        self._record = record
        self._departures: dict[int, Callable[[Any], None]] = {}
        self._arrivals: dict[int, Event] = {}
        self._last = -1  # the op that arrived last
        self._begun = self._queued = self._ended = False
        self._first = execution_plan.first
        if self._first is None and execution_plan.late:
            joins = execution_plan.joins
            self._first = frozenset(member for member in expected if not joins[member])
        self._missing = len(expected if self._first is None else self._first)

    def arrive(self, member: int, op: int, leave: Callable[[Any], None]) -> None:
        """Record the arrival of `member` with its op; `leave` is called when it may leave."""
        self.ops[member] = op
        self._last = op
        self._departures[member] = leave
        if self._arrivals and member in self._arrivals:
            self._arrivals.pop(member).succeed()
        if self._first is None or member in self._first:
            self._missing -= 1
        if self._queued:
            if self._begun:
                self._arrived_late(member)
        elif not self._missing:
            self._queued = True
            if self._queue is None:
                self.begin(-1)
            else:
                self._queue.enter(self._position, self)

    def _arrived_late(self, member: int) -> None:
        """Let a member that was not waited for take part."""
        if self.plan.start == Start.EAGER:
            self._record_start(member)
            if self._ended:
                self.release(member)
        elif self.plan.start == Start.EACH:
            self._release_ready(freed_by=-1)

    def _release_ready(self, *, freed_by: int) -> None:
        """Start those members for whom all have come that they wait for; each takes its time."""
        recorder = self._context.recorder
        expected, there = frozenset(self.expected), self.ops.keys()
        for member, op in self.ops.items():
            if recorder.start[op] >= 0 or not self.plan.awaits[member] & expected <= there:
                continue
            cause, kind = (freed_by, _QUEUE) if freed_by >= 0 else (self._last, _RENDEZVOUS)
            if op != cause and recorder.arrive[op] < self._context.env.now:
                recorder.cause[op], recorder.cause_kind[op] = cause, kind
            self._record_start(member)
            self._release_after(self.plan.stays[member], member)

    def _release_after(self, time: int, member: int) -> None:
        def release(_: object) -> None:
            self.release(member)
            if len(self.ops) == len(self.expected) and not self._departures:
                self._finish(None)

        self._context.env.call(release, time)

    def missing(self) -> list[int]:
        """Return the members that have not arrived."""
        return [member for member in self.expected if member not in self.ops]

    def begin(self, freed_by: int) -> None:
        """Start moving data; `freed_by` is the op whose end freed the slot, -1 if one was free."""
        self._begun = True
        context, run_as = self._context, self._execution_plan
        if self._record >= 0 and run_as.choice:
            context.recorder.choices[self._record] = run_as.choice
        if self.plan.start == Start.EACH:
            self._release_ready(freed_by=freed_by)
            return
        cause, kind = (freed_by, _QUEUE) if freed_by >= 0 else (self._last, _RENDEZVOUS)
        recorder, now = context.recorder, context.env.now
        for member, op in self.ops.items():
            since = now - self.copy_time[member] if member in self.copy_time else now
            if op != cause and recorder.arrive[op] < since:
                recorder.cause[op] = cause
                recorder.cause_kind[op] = kind
            if not run_as.joins[member]:
                recorder.start[op] = since
        if run_as.only is not None:
            if run_as.only.lead:
                context.env.call(self._move, run_as.only.lead)
            else:
                self._move(None)
        else:
            context.env.process(self._run())

    def _move(self, _: object) -> None:
        """Run the only phase, without a process: callbacks cost fewer events."""
        phase, network = self._execution_plan.only, self._context.network
        assert phase is not None
        assert isinstance(network, FluidNetwork)
        flow = network.start(phase, op=self._lowest_op())
        flow.go(1.0, self._moved if phase.tail else self._finish)

    def _moved(self, _: object) -> None:
        assert self._execution_plan.only is not None
        self._context.env.call(self._finish, self._execution_plan.only.tail)

    def _finish(self, _: object) -> None:
        """Release all members, and start the next collective of the group."""
        self._ended = True
        if self.plan.start == Start.PATH:
            for member in self.ops:
                self.start_member(member)
        departures = self._departures
        for member in sorted(departures):
            departures.pop(member)(None)
        if self._queue is not None:
            self._queue.leave(self._lowest_op())

    def _lowest_op(self) -> int:
        """Return the op of the lowest member that has arrived."""
        ops = self.ops
        return ops[min(ops)] if len(ops) > 1 else self._last

    def _record_start(self, member: int) -> None:
        """Record that a member moves data from now on; its earlier copies count as moving."""
        now = self._context.env.now
        self._context.recorder.start[self.ops[member]] = now - self.copy_time.get(member, 0)

    def start_member(self, member: int) -> None:
        """Start a member that the data has reached, if it has arrived and not started."""
        if member in self.ops and self._context.recorder.start[self.ops[member]] < 0:
            self._record_start(member)

    def _run(self) -> Process:
        env = self._context.env
        if self._context.send_messages and self.plan.programs:
            yield from self._context.send_messages(self)
        elif len(self.plan.parts) == 1:
            yield from self._run_part(0)
        else:
            parts = range(len(self.plan.parts))
            yield simpy.AllOf(env, [env.process(self._run_part(part)) for part in parts])
        self._finish(None)

    def release(self, member: int) -> None:
        """Release a member."""
        if member in self._departures:
            self._context.env.call(self._departures.pop(member))

    def arrival_of(self, member: int) -> Event | None:
        """Return an event for the arrival of a member, None if it has arrived."""
        if member in self.ops or member not in self.expected:
            return None
        return self._arrivals.setdefault(member, Event(self._context.env))

    def _run_part(self, number: int) -> Process:
        """Run the phases of a part, stopping when a member joins or leaves early."""
        env, before = self._context.env, 0
        stops = self._execution_plan.stops[number]
        for phase in self.plan.parts[number].phases:
            if phase.lead:
                yield env.timeout(phase.lead)
            if not phase.idle:  # nothing to move: no flow, and no picosecond for it
                continue
            flow = self._context.network.start(phase, op=self._lowest_op())
            begin, end = before + phase.lead, before + phase.lead + phase.idle
            for when, members in stops:
                if not begin <= when < end:
                    continue
                if when > begin:
                    yield flow.reach((when - begin) / phase.idle)
                for joins, member in members:
                    if joins:
                        yield from self.join(member)
                    else:
                        self.release(member)
            yield flow.reach(1.0)
            if phase.tail:
                yield env.timeout(phase.tail)
            before = end + phase.tail

    def join(self, member: int) -> Process:
        """Wait for a member that the data has reached."""
        arrival = self.arrival_of(member)
        if arrival is not None:
            yield arrival
        self.start_member(member)
