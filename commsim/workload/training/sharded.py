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

from commsim.graph import GraphBuilder, Tags
from commsim.workload.training.lanes import Lane
from commsim.workload.training.plan import TrainingPlan
from commsim.workload.training.replicas import ActionContext, ReplicaStrategy

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
        between: str = "",
    ) -> None:
        super().__init__(plan, build)
        data = plan.section.data_parallel
        self.axes, self.sizes, self.between = axes, sizes, between
        self.ahead = 1 if data.prefetch is None else int(data.prefetch)
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
        return held[at]

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
                ended = self._collective(
                    lane, place, unit, "reduce_scatter", axis, size, stream="reduce", after=[op]
                )
            if self.between:
                ended = self._collective(
                    lane, place, unit, "all_reduce", self.between, size // self.sizes[expert],
                    stream="replicate", after=[ended],
                )  # fmt: skip
            self._reductions.setdefault(lane.lane, []).append(ended)

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
                size = entries * self.plan.width
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
        action, staged = place.at.action, self.plan.schedule.stages > 1
        named = self.plan.stages[action.stage].units[unit]
        return self.build.collective(
            lane.lane, self.build.orbit(axis, lane.rank), kind, size, stream=stream,
            name=f"{kind} {named.name}", dtype=self.plan.section.precision, after=after,
            tags=Tags(step=place.step, microbatch=action.microbatch, layer=named.layer,
                      stage=action.stage if staged else -1),
        )  # fmt: skip

    def _padded(self, stage: int, unit: int, expert: bool) -> int:
        shards = self.sizes[expert]
        entries = self.plan.stages[stage].units[unit].entries(expert=expert)
        return -(-entries // shards) * shards
