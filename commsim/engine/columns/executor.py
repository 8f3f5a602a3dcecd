"""
An engine over tables, for work of many ops: the same timeline as `engine.core`, by compiled code.

Without numba the same functions run in the interpreter, slower than the engine on SimPy: that is
for tests, which hold the two against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np

from commsim.cluster import Cluster, Links, Route
from commsim.compiled import compiled
from commsim.engine.columns.events import BEGIN, CHANGE, URGENT, push
from commsim.engine.columns.layout import (
    Phases,
    fill_changes,
    fill_gpus,
    fill_links,
    fill_ops,
    fill_plans,
    fill_rows,
)  # fmt: skip
from commsim.engine.columns.loop import KERNEL, OVER, RATES, run_events
from commsim.engine.columns.state import NEVER, State, table
from commsim.engine.copies import copy_phase
from commsim.engine.execution_plan import ExecutionPlan, execution_plan_of
from commsim.engine.fair_share import Flows, fair_rates
from commsim.engine.faults import TimedChanges
from commsim.engine.fluid_network import UNSURE
from commsim.engine.planning import Planner
from commsim.engine.recorder import Recorder
from commsim.errors import CommsimError
from commsim.graph import CopyDirection, Graph, OpKind, member_lanes
from commsim.libraries import Library, Plan, PlanPhase, Start, library_of, links_of
from commsim.timeline import Timeline

__all__ = ["ColumnsEngine", "Met", "NotInColumnsError"]

_EVENTS = 100_000  # per call: after these it can be interrupted, and asked how far it has come
ROOM = 1.0
"""Of the tables that may have to grow; if one is full, the run begins again with four times it."""
_LEAST = 4096  # records of a table that may have to grow


class NotInColumnsError(Exception):
    """This work is not for tables; the message says why."""


class Met(msgspec.Struct, frozen=True):
    """A collective or message for which some members have arrived: their ops, and who has not."""

    ops: dict[int, int]
    absent: list[int]

    def missing(self) -> list[int]:
        """Return the members that have not arrived."""
        return self.absent


class ColumnsEngine:
    """Runs one graph once.

    `compile`: by compiled code, which needs numba; else in the interpreter.

    Raises:
        NotInColumnsError: a plan, or an extension, is one that only the engine on SimPy runs.
    """

    def __init__(
        self,
        graph: Graph,
        cluster: Cluster | None,
        library: Library,
        *,
        planner: Planner,
        overlap_slowdown: bool = True,
        extensions: Iterable[Any] = (),
        compile: bool = True,
    ) -> None:
        self.graph = graph
        self.links: Links | None = links_of(library, cluster) if cluster else None
        self.recorder = Recorder(graph, ([], [], [], [], []))
        self._cluster, self._library, self._planner = cluster, library, planner
        self._overlap = overlap_slowdown and cluster is not None
        self._changes = tuple(extensions)
        if not all(isinstance(one, TimedChanges) for one in self._changes):
            raise NotInColumnsError("an extension that is a process of SimPy")
        self._run = _compiled() if compile else run_events
        self._phases = Phases()
        self._copies: dict[tuple[Route, int], PlanPhase] = {}
        self._plan_graph()
        self._state = self._tables(ROOM)
        self._run(self._state, 0, 0)  # compiles it where that is not kept: no share of the run

    def _plan_graph(self) -> None:
        """Ask for the plan of each collective and message, of equal ones once."""
        planner, known = self._planner, {}
        self._plans: list[ExecutionPlan | None] = []
        self._refused: dict[int, CommsimError] = {}

        def number(make: Callable[[int], Plan], row: int) -> int:
            try:
                plan = make(row)
            except CommsimError as error:  # raised if the run comes to it
                self._refused[len(self._plans)] = error
                self._plans.append(None)
                return len(self._plans) - 1
            if plan not in known:
                if plan.start == Start.EACH:
                    raise NotInColumnsError("collectives whose members wait for some of the others")
                known[plan] = len(self._plans)
                self._plans.append(execution_plan_of(plan, stepwise=False))
            return known[plan]

        self._numbers = []
        for classes, make in (
            (planner.equivalent_collectives(), planner.collective),
            (planner.equivalent_messages(), planner.message),
        ):
            numbers = np.array([number(make, row) for row in classes[0].tolist()], np.int64)
            self._numbers.append(numbers[classes[1]])

    def _tables(self, room: float) -> State:
        """Return the tables before the run, with `room` times the usual for what comes and goes."""
        graph, libraries = self.graph, [g.library for g in self.graph.groups]
        found: dict[str, Any] = fill_ops(graph, self._cluster)
        limits = [library_of(self._library, name).concurrency or 0 for name in libraries]
        found |= fill_rows(graph, limits, *self._numbers)
        found |= fill_plans(self._plans, self._phases, lambda c: self._copy(c.route, c.size))
        timed = (graph.kind == OpKind.COPY) & (graph.duration < 0)
        for op in np.flatnonzero(timed).tolist():
            found["op"].row[op] = self._host_copy(op)
        found["phase"], found["load"] = self._phases.tables()
        found["link"], found["gpu"] = fill_links(self.links), fill_gpus(graph, self._cluster)
        found["change"], begins = fill_changes(self._changes)
        lanes, streams = len(graph.lane_rank), len(found["stream"])
        held = int(np.bincount(graph.lane[graph.batch >= 0], minlength=1).max()) if lanes else 0
        sizes = {
            "event": 8 * streams + _LEAST, "flow": 2 * lanes + _LEAST, "wake": 8 * lanes + _LEAST,
            "place": 128 * lanes + 16 * _LEAST, "frame": lanes + _LEAST, "held": 2 * streams + held,
            "job": streams + held, "segment": 64 * _LEAST, "member": 2 * lanes + _LEAST,
            "rate": 2 * lanes + _LEAST,
        }  # fmt: skip
        found |= {name: table(name, int((size + 64) * room)) for name, size in sizes.items()}
        found["run"] = table("run", 1)
        state = State(**found)
        run = state.run[0]
        run.flow_free = run.frame_free = run.held_free = run.job_free = run.stuck = -1
        run.alarm_at, run.sharing = NEVER, self._overlap
        for change in begins:
            push(state, 0, URGENT, CHANGE, change)
        for stream in range(streams if len(graph) else 0):
            push(state, 0, URGENT, BEGIN, stream)
        return state

    def _copy(self, route: Route, size: int) -> int:
        """Return the number of the phase of a copy; equal copies share one."""
        assert self.links is not None
        if (route, size) not in self._copies:
            self._copies[route, size] = copy_phase(route, size, self.links)
        return self._phases.number(self._copies[route, size])

    def _host_copy(self, op: int) -> int:
        """Return the number of the phase of a copy between a GPU and its host's memory."""
        graph, cluster = self.graph, self._cluster
        phase = self._planner.copy(op)
        if phase is not None:
            return self._phases.number(phase)
        assert cluster is not None
        rank = int(graph.lane_rank[graph.lane[op]])
        to_host = graph.item[op] == CopyDirection.TO_HOST
        route = cluster.to_host(rank) if to_host else cluster.from_host(rank)
        return self._copy(route, int(graph.size[op]))

    @property
    def done(self) -> bool:
        """Whether every op has ended."""
        return int(self._state.run[0].ended) == len(self.graph)

    @property
    def cut(self) -> bool:
        """Whether something was under way, or to come, when time ended."""
        run = self._state.run[0]
        return bool(run.cut) or int(run.active) > 0

    def share_done(self) -> float:
        """Return the share of the ops that have ended; another thread may ask."""
        return float(self._state.run[0].ended) / len(self.graph) if len(self.graph) else 1.0

    def run(self) -> None:
        """Run until no event is left, or time ends.

        Raises:
            CommsimError: a plan that was come to cannot be made.
        """
        room, component = ROOM, 0
        while True:
            why, wanted = self._run(self._state, _EVENTS, component)
            run = self._state.run[0]
            if run.full:  # a table was: all again, with more room
                room *= 4
                self.recorder = Recorder(self.graph, ([], [], [], [], []))
                self._state, component = self._tables(room), 0
                continue
            self._flush()
            if run.stuck >= 0:
                raise self._refused[int(run.stuck)]
            if why == OVER:
                break
            component = self._find_rates(wanted) if why == RATES else 0
        self._record()

    def _flush(self) -> None:
        """Hand the segments so far to the recorder, which keeps them as columns."""
        run, made = self._state.run[0], self._state.segment
        if run.segments:
            part = made[: run.segments]
            names = ("template", "start", "end", "rate", "op")
            self.recorder.add_columns(*(part[name].copy() for name in names))
            run.segments = 0

    def _find_rates(self, count: int) -> int:
        """Find the rates of flows that filling alone does not decide."""
        state, phases = self._state, list(self._phases.known)
        members = state.member[:count]
        found = [phases[at] for at in state.flow.phase[members].tolist()]
        table = Flows(
            ptr=np.concatenate(([0], np.cumsum([len(p.link) for p in found]))),
            link=np.concatenate([p.link for p in found]),
            load=np.concatenate([p.load for p in found]),
            conns=np.concatenate([p.conns for p in found]),
            cap=state.phase.cap[state.flow.phase[members]],
        )
        rates = fair_rates(table, np.array(state.link.capacity))
        if rates.unfixed:
            self._tell_notes()
            self.recorder.notes[UNSURE] = None
        state.rate[:count] = rates.rate
        return count

    def _tell_notes(self) -> None:
        """Note what the plans met so far say, in the order in which they were met."""
        seen = self._state.plan.seen
        met = np.flatnonzero(seen >= 0)
        of_collectives = set(self._numbers[0].tolist())
        for at in met[np.argsort(seen[met])].tolist():
            run_as = self._plans[at]
            if run_as is not None and at in of_collectives:
                self.recorder.notes.update(dict.fromkeys(run_as.plan.notes))

    def _record(self) -> None:
        """Hand what happened to the recorder."""
        state, recorder, count = self._state, self.recorder, len(self.graph)
        self._tell_notes()
        op = state.op[:count]
        recorder.arrive, recorder.start, recorder.end = (
            np.ascontiguousarray(op[name]) for name in ("arrive", "start", "end")
        )
        recorder.cause, recorder.cause_kind = op.cause.astype(np.int64), op.cause_kind.copy()
        templates, phases = state.phase.template, list(self._phases.known)
        used = np.flatnonzero(templates >= 0)
        for at in used[np.argsort(templates[used])].tolist():
            recorder.template(phases[at])
        rows = len(self.graph.collectives)
        choices = [run_as.choice if run_as else "" for run_as in self._plans]
        begun = np.flatnonzero(state.row.begun[:rows]).tolist()
        plans = state.row.plan[:rows][begun].tolist()
        recorder.choices = {
            row: choices[plan] for row, plan in zip(begun, plans, strict=True) if choices[plan]
        }

    def timeline(self) -> Timeline:
        """Return the timeline of a run that has ended."""
        links = self.links
        del self._state
        return self.recorder.timeline(links)

    @property
    def rendezvous(self) -> dict[tuple[int, int], Met]:
        """What has been met for and has not ended: (0, row) collectives, (1, row) messages."""
        state, rows = self._state, len(self.graph.collectives)
        members = [list(lanes.values()) for lanes in member_lanes(self.graph)]
        found: dict[tuple[int, int], Met] = {}
        for at in np.flatnonzero(state.row.met & ~state.row.ended.astype(bool)).tolist():
            row = state.row[at]
            expected = members[row.group] if at < rows else [0, 1]
            ops = state.slot.op[row.first : row.first + row.count].tolist()
            there = {member: op for member, op in zip(expected, ops, strict=True) if op >= 0}
            absent = [member for member in expected if member not in there]
            found[(0, at) if at < rows else (1, at - rows)] = Met(there, absent)
        return found


def _compiled() -> Callable[[State, int, int], tuple[int, int]]:
    """Return `run_events` as compiled code."""
    from commsim.engine.columns.by_pointer import ByPointer  # needs numba

    run = compiled(KERNEL)

    return lambda state, most, component: run(ByPointer(state), most, component)
