"""
Parameters in shards: ZeRO-3, FullyShardedDataParallel and its hybrid.

Each unit (the embedding, a layer, the head) is gathered before its forward and again before its
backward, and its gradient is reduce-scattered behind. `prefetch` units are gathered ahead: the
gather of a unit starts when the one `prefetch` + 1 before it has run, so that so many are whole
at once (FSDP's rate limit, two, is prefetch 1). SHARD_GRAD_OP keeps a unit whole from its forward
to its backward. HSDP shards inside groups and all-reduces the shards' gradients between them.
All of it happens in every microbatch, as without no_sync.

Zhao et al., "PyTorch FSDP", VLDB 2023; Rajbhandari et al., "ZeRO", SC'20.
"""

from __future__ import annotations

from collections.abc import Callable

from commsim.graph import GraphBuilder, Tags
from commsim.models import ComputeModel, GpuWork
from commsim.units import PS_PER_SECOND
from commsim.workload.schedules import PHASE
from commsim.workload.training.lanes import Lane
from commsim.workload.training.plan import TrainingPlan
from commsim.workload.training.replicas import ActionContext, ReplicaStrategy
from commsim.workload.training.stages import LAYER, Unit

__all__ = ["Sharded"]


class Sharded(ReplicaStrategy):
    """Gathers units before they run, and scatters their gradients.

    `axes` and `sizes` are those of the shard groups, by whether the parameters are experts';
    `between` is the axis on which shards are all-reduced, "" for none.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        build: GraphBuilder,
        *,
        axes: dict[bool, str],
        sizes: dict[bool, int],
        model_of: Callable[[int], ComputeModel],
        between: str = "",
    ) -> None:
        super().__init__(plan, build)
        self.model_of = model_of
        data = plan.section.data_parallel
        self.axes, self.sizes, self.between = axes, sizes, between
        self.ahead = plan.gathers_ahead
        self.keeps = data.shard == "grad_op"
        self._gathers: dict[int, dict[int, list[int]]] = {}
        self._reductions: dict[int, list[int]] = {}

    def separates_units(self, place: ActionContext) -> bool:
        """Units are gathered and scattered one by one."""
        return True

    def before_unit(
        self, lane: Lane, place: ActionContext, unit: int, done: list[int]
    ) -> list[int]:
        """Gather this unit and those `ahead` of it."""
        if self.keeps and not place.forward:
            return []
        units = len(self.plan.stages[place.at.action.stage].units)
        order = range(units) if place.forward else range(units - 1, -1, -1)
        at = order.index(unit)
        if at == 0:
            self._gathers[lane.lane] = {}
        held = self._gathers[lane.lane]
        after = done[-1:] or lane.ends[-1:]
        for index in range(len(held), min(units, at + self.ahead + 1)):
            held[index] = self._gather(lane, place, order[index], after)
        return self._copy_out(lane, place, unit, held[at])

    def after_unit(self, lane: Lane, place: ActionContext, unit: int, op: int) -> None:
        """Scatter the unit's gradient."""
        if place.forward:
            return
        stage = place.at.action.stage
        for expert, axis in self.axes.items():
            entries = self._padded(stage, unit, expert)
            if not entries:
                continue
            size, ended = entries * self.plan.gradient_width, op
            if self.sizes[expert] > 1:
                work = self.model_of(lane.rank).scatter_copy(entries)
                ended = self._copy(lane, place, unit, work, "copy in", [op])
                ended = self._collective(
                    lane, place, unit, "reduce_scatter", axis, size, stream="reduce", after=[ended]
                )
            if self.between:
                ended = self._collective(
                    lane,
                    place,
                    unit,
                    "all_reduce",
                    self.between,
                    size // self.sizes[expert],
                    stream="replicate",
                    after=[ended],
                )
            self._reductions.setdefault(lane.lane, []).append(ended)

    def _copy_out(
        self, lane: Lane, place: ActionContext, unit: int, gathers: list[int]
    ) -> list[int]:
        """Copy a unit's parameters out of the buffers that they were gathered in."""
        entries = sum(
            self._padded(place.at.action.stage, unit, expert)
            for expert in self.axes
            if self.sizes[expert] > 1
        )
        work = self.model_of(lane.rank).gather_copy(entries)
        if not gathers or not work.seconds:
            return gathers
        return [self._copy(lane, place, unit, work, "copy out", gathers)]

    def _copy(
        self,
        lane: Lane,
        place: ActionContext,
        unit: int,
        work: GpuWork,
        name: str,
        after: list[int],
    ) -> int:
        """Issue a copy between tensors and a flat buffer, if there is one; return its end."""
        duration = round(work.seconds * PS_PER_SECOND)
        if not duration:
            return after[-1]
        action, named = place.at.action, self._unit(place, unit)
        return self.build.compute(
            lane.lane,
            duration,
            name=f"{name} {named.name}",
            after=after,
            traffic=work.traffic,
            tags=self._tags(place, unit)._replace(phase=PHASE[action.work]),
        )

    def _unit(self, place: ActionContext, unit: int) -> Unit:
        return self.plan.stages[place.at.action.stage].units[unit]

    def _tags(self, place: ActionContext, unit: int) -> Tags:
        action, staged = place.at.action, self.plan.schedule.stages > 1
        return Tags(
            step=place.step,
            microbatch=action.microbatch,
            layer=self._unit(place, unit).layer,
            stage=action.stage if staged else -1,
        )

    def finish_reductions(self, lane: Lane, step: int) -> list[int]:
        return self._reductions.pop(lane.lane, [])

    def optimizer_entries(self, device: int) -> int:
        """Return a rank's shard of its device's parameters."""
        return sum(
            -(-unit.entries(expert=expert) // self.sizes[expert])
            for stage in self.plan.held(device)
            for unit in stage.units
            for expert in (False, True)
        )

    def _gather(self, lane: Lane, place: ActionContext, unit: int, after: list[int]) -> list[int]:
        stage, ops = place.at.action.stage, []
        for expert, axis in self.axes.items():
            entries = self._padded(stage, unit, expert)
            if entries and self.sizes[expert] > 1:
                named = self.plan.stages[stage].units[unit]
                fp8 = named.kind == LAYER and self.model_of(lane.rank).gathers_fp8
                size = entries * (1 if fp8 else self.plan.width)
                ops.append(
                    self._collective(
                        lane, place, unit, "all_gather", axis, size, stream="gather", after=after
                    )
                )
        return ops

    def _collective(
        self,
        lane: Lane,
        place: ActionContext,
        unit: int,
        kind: str,
        axis: str,
        size: int,
        *,
        stream: str,
        after: list[int],
    ) -> int:
        return self.build.collective(
            lane.lane,
            self.build.orbit(axis, lane.rank),
            kind,
            size,
            stream=stream,
            name=f"{kind} {self._unit(place, unit).name}",
            dtype=self.plan.dtype,
            after=after,
            tags=self._tags(place, unit),
        )

    def _padded(self, stage: int, unit: int, expert: bool) -> int:
        shards = self.sizes[expert]
        entries = self.plan.stages[stage].units[unit].entries(expert=expert)
        return -(-entries // shards) * shards
