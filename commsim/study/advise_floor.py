"""
What can be known of a layout before it is simulated: its memory, and a floor under its step.

Memory is exact: what a rank holds all the time, and the most that its schedule lets live at
once. The floor is what even a run with idle links needs: the compute of the first device and
what its collectives and messages add where nothing hides them, in the order of the schedule;
the gradients of its last microbatch, reduced behind it; or all of the bytes of sharded parameters.
"""

from __future__ import annotations

from dataclasses import replace

from commsim.cluster import Cluster
from commsim.libraries import Library, Request
from commsim.models import ComputeModel, MemoryUse
from commsim.units import PS_PER_SECOND
from commsim.workload.schedules import Work, execution_order
from commsim.workload.training.memory import Actions, resident_memory
from commsim.workload.training.pieces import COMPUTE, EXCHANGE, Piece
from commsim.workload.training.plan import TrainingPlan

__all__ = ["Floor"]


class Floor:
    """Memory and floor of layouts that differ in how replicas share, and in nothing else."""

    def __init__(
        self, plan: TrainingPlan, cluster: Cluster, library: Library, model: ComputeModel
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._library = library
        self._model = model
        self._actions = Actions(plan, model)
        self._peaks = self._actions.peaks()
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
        return max(behind, span, gathered) / PS_PER_SECOND + optimizer

    def _span(self) -> tuple[int, int]:
        """Return when the first device is done with a step, and how long its last backward is."""
        if self._walk is None:
            self._walk = self._run()
        return self._walk

    def _run(self) -> tuple[int, int]:
        plan = self._plan
        first = plan.schedule.home[plan.schedule.pipes[0][0]]
        serial = self._actions.of_each(self._serial)
        pipes = plan.layout.groups("pp")[0].tolist()
        free = [0] * plan.schedule.devices
        ends: dict[tuple[int, int], int] = {}
        hops: dict[tuple[int, int], int] = {}
        last = 0
        for at in execution_order(plan.schedule):
            start = free[at.device]
            if at.producer is not None:
                hop = (at.producer[0], at.device)
                if hop not in hops:
                    ranks = (pipes[hop[0]], pipes[hop[1]])
                    hops[hop] = self._idle("send_recv", plan.boundary, ranks)
                start = max(start, ends[at.producer] + hops[hop])
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
            self._known[key] = self._idle(kind, piece.size, self._group(piece.axis))
        return self._known[key]

    def _shared(self, plan: TrainingPlan, dense: int) -> tuple[int, int]:
        """Return what reducing behind the last backward takes, or all gathers of a step."""
        if plan.sharers == 1:
            return 0, 0
        data = plan.section.data_parallel
        gradients, parameters = dense * plan.gradient_width, dense * plan.width
        if data.kind == "ddp":
            return self._idle("all_reduce", gradients, self._group("dp")), 0
        if data.kind == "zero":
            return self._idle("reduce_scatter", gradients, self._group("dp")), 0
        ranks = self._group("dp")
        if isinstance(data.shard, int):
            ranks = ranks[: data.shard]
        gather = self._idle("all_gather", parameters, ranks)
        return 0, 2 * plan.microbatches * gather

    def _group(self, axis: str) -> tuple[int, ...]:
        """Return the first group of an axis."""
        layout = self._plan.layout
        rows = layout.groups(axis) if axis in ("tp", "cp") else layout.replicas()
        ep = self._plan.section.parallel.ep
        return tuple(rows[0].tolist()[: ep if axis == "ep" else None])

    def _idle(self, kind: str, size: int, ranks: tuple[int, ...]) -> int:
        """Return what an op takes on links that nobody else uses, in ps."""
        dtype = self._plan.section.precision if kind != "send_recv" else ""
        return self._library.plan(Request(kind, size, ranks, dtype=dtype), self._cluster).idle
