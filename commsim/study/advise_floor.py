"""
What can be known of a layout before it is simulated: its memory, and a floor under its step.

Memory is exact: what a rank holds all the time, and the most that its schedule lets live at
once. The floor is what even a run with idle links needs: the compute of the first device and
what its collectives and messages add where nothing hides them, in the order of the schedule;
the gradients of its last microbatch, reduced behind it; all of the bytes of sharded parameters;
or what all nodes send, over all of their NICs.
"""

from __future__ import annotations

from dataclasses import replace

from commsim.cluster import Cluster
from commsim.libraries import Library, Request
from commsim.models import ComputeModel, MemoryUse
from commsim.study.advise_traffic import Groups, Traffic
from commsim.units import PS_PER_SECOND
from commsim.workload.schedules import Work, execution_order
from commsim.workload.training.memory import Actions, resident_memory
from commsim.workload.training.pieces import COMPUTE, EXCHANGE, Piece
from commsim.workload.training.plan import TrainingPlan

__all__ = ["Floor"]


class Floor:
    """Memory and floor of layouts that differ in how replicas share, and in nothing else."""

    def __init__(
        self,
        plan: TrainingPlan,
        cluster: Cluster,
        library: Library,
        model: ComputeModel,
        traffic: Traffic,
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._library = library
        self._model = model
        self._traffic = traffic
        self._groups = Groups(plan)
        self._actions = Actions(plan, model)
        self._peaks = self._actions.peaks()
        self._inside = traffic.inside(plan, self._actions, self._groups)
        self._walk: tuple[int, int] | None = None
        self._known: dict[tuple[str, str, int], int] = {}

    def memory(self, plan: TrainingPlan) -> tuple[MemoryUse, int]:
        """Return the use of the fullest device and which that is; see `resident_memory`."""
        uses = [
            replace(resident_memory(plan, device), activations=self._peaks[device])
            for device in range(plan.schedule.devices)
        ]
        device = max(range(len(uses)), key=lambda one: uses[one].total)
        return uses[device], device

    def seconds(self, plan: TrainingPlan) -> float:
        """Return a step time that no run of the layout can be below."""
        span, last = self._span()
        device = plan.schedule.home[plan.schedule.pipes[0][0]]
        entries = sum(stage.parameters for stage in plan.held(device))
        optimizer = self._model.optimizer(-(-entries // plan.sharers)).seconds
        dense = sum(u.entries(expert=False) for s in plan.held(device) for u in s.units)
        reduced, gathered = self._shared(plan, dense)
        behind = span - last + reduced if reduced else span
        alone = max(behind, span, gathered) / PS_PER_SECOND + optimizer
        return max(alone, self._inside + self._traffic.sharing(plan, self._groups))

    def _span(self) -> tuple[int, int]:
        """Return when the first device is done with a step, and how long its last backward is."""
        if self._walk is None:
            self._walk = self._run()
        return self._walk

    def _run(self) -> tuple[int, int]:
        plan = self._plan
        first = plan.schedule.home[plan.schedule.pipes[0][0]]
        serial = self._actions.of_each(self._serial)
        pipes = self._groups.ranks("pp")
        free = [0] * plan.schedule.devices
        ends: dict[tuple[int, int], int] = {}
        hops: dict[tuple[int, int], int] = {}
        sent: dict[tuple[int, int], int] = {}  # when a message may leave after the one before
        last = 0
        for at in execution_order(plan.schedule):
            start = free[at.device]
            if at.producer is not None:
                hop = (at.producer[0], at.device)
                if hop not in hops:
                    ranks = (pipes[hop[0]], pipes[hop[1]])
                    hops[hop] = self._idle("send_recv", plan.boundary, ranks, hop=hop)
                leaves = max(ends[at.producer], sent.get(hop, 0))
                sent[hop] = leaves + hops[hop]
                start = max(start, leaves + hops[hop])
            took = serial[at.action.work][at.action.stage]
            ends[at.device, at.position] = free[at.device] = start + took
            if at.device == first and at.action.work != Work.F:
                last = took
        return free[first], last

    def _serial(self, script: tuple[Piece, ...]) -> int:
        """Return what the chain of an action takes: what runs beside it adds nothing."""
        found = 0
        for piece in script:
            if piece.kind == COMPUTE:
                found += piece.duration
            elif not piece.beside and piece.kind != EXCHANGE:
                found += self._alone(piece)
        return found

    def _alone(self, piece: Piece) -> int:
        """Return what a collective takes where nothing hinders it, in ps."""
        key = (piece.kind, piece.axis, piece.size)
        if key not in self._known:
            kind = piece.kind if "skewed" not in piece.kind else "all_to_all"
            self._known[key] = self._idle(
                kind, piece.size, self._groups.ranks(piece.axis), axis=piece.axis
            )
        return self._known[key]

    def _shared(self, plan: TrainingPlan, dense: int) -> tuple[int, int]:
        """Return what reducing behind the last backward takes, or all gathers of a step."""
        if plan.sharers == 1:
            return 0, 0
        data = plan.section.data_parallel
        gradients, parameters = dense * plan.gradient_width, dense * plan.width
        if data.kind == "ddp":
            return self._idle("all_reduce", gradients, self._groups.ranks("dp"), axis="dp"), 0
        if data.kind == "zero":
            return self._idle("reduce_scatter", gradients, self._groups.ranks("dp"), axis="dp"), 0
        ranks = self._groups.ranks("dp")
        if isinstance(data.shard, int):
            ranks = self._groups.shard(data.shard)
        gather = self._idle("all_gather", parameters, ranks)
        return 0, 2 * plan.microbatches * gather

    def _idle(
        self,
        kind: str,
        size: int,
        ranks: tuple[int, ...],
        *,
        axis: str = "",
        hop: tuple[int, int] | None = None,
    ) -> int:
        """Return what an op takes beside its likes of the other groups, in ps.

        Those are the groups of an axis, or the pipelines at a hop.
        """
        dtype = self._plan.section.precision if kind != "send_recv" else ""
        alone = self._library.plan(Request(kind, size, ranks, dtype=dtype), self._cluster).idle
        if len(ranks) < 2 or axis == "ep" or not (axis or hop):
            return alone
        key = (self._plan.layout, axis, hop)
        rows = self._groups.hops(*hop) if hop else self._groups.rows(axis)
        return max(alone, self._traffic.together(kind, size, rows, key=key))
