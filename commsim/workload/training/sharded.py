"""
Parameters in shards: ZeRO-3, FullyShardedDataParallel and its hybrid.

Each unit (the embedding, a layer, the head) is gathered before its forward and again before its
backward, and its gradient is reduce-scattered after. `prefetch` units are gathered ahead: the
gather of a unit starts when the one `prefetch` + 1 before it has run, so that so many are whole
at once (FSDP's rate limit, two, is prefetch 1). SHARD_GRAD_OP keeps a unit whole from its forward
to its backward. HSDP shards inside groups and all-reduces the shards' gradients between them.
All of it happens in every microbatch; with `reshard: step` units are gathered once, for the first
forward of a step, and with no_sync gradients are added up whole and scattered after the last.

What one collective holds is the stack's (`gathering`). Collectives of lists copy each rank's part
by a kernel of its own: a time that grows with the group, on top of the links' (`list_copies`). A
stack that does not overlap holds the next unit until the gradients of this one are reduced.

Zhao et al., "PyTorch FSDP", VLDB 2023; Rajbhandari et al., "ZeRO", SC'20.
"""

from __future__ import annotations

from collections.abc import Callable

from commsim.graph import GraphBuilder, Tags
from commsim.models import ComputeModel, GpuWork, stack_constants
from commsim.units import to_picoseconds
from commsim.workload.schedules import PHASE
from commsim.workload.training.gathering import gathered, gathered_again, reduced
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
        self.ahead = {forward: plan.gathers_ahead(forward=forward) for forward in (False, True)}
        self.keeps = data.shard == "grad_op"
        self.stack = stack_constants(str(plan.section.compute.stack))
        self._gathers: dict[int, dict[int, list[int]]] = {}
        self._reductions: dict[int, list[int]] = {}
        self._held_by: dict[int, list[int]] = {}
        """By lane: the reductions that the next unit waits for."""

    def separates_units(self, place: ActionContext) -> bool:
        """Units are gathered and scattered one by one."""
        return True

    def before_unit(
        self, lane: Lane, place: ActionContext, unit: int, done: list[int]
    ) -> list[int]:
        """Gather this unit and those `ahead` of it."""
        held_by = self._held_by.pop(lane.lane, [])
        kept = not place.first if self.plan.reshards_once else self.keeps and not place.forward
        if kept:
            return held_by
        units = len(self.plan.stages[place.at.action.stage].units)
        order = range(units) if place.forward else range(units - 1, -1, -1)
        at = order.index(unit)
        if at == 0:
            self._gathers[lane.lane] = {}
        held = self._gathers[lane.lane]
        after = [*(done[-1:] or lane.ends[-1:]), *held_by]
        for index in range(len(held), min(units, at + self.ahead[place.forward] + 1)):
            held[index] = self._gather(lane, place, order[index], after)
        return [*self._copy_out(lane, place, unit, held[at]), *held_by]

    def after_unit(self, lane: Lane, place: ActionContext, unit: int, op: int) -> None:
        """Scatter the unit's gradient."""
        if place.forward or (self.plan.adds_up_whole and not place.last):
            return
        held = self._unit(place, unit)
        for expert, axis in self.axes.items():
            for entries in reduced(held, self.stack, expert=expert):
                self._reduce(lane, place, unit, op, expert=expert, axis=axis, entries=entries)

    def _reduce(
        self,
        lane: Lane,
        place: ActionContext,
        unit: int,
        op: int,
        *,
        expert: bool,
        axis: str,
        entries: int,
    ) -> None:
        """Scatter `entries` gradients of a unit over the ranks of `axis`, after `op`."""
        shards, model = self.sizes[expert], self.model_of(lane.rank)
        entries = self._padded(entries, shards)
        size, ended = entries * self.plan.gradient_width, op
        if shards > 1:
            work = model.scatter_copy(entries) + model.list_copies(shards)
            ended = self._copy(lane, place, unit, work, "copy in", [op])
            ended = self._collective(
                lane, place, unit, "reduce_scatter", axis, size, stream="reduce",
                after=[ended], dtype=self.plan.gradient_dtype,
            )  # fmt: skip
        if self.between:
            ended = self._collective(
                lane,
                place,
                unit,
                "all_reduce",
                self.between,
                size // shards,
                stream="replicate",
                after=[ended],
                dtype=self.plan.gradient_dtype,
            )
        self._reductions.setdefault(lane.lane, []).append(ended)
        if not self.stack.overlap:
            self._held_by.setdefault(lane.lane, []).append(ended)

    def _copy_out(
        self, lane: Lane, place: ActionContext, unit: int, gathers: list[int]
    ) -> list[int]:
        """Copy a unit's parameters out of the buffers that they were gathered in."""
        model, held = self.model_of(lane.rank), self._unit(place, unit)
        work = GpuWork(0.0)
        for expert, shards in self.sizes.items():
            if expert in self.axes and shards > 1:
                for entries in self._gathers_of(place, held, expert=expert):
                    work += model.gather_copy(self._padded(entries, shards))
                    work += model.list_copies(shards)
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
        duration = to_picoseconds(work.seconds, name)
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
        held, ops = self.plan.stages[place.at.action.stage].units[unit], []
        for expert, axis in self.axes.items():
            if self.sizes[expert] == 1:
                continue
            fp8 = held.kind == LAYER and self.model_of(lane.rank).gathers_fp8
            width = 1 if fp8 else self.plan.width
            for entries in self._gathers_of(place, held, expert=expert):
                size = self._padded(entries, self.sizes[expert]) * width
                ops.append(
                    self._collective(
                        lane,
                        place,
                        unit,
                        "all_gather",
                        axis,
                        size,
                        stream="gather",
                        after=after,
                        dtype="fp8" if fp8 else self.plan.dtype,
                    )
                )
        return ops

    def _gathers_of(self, place: ActionContext, unit: Unit, *, expert: bool) -> tuple[int, ...]:
        """Return the entries of each gather of a unit in this pass."""
        sizes = gathered(unit, self.stack, expert=expert)
        again = self.plan.section.recompute == "full" and unit.kind == LAYER and unit.again
        if place.forward or not again:
            return sizes
        return sizes + gathered_again(unit, self.stack, expert=expert)

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
        dtype: str,
    ) -> int:
        return self.build.collective(
            lane.lane,
            self.build.orbit(axis, lane.rank),
            kind,
            size,
            stream=stream,
            name=f"{kind} {self._unit(place, unit).name}",
            dtype=dtype,
            after=after,
            tags=self._tags(place, unit),
        )

    @staticmethod
    def _padded(entries: int, shards: int) -> int:
        return -(-entries // shards) * shards
