"""
Gradients in buckets: DistributedDataParallel, and ZeRO stages 1 and 2.

A stage fills its buckets in reverse order of registration and reduces each when all its
gradients are ready, in the order of their index (a later one never overtakes). DDP all-reduces;
ZeRO reduce-scatters, updates its share of the parameters, and gathers them, bucket by bucket in
the order in which the next forward needs them. ZeRO-2 keeps no whole gradient and so reduces in
every microbatch, as DeepSpeed does; the others in the last one.

Offloaded to the CPU (ZeRO-Offload, Ren et al., ATC 2021): each bucket's share of the gradient
goes to host memory as soon as it is reduced, the CPU updates bucket by bucket, and the new
parameters come back while it works on the next.
"""

from __future__ import annotations

import msgspec

from commsim.cluster import Cluster
from commsim.graph import CopyDirection, Device, GraphBuilder, Phase, Tags
from commsim.models import Tensor
from commsim.units import to_picoseconds
from commsim.workload.buckets import assign_buckets
from commsim.workload.training.lanes import Lane
from commsim.workload.training.plan import TrainingPlan
from commsim.workload.training.replicas import ActionContext, ReplicaStrategy
from commsim.workload.training.stages import LAYER, Stage

__all__ = ["CPU_ADAM_PER_NODE", "Bucket", "Bucketed", "stage_buckets"]

CPU_ADAM_PER_NODE = 4e9
"""Parameters per second that the CPUs of a node update together: 1e9 take about 0.25 s with
DeepSpeed's CPU-Adam (Ren et al., ATC 2021, table 4)."""


class Bucket(msgspec.Struct, frozen=True):
    """Gradients reduced together: on which axis, how many entries, of which units of a stage; and
    how many of the entries are weights of no layer (embedding, head), which stay in 16 bits."""

    axis: str
    entries: int
    units: tuple[int, ...]
    wide: int = 0


def stage_buckets(
    stage: Stage, width: int, *, first: int, cap: int, axes: dict[bool, str]
) -> tuple[Bucket, ...]:
    """Return the buckets of a stage in ready order, those of experts on an axis of their own.

    `axes` names the axis of each family; one that is missing needs no reduction.
    """
    found: list[Bucket] = []
    for expert, axis in axes.items():
        ready = [
            (index, tensor)
            for index in reversed(range(len(stage.units)))
            for tensor in reversed(stage.units[index].tensors)
            if tensor.expert == expert
        ]
        wide = {at for at, unit in enumerate(stage.units) if unit.kind != LAYER}
        found += _family(ready, wide, width, first=first, cap=cap, axis=axis)
    return tuple(found)


def _family(
    ready: list[tuple[int, Tensor]],
    wide: set[int],
    width: int,
    *,
    first: int,
    cap: int,
    axis: str,
) -> list[Bucket]:
    sizes = [tensor.entries * width for _, tensor in ready]
    return [
        Bucket(
            axis,
            sum(ready[at][1].entries for at in held),
            tuple(dict.fromkeys(ready[at][0] for at in held)),
            sum(ready[at][1].entries for at in held if ready[at][0] in wide),
        )
        for held in assign_buckets(sizes, first=first, cap=cap)
    ]


class Bucketed(ReplicaStrategy):
    """DDP and ZeRO-1/2 over the replicas of each stage."""

    def __init__(
        self,
        plan: TrainingPlan,
        build: GraphBuilder,
        cluster: Cluster,
        *,
        axes: dict[bool, str],
        sizes: dict[bool, int],
    ) -> None:
        super().__init__(plan, build)
        data = plan.section.data_parallel
        self.stage = (data.stage or 0) if data.kind == "zero" else 0
        self.offload = data.offload is not None
        self.every_microbatch = plan.reduces_every_microbatch
        self.prefetch = data.prefetch is not False
        self.overlap = plan.overlaps_reductions
        self.shards = {axes[expert]: sizes[expert] for expert in axes}
        self.buckets = {
            stage.number: stage_buckets(
                stage,
                plan.gradient_width,
                first=int(data.first_bucket or 0),
                cap=int(data.bucket or 0),
                axes=axes,
            )
            for stage in plan.stages
        }
        self.cluster = cluster
        self.sizes = sizes
        self._reductions: dict[int, list[int]] = {}
        self._gathered: dict[int, dict[tuple[int, int], list[int]]] = {}
        self._barrier: dict[int, list[int]] = {}

    def separates_units(self, place: ActionContext) -> bool:
        """Buckets need to know when each unit is done; gathered parameters, when it starts."""
        if place.forward:
            return self.stage > 0 and self.prefetch and place.first
        return self.overlap and (place.last or self.every_microbatch)

    def before_unit(
        self, lane: Lane, place: ActionContext, unit: int, done: list[int]
    ) -> list[int]:
        waits = self._barrier.pop(lane.lane, [])
        if not place.forward:
            return waits
        stage = place.at.action.stage
        return waits + self._gathered.get(lane.lane, {}).pop((stage, unit), [])

    def after_unit(self, lane: Lane, place: ActionContext, unit: int, op: int) -> None:
        """Reduce the buckets that are complete with this unit's gradients."""
        if place.forward or not (place.last or self.every_microbatch):
            return
        stage = place.at.action.stage
        if self.overlap:
            for index, bucket in enumerate(self.buckets[stage]):
                if bucket.units[-1] == unit:
                    self._reduce(lane, place.step, stage, index, bucket, op)
        elif unit == 0 and self.every_microbatch:
            for index, bucket in enumerate(self.buckets[stage]):
                done = self._reduce(lane, place.step, stage, index, bucket, op)
                self._barrier.setdefault(lane.lane, []).append(done)

    def _reduce(
        self, lane: Lane, step: int, stage: int, index: int, bucket: Bucket, after: int
    ) -> int:
        kind = "reduce_scatter" if self.stage else "all_reduce"
        tags, op = Tags(step=step, stage=self._shown(stage)), after
        if self.shards[bucket.axis] > 1:
            op = self.build.collective(
                lane.lane,
                self.build.orbit(bucket.axis, lane.rank),
                kind,
                self._padded(bucket) * self.plan.gradient_width,
                stream=bucket.axis,
                name=f"{kind} bucket {index}",
                dtype=self.plan.gradient_dtype,
                after=[after],
                tags=tags,
            )
        if self.offload:
            share = self._padded(bucket) // self.shards[bucket.axis]
            op = self.build.host_copy(
                lane.lane,
                share * self.plan.gradient_width,
                way=CopyDirection.TO_HOST,
                name="offload gradients",
                stream="d2h",
                after=[op],
                tags=tags,
            )
        self._reductions.setdefault(lane.lane, []).append(op)
        return op

    def finish_reductions(self, lane: Lane, step: int) -> list[int]:
        """Issue what did not overlap; return the ends of all reductions."""
        if not self.overlap and not self.every_microbatch:
            after = lane.ends[-1]
            for stage in self._held(lane):
                for index, bucket in enumerate(self.buckets[stage.number]):
                    self._reduce(lane, step, stage.number, index, bucket, after)
        return self._reductions.pop(lane.lane, [])

    def after_optimizer(self, lane: Lane, step: int, optimizer: int) -> None:
        """Gather the parameters that others have updated, in the order they are needed."""
        if not self.stage:
            return
        ops: list[int] = []
        gates = self._gathered.setdefault(lane.lane, {})
        for stage in self._held(lane):
            for bucket in reversed(self.buckets[stage.number]):
                fresh = self._share(lane, bucket, step, optimizer)
                op = self._gather(lane, step, stage.number, bucket, fresh)
                ops.append(op)
                for unit in bucket.units:
                    gates.setdefault((stage.number, unit), []).append(op)
        if not self.prefetch:
            self._barrier[lane.lane] = ops
            gates.clear()

    def _held(self, lane: Lane) -> list[Stage]:
        """Return a rank's stages by their parts: the order that both ends of DualPipe share."""
        return sorted(self.plan.held(lane.device), key=lambda stage: stage.part)

    def _gather(self, lane: Lane, step: int, stage: int, bucket: Bucket, after: int) -> int:
        if self.shards[bucket.axis] == 1:
            return after
        shards = self.shards[bucket.axis]
        size = self._padded(bucket) * self.plan.width
        if self.plan.section.data_parallel.parameters == "fp8":
            wide = -(-bucket.wide // shards) * shards
            size = min(size, self._padded(bucket) + wide * (self.plan.width - 1))
        return self.build.collective(
            lane.lane,
            self.build.orbit(bucket.axis, lane.rank),
            "all_gather",
            size,
            stream="gather",
            name="all_gather parameters",
            dtype=self.plan.dtype,
            after=[after],
            tags=Tags(step=step, stage=self._shown(stage)),
        )

    def _share(self, lane: Lane, bucket: Bucket, step: int, optimizer: int) -> int:
        """Return the op after which a rank's share of a bucket is up to date on its GPU."""
        if not self.offload:
            return optimizer
        share = self._padded(bucket) // self.shards[bucket.axis]
        sharing = int((self.cluster.node_of == self.cluster.node_of[lane.rank]).sum())
        update = self.build.compute(
            lane.lane,
            to_picoseconds(share * sharing / CPU_ADAM_PER_NODE, "the optimizer on the CPU"),
            name="optimizer",
            stream="cpu",
            after=[optimizer],
            device=Device.CPU,
            tags=Tags(phase=Phase.OPTIMIZER, step=step),
        )
        return self.build.host_copy(
            lane.lane,
            share * self.plan.width,
            way=CopyDirection.FROM_HOST,
            name="load parameters",
            stream="h2d",
            after=[update],
            tags=Tags(step=step),
        )

    def optimizer_entries(self, device: int) -> int:
        """Return a rank's share: whole for DDP, none on the GPU if the CPU does it."""
        if self.offload:
            return 0
        total = 0
        for stage in self.plan.held(device):
            for unit in stage.units:
                for expert in (False, True):
                    shards = self.sizes[expert] if self.stage else 1
                    total += -(-unit.entries(expert=expert) // shards)
        return total

    def _padded(self, bucket: Bucket) -> int:
        """Return the entries of a bucket, padded so that they divide over its ranks."""
        if not self.stage:
            return bucket.entries
        shards = self.shards[bucket.axis]
        return -(-bucket.entries // shards) * shards

    def _shown(self, stage: int) -> int:
        return stage if self.plan.schedule.stages > 1 else -1
