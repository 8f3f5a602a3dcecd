"""
The SimPy engine: streams of ops, rendezvous, and a network.

A stream takes its ops in order (`streams`); an op arrives when its stream is free and its
dependencies have ended; work takes its duration; collectives and messages meet (`rendezvous`). To
add a behaviour of your own, pass a generator function of the engine to `simulate`:

    def background(engine):                    # another tenant on link 7
        while True:
            yield engine.env.timeout(MS)
            yield engine.network.start(my_phase).reach(1.0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from simpy.events import Event, EventPriority

from commsim.cluster import Cluster
from commsim.engine.clock import Clock
from commsim.engine.copies import Copies
from commsim.engine.execution_plan import ExecutionPlan, execution_plan_of, uses_links
from commsim.engine.fluid_network import FluidNetwork
from commsim.engine.gc_paused import gc_paused
from commsim.engine.lone_member import LoneMember
from commsim.engine.planning import Planner
from commsim.engine.recorder import Recorder
from commsim.engine.rendezvous import GroupQueue, Rendezvous, RunContext
from commsim.engine.rules import dependents, queues
from commsim.engine.sharing import Sharing
from commsim.engine.step_network import StepNetwork
from commsim.engine.streams import (
    BATCHED,
    COMPUTES,
    DEPENDS,
    RELEASES,
    WORKS,
    EngineStream,
    Process,
)
from commsim.graph import CopyDirection, Graph, OpKind, member_lanes
from commsim.libraries import Copy, Library, Plan, library_of, links_of
from commsim.timeline import Cause, Timeline

__all__ = ["Engine"]

_NO_PROGRAM = (
    "network steps: {op} by {plan.algorithm} has no program of messages; its flow is sent in slices"
    " that queue with the messages of others."
)
_DEPENDENCY, _STREAM = int(Cause.DEPENDENCY), int(Cause.STREAM)
_URGENT = EventPriority(0)  # SimPy's for processes that begin


class Engine:
    """Runs one graph once. `env`, `network`, `graph` and `recorder` are open to extensions."""

    def __init__(
        self,
        graph: Graph,
        cluster: Cluster | None,
        library: Library,
        *,
        planner: Planner,
        stepwise: bool,
        overlap_slowdown: bool,
    ) -> None:
        self.env = Clock()
        self.graph = graph
        self.cluster = cluster
        self.stepwise = stepwise and cluster is not None
        self.recorder = Recorder(graph)
        self.links = links_of(library, cluster) if cluster else None
        capacity = self.links.capacity if self.links else np.zeros(0)
        self.network: FluidNetwork | StepNetwork = FluidNetwork(
            self.env, capacity, log=self.recorder, note=self._note
        )
        send = None
        if self.stepwise and self.links is not None:
            from commsim.engine.message_level import send_messages

            self.network = StepNetwork(self.env, self.links, self.recorder)
            send = partial(send_messages, self.network)
        if self.links is not None:
            self.copies = Copies(self.links, self.network)
        self._context = RunContext(self.env, self.recorder, self.network, send)
        self.sharing = Sharing(self.env, graph, cluster) if cluster and overlap_slowdown else None
        self._collectives: list[Rendezvous | LoneMember | None] = [None] * len(graph.collectives)
        self._messages: list[Rendezvous | None] = [None] * len(graph.messages)
        self._execution_plans: dict[Plan, ExecutionPlan] = {}
        self._library = library
        self._planner = planner
        self._read(graph)

    def _read(self, graph: Graph) -> None:
        """Copy the columns of the inner loop to lists, which are faster to index than arrays."""
        self.duration: list[int] = graph.duration.tolist()
        self.facts = _facts(graph)
        self._receives = (graph.kind == OpKind.RECV).tolist()
        self._in_group = (graph.kind == OpKind.COLLECTIVE).tolist()
        self._item, self.batch = graph.item.tolist(), graph.batch.tolist()
        self.waits: list[int] = (graph.dep_ptr[1:] - graph.dep_ptr[:-1]).tolist()
        self.ready_at, self._ready_by = [0] * len(graph), [-1] * len(graph)
        self.woken: dict[int, Callable[[Any], None]] = {}
        """What goes on once all that an op depends on has ended, by op."""
        self._after = dependents(graph)
        self._member = member_lanes(graph)
        self._expected = [tuple(lanes.values()) for lanes in self._member]
        self._lane = graph.lane.tolist()
        self._rank = graph.lane_rank.tolist()
        self._group: list[int] = graph.collectives.group.tolist()
        self._position, seen = [], [0] * len(graph.groups)
        for group in self._group:
            self._position.append(seen[group])
            seen[group] += 1
        at_once = [library_of(self._library, group.library).concurrency for group in graph.groups]
        self._queues = [GroupQueue(limit) if limit else None for limit in at_once]

    @property
    def done(self) -> bool:
        """Whether every op has ended."""
        return min(self.recorder.end, default=0) >= 0

    @property
    def cut(self) -> bool:
        """Whether something was under way, or to come, when time ended."""
        moving = isinstance(self.network, FluidNetwork) and self.network.moving
        return self.env.cut or moving

    def share_done(self) -> float:
        """Return the share of the ops that have ended; another thread may ask.

        Ops under way count by the share of messages that have arrived, where messages are sent.
        """
        count = len(self.recorder.end)
        if not count:
            return 1.0
        done = float(count - self.recorder.end.count(-1))
        if isinstance(self.network, StepNetwork):
            begun = count - self.recorder.start.count(-1)
            done += max(begun - done, 0.0) * self.network.share_arrived()
        return done / count

    def set_pace(self, lane: int, pace: float) -> None:
        """Let the GPU of a lane compute at `pace` times its speed from now on."""
        if self.sharing is not None:
            self.sharing.set_pace(lane, pace)

    def set_link(self, link: int, left: float) -> None:
        """Let a link carry the share `left` of its capacity from now on."""
        if isinstance(self.network, FluidNetwork):
            self.network.set_link(link, left)

    def run(self) -> None:
        """Run until no event is left, or time ends."""
        self.env.end_time()
        for lane, ops in _lanes_and_ops(self.graph):
            self.env.call(EngineStream(self, lane, ops).begin, priority=_URGENT)
        with gc_paused():
            self.env.run()

    def timeline(self) -> Timeline:
        """Return the timeline of what has run."""
        return self.recorder.timeline(self.links)

    def ready(self, op: int) -> Process:
        """Wait until each dependency of an op has ended, and its delay has passed."""
        if self.waits[op]:
            woken = Event(self.env)
            self.woken[op] = lambda _: self.env.trigger(woken)
            yield woken
        if self.ready_at[op] > self.env.now:
            yield self.env.timeout(self.ready_at[op] - self.env.now)

    def arrives(self, op: int, arrived: int, before: int) -> None:
        """Write down when an op arrived, and behind what."""
        recorder = self.recorder
        recorder.arrive[op] = arrived
        depends = self.facts[op] & DEPENDS
        if depends and self._ready_by[op] >= 0 and self.ready_at[op] >= arrived > 0:
            recorder.cause[op] = self._ready_by[op]
            recorder.cause_kind[op] = _DEPENDENCY
        elif before >= 0:
            recorder.cause[op] = before
            recorder.cause_kind[op] = _STREAM

    def execute(self, op: int, arrived: int, before: int) -> Process:
        """Run an op that is ready, whatever it does."""
        self.arrives(op, arrived, before)
        if self.facts[op] & WORKS:
            self.recorder.start[op] = arrived
            if self.duration[op] < 0:
                yield self._host_copy(op)
            elif self.duration[op]:
                yield self._work(op)
        else:
            rendezvous, member = self.rendezvous_of(op)
            if self.sharing:
                self.sharing.take(op, rendezvous.plan)
            if rendezvous.plan.copies_in:
                yield from self._stage(rendezvous.plan.copies_in, member, op)
                assert isinstance(rendezvous, Rendezvous)  # a lone member's plan copies nothing
                rendezvous.copy_time[member] = self.env.now - arrived
            left = Event(self.env)
            rendezvous.arrive(member, op, lambda _: self.env.trigger(left))
            yield left
            if rendezvous.plan.copies_out:
                yield from self._stage(rendezvous.plan.copies_out, member, op)
            if self.sharing:
                self.sharing.give_back(op)
        self.end(op)

    def _work(self, op: int) -> Event:
        """Return an event that fires when an op that takes time has been worked off."""
        if not self.sharing or not self.facts[op] & COMPUTES:
            return self.env.timeout(self.duration[op])
        done = Event(self.env)
        self.sharing.work(op, self.duration[op], lambda _: self.env.trigger(done))
        return done

    def _stage(self, copies: tuple[Copy | None, ...], member: int, op: int) -> Process:
        """Copy what a member of a collective has to move between GPU and host memory."""
        copy = copies[member] if copies else None
        if copy is None:
            return
        if copy.lead:
            yield self.env.timeout(copy.lead)
        yield self.copies.start(copy.route, copy.size, op=op)

    def _host_copy(self, op: int) -> Event:
        """Move a copy between a GPU and its host's memory over the links between the two."""
        assert self.cluster is not None
        phase = self._planner.copy(op)
        if phase is not None:
            return self.network.start(phase, op=op).reach(1.0)
        rank = self._rank[self._lane[op]]
        to_host = self._item[op] == CopyDirection.TO_HOST
        route = self.cluster.to_host(rank) if to_host else self.cluster.from_host(rank)
        return self.copies.start(route, int(self.graph.size[op]), op=op)

    def end(self, op: int) -> None:
        """Record the end of an op, and release the ops that waited for it."""
        now = self.recorder.end[op] = self.env.now
        if not self.facts[op] & RELEASES:
            return
        after, waits, ready_at = self._after, self.waits, self.ready_at
        first = after.first
        for entry in range(first[op], first[op + 1]):
            later, ready = after.op[entry], now + after.delay[entry]
            if ready >= ready_at[later]:
                ready_at[later], self._ready_by[later] = ready, op
            waits[later] = left = waits[later] - 1
            if not left and later in self.woken:
                self.env.call(self.woken.pop(later))

    def rendezvous_of(self, op: int) -> tuple[Rendezvous | LoneMember, int]:
        """Return the rendezvous that an op takes part in, and as which member."""
        row = self._item[op]
        if not self._in_group[op]:
            rendezvous = self._messages[row]
            if rendezvous is None:
                run_as = self._execution_plan(self._planner.message(row))
                rendezvous = Rendezvous(self._context, run_as, (0, 1), None, 0, -1)
                self._messages[row] = rendezvous
            return rendezvous, int(self._receives[op])
        group = self._group[row]
        rendezvous = self._collectives[row]
        if rendezvous is None:
            rendezvous = self._collectives[row] = self._met(row, group)
        return rendezvous, self._member[group][self._lane[op]]

    def _met(self, row: int, group: int) -> Rendezvous | LoneMember:
        """Return what the members of a collective meet in."""
        run_as = self._execution_plan(self._planner.collective(row), row)
        expected, context = self._expected[group], self._context
        queue, position = self._queues[group], self._position[row]
        if len(expected) == 1 and run_as.alone:
            return LoneMember(context, run_as, queue, position, row)
        return Rendezvous(context, run_as, expected, queue, position, row)

    @property
    def rendezvous(self) -> dict[tuple[int, int], Rendezvous | LoneMember]:
        """What has been met for so far, by row: (0, row) collectives, (1, row) messages."""
        tables: list[Sequence[Rendezvous | LoneMember | None]] = [self._collectives, self._messages]
        return {
            (table, row): found
            for table, rows in enumerate(tables)
            for row, found in enumerate(rows)
            if found is not None
        }

    def _execution_plan(self, plan: Plan, collective: int = -1) -> ExecutionPlan:
        """Return how to run a plan; the first `collective` that has it brings its notes."""
        known = self._execution_plans.get(plan)
        if known is None:
            known = self._execution_plans[plan] = execution_plan_of(plan, stepwise=self.stepwise)
            if collective >= 0:
                for text in plan.notes:
                    self._note(text)
                if self.stepwise and not plan.programs and uses_links(plan):
                    kind = self.graph.collectives.kind[collective]
                    self._note(_NO_PROGRAM.format(op=kind, plan=plan))
        return known

    def _note(self, text: str) -> None:
        self.recorder.notes[text] = None


def _facts(graph: Graph) -> list[int]:
    """Return what is so of each op, as the bits of `streams`."""
    computes = graph.kind == OpKind.COMPUTE
    found = (
        DEPENDS * (graph.dep_ptr[1:] > graph.dep_ptr[:-1])
        + BATCHED * (graph.batch >= 0)
        + WORKS * (computes | (graph.kind == OpKind.COPY))
        + COMPUTES * computes
    )
    found[graph.dep_op] |= RELEASES
    facts: list[int] = found.tolist()
    return facts


def _lanes_and_ops(graph: Graph) -> list[tuple[int, list[int]]]:
    found = queues(graph)
    return list(zip(found.lane, found.ops, strict=True))
