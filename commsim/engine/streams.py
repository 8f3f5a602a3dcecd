"""
A stream of a rank: an in-order queue of ops, run by callbacks.

What follows is what a SimPy process would do that took one op after the other (wait until it is
ready, let it run, release those that wait for it), in the same order of events, without a
generator per op. Ops that do more than run or meet (copies of host memory, ops that start
together) are processes still, stepped through by `_drive`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol

from simpy.events import Event

from commsim.engine.clock import Clock
from commsim.engine.lone_member import LoneMember
from commsim.engine.recorder import Recorder
from commsim.engine.rendezvous import Rendezvous
from commsim.engine.sharing import Sharing
from commsim.graph import Graph

__all__ = [
    "BATCHED",
    "COMPUTES",
    "DEPENDS",
    "RELEASES",
    "WORKS",
    "EngineStream",
    "Process",
]

Process = Generator[Event, Any, None]

DEPENDS, RELEASES, BATCHED, WORKS, COMPUTES = 1, 2, 4, 8, 16
"""What is so of an op: bits of one list, as every list that is looked into costs time."""


class Runner(Protocol):
    """What a stream needs of its engine: columns of the graph by op, and what ops do."""

    env: Clock
    graph: Graph
    recorder: Recorder
    sharing: Sharing | None
    duration: list[int]
    facts: list[int]
    batch: list[int]
    waits: list[int]
    ready_at: list[int]
    woken: dict[int, Callable[[Any], None]]

    def arrives(self, op: int, arrived: int, before: int) -> None:
        """Write down when an op arrived, and behind what."""

    def ready(self, op: int) -> Process:
        """Wait until an op is ready."""

    def execute(self, op: int, arrived: int, before: int) -> Process:
        """Run an op that is ready, whatever it does."""

    def end(self, op: int) -> None:
        """Record the end of an op."""

    def rendezvous_of(self, op: int) -> tuple[Rendezvous | LoneMember, int]:
        """Return the rendezvous that an op takes part in, and as which member."""


class EngineStream:
    """One queue of one lane."""

    __slots__ = ("_at", "_before", "_engine", "_lane", "_op", "_process", "ops")

    def __init__(self, engine: Runner, lane: int, ops: list[int]) -> None:
        self.ops = ops
        self._engine = engine
        self._lane = lane
        self._at, self._op, self._before = 0, -1, -1
        self._process: Process | None = None

    def begin(self, _: Any) -> None:
        """Begin, at the offset of the lane's clock."""
        offset = int(self._engine.graph.lane_offset[self._lane])
        if offset:
            self._engine.env.call(self._next, offset)
        else:
            self._next(None)

    def _next(self, _: Any) -> None:
        """Take ops until one has to be waited for."""
        engine = self._engine
        while self._at < len(self.ops):
            op = self._op = self.ops[self._at]
            facts = engine.facts[op]
            if facts & BATCHED:
                self._drive(self._together())
                return
            if facts & DEPENDS:
                if engine.waits[op]:
                    engine.woken[op] = self._woken
                    return
                wait = engine.ready_at[op] - engine.env.now
                if wait > 0:
                    engine.env.call(self._ready, wait)
                    return
            if not self._run(op):
                return

    def _woken(self, _: Any) -> None:
        """Go on: all that the op depends on has ended."""
        wait = self._engine.ready_at[self._op] - self._engine.env.now
        if wait > 0:
            self._engine.env.call(self._ready, wait)
        else:
            self._ready(None)

    def _ready(self, _: Any) -> None:
        if self._run(self._op):
            self._next(None)

    def _run(self, op: int) -> bool:
        """Let an op arrive and run; return whether it has ended already."""
        engine, now = self._engine, self._engine.env.now
        facts = engine.facts[op]
        if facts & WORKS:
            duration = engine.duration[op]
            if duration < 0:
                self._drive(engine.execute(op, now, self._before))
                return False
            engine.arrives(op, now, self._before)
            engine.recorder.start[op] = now
            if not duration:
                engine.end(op)
                self._before = op
                self._at += 1
                return True
            if facts & COMPUTES and engine.sharing is not None:
                engine.sharing.work(op, duration, self._done)
            else:
                engine.env.call(self._done, duration)
            return False
        rendezvous, member = engine.rendezvous_of(op)
        plan = rendezvous.plan
        if plan.copies_in or plan.copies_out:
            self._drive(engine.execute(op, now, self._before))
            return False
        engine.arrives(op, now, self._before)
        if engine.sharing is not None:
            engine.sharing.take(op, plan)
        rendezvous.arrive(member, op, self._left)
        return False

    def _left(self, _: Any) -> None:
        """Go on: a rendezvous has let the op go."""
        if self._engine.sharing is not None:
            self._engine.sharing.give_back(self._op)
        self._done(None)

    def _done(self, _: Any) -> None:
        op = self._before = self._op
        self._engine.end(op)
        self._at += 1
        self._next(None)

    def _together(self) -> Process:
        """Run the ops that were issued as one: they start together, once all are ready."""
        engine, ops, end = self._engine, self.ops, self._at + 1
        while end < len(ops) and engine.batch[ops[end]] == engine.batch[self._op]:
            end += 1
        together = ops[self._at : end]
        for op in together:
            yield from engine.ready(op)
        arrived = engine.env.now
        if len(together) == 1:
            yield from engine.execute(self._op, arrived, self._before)
        else:
            running = [
                engine.env.process(engine.execute(op, arrived, self._before)) for op in together
            ]
            yield engine.env.all_of(running)
        self._op, self._at = together[-1], end - 1

    def _drive(self, process: Process) -> None:
        """Step through a process, and go on after it."""
        self._process = process
        self._step(None)

    def _step(self, _: Any) -> None:
        assert self._process is not None
        for event in self._process:
            if event.callbacks is not None:
                event.callbacks.append(self._step)
                return
        self._process = None
        self._before = self._op
        self._at += 1
        self._next(None)
