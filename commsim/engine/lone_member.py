"""
A collective that one simulated rank is in: it stands for all of its group, or is alone there.

Nobody has to be waited for. What is left of a rendezvous is the turn in its group, the data, and
the way out, in the same order of events as for members that meet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from commsim.engine.execution_plan import ExecutionPlan
from commsim.engine.fluid_network import FluidNetwork
from commsim.engine.rendezvous import GroupQueue, RunContext
from commsim.libraries import PlanPhase
from commsim.timeline import Cause

__all__ = ["LoneMember"]

_QUEUE = int(Cause.QUEUE)


class LoneMember:
    """One collective of one member, by a plan that runs `alone`."""

    __slots__ = (
        "_choice", "_context", "_leave", "_member", "_op", "_phase", "_position", "_queue",
        "_record", "plan",
    )  # fmt: skip

    def __init__(
        self,
        context: RunContext,
        run_as: ExecutionPlan,
        queue: GroupQueue | None,
        position: int,
        record: int,
    ) -> None:
        assert run_as.only is not None
        self.plan = run_as.plan
        self._phase: PlanPhase = run_as.only
        self._choice = run_as.choice
        self._context = context
        self._queue = queue
        self._position = position
        self._record = record
        self._member, self._op = -1, -1
        self._leave: Callable[[Any], None] | None = None

    @property
    def ops(self) -> dict[int, int]:
        """The op that has arrived, by its member."""
        return {self._member: self._op} if self._op >= 0 else {}

    def missing(self) -> list[int]:
        """Return the members that have not arrived: who is asked for has."""
        return []

    def arrive(self, member: int, op: int, leave: Callable[[Any], None]) -> None:
        """Record the arrival of the member with its op; `leave` is called when it may leave."""
        self._member, self._op, self._leave = member, op, leave
        if self._queue is None:
            self.begin(-1)
        else:
            self._queue.enter(self._position, self)

    def begin(self, freed_by: int) -> None:
        """Start moving data; `freed_by` is the op whose end freed the slot, -1 if one was free."""
        context, op = self._context, self._op
        recorder, now = context.recorder, context.env.now
        if self._choice:
            recorder.choices[self._record] = self._choice
        if freed_by >= 0 and recorder.arrive[op] < now:
            recorder.cause[op], recorder.cause_kind[op] = freed_by, _QUEUE
        recorder.start[op] = now
        if self._phase.lead:
            context.env.call(self._move, self._phase.lead)
        else:
            self._move(None)

    def _move(self, _: object) -> None:
        network, phase = self._context.network, self._phase
        assert isinstance(network, FluidNetwork)
        flow = network.start(phase, op=self._op)
        flow.go(1.0, self._moved if phase.tail else self._finish)

    def _moved(self, _: object) -> None:
        self._context.env.call(self._finish, self._phase.tail)

    def _finish(self, _: object) -> None:
        """Release the member, and start the next collective of the group."""
        assert self._leave is not None
        self._leave(None)
        if self._queue is not None:
            self._queue.leave(self._op)
